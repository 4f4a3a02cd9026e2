"""Retrieval with several positives per query: ECCV Caption, CxC, and plausible matches of object classes.

In COCO, a query has only its own captions or image as positives, though others fit too. Human judgements (Parekh et al.
2021, arXiv:2004.15020; Chun et al. 2022, arXiv:2204.03359) and object classes (Chun et al. 2021, arXiv:2101.05068) name
more of them.
"""

from __future__ import annotations

import csv
import itertools
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from vsemb.console import progress
from vsemb.data.store import Split
from vsemb.errors import DataError
from vsemb.evaluation.retrieval import NOT_FINITE, RECALLS
from vsemb.files import open_regular, read_json
from vsemb.similarities import Similarity

#: The metrics of a direction, in the order of `query_metrics`.
METRICS = (*(f"R@{k}" for k in RECALLS), "R-P", "mAP@R")
# Lowest CxC rating of a positive, from 0 to 5 (Parekh et al. 2021, section 3).
_LEAST_RATING = 3.0
# Largest numbers of differing classes of plausible matches (Chun et al. 2021, section 4.1).
_DIFFERENCES = (0, 1, 2)
_BLOCK = 100
_DIRECTIONS = ("image_to_caption", "caption_to_image")

#: Queries of one direction: row of the query, (positives,) int64 rows of its positive candidates.
Queries = Iterator[tuple[int, np.ndarray]]


class Judged:
    """Positives by lists of ids; queries and candidates outside the split are left out.

    Args:
        name: name of the judgements.
        split: a split of COCO: the keys of its images end with COCO's image ids, and its captions have COCO's ids.
        captions_of: id of an image -> ids of its positive captions.
        images_of: id of a caption -> ids of its positive images.

    Raises:
        DataError: if no query is in the split.
    """

    def __init__(
        self, name: str, split: Split, captions_of: Mapping[int, Iterable[int]], images_of: Mapping[int, Iterable[int]]
    ) -> None:
        self.name, self.ranked = name, np.ones(len(split), bool)
        captions = {int(own): row for row, own in enumerate(split.caption_ids) if own.isdecimal()}
        images = _image_rows(split)
        self._of_images = _rows(captions_of, images, captions)
        self._of_captions = _rows(images_of, captions, images)
        if not self._of_images or not self._of_captions:
            raise DataError(
                f"The positives {name!r} must be of images and captions in the split {split.name!r}; none is. Give a "
                "dataset of COCO with its image and caption ids, as `vsemb prepare` makes from Karpathy's JSON file."
            )

    def of_images(self) -> Queries:
        """Yield image queries with their positive captions."""
        yield from self._of_images.items()

    def of_captions(self) -> Queries:
        """Yield caption queries with their positive images."""
        yield from self._of_captions.items()


class Plausible:
    """Plausible matches: images whose sets of object classes differ in few classes, and their captions.

    Args:
        classes: (images, classes) bool. Images without a class are not ranked.
        caption_rows: (captions,) int64, row of each caption's image.
        differences: largest number of classes that only one of the two images has.
    """

    name = "plausible matches"

    def __init__(self, classes: np.ndarray, caption_rows: np.ndarray, differences: int) -> None:
        self.ranked: np.ndarray = np.any(classes, axis=1)
        self._classes, self._rows, self._differences = classes, caption_rows, differences

    def _near(self, image: int) -> np.ndarray:
        return self.ranked & (np.count_nonzero(self._classes != self._classes[image], axis=1) <= self._differences)

    def of_images(self) -> Queries:
        """Yield image queries with their positive captions."""
        for image in np.flatnonzero(self.ranked).tolist():
            yield image, np.flatnonzero(self._near(image)[self._rows])

    def of_captions(self) -> Queries:
        """Yield caption queries with their positive images."""
        for caption in np.flatnonzero(self.ranked[self._rows]).tolist():
            yield caption, np.flatnonzero(self._near(self._rows[caption]))


#: Positive candidates of the queries of a split. Of `ranked` images, and their captions, the ranks are measured.
Positives: TypeAlias = Judged | Plausible


def _rows(
    judged: Mapping[int, Iterable[int]], queries: Mapping[int, int], candidates: Mapping[int, int]
) -> dict[int, Any]:
    """Replace ids by rows; `queries` and `candidates` map the ids of the split to rows."""
    rows = {}
    for query, positives in judged.items():
        own = sorted({candidates[positive] for positive in positives if positive in candidates})
        if own and query in queries:
            rows[queries[query]] = np.array(own)
    return rows


def _image_rows(split: Split) -> dict[int, int]:
    """Return COCO id -> row of the images whose key ends with a number: `COCO_val2014_000000391895.jpg`."""
    numbers = (re.search(r"(\d+)(?:\.\w+)?$", key) for key in split.keys)
    return {int(number[1]): row for row, number in enumerate(numbers) if number}


