"""Search for regions of images by text or by another score, and norms of the embeddings of words and regions.

A score is a sum of inner products, so embeddings with larger norms have more weight (Karpathy and Fei-Fei 2015, section
6.1, table 4 and figure 8).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from PIL import Image

from vsemb.console import progress
from vsemb.data.store import Split, StoredDataset
from vsemb.drawing.pictures import (
    MOST_TILES,
    Rectangle,
    box_text,
    contact_sheet,
    crop,
    decimals,
    pixel_box,
    read_picture,
    with_picture,
)
from vsemb.errors import DataError, invalid_argument, printable
from vsemb.evaluation import Embedder
from vsemb.ops.tensorflow import tf
from vsemb.printing import table
from vsemb.results import Result
from vsemb.runs.indexing import ALL, split_names
from vsemb.runs.run import Run
from vsemb.runs.searching import read_text
from vsemb.searching.scan import best_of
from vsemb.systems.regions.image_tower import regions_of, require_regions

# Regions per block: with 4,096 entries each, their features take 80 MB.
_BLOCK = 5120

Score = Callable[[np.ndarray], np.ndarray]
# Captions per block.
_CAPTIONS = 2048


@dataclass(frozen=True)
class FoundRegion:
    """A region of an image, as a search result.

    Attributes:
        rank: rank from 1.
        score: higher is better.
        key: key of the image.
        id: id of the image.
        split: split of the image.
        row: row of the image in the split.
        region: row among the image's regions, 0 for the whole image.
        box: x, y, width and height in pixels of the stored image.
    """

    rank: int
    score: float
    key: str
    id: int
    split: str
    row: int
    region: int
    box: Rectangle

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        return {name: value for name, value in vars(self).items() if name != "row"}


@dataclass(frozen=True, repr=False)
class FoundRegions(Result, Sequence[FoundRegion]):
    """Regions found by a text, best first.

    Attributes:
        query: the text.
        regions: the regions.
        out: file of the contact sheet, if there is one.
    """

    query: str
    regions: tuple[FoundRegion, ...]
    out: str | None = None

    def __len__(self) -> int:
        return len(self.regions)

    def __getitem__(self, place: Any) -> Any:
        return self.regions[place]

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        return {"query": printable(self.query), "results": [region.to_json() for region in self.regions]}

    def __str__(self) -> str:
        return with_picture(regions_table(self.regions, "score"), self.out)


def search_regions(
    run: Run,
    dataset: StoredDataset,
    snippet: str,
    *,
    k: int = 10,
    split: str = ALL,
    all_regions: bool = False,
    parts: bool = False,
    report: Callable[[str], None] = print,
) -> FoundRegions:
    """Find the best regions of a dataset's images for a snippet of text.

    The score of a region is the sum of its scores with all words of the snippet, as if all words were aligned with it
    (Karpathy and Fei-Fei 2015, equation 10 with a large affinity; figures 9 and 10).

    Args:
        run: run on regions.
        dataset: the dataset.
        snippet: a few words, such as "red bus".
        k: number of regions; default 10.
        split: name of the split; default `all`, for all splits.
        all_regions: whether an image may be found by several regions; if false, only by its best one.
        parts: whether whole images are left out.
        report: receives one-line notes about unknown words.

    Returns:
        At most k regions, best first.

    Raises:
        InvalidArgumentError: if no word is known, or k < 1.
        DataError: if the run is not on regions, the dataset lacks regions that fit the run, or a score is not finite.

    Example:

        regions = search_regions(Run.open("runs/dvsa"), Dataset.open("data/flickr8k"), "red bus")
        print(regions[0].key, regions[0].box)
    """
    require_regions(run)
    text = read_text(run, snippet, "query", report)
    words = run.encoders(images=False).encode_text(text)["embedding"].numpy()  # (1, words, dim)
    # Texts are padded with zeros to the maximum length.
    words = words[:, np.any(words[0] != 0, axis=1)]
    similarity: Any = run.model.similarity

    def score(regions: np.ndarray) -> np.ndarray:
        # All regions are scored as one image.
        together = tf.constant(regions.reshape(1, -1, regions.shape[2]))
        scores = similarity.word_region_scores(together, tf.constant(words)).numpy()  # (1, words, regions)
        return scores.sum(axis=1).reshape(regions.shape[:2])

    names = split_names(dataset, split)
    regions = best_regions(run, dataset, names, score, k, all_regions=all_regions, parts=parts)
    return FoundRegions(snippet, tuple(regions))


def best_regions(
    run: Run,
    dataset: StoredDataset,
    splits: Sequence[str],
    score: Score,
    k: int,
    *,
    all_regions: bool = False,
    parts: bool = False,
) -> list[FoundRegion]:
    """Find the regions with the largest scores, with one block of regions in memory at a time.

    Args:
        run: run on regions.
        dataset: the dataset.
        splits: names of the splits.
        score: maps embeddings of regions (images, regions, dim) to scores (images, regions).
        k: number of regions.
        all_regions, parts: see `search_regions`.

    Returns:
        At most k regions, best first; equal scores keep the order of the dataset.

    Raises:
        VsembError: see `search_regions`.
    """
    if k < 1:
        raise invalid_argument("k", k, "an integer >= 1")
    store = regions_of(run, dataset)
    # A run with `max_regions` reads only the first regions of the cache.
    most = min(store.count, run.recipe.image.max_regions or store.count)
    images: list[tuple[Split, int]] = []
    blocks: list[np.ndarray] = []
    step = max(1, _BLOCK // store.count)
    for name in splits:
        split = dataset.split(name)
        images += [(split, row) for row in range(len(split))]
        blocks += [split.ids[start : start + step] for start in range(0, len(split), step)]
    # Best scores so far, and their positions among all regions.
    best, places, seen = np.zeros(0, np.float32), np.zeros(0, np.int64), 0
    with progress(total=len(images), desc="regions", unit="image", leave=False) as bar:
        for ids in blocks:
            real = np.any(store.boxes(ids)[:, :most] != 0, axis=2)
            if parts:
                real[:, 0] = False
            scores = score(run.model.encode_images(tf.constant(store.rows(ids, most))).numpy())
            if not np.isfinite(scores[real]).all():
                raise DataError(
                    "The scores of regions hold NaN or infinity. The model or its features are broken; "
                    "nothing was found."
                )
            scores = np.where(real, scores, -np.inf)
            if not all_regions:
                scores[np.arange(most) != scores.argmax(axis=1)[:, None]] = -np.inf
            candidates = np.concatenate([best, scores.ravel()])
            candidate_places = np.concatenate([places, seen * most + np.arange(scores.size)])
            (kept,), _ = best_of(candidates[None], k)
            best, places = candidates[kept], candidate_places[kept]
            seen += len(ids)
            bar.update(len(ids))
    results = []
    for rank, (value, place) in enumerate(zip(best.tolist(), places.tolist(), strict=True), 1):
        if not np.isfinite(value):
            continue
        split, row = images[place // most]
        region = place % most
        box = store.boxes(split.ids[[row]])[0, region]
        pixels = pixel_box(box, tuple(split.sizes[row].tolist()))
        results.append(FoundRegion(rank, value, split.keys[row], int(split.ids[row]), split.name, row, region, pixels))
    return results


def region_sheet(dataset: StoredDataset, regions: Sequence[FoundRegion], side: int = 160) -> Image.Image:
    """Draw a contact sheet of regions with their scores.

    Args:
        dataset: dataset of the regions.
        regions: the regions, see `search_regions`.
        side: side of a crop's square in pixels; default 160.

    Raises:
        InvalidArgumentError: if `regions` is empty.
        DataError: if an image is damaged.
    """
    tiles = []
    digits = decimals(region.score for region in regions)
    for region in regions[:MOST_TILES]:
        picture = read_picture(dataset.split(region.split).read_image(region.row), region.key)
        tiles.append((crop(picture, region.box), f"{region.score:.{digits}f}  {region.key}"))
    return contact_sheet(tiles, side)


def regions_table(regions: Sequence[FoundRegion], score: str) -> str:
    """Return a table of regions with their scores.

    Args:
        regions: the regions, best first.
        score: header of the score column.
    """
    digits = decimals(region.score for region in regions)
    rows = []
    for region in regions:
        where = [region.key, region.split, str(region.region), box_text(region.box)]
        rows.append([str(region.rank), f"{region.score:.{digits}f}", *where])
    return table(["rank", score, "key", "split", "region", "box (x y w h)"], rows, text=(2, 3, 5))


@dataclass(frozen=True)
class WordNorm:
    """The norm of a word of a run's vocabulary.

    Attributes:
        word: the word.
        norm: mean norm of its vectors over its occurrences in the captions.
        count: number of occurrences.
    """

    word: str
    norm: float
    count: int


@dataclass(frozen=True)
class NormLists:
    """The words and regions of one split with the largest and the smallest norms.

    Attributes:
        smallest: words with the smallest norms, smallest first.
        largest: words with the largest norms, largest first.
        regions: regions with the largest norms, largest first; the score is the norm.
    """

    smallest: list[WordNorm]
    largest: list[WordNorm]
    regions: list[FoundRegion]

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        words = {name: [dict(vars(word)) for word in getattr(self, name)] for name in ("smallest", "largest")}
        return {**words, "regions": [region.to_json() for region in self.regions]}


def word_norms(run: Run, dataset: StoredDataset, split: str, min_count: int = 5) -> list[WordNorm]:
    """Compute the mean norm of each word of a split's captions.

    The vector of a word depends on its sentence, so the norm is a mean over occurrences. Unknown words share one
    vector and are left out.

    Args:
        run: run whose texts are sequences of word vectors.
        dataset: the dataset.
        split: name of the split.
        min_count: minimum number of occurrences of a word; default 5.

    Returns:
        Words and norms, smallest norm first.

    Raises:
        InvalidArgumentError: if no word has `min_count` occurrences, or the split does not exist.
        DataError: if a norm is not finite.
    """
    if min_count < 1:
        raise invalid_argument("min_count", min_count, "an integer >= 1")
    ids, offsets = run.encode(run.texts_of(dataset.split(split))[0])
    embedder = Embedder(run.model)
    sums = np.zeros(len(run.vocabulary.tokens), np.float64)
    counts = np.zeros(len(run.vocabulary.tokens), np.int64)
    texts = len(offsets) - 1
    with progress(total=texts, desc="captions", unit="caption", leave=False) as bar:
        for start in range(0, texts, _CAPTIONS):
            bounds = offsets[start : start + _CAPTIONS + 1]
            tokens = ids[bounds[0] : bounds[-1]]
            vectors = embedder.texts(tokens, bounds - bounds[0])  # (captions, words, dim)
            real = np.arange(vectors.shape[1]) < np.diff(bounds)[:, None]
            sums += np.bincount(tokens, np.linalg.norm(vectors, axis=2)[real], len(sums))
            counts += np.bincount(tokens, minlength=len(counts))
            bar.update(len(bounds) - 1)
    # The first two tokens are padding and the unknown word.
    counts[:2] = 0
    rows = np.flatnonzero(counts >= min_count)
    if not len(rows):
        fix = f"The most frequent word of the split {split!r} has {counts.max()}."
        raise invalid_argument("min_count", min_count, "a number of occurrences that some word has", fix)
    means = sums[rows] / counts[rows]
    if not np.isfinite(means).all():
        raise DataError("The vectors of words hold NaN or infinity. The model is broken; nothing was measured.")
    order = np.argsort(means, kind="stable")
    words = run.vocabulary.tokens
    return [WordNorm(words[rows[at]], float(means[at]), int(counts[rows[at]])) for at in order]


def measure_norms(
    run: Run,
    dataset: StoredDataset,
    split: str = "val",
    *,
    k: int = 40,
    min_count: int = 5,
    all_regions: bool = False,
    parts: bool = False,
) -> NormLists:
    """Find the words and regions of a split with the largest norms, and the words with the smallest norms.

    Args:
        run: run on regions.
        dataset: the dataset.
        split: name of the split; default `val`.
        k: number of words per list, and of regions; default 40.
        min_count: see `word_norms`.
        all_regions, parts: see `vsemb.systems.regions.region_search.search_regions`.

    Raises:
        DataError: if the run is not on regions, or its embeddings are unit vectors.
        VsembError: see `word_norms` and `search_regions`.

    Example:

        norms = measure_norms(Run.open("runs/dvsa"), Dataset.open("data/flickr8k"))
        print([word.word for word in norms.largest])
    """
    require_regions(run)
    if run.recipe.similarity.unit_length:
        raise DataError(
            f"{run.path} must be a run whose embeddings have norms; its similarity {run.recipe.similarity.kind!r} "
            "compares unit vectors. Train one with norms: vsemb train dvsa --variant paper"
        )
    if k < 1:
        raise invalid_argument("k", k, "an integer >= 1")
    # Missing regions are reported before anything is embedded.
    regions_of(run, dataset)
    words = word_norms(run, dataset, split, min_count)

    def norms(vectors: np.ndarray) -> np.ndarray:
        return np.linalg.norm(vectors, axis=2)

    regions = best_regions(run, dataset, [split], norms, k, all_regions=all_regions, parts=parts)
    return NormLists(words[:k], words[: -k - 1 : -1], regions)
