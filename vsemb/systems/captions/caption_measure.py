"""Caption metrics of runs and baselines: the table of `vsemb evaluate RUN --protocol captions`.

The first baseline uses no language model. It finds the training image nearest to the image, by the L2 distance of the
features that the first run reads (Karpathy and Fei-Fei 2015, section 4.2). It takes the caption of that image that is
most similar to the image's other captions. The second baseline is optional: captions by people. The first caption of
each image is measured against the others.

For datasets with labelled objects, such as the output of `vsemb scenes`, the share of true captions is measured too.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from vsemb.data.store import Split, StoredDataset
from vsemb.errors import invalid_argument
from vsemb.parts import Count, require
from vsemb.runs.run import Run
from vsemb.searching.scan import best_of_blocks
from vsemb.systems.captions.caption_metrics import CaptionMetrics, evaluate_captions
from vsemb.systems.captions.captioner import CaptionOptions
from vsemb.systems.captions.captioning import caption_split, image_inputs
from vsemb.systems.captions.clip_score import ClipScorer
from vsemb.systems.captions.scene_truth import background_of, has_truth, is_true
from vsemb.systems.captions.training_captions import NearestSentences, TrainingCaptions

_TRAIN = "train"
_NEIGHBOUR = "nearest training image"
_PERSON = "a person"


@dataclass(frozen=True, eq=False)
class MeasuredCaptions:
    """The captions of one run or baseline, one per image.

    Attributes:
        name: run directory, or name of a baseline.
        captions: one caption per image; "" if none was found.
        metrics: see `evaluate_captions`.
        recipe: recipe of the run; None for a baseline.
        log_probs: natural logarithm of the probability, per image; None for a baseline.
        truths: whether the caption is true, per image, or None for a caption that cannot be parsed. None for a dataset
            without labelled scenes.
        nearest: the most similar training sentence per caption; None without training captions.
    """

    name: str
    captions: list[str]
    metrics: CaptionMetrics
    recipe: str | None = None
    log_probs: list[float] | None = None
    truths: list[bool | None] | None = None
    nearest: NearestSentences | None = None

    @property
    def true(self) -> float | None:
        """Percent of the captions that are true of their image; a caption that cannot be parsed counts as false."""
        if self.truths is None:
            return None
        return 100 * float(np.mean([truth is True for truth in self.truths]))


@dataclass(frozen=True, eq=False)
class CaptionTable:
    """The result of `measure_captions`.

    Attributes:
        split: name of the split.
        keys: keys of the images.
        references: reference captions of each image.
        train: the training captions; None if the dataset has no split `train`.
        rows: runs in the given order, then baselines.
        notes: notes on the figures, one line each.
    """

    split: str
    keys: list[str]
    references: list[list[str]]
    train: TrainingCaptions | None
    rows: list[MeasuredCaptions]
    notes: list[str]

    def nearest_sentence(self, row: MeasuredCaptions, image: int) -> str | None:
        """Return the training sentence that is most similar to a caption.

        Args:
            row: one of `rows`.
            image: number of the image.

        Returns:
            The sentence; None if no sentence shares a word.
        """
        if self.train is None or row.nearest is None or row.nearest.rows[image] < 0:
            return None
        return self.train.captions[row.nearest.rows[image]]

    def to_json(self) -> dict[str, Any]:
        """Return the metrics of the rows, and the captions and scores of each image."""
        measured = []
        for row in self.rows:
            values = {"name": row.name, "recipe": row.recipe, **row.metrics.to_json()}
            if row.true is not None:
                values["true"] = row.true
            measured.append(values)
        images = []
        for image, key in enumerate(self.keys):
            captions = [self._caption(row, image) for row in self.rows]
            images.append({"key": key, "references": self.references[image], "captions": captions})
        return {"split": self.split, "notes": self.notes, "measured": measured, "images": images}

    def _caption(self, row: MeasuredCaptions, image: int) -> dict[str, Any]:
        caption: dict[str, Any] = {"name": row.name, "text": row.captions[image]}
        if row.log_probs is not None:
            caption["log_prob"] = row.log_probs[image]
        caption |= {name: float(values[image]) for name, values in row.metrics.per_image.items()}
        if row.truths is not None:
            caption["true"] = row.truths[image]
        if row.nearest is not None:
            caption["nearest"] = self.nearest_sentence(row, image)
            caption["nearest_similarity"] = float(row.nearest.similarities[image])
        return caption


def measure_captions(
    runs: Sequence[Run],
    dataset: StoredDataset,
    split: str = "val",
    *,
    options: CaptionOptions | None = None,
    limit: int | None = None,
    meteor: bool = True,
    references: bool = False,
    clip: Run | None = None,
) -> CaptionTable:
    """Caption the images of a split by runs and baselines, and measure the captions.

    Args:
        runs: one or more. The features of the first run decide which training image is nearest.
        dataset: the images and their captions. Novelty is measured against its split `train`.
        split: name of the split; default `val`.
        options: options of the search; the best caption is measured. If recipes with and without ranked candidates
            are mixed, runs that rank candidates ignore `beam` and `length_penalty`.
        limit: number of images to measure, the first ones; None for all.
        meteor: see `evaluate_captions`.
        references: whether captions by people are measured too, against one reference fewer than the other rows.
        clip: run that measures CLIPScore, see `vsemb.systems.captions.clip_score.ClipScorer`; None to leave it out.

    Raises:
        InvalidArgumentError: if `runs` is empty, the split is missing, `limit` < 1, or a run does not support an
            option.
        DataError: if run and dataset do not match.
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
    wanted = [part.captions_of(row) for row in rows]
    evaluate_captions([""], [["a"]], meteor=False)  # Reports a missing extra before captions are written.
    notes: list[str] = []
    train_part = dataset.split(_TRAIN) if _TRAIN in dataset.splits else None
    train = None if train_part is None else TrainingCaptions(train_part.captions)
    if train is None:
        notes.append("The dataset has no split `train`, which the nearest training image and novelty need.")
    backgrounds = _backgrounds(part, rows)
    scorer = None if clip is None else ClipScorer(clip, dataset, split, rows)

    def truths(captions: Sequence[str]) -> list[bool | None] | None:
        if not backgrounds:
            return None
        return [
            is_true(caption, part.objects[row], int(part.sizes[row, 0]), background)
            for caption, row, background in zip(captions, rows, backgrounds, strict=True)
        ]

    def measure(
        name: str,
        captions: list[str],
        compared: Sequence[Sequence[str]] = wanted,
        recipe: str | None = None,
        log_probs: list[float] | None = None,
    ) -> MeasuredCaptions:
        metrics = evaluate_captions(captions, compared, train=train, meteor=meteor)
        if scorer is not None:
            score, with_references = scorer(captions, compared)
            metrics = dataclasses.replace(
                metrics,
                per_image={**metrics.per_image, "clip_score": score, "ref_clip_score": with_references},
                clip_score=float(score.mean()),
                ref_clip_score=float(with_references.mean()),
            )
        nearest = None if train is None else train.nearest(captions)
        return MeasuredCaptions(name, captions, metrics, recipe, log_probs, truths(captions), nearest)

    measured = []
    for run in runs:
        texts, log_probs = [], []
        for captions in caption_split(run, dataset, split, _options_for(run, runs, options), rows=rows):
            text, log_prob = captions[0] if captions else ("", 0.0)
            texts.append(text)
            log_probs.append(log_prob)
        measured.append(measure(str(run.path), texts, recipe=run.recipe.name, log_probs=log_probs))
    if train_part is not None:
        neighbours = _nearest_images(runs[0], dataset, part, rows, train_part)
        if neighbours is None:
            notes.append(f"{runs[0].path} reads pixels; the nearest training image needs features.")
        else:
            assert train is not None
            chosen = [_consensus(train, train_part.captions_of(row)) for row in neighbours]
            measured.append(measure(_NEIGHBOUR, chosen))
    if references:
        if min(map(len, wanted)) < 2:
            notes.append("An image has one caption alone, so what people score cannot be measured.")
        else:
            measured.append(
                measure(_PERSON, [captions[0] for captions in wanted], [captions[1:] for captions in wanted])
            )
            notes.append(
                f"{_PERSON}: the first caption of each image against its others, one reference fewer than "
                "the other rows have."
            )
    if train is not None and split == _TRAIN:
        notes.append("These images were trained on.")
    notes += dict.fromkeys(note for row in measured for note in row.metrics.notes)
    return CaptionTable(split, [part.keys[row] for row in rows], wanted, train, measured, notes)