def _read_judgements(path: Path, split: Split) -> list[Positives] | None:
    """Read `NAME_image_to_caption.json` and `NAME_caption_to_image.json` of the package eccv_caption."""
    files = sorted(path.glob(f"*_{_DIRECTIONS[0]}.json")) if path.is_dir() else [path]
    positives: list[Positives] = []
    for file in files:
        name = file.stem
        for direction in _DIRECTIONS:
            name = name.removesuffix(f"_{direction}")
        if name == file.stem:
            return None
        of_images, of_captions = (_judgements(file.with_name(f"{name}_{way}.json")) for way in _DIRECTIONS)
        positives.append(Judged(name, split, of_images, of_captions))
    return positives or None


def _judgements(file: Path) -> dict[int, list[int]]:
    content = read_json(file, "file of positives")
    try:
        return {int(query): list(map(int, positives)) for query, positives in content.items()}
    except (AttributeError, TypeError, ValueError) as error:
        raise DataError(f"{file} must map ids to lists of ids; {error}.") from error


def _read_cxc(path: Path, split: Split) -> list[Positives] | None:
    """Read `sits_val.csv` or `sits_test.csv` of Crisscrossed Captions."""
    if path.suffix != ".csv":
        return None
    captions_of: dict[int, list[int]] = {}
    images_of: dict[int, list[int]] = {}
    try:
        with open_regular(path, "r", newline="", encoding="utf-8-sig") as file:
            for row in csv.DictReader(file):
                caption = int(row["caption"].rpartition(":")[2])
                image = int(row["image"].partition(".")[0].rpartition("_")[2])
                if float(row["agg_score"]) >= _LEAST_RATING:
                    captions_of.setdefault(image, []).append(caption)
                    images_of.setdefault(caption, []).append(image)
    except (OSError, KeyError, ValueError) as error:
        raise DataError(
            f"{path} must be a file of CxC with the columns caption, image and agg_score; {error}."
        ) from error
    return [Judged(path.stem, split, captions_of, images_of)]


def _read_instances(path: Path, split: Split) -> list[Positives] | None:
    """Read object classes from COCO's `instances_*.json`."""
    content = read_json(path, "file of positives") if path.suffix == ".json" else None
    notes = content.get("annotations") if isinstance(content, dict) else None
    if not notes or not {"image_id", "category_id"} <= notes[0].keys():
        return None
    rows = _image_rows(split)
    labels: list[set[Any]] = [set() for _ in range(len(split))]
    for note in notes:
        if note["image_id"] in rows:
            labels[rows[note["image_id"]]].add(note["category_id"])
    return plausible_matches(labels, split)


def plausible_matches(labels: Sequence[set[Any]], split: Split) -> list[Positives]:
    """Return plausible matches with up to 0, 1 and 2 differing classes, whose mean R-Precision is PMRP.

    Args:
        labels: classes of the objects of each image.
        split: the split of the images.

    Raises:
        DataError: if no image has a class.
    """
    names = {name: column for column, name in enumerate(sorted(set().union(*labels), key=str))}
    if not names:
        raise DataError(
            f"The images of the split {split.name!r} must have object classes for plausible matches; none has. Give "
            "COCO's instances_*.json: --files instances_val2014.json"
        )
    classes = np.zeros((len(labels), len(names)), bool)
    for row, own in enumerate(labels):
        classes[row, [names[name] for name in own]] = True
    return [Plausible(classes, split.caption_rows, most) for most in _DIFFERENCES]


_READERS = (_read_judgements, _read_cxc, _read_instances)


def read_positives(files: Sequence[str | os.PathLike[str]], split: Split) -> list[Positives]:
    """Read the positives of a split.

    Args:
        files: folders or files of ECCV Caption, files of CxC, or COCO's instances. Empty for plausible matches by the
            object classes of the dataset.
        split: the split.

    Raises:
        DataError: if a file has another form, or has no entry of the split.

    Example:

        read_positives(["eccv_caption/data", "sits_test.csv", "instances_val2014.json"], dataset.split("test"))
    """
    if not files:
        return plausible_matches([{item["label"] for item in objects} for objects in split.objects], split)
    positives: list[Positives] = []
    for file in files:
        sets = None
        for read in _READERS:
            sets = sets or read(Path(file), split)
        if not sets:
            raise DataError(
                f"{file} must hold positives: a folder with NAME_image_to_caption.json and NAME_caption_to_image.json, "
                "a CxC file sits_*.csv, or COCO's instances_*.json."
            )
        positives += sets
    return positives


