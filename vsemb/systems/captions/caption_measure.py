"""Measuring the captions of runs: the table of `vsemb evaluate RUN --captions`.

Beside runs stands what takes no language model at all: the caption of the training image that is most similar
to the image by the features that the first run reads (cosine; of its captions the one that is most similar to
the others), and, if wanted, what people score: each image's first caption against its others.

On data that know what is in a picture, such as those of `vsemb scenes`, the share of captions that are true
of it is measured too.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf

from vsemb.data.sources import ImageSource
from vsemb.data.store import Dataset, Split
from vsemb.errors import invalid_argument
from vsemb.parts import Count, require
from vsemb.runs.run import Run
from vsemb.searching.scan import best_of_blocks
from vsemb.systems.captions.caption_metrics import CaptionMetrics, NearestSentences, TrainingCaptions, evaluate_captions
from vsemb.systems.captions.captioning import caption_split
from vsemb.systems.captions.decoding import CaptionOptions
from vsemb.systems.captions.scene_truth import background_of, has_truth, is_true

_TRAIN = "train"
_NEIGHBOUR = "nearest training image"
_PERSON = "a person"


@dataclass(frozen=True, eq=False)
class MeasuredCaptions:
    """The captions of one run or baseline, one an image.

    Attributes:
        name: the run's directory, or the name of a baseline.
        recipe: the run's recipe; None for a baseline.
        captions: for each image; "" where none was found.
        log_probs: for each image, natural logarithm; None for a baseline.
        metrics: see `evaluate_captions`.
        truths: for each image whether the caption is true of it, None where it is not understood; None where
            the data do not know.
        nearest: the most similar training sentence of each caption; None where there are none.
    """

    name: str
    recipe: str | None
    captions: list[str]
    log_probs: list[float] | None
    metrics: CaptionMetrics
    truths: list[bool | None] | None
    nearest: NearestSentences | None

    @property
    def true(self) -> float | None:
        """Percent of the captions that are true of their image; those not understood are not."""
        if self.truths is None:
            return None
        return 100 * float(np.mean([truth is True for truth in self.truths]))


@dataclass(frozen=True, eq=False)
class CaptionTable:
    """What `measure_captions` found.

    Attributes:
        split: its name.
        keys: the images.
        references: their captions.
        train: the training captions; None where the dataset has none.
        rows: runs first, in their order, then baselines.
        notes: what there is to know about the figures, a line each.
    """

    split: str
    keys: list[str]
    references: list[list[str]]
    train: TrainingCaptions | None
    rows: list[MeasuredCaptions]
    notes: list[str]

    def nearest_sentence(self, row: MeasuredCaptions, image: int) -> str | None:
        """Returns the training sentence most similar to a row's caption; None where none shares a word."""
        if self.train is None or row.nearest is None or row.nearest.rows[image] < 0:
            return None
        return self.train.captions[row.nearest.rows[image]]

    def to_json(self) -> dict[str, Any]:
        """Returns figures of the rows, and image by image their captions and what these score."""
        rows = [
            {"name": row.name, "recipe": row.recipe, **row.metrics.to_json()}
            | ({} if row.true is None else {"true": row.true})
            for row in self.rows
        ]
        images = [
            {
                "key": key,
                "references": references,
                "captions": [{"name": row.name, **self._caption(row, image)} for row in self.rows],
            }
            for image, (key, references) in enumerate(zip(self.keys, self.references, strict=True))
        ]
        return {"split": self.split, "notes": self.notes, "measured": rows, "images": images}

    def _caption(self, row: MeasuredCaptions, image: int) -> dict[str, Any]:
        found: dict[str, Any] = {"text": row.captions[image]}
        if row.log_probs is not None:
            found["log_prob"] = row.log_probs[image]
        found |= {name: float(values[image]) for name, values in row.metrics.each.items()}
        if row.truths is not None:
            found["true"] = row.truths[image]
        if row.nearest is not None:
            found["nearest"] = self.nearest_sentence(row, image)
            found["nearest_similarity"] = float(row.nearest.similarities[image])
        return found