def _options_for(run: Run, runs: Sequence[Run], options: CaptionOptions | None) -> CaptionOptions:
    options = dataclasses.replace(options or CaptionOptions(), n_best=1)
    # A beam for the other runs does not set that of a run with ranked candidates.
    if run.recipe.ranks_candidates and not all(other.recipe.ranks_candidates for other in runs):
        options = dataclasses.replace(options, beam=None, length_penalty=None)
    return options


def _backgrounds(part: Split, rows: np.ndarray) -> list[str]:
    """Return the backgrounds of scenes, against which captions are checked; an empty list for other images."""
    if part.has_images and all(has_truth(part.objects[row], part.sizes[row]) for row in rows):
        return [background_of(part.read_image(int(row))) for row in rows]
    return []


def _nearest_images(run: Run, dataset: StoredDataset, part: Split, rows: np.ndarray, train: Split) -> np.ndarray | None:
    """Return the training image nearest to each image, (n,) int64; None for a run that reads pixels."""
    run = run.recipe.image_run(run)
    source = run.images_of(dataset, part)
    if len(source.spec.shape) != 1:
        return None
    images = np.asarray(image_inputs(source, rows), np.float32)
    train_source = run.images_of(dataset, train)

    def similarities(start: int, stop: int) -> np.ndarray:
        others = np.asarray(image_inputs(train_source, np.arange(start, stop)), np.float32)
        # -||x - y||² without ||x||², which is the same for all y.
        negative_distances = 2 * images @ others.T - np.square(others).sum(axis=1)
        # Exclude the image itself.
        negative_distances[part.ids[rows][:, None] == train.ids[start:stop]] = -np.inf
        return negative_distances

    nearest, _ = best_of_blocks(similarities, len(train), len(rows), k=1, dim=images.shape[1])
    return nearest[:, 0]


def _consensus(train: TrainingCaptions, captions: Sequence[str]) -> str:
    """Return the caption most similar to the others by its words; ties select the first."""
    similarities = train.similarities(captions)
    return captions[int(similarities.sum(axis=1).argmax())]