def query_metrics(scores: np.ndarray, positives: np.ndarray) -> np.ndarray:
    """Measure one query with several positives.

    R-Precision is the share of positives among the first R candidates, for R positives. mAP@R is the mean over the
    first R places of the precision, which counts as 0 at the place of a negative (Musgrave et al. 2020).

    Args:
        scores: (candidates,) scores; higher is better.
        positives: (R,) int64, places of the positive candidates, R >= 1.

    Returns:
        (5,) float64 from 0 to 1: recall at 1, 5 and 10, R-Precision, mAP@R. Ties count against the model.

    Example: positives are at the first and the third place.

    >>> query_metrics(np.array([0.9, 0.8, 0.7, 0.1]), np.array([0, 2])).tolist()
    [1.0, 1.0, 1.0, 0.5, 0.5]
    """
    right = np.zeros(len(scores), bool)
    right[positives] = True
    # Of equal scores, positives come last.
    right = right[np.lexsort((right, -scores))]
    first = right[: len(positives)]
    precision = np.cumsum(first) / np.arange(1, len(first) + 1)
    return np.array([*(right[:k].any() for k in RECALLS), first.mean(), (precision * first).mean()])


@dataclass(frozen=True)
class PositiveMetrics:
    """Metrics of retrieval with several positives, in percent.

    Attributes:
        name: name of the judgements.
        image_to_text: metric -> value, see `METRICS`.
        text_to_image: the same with captions as queries.
        queries: number of image queries and of caption queries.
    """

    name: str
    image_to_text: dict[str, float]
    text_to_image: dict[str, float]
    queries: tuple[int, int]

    def to_json(self) -> dict[str, Any]:
        """Return the metrics and the numbers of queries as `vsemb evaluate --json` writes them."""
        sides = {"image_to_text": self.image_to_text, "text_to_image": self.text_to_image}
        return {**sides, "queries": [*self.queries]}


def measure_positives(
    images: np.ndarray,
    texts: np.ndarray,
    text_rows: np.ndarray,
    similarity: Similarity,
    positives: Sequence[Positives],
    chosen: np.ndarray | None = None,
) -> list[PositiveMetrics]:
    """Measure retrieval with several positives per query.

    Args:
        images: (n, dim) embeddings, of sets (n, items, dim).
        texts: (m, dim) embeddings, of sets (m, items, dim).
        text_rows: (m,) int64, row of each text's image.
        similarity: similarity of the embeddings.
        positives: the positives; metrics of equal names are averaged.
        chosen: (m,) bool, texts that are queries, as are their images; all stay candidates. Default: all.

    Raises:
        DataError: for NaN scores.
    """
    shown = np.ones(len(images), bool)
    if chosen is None:
        chosen = np.ones(len(texts), bool)
    else:
        shown = np.isin(np.arange(len(images)), text_rows[chosen])

    def text_scores(rows: np.ndarray) -> Any:
        return similarity.scores(images[rows], texts)

    def image_scores(rows: np.ndarray) -> Any:
        return np.transpose(similarity.scores(images, texts[rows]))

    measured: dict[str, list[tuple[Any, ...]]] = {}
    for own in positives:
        image_queries = (query for query in own.of_images() if shown[query[0]])
        text_queries = (query for query in own.of_captions() if chosen[query[0]])
        of_images, image_count = _mean(image_queries, text_scores, own.ranked[text_rows])
        of_texts, text_count = _mean(text_queries, image_scores, own.ranked)
        measured.setdefault(own.name, []).append((of_images, of_texts, (image_count, text_count)))
    metrics = []
    for name, sets in measured.items():
        image_to_text, text_to_image, queries = zip(*sets, strict=True)
        metrics.append(PositiveMetrics(name, _named(image_to_text), _named(text_to_image), queries[0]))
    return metrics


def _named(sets: Sequence[np.ndarray]) -> dict[str, float]:
    return dict(zip(METRICS, (100 * np.mean(sets, axis=0)).tolist(), strict=True))


def _mean(queries: Queries, score: Callable[[np.ndarray], Any], ranked: np.ndarray) -> tuple[np.ndarray, int]:
    """Return the mean metrics of the queries, and their number."""
    metrics: list[np.ndarray] = []
    queries = iter(progress(queries, "rank", unit="query", leave=False))
    while block := list(itertools.islice(queries, _BLOCK)):
        scores = np.asarray(score(np.array([row for row, _ in block])))
        if not np.isfinite(scores).all():
            raise DataError(NOT_FINITE)
        scores = np.where(ranked, scores, -np.inf)
        metrics += [query_metrics(own, right) for own, (_, right) in zip(scores, block, strict=True)]
    mean = np.mean(metrics, axis=0) if metrics else np.full(len(METRICS), np.nan)
    return mean, len(metrics)
