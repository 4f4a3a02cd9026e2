"""Pointing of a run: the words of a split that name objects, and the regions that the run chooses for them.

The dataset must have boxes of objects, and alignments of caption words with objects, like the data of `vsemb scenes`.

Each word takes its region of the best chain (Karpathy and Fei-Fei 2015, equations 10 to 12); without affinity this is
the best region of the word. All cached regions can be chosen, also for a run trained on fewer regions. So a run trained
on whole images alone is measured on the same task.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from keras import ops

from vsemb.data.store import Split, StoredDataset
from vsemb.errors import DataError, invalid_argument
from vsemb.evaluation import Embedder
from vsemb.ops.tensorflow import tf
from vsemb.runs.run import Run
from vsemb.systems.regions.image_tower import regions_of
from vsemb.systems.regions.pointing import (
    PointingMetrics,
    evaluate_pointing,
    named_objects,
    object_nouns,
    right_regions,
    score_spread,
)
from vsemb.systems.regions.region_store import RegionStore
from vsemb.systems.regions.signature import chain_in_graph
from vsemb.systems.regions.similarities import MultiVectorSimilarity, item_mask

#: Default affinities, in units of `PointingTask.spread`.
STEPS = (0.0, 0.25, 0.5, 1.0, 2.0)
# Split for the choice of the affinity.
_CHOOSING = "val"
_CAPTIONS = 256
_LARGEST = float(np.finfo(np.float32).max)


@dataclass(frozen=True, eq=False)
class _Words:
    """Words of a split that name objects.

    Attributes:
        captions: (words,) int64, the caption of each word.
        tokens: (words,) int64, position among the tokens of the caption; -1 for words without a token.
        nouns: (words,) bool, true for nouns.
        right: (words, regions) bool, the correct regions.
    """

    captions: np.ndarray
    tokens: np.ndarray
    nouns: np.ndarray
    right: np.ndarray


@dataclass(frozen=True, eq=False)
class _Scores:
    """Scores of a block of captions with the regions of their images.

    Attributes:
        own: slice of `_Words` for these captions.
        rows: row of the caption in this block, per word of the slice.
        unaries: (captions, steps, regions) float32, scores.
        words: (captions, steps) bool, false for padding.
        regions: (captions, regions) bool, false for padding.
    """

    own: slice
    rows: np.ndarray
    unaries: np.ndarray
    words: np.ndarray
    regions: np.ndarray


class PointingTask:
    """Pointing task: the words of a split that name objects, with the regions of their images.

    Images and captions are embedded once for all measurements.

    Args:
        run: run on regions.
        dataset: dataset with objects, alignments and cached regions.
        split: name of the split.

    Raises:
        DataError: if the run or the dataset lacks regions, or the split lacks alignments.
        InvalidArgumentError: if the split does not exist.

    Example:

        task = PointingTask(Run.open("runs/dvsa"), Dataset.open("data/scenes"), "val")
        print(task.measure([0.0, task.spread]).to_json())
    """

    def __init__(self, run: Run, dataset: StoredDataset, split: str) -> None:
        self.run = run
        self._part = dataset.split(split)
        self._store = regions_of(run, dataset)
        self._words = _words(run, self._part, self._store, _alignments(self._part, dataset))

    @cached_property
    def _blocks(self) -> list[_Scores]:
        """Scores of the captions with words to measure, in blocks of captions."""
        part = self._part
        every = np.unique(self._words.captions)
        texts = self.run.texts_of(part)[0]
        similarity = self.run.model.similarity
        assert isinstance(similarity, MultiVectorSimilarity)  # Checked by `regions_of`.
        embedder = Embedder(self.run.model)
        spec = tf.TensorSpec((None, None, self._store.dim), tf.float32)
        embed = tf.function(self.run.model.encode_images, input_signature=[spec], autograph=False)
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
            tensors = (unaries, item_mask(words), item_mask(regions))
            blocks.append(_Scores(own, rows, *map(ops.convert_to_numpy, tensors)))
        if not all(np.isfinite(block.unaries).all() for block in blocks):
            raise DataError(
                "The scores of words and regions hold NaN or infinity. The model or its features are broken; "
                "nothing was measured."
            )
        return blocks

    @cached_property
    def spread(self) -> float:
        """Standard deviation of the scores of a word's regions, over all words: the unit of affinities."""
        return score_spread((block.unaries, block.words, block.regions) for block in self._blocks)

    def affinities(self) -> list[float]:
        """Return the default affinities: `STEPS` times `spread`, rounded to two digits."""
        return sorted({float(f"{step * self.spread:.2g}") for step in STEPS})

    def chosen(self, affinity: float) -> np.ndarray:
        """Return the region of each word: (words,) int64; -1 for words without a region."""
        chosen = np.full(len(self._words.captions), -1, np.int64)
        for block in self._blocks:
            inputs = (block.unaries, block.words, block.regions, np.float32(min(affinity, _LARGEST)))
            path: Any = ops.convert_to_numpy(chain_in_graph(*map(tf.constant, inputs)))
            tokens = self._words.tokens[block.own]
            read = (tokens >= 0) & (tokens < path.shape[1])
            chosen[block.own][read] = path[block.rows[read], tokens[read]]
        return chosen

    def measure(self, affinities: Sequence[float], *, bootstrap: int = 0) -> PointingMetrics:
        """Measure pointing at several affinities.

        Args:
            affinities: finite numbers >= 0, see `vsemb.systems.regions.viterbi.best_chain`.
            bootstrap: see `evaluate_pointing`.

        Raises:
            DataError: if a score is not finite.
        """
        return evaluate_pointing(
            self._words.right,
            np.concatenate([block.regions[block.rows] for block in self._blocks]),
            {affinity: self.chosen(affinity) for affinity in affinities},
            self._words.nouns,
            self._part.caption_rows[self._words.captions],
            bootstrap=bootstrap,
        )