def measure_captions(
    runs: Sequence[Run],
    dataset: Dataset,
    split: str = "val",
    *,
    options: CaptionOptions | None = None,
    limit: int | None = None,
    meteor: bool = True,
    references: bool = False,
) -> CaptionTable:
    """Captions a split's images by runs and baselines, and measures the captions.

    Args:
        runs: one or more; the first one's features decide which training image is nearest.
        dataset: the images and their captions; its split `train` is what novelty is measured against.
        split: name of the split.
        options: how runs look for captions; the best is measured. Those of a beam search do not reach
            language models that stand beside networks that write word after word.
        limit: measure the first so many images; None for all.
        meteor: see `evaluate_captions`.
        references: whether people's captions are measured too, against fewer references than the others.

    Raises:
        InvalidArgumentError: for no run, a split that is not there, a limit < 1, or an option that a run does
            not read.
        DataError: if run and dataset do not fit.
        MissingExtraError: without the extra `captions`.

    Example:

        table = measure_captions([open_captioning_run("runs/captions")], Dataset.open("data/flickr8k"))
        print(table.rows[0].metrics.bleu)
    """
    if not runs:
        raise invalid_argument("runs", [], "one run or more")
    require("limit", limit, Count | None)
    part = dataset.split(split)
    rows = np.arange(len(part) if limit is None else min(limit, len(part)))
    wanted = [part.entries[row]["captions"] for row in rows]
    evaluate_captions([""], [["a"]], meteor=False)  # A missing extra is told before captions are written.
    notes: list[str] = []
    train_part = dataset.split(_TRAIN) if _TRAIN in dataset.splits else None
    train = None if train_part is None else TrainingCaptions(train_part.captions)
    if train is None:
        notes.append("The dataset has no split `train`: no nearest training image, no novelty.")
    backgrounds = _backgrounds(part, rows)

    def truths(captions: Sequence[str]) -> list[bool | None] | None:
        if not backgrounds:
            return None
        entries = [part.entries[row] for row in rows]
        return [
            is_true(caption, entry["objects"], entry["width"], background)
            for caption, entry, background in zip(captions, entries, backgrounds, strict=True)
        ]

    def measured(
        name: str,
        captions: list[str],
        recipe: str | None = None,
        log_probs: list[float] | None = None,
        compared: Sequence[Sequence[str]] = wanted,
    ) -> MeasuredCaptions:
        metrics = evaluate_captions(captions, compared, train=train, meteor=meteor)
        nearest = None if train is None else train.nearest(captions)
        return MeasuredCaptions(name, recipe, captions, log_probs, metrics, truths(captions), nearest)

    found = []
    for run in runs:
        asked = _options_for(run, runs, options or CaptionOptions())
        best = [written[:1] or [("", 0.0)] for written in caption_split(run, dataset, split, asked, rows=rows)]
        texts, log_probs = [written[0][0] for written in best], [written[0][1] for written in best]
        found.append(measured(str(run.path), texts, run.recipe.name, log_probs))
    if train_part is not None:
        neighbours = _nearest_images(runs[0], dataset, part, rows, train_part)
        if neighbours is None:
            notes.append(f"{runs[0].path} reads pixels, not features: no nearest training image.")
        else:
            assert train is not None
            chosen = [_consensus(train, train_part.entries[row]["captions"]) for row in neighbours]
            found.append(measured(_NEIGHBOUR, chosen))
    if references:
        if min(map(len, wanted)) < 2:
            notes.append("An image has one caption alone, so what people score cannot be measured.")
        else:
            others = [captions[1:] for captions in wanted]
            found.append(measured(_PERSON, [captions[0] for captions in wanted], compared=others))
            notes.append(
                f"{_PERSON}: the first caption of each image against its others, one reference fewer than "
                "the other rows have."
            )
    if train is not None and split == _TRAIN:
        notes.append("These images were trained on.")
    notes += dict.fromkeys(note for row in found for note in row.metrics.notes)
    return CaptionTable(split, [part.keys[row] for row in rows], wanted, train, found, notes)


def _options_for(run: Run, runs: Sequence[Run], options: CaptionOptions) -> CaptionOptions:
    if run.recipe.ranks_candidates and not all(each.recipe.ranks_candidates for each in runs):
        options = dataclasses.replace(options, beam=None, length_penalty=None)
    return dataclasses.replace(options, n_best=1)


def _backgrounds(part: Split, rows: np.ndarray) -> list[str]:
    """Returns the backgrounds of scenes, by which captions are told true or not; none of other images."""
    if part.has_images and all(has_truth(part.entries[row]) for row in rows):
        return [background_of(part.read_image(int(row))) for row in rows]
    return []


def _nearest_images(run: Run, dataset: Dataset, part: Split, rows: np.ndarray, train: Split) -> np.ndarray | None:
    """Returns the training image nearest to each image, (n,) int64; None for a run that reads pixels."""
    run = run.recipe.image_run(run)
    source = run.images_of(dataset, part)
    if len(source.spec.shape) != 1:
        return None
    images, train_source = _features(source, rows), run.images_of(dataset, train)

    def similarities(start: int, stop: int) -> np.ndarray:
        found = images @ _features(train_source, np.arange(start, stop)).T
        # An image is not its own neighbour.
        found[part.ids[rows][:, None] == train.ids[start:stop]] = -np.inf
        return found

    nearest, _ = best_of_blocks(similarities, len(train), len(rows), k=1, dim=images.shape[1])
    return nearest[:, 0]


def _features(source: ImageSource, rows: np.ndarray) -> np.ndarray:
    """Returns the features of images, scaled to length 1."""
    features = np.asarray(source.finish(tf.constant(source.gather(rows)), None), np.float32)
    return features / np.maximum(np.linalg.norm(features, axis=1, keepdims=True), 1e-12)


def _consensus(train: TrainingCaptions, captions: Sequence[str]) -> str:
    """Returns the caption that is most similar to the others by its words, the first of such."""
    similarities = train.similarities(captions)
    return captions[int(similarities.sum(axis=1).argmax())]
