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
from vsemb.search.scan import best_of
from vsemb.systems.regions.image_tower import regions_of, require_regions

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
    most = min(store.count, run.recipe.image.max_regions or store.count)
    images = [(dataset.split(name), row) for name in splits for row in range(len(dataset.split(name)))]
    step = max(1, _BLOCK // store.count)
    blocks = [
        ids[start : start + step]
        for ids in (dataset.split(name).ids for name in splits)
        for start in range(0, len(ids), step)
    ]
    # The best so far, and their places among all regions.
    best, places, seen = np.zeros(0, np.float32), np.zeros(0, np.int64), 0
    with tqdm(total=len(images), desc="regions", unit="image", disable=None, leave=False) as bar:
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
            if not every:
                scores[np.arange(most) != scores.argmax(axis=1)[:, None]] = -np.inf
            found = np.concatenate([best, scores.ravel()])
            where, _ = best_of(found[None], k)
            places = np.concatenate([places, seen * most + np.arange(scores.size)])[where[0]]
            best, seen = found[where[0]], seen + len(ids)
            bar.update(len(ids))
    results = []
    for rank, (value, place) in enumerate(zip(best.tolist(), places.tolist(), strict=True), 1):
        if np.isfinite(value):
            (split, row), region = images[place // most], place % most
            entry, box = split.entries[row], store.boxes(split.ids[[row]])[0, region]
            pixels = pixel_box(box, (entry["width"], entry["height"]))
            results.append(
                FoundRegion(rank, value, split.keys[row], int(split.ids[row]), split.name, row, region, pixels)
            )
    return results


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