def measure_pointing(
    run: Run,
    dataset: StoredDataset,
    split: str = "val",
    *,
    affinities: Sequence[float] | None = None,
    bootstrap: int = 0,
) -> tuple[PointingMetrics, float | None]:
    """Measure pointing on a split, and choose the best affinity on the validation split.

    Args:
        run: run on regions.
        dataset: the dataset, see `PointingTask`.
        split: name of the split; default `val`.
        affinities: finite numbers >= 0; None for the defaults, in units of the scores' spread on the validation split.
        bootstrap: see `evaluate_pointing`.

    Returns:
        metrics: metrics of the split at every affinity.
        chosen: the affinity with most correct words on the validation split. None without a validation split, since
            an affinity must not be chosen on the measured words.

    Raises:
        InvalidArgumentError: if an affinity or `bootstrap` is out of range.
        VsembError: see `PointingTask` and its `measure`.

    Example:

        metrics, chosen = measure_pointing(Run.open("runs/dvsa"), Dataset.open("data/scenes"), "test")
        print(metrics.accuracy[0.0].nouns, metrics.accuracy[chosen].nouns)
    """
    if bootstrap < 0:
        raise invalid_argument("bootstrap", bootstrap, "an integer >= 0")
    if affinities is not None:
        affinities = check_affinities(affinities)
    task = PointingTask(run, dataset, split)
    choosing: PointingTask | None = task
    if split != _CHOOSING:
        has_images = dataset.manifest["splits"].get(_CHOOSING, {}).get("images")
        choosing = PointingTask(run, dataset, _CHOOSING) if has_images else None
    if affinities is None:
        affinities = (choosing or task).affinities()
    metrics = task.measure(affinities, bootstrap=bootstrap)
    if choosing is None:
        return metrics, None
    on_choosing = metrics if choosing is task else choosing.measure(affinities)
    return metrics, on_choosing.best_affinity()


