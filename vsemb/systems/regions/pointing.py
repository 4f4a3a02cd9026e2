"""Measuring a run by pointing: do the words of a caption find what they name in the image?

On data that know the boxes of objects and the words that name them, such as `vsemb scenes` makes. Each word
takes the region of the best chain (Karpathy and Fei-Fei 2015, equations 10 to 12), which without affinity is
its own best region. All regions of the dataset's cache can be chosen, whatever the run was trained on: so a
run trained on whole images alone is measured by the same task.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import tensorflow as tf
from keras import ops

from vsemb.data.store import Dataset, Split
from vsemb.errors import DataError, invalid_argument
from vsemb.evaluation import Embedder
from vsemb.runs.run import Run
from vsemb.systems.regions.pointing_metrics import (
    PointingMetrics,
    ScoreSpread,
    check_bootstrap,
    check_threshold,
    evaluate_pointing,
    named_objects,
    object_nouns,
    right_regions,
)
from vsemb.systems.regions.region_store import RegionStore
from vsemb.systems.regions.run import regions_of, require_regions
from vsemb.systems.regions.set_scores import item_mask
from vsemb.systems.regions.similarities import MultiVectorSimilarity
from vsemb.systems.regions.viterbi import best_chain

#: Affinities tried by default, in units of `PointingTask.spread`.
STEPS = (0.0, 0.25, 0.5, 1.0, 2.0)
# The split that an affinity is chosen on.
_CHOOSING = "val"
_CAPTIONS = 256
_LARGEST = float(np.finfo(np.float32).max)


@dataclass(frozen=True, eq=False)
class _Words:
    """The words of a split that name objects.

    Attributes:
        captions: (words,) int64, the caption of each.
        tokens: (words,) int64, its position among the tokens of its caption; -1 where it is not read.
        nouns: (words,) bool.
        right: (words, regions) bool, the regions that are right for it.
    """

    captions: np.ndarray
    tokens: np.ndarray
    nouns: np.ndarray
    right: np.ndarray


@dataclass(frozen=True, eq=False)
class _Scores:
    """What some captions say of the regions of their images.

    Attributes:
        own: the part of `_Words` that stands in these captions.
        rows: the caption of each of these words, from 0 in this object.
        unaries: (captions, steps, regions) float32.
        words: (captions, steps) bool, whether there is a word.
        regions: (captions, regions) bool, whether there is a region.
    """

    own: slice
    rows: np.ndarray
    unaries: np.ndarray
    words: np.ndarray
    regions: np.ndarray


class PointingTask:
    """A split's words that name objects, each to find one of its objects among the image's regions.

    Images and captions are embedded once, whatever is measured.

    Args:
        run: a run on regions.
        dataset: the dataset; it knows objects and alignments, and its regions are cached.
        split: name of the split.
        threshold: a region is right from this intersection over union with an object on.

    Raises:
        DataError: if the run or the dataset has no regions, or the split no alignments.
        InvalidArgumentError: if there is no such split, or for a threshold outside (0, 1].

    Example:

        task = PointingTask(Run.open("runs/dvsa"), Dataset.open("data/scenes"), "val")
        print(task.measure([0.0, task.spread]).to_json())
    """

    def __init__(self, run: Run, dataset: Dataset, split: str, *, threshold: float = 0.5) -> None:
        check_threshold(threshold)
        self.run = run
        self._part = dataset.split(split)
        require_regions(run)
        self._store = regions_of(run, dataset)
        alignments = _alignments(self._part, dataset)
        self._words = _words(run, self._part, self._store, alignments, threshold)

    @cached_property
    def _blocks(self) -> list[_Scores]:
        """The scores of the captions that have words to measure, some captions at a time."""
        part = self._part
        every = np.unique(self._words.captions)
        texts = self.run.texts_of(part)[0]
        similarity = self.run.model.similarity
        assert isinstance(similarity, MultiVectorSimilarity)  # As `require_regions` has seen to it.
        embedder = Embedder(self.run.model)
        embed = tf.function(
            self.run.model.encode_images,
            input_signature=[tf.TensorSpec((None, None, self._store.dim), tf.float32)],
        )
        blocks = []
        for start in range(0, len(every), _CAPTIONS):
            captions = every[start : start + _CAPTIONS]
            images, positions = np.unique(part.caption_rows[captions], return_inverse=True)
            features = tf.constant(self._store.rows(part.ids[images]))  # (images, regions, feature_dim)
            regions: Any = ops.take(embed(features), positions, axis=0)  # (captions, regions, dim)
            ids, offsets = self.run.encode([texts[caption] for caption in captions])
            words: Any = ops.convert_to_tensor(embedder.texts(ids, offsets))  # (captions, steps, dim)
            unaries = similarity.word_region_scores(regions, words)
            own = slice(*np.searchsorted(self._words.captions, [captions[0], captions[-1] + 1]).tolist())
            rows = np.searchsorted(captions, self._words.captions[own])
            found = (unaries, item_mask(words), item_mask(regions))
            blocks.append(_Scores(own, rows, *(ops.convert_to_numpy(values) for values in found)))
        if not all(np.isfinite(block.unaries).all() for block in blocks):
            raise DataError(
                "The scores of words and regions hold NaN or infinity. The model or its features are broken; "
                "nothing was measured."
            )
        return blocks

    @cached_property
    def _chain(self) -> Any:
        """`best_chain`, compiled once: step by step it takes ten times as long."""
        shapes = ((None, None, None), (None, None), (None, None), ())
        types = (tf.float32, tf.bool, tf.bool, tf.float32)
        return tf.function(
            best_chain,
            input_signature=[tf.TensorSpec(*each) for each in zip(shapes, types, strict=True)],
        )

    @cached_property
    def spread(self) -> float:
        """How far the scores of a word's regions lie apart: their standard deviation, over all words.

        What an affinity has to outweigh, and so the unit to give it in.
        """
        spread = ScoreSpread()
        for block in self._blocks:
            spread.add(block.unaries, block.words, block.regions)
        return spread.value

    def affinities(self) -> list[float]:
        """Returns 0 and a few affinities in units of `spread`, to two digits so that they can be typed."""
        return sorted({float(f"{step * self.spread:.2g}") for step in STEPS})

    def chosen(self, affinity: float) -> np.ndarray:
        """Returns the region that each word takes: (words,) int64, -1 where it takes none."""
        chosen = np.full(len(self._words.captions), -1, np.int64)
        for block in self._blocks:
            given = (block.unaries, block.words, block.regions, np.float32(min(affinity, _LARGEST)))
            path: Any = ops.convert_to_numpy(self._chain(*map(tf.constant, given))[0])
            tokens = self._words.tokens[block.own]
            read = (tokens >= 0) & (tokens < path.shape[1])
            chosen[block.own][read] = path[block.rows[read], tokens[read]]
        return chosen

    def measure(
        self, affinities: Sequence[float] | None = None, *, bootstrap: int = 0, seed: int = 0
    ) -> PointingMetrics:
        """Measures pointing.

        Args:
            affinities: finite numbers >= 0, see `vsemb.systems.regions.viterbi.best_chain`; None for
                `affinities()`.
            bootstrap: see `evaluate_pointing`.
            seed: see `evaluate_pointing`.

        Raises:
            InvalidArgumentError: for an affinity or bootstrap out of range.
            DataError: if a score is not finite.
        """
        check_bootstrap(bootstrap)
        wanted = self.affinities() if affinities is None else check_affinities(affinities)
        real = np.concatenate([block.regions[block.rows] for block in self._blocks])  # (words, regions)
        return evaluate_pointing(
            self._words.right,
            real,
            {affinity: self.chosen(affinity) for affinity in wanted},
            self._words.nouns,
            self._part.caption_rows[self._words.captions],
            bootstrap=bootstrap,
            seed=seed,
        )


def measure_pointing(
    run: Run,
    dataset: Dataset,
    split: str = "val",
    *,
    affinities: Sequence[float] | None = None,
    threshold: float = 0.5,
    bootstrap: int = 0,
) -> tuple[PointingMetrics, float | None]:
    """Measures pointing on a split, with the affinity that is best on the validation split.

    Args:
        run: a run on regions.
        dataset: the dataset, see `PointingTask`.
        split: name of the split.
        affinities: finite numbers >= 0; None for 0 and a few in units of the scores' spread on the
            validation split.
        threshold: see `PointingTask`.
        bootstrap: see `evaluate_pointing`.

    Returns:
        metrics: of the split, at every affinity.
        chosen: the affinity with most words right on the validation split; None where there is no such
            split, which leaves no choice that the measured words did not take part in.

    Raises:
        VsembError: as `PointingTask` and its `measure`.

    Example:

        metrics, chosen = measure_pointing(Run.open("runs/dvsa"), Dataset.open("data/scenes"), "test")
        print(metrics.accuracy[0.0].nouns, metrics.accuracy[chosen].nouns)
    """
    check_bootstrap(bootstrap)
    if affinities is not None:
        affinities = check_affinities(affinities)
    task = PointingTask(run, dataset, split, threshold=threshold)
    choosing: PointingTask | None = task
    if split != _CHOOSING:
        known = dataset.manifest["splits"].get(_CHOOSING, {}).get("images")
        choosing = PointingTask(run, dataset, _CHOOSING, threshold=threshold) if known else None
    if affinities is None:
        affinities = (choosing or task).affinities()
    metrics = task.measure(affinities, bootstrap=bootstrap)
    if choosing is None:
        return metrics, None
    return metrics, (metrics if choosing is task else choosing.measure(affinities)).best_affinity()


def check_affinities(affinities: Sequence[float]) -> list[float]:
    """Returns affinities in their order, each once.

    Raises:
        InvalidArgumentError: for none, or one that is not a finite number >= 0.

    Example:

    >>> check_affinities([0, 1, 0.5, 1])
    [0.0, 1.0, 0.5]
    """
    values = list(dict.fromkeys(float(affinity) + 0.0 for affinity in affinities))
    if not values or not all(0 <= value < math.inf for value in values):
        raise invalid_argument("affinity", list(affinities), "finite numbers >= 0, at least one")
    return values


def _alignments(part: Split, dataset: Dataset) -> list[list[Sequence[Sequence[int]]]]:
    """Returns for every image and caption which word names which object."""
    found = [entry.get("alignments") or [[] for _ in entry["captions"]] for entry in part.entries]
    if not any(pairs for captions in found for pairs in captions):
        raise DataError(
            f"The split {part.name!r} of {dataset.path} does not know which words name which objects, so "
            "pointing cannot be measured on it. Data that know: vsemb scenes"
        )
    return found


def _words(
    run: Run,
    part: Split,
    store: RegionStore,
    alignments: list[list[Sequence[Sequence[int]]]],
    threshold: float,
) -> _Words:
    """Finds the words that name objects, their tokens and their right regions."""
    boxes = store.boxes(part.ids)
    captions, positions, nouns, right = [], [], [], []
    caption = 0
    for entry, pairs_of, regions in zip(part.entries, alignments, boxes, strict=True):
        named: list[tuple[int, ...]] = []
        for text, pairs in zip(entry["captions"], pairs_of, strict=True):
            words = named_objects(pairs)
            if words and not max(words) < len(text.split()):
                raise DataError(
                    f"Image {entry['key']!r} of {part.name!r}: word {max(words)} of {text!r} names an "
                    "object and is not there."
                )
            captions += [caption] * len(words)
            positions += list(words)
            nouns += [word in object_nouns(words) for word in words]
            named += words.values()
            caption += 1
        if named:
            right.append(right_regions(regions, _object_boxes(entry), named, threshold))
    tokens = _tokens(run, part, np.array(captions, np.int64), np.array(positions, np.int64))
    return _Words(np.array(captions, np.int64), tokens, np.array(nouns, bool), np.concatenate(right))


def _object_boxes(entry: dict[str, Any]) -> np.ndarray:
    """Returns the boxes of an image's objects as fractions of its sides: (objects, 4) float64."""
    try:
        sides = np.tile([entry["width"], entry["height"]], 2)
        boxes = [np.asarray(item["box"], np.float64) / sides for item in entry.get("objects", ())]
        return np.stack([np.zeros(4), *boxes])[1:]
    except (KeyError, TypeError, ValueError) as error:
        raise DataError(
            f"The objects of image {entry['key']!r} have no boxes [x, y, w, h], or its size is not known."
        ) from error


def _tokens(run: Run, part: Split, captions: np.ndarray, positions: np.ndarray) -> np.ndarray:
    """Returns the position of each word among the tokens of its caption, -1 for a word without a token.

    A word counts as the first of its tokens: "dog's" as "dog".
    """
    texts = {int(caption): part.captions[caption].split() for caption in np.unique(captions)}
    words = sorted({word for text in texts.values() for word in text})
    counts = dict(zip(words, np.diff(run.tokenizer.encode(words)[1]).tolist(), strict=True))
    starts = {caption: np.cumsum([0, *(counts[word] for word in text)]).tolist() for caption, text in texts.items()}
    return np.array(
        [
            starts[caption][position] if counts[texts[caption][position]] else -1
            for caption, position in zip(captions.tolist(), positions.tolist(), strict=True)
        ],
        np.int64,
    )
