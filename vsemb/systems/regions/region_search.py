"""Finding regions of images: those that fit a snippet of text, or any other score of a region."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf
from PIL import Image
from tqdm import tqdm

from vsemb.data.store import Dataset
from vsemb.errors import DataError, invalid_argument
from vsemb.runs.indexing import ALL, split_names
from vsemb.runs.pictures import MOST_TILES, Rectangle, contact_sheet, crop, decimals, pixel_box, read_picture
from vsemb.runs.run import Run
from vsemb.runs.searching import read_text
from vsemb.runs.serve import run_encoders
from vsemb.systems.regions.run import regions_of, require_regions

# Regions embedded at once: of 4,096 entries each, their features take 80 MB.
_BLOCK = 5120

Score = Callable[[np.ndarray], np.ndarray]


@dataclass(frozen=True)
class FoundRegion:
    """A region of an image.

    Attributes:
        rank: from 1.
        score: higher is better.
        key: of its image.
        id: of its image.
        split: of its image.
        row: of its image in the split.
        region: its row among the image's regions, 0 for the whole image.
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
        """Returns plain values."""
        return {name: value for name, value in vars(self).items() if name != "row"}


def search_regions(
    run: Run,
    dataset: Dataset,
    snippet: str,
    *,
    k: int = 10,
    split: str = ALL,
    every: bool = False,
    parts: bool = False,
    report: Callable[[str], None] = print,
) -> list[FoundRegion]:
    """Finds the regions of a dataset's images that fit a snippet of text best.

    The score of a region is the sum of its scores with all words of the snippet: as if all of them were
    aligned with it (Karpathy and Fei-Fei 2015, equation 10 with a large affinity; figures 9 and 10).

    Args:
        run: the run, whose images are sets of regions.
        dataset: the dataset.
        snippet: a few words, such as "red bus".
        k: regions wanted.
        split: the split searched, or `all`.
        every: whether an image may be found by several of its regions; if not, by its best one.
        parts: whether whole images are left out.
        report: called with a line worth showing: words that are not known.

    Raises:
        InvalidArgumentError: if no word is known, or k < 1.
        DataError: if the run has no regions, the dataset has none of the run's kind, or a score is not
            finite.

    Example:

        found = search_regions(Run.open("runs/dvsa"), Dataset.open("data/flickr8k"), "red bus")
        print(found[0].key, found[0].box)
    """
    require_regions(run)
    text = read_text(run, snippet, "query", report)
    words = run_encoders(run, images=False).encode_text(text)["embedding"].numpy()  # (1, words, dim)
    # Texts are filled up with zeros to the longest that there may be.
    words = words[:, np.any(words[0] != 0, axis=1)]
    similarity: Any = run.model.similarity

    def score(regions: np.ndarray) -> np.ndarray:
        # One image of very many regions.
        together = tf.constant(regions.reshape(1, -1, regions.shape[2]))
        each = similarity.word_region_scores(together, tf.constant(words)).numpy()  # (1, words, regions)
        return each.sum(axis=1).reshape(regions.shape[:2])

    names = split_names(dataset, split)
    return best_regions(run, dataset, names, score, k, every=every, parts=parts)


def best_regions(
    run: Run,
    dataset: Dataset,
    splits: Sequence[str],
    score: Score,
    k: int,
    *,
    every: bool = False,
    parts: bool = False,
) -> list[FoundRegion]:
    """Finds the regions of largest score; no more than a block of them is in memory.

    Args:
        run: the run.
        dataset: the dataset.
        splits: the splits looked at.
        score: from embeddings of regions (images, regions, dim) to (images, regions).
        k: regions wanted.
        every, parts: as for `search_regions`.

    Returns:
        The best first, of equals the first in the dataset; fewer than k where there are fewer.

    Raises:
        VsembError: as `search_regions`.
    """
    if k < 1:
        raise invalid_argument("k", k, "an integer >= 1")
    store = regions_of(run, dataset)
    # A run on fewer regions than are cached never read the others.
    most = run.recipe.image.max_regions
    images = max(1, _BLOCK // store.count)
    best: list[tuple[float, int, str, int, int]] = []
    seen = 0
    total = sum(len(dataset.split(name)) for name in splits)
    with tqdm(total=total, desc="regions", unit="image", disable=None, leave=False) as bar:
        for name in splits:
            ids = dataset.split(name).ids
            for start in range(0, len(ids), images):
                block = ids[start : start + images]
                real = np.any(store.boxes(block)[:, :most] != 0, axis=2)
                if parts:
                    real[:, 0] = False
                vectors = run.model.encode_images(tf.constant(store.rows(block, most))).numpy()
                scores = score(vectors)
                if not np.isfinite(scores[real]).all():
                    raise DataError(
                        "The scores of regions hold NaN or infinity. The model or its features are broken; "
                        "nothing was found."
                    )
                scores = np.where(real, scores, -np.inf)
                rows, regions = _candidates(scores, k, every)
                best += [
                    (-float(scores[row, region]), seen + row, name, start + row, region)
                    for row, region in zip(rows.tolist(), regions.tolist(), strict=True)
                ]
                best = sorted(best)[:k]
                seen += len(block)
                bar.update(len(block))
    return [
        _found(dataset, store.boxes, rank, -negative, name, row, region)
        for rank, (negative, _, name, row, region) in enumerate(best, 1)
    ]


def _candidates(scores: np.ndarray, k: int, every: bool) -> tuple[np.ndarray, np.ndarray]:
    """Returns rows and columns of the k largest scores, or of those among the best of each row."""
    if every:
        flat = np.argsort(-scores, axis=None, kind="stable")[:k]
        rows, regions = np.unravel_index(flat, scores.shape)
    else:
        each = scores.argmax(axis=1)
        rows = np.argsort(-scores[np.arange(len(scores)), each], kind="stable")[:k]
        regions = each[rows]
    real = np.isfinite(scores[rows, regions])
    return rows[real], regions[real]


def _found(
    dataset: Dataset,
    boxes: Callable[[np.ndarray], np.ndarray],
    rank: int,
    score: float,
    name: str,
    row: int,
    region: int,
) -> FoundRegion:
    split = dataset.split(name)
    entry = split.entries[row]
    box = pixel_box(boxes(split.ids[[row]])[0, region], (entry["width"], entry["height"]))
    return FoundRegion(rank, score, split.keys[row], int(split.ids[row]), name, row, region, box)


def region_sheet(dataset: Dataset, found: Sequence[FoundRegion], side: int = 160) -> Image.Image:
    """Returns a sheet of the crops of regions with their scores, see `contact_sheet`.

    Raises:
        InvalidArgumentError: without a region.
        DataError: if an image is damaged.
    """
    tiles = []
    digits = decimals(region.score for region in found)
    for region in found[:MOST_TILES]:
        picture = read_picture(dataset.split(region.split).read_image(region.row), region.key)
        tiles.append((crop(picture, region.box), f"{region.score:.{digits}f}  {region.key}"))
    return contact_sheet(tiles, side)