def check_affinities(affinities: Sequence[float]) -> list[float]:
    """Return affinities in their order, without duplicates.

    Raises:
        InvalidArgumentError: if the list is empty, or an affinity is not a finite number >= 0.

    Example:

    >>> check_affinities([0, 1, 0.5, 1])
    [0.0, 1.0, 0.5]
    """
    values = list(dict.fromkeys(float(affinity) + 0.0 for affinity in affinities))
    if not values or not all(0 <= value < math.inf for value in values):
        raise invalid_argument("affinity", list(affinities), "finite numbers >= 0, at least one")
    return values


def _alignments(part: Split, dataset: StoredDataset) -> list[list[Sequence[Sequence[int]]]]:
    """Return the (word, object) pairs of every image and caption."""
    alignments = []
    for pairs, captions in zip(part.alignments, part.caption_lists(), strict=True):
        alignments.append(pairs or [[] for _ in captions])
    if not any(any(pairs) for pairs in alignments):
        raise DataError(
            f"The split {part.name!r} of {dataset.path} has no links from words to objects, so pointing "
            "cannot be measured on it. Data with such links: vsemb scenes, or vsemb prepare --format entities"
        )
    return alignments


def _words(run: Run, part: Split, store: RegionStore, alignments: list[list[Sequence[Sequence[int]]]]) -> _Words:
    """Find the words that name objects, their tokens and their correct regions."""
    boxes = store.boxes(part.ids)
    captions, positions, nouns, right = [], [], [], []
    caption = 0
    for row, (texts, pairs_of, regions) in enumerate(zip(part.caption_lists(), alignments, boxes, strict=True)):
        named: list[tuple[int, ...]] = []
        for text, pairs in zip(texts, pairs_of, strict=True):
            words = named_objects(pairs)
            if words and not max(words) < len(text.split()):
                raise DataError(
                    f"Image {part.keys[row]!r} of {part.name!r}: word {max(words)} of {text!r} names an "
                    "object and is not there."
                )
            captions += [caption] * len(words)
            positions += list(words)
            nouns += [word in object_nouns(words) for word in words]
            named += words.values()
            caption += 1
        if named:
            right.append(right_regions(regions, _object_boxes(part, row), named))
    tokens = _tokens(run, part, np.array(captions, np.int64), np.array(positions, np.int64))
    return _Words(np.array(captions, np.int64), tokens, np.array(nouns, bool), np.concatenate(right))


def _object_boxes(part: Split, row: int) -> np.ndarray:
    """Return the boxes of an image's objects as fractions of its sides: (objects, 4) float64."""
    try:
        sides = np.tile(part.sizes[row], 2)
        boxes = [np.asarray(item["box"], np.float64) / sides for item in part.objects[row]]
        return np.stack([np.zeros(4), *boxes])[1:]
    except (DataError, KeyError, TypeError, ValueError) as error:
        raise DataError(
            f"The objects of image {part.keys[row]!r} have no boxes [x, y, w, h], or the image has no size."
        ) from error


def _tokens(run: Run, part: Split, captions: np.ndarray, positions: np.ndarray) -> np.ndarray:
    """Return the position of each word among the tokens of its caption; -1 for words without a token.

    A word with several tokens takes its first token: "dog's" takes "dog".
    """
    texts = {int(caption): part.captions[caption].split() for caption in np.unique(captions)}
    words = sorted({word for text in texts.values() for word in text})
    counts = dict(zip(words, np.diff(run.tokenizer.encode(words)[1]).tolist(), strict=True))
    starts = {caption: np.cumsum([0, *(counts[word] for word in text)]).tolist() for caption, text in texts.items()}
    tokens = []
    for caption, position in zip(captions.tolist(), positions.tolist(), strict=True):
        has_token = counts[texts[caption][position]] > 0
        tokens.append(starts[caption][position] if has_token else -1)
    return np.array(tokens, np.int64)
