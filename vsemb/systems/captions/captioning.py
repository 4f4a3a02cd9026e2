"""Caption generation for images by any captioning run; shared by commands, reports and pages."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from vsemb.console import progress
from vsemb.data.batches import image_batches
from vsemb.data.sources import ImageSource
from vsemb.data.store import Split, StoredDataset
from vsemb.errors import DataError, one_line, printable
from vsemb.ops.tensorflow import tf
from vsemb.runs.image_results import ImageResults
from vsemb.runs.images import find_key, read_image_file
from vsemb.runs.run import Run, read_recipe
from vsemb.systems.captions.captioner import Captioner, CaptionOptions, Captions
from vsemb.systems.captions.signature import ServedCaptioner
from vsemb.systems.captions.task import NextWordTask

# Images per batch: for beam search, and for ranked candidates.
_SEARCHED, _RANKED = 64, 4
_DEFAULT = CaptionOptions()

#: A caption and the natural logarithm of its probability.
Written: TypeAlias = tuple[str, float]


def open_captioning_run(run: Run | str | os.PathLike[str]) -> Run:
    """Open a run that writes captions.

    Args:
        run: its directory, or the opened run.

    Raises:
        DataError: if the path is not a run directory, the run has no selected weights yet, or it writes no captions.

    Example:

        open_captioning_run("runs/captions")
    """
    path = run.path if isinstance(run, Run) else Path(run)
    recipe = run.recipe if isinstance(run, Run) else read_recipe(path)
    reason = recipe.refusal() if isinstance(recipe, NextWordTask) else f"is for {recipe.kind}"
    if reason is not None:
        raise DataError(
            f"{path} must be a run that writes captions, such as one of multimodal-rnn or sc-nlm; it was "
            f"trained with the recipe {recipe.name!r}, which {reason}."
        )
    return Run.open(run)


class CaptionWriter:
    """A run and its captioner, compiled once.

    Args:
        run: the run.
        options: options of the search.

    Raises:
        InvalidArgumentError: if an option is out of range, or the run does not support it.

    Example:

        writer = CaptionWriter(run)
        text, log_prob = writer.of_bytes(Path("dog.jpg").read_bytes())[0]
    """

    def __init__(self, run: Run, options: CaptionOptions = _DEFAULT) -> None:
        self.run = run
        self.captioner: Captioner = run.recipe.captioner(run, options)
        #: The run that converts images to the captioner's input.
        self.images: Run = run.recipe.image_run(run)
        self._compiled: Callable[[tf.Tensor], Captions] | None = None
        self._sources: dict[tuple[Path, str], ImageSource] = {}

    def of_rows(self, images: tf.Tensor) -> list[list[Written]]:
        """Write captions of images in the run's input format.

        Args:
            images: (n, ...) as returned by `Run.images_of`.

        Returns:
            The captions of each image, best first.

        Raises:
            DataError: if the model is broken.
        """
        if self._compiled is None:
            signature = [tf.TensorSpec((None, *images.shape[1:]), images.dtype)]
            self._compiled = tf.function(self.captioner, input_signature=signature, autograph=False)
        return written_of(self._compiled(images))

    def of_bytes(self, encoded: bytes, name: str = "") -> list[Written]:
        """Write captions of an encoded image, with the served function.

        Args:
            encoded: JPEG or PNG.
            name: name of the image in errors.

        Returns:
            Its captions, best first.

        Raises:
            DataError: if the image does not decode, the run has no image network, or its model is broken.
        """
        outputs = self._served.caption(tf.constant([encoded]))
        if not outputs["valid"].numpy()[0]:
            raise DataError(f"The image {f'{name!r} ' if name else ''}does not decode as JPEG or PNG.")
        return written_of(Captions(outputs["captions"], outputs["log_probs"]))[0]

    @cached_property
    def _served(self) -> ServedCaptioner:
        taken = self.images.image_input
        if taken is None:
            raise DataError(
                f"{self.run.path} was trained on precomputed features, so it cannot look at images; give the "
                "key of an image of a dataset that has the same features."
            )
        return ServedCaptioner(self.captioner, taken)

    def of_split_row(self, dataset: StoredDataset, split: Split, row: int) -> list[Written]:
        """Write captions of an image of a dataset, from cached features if the run reads features.

        Args:
            dataset: the dataset.
            split: the split of the image.
            row: row of the image in the split.

        Returns:
            The captions, best first.

        Raises:
            DataError: if the image does not decode, or run and dataset do not match.
        """
        if not self.images.has_features(dataset):
            return self.of_bytes(split.read_image(row), split.keys[row])
        place = (dataset.path, split.name)
        if place not in self._sources:
            self._sources[place] = self.images.images_of(dataset, split)
        source = self._sources[place]
        return self.of_rows(image_inputs(source, np.array([row])))[0]


def image_inputs(source: ImageSource, rows: np.ndarray) -> tf.Tensor:
    """Return images of a split as inputs of a model, (rows, ...)."""
    return source.finish(tf.constant(source.gather(rows)), None)


def written_of(captions: Captions) -> list[list[Written]]:
    """Return the captions of each image with their log-probabilities, without empty texts.

    Args:
        captions: output of a captioner for valid images.

    Raises:
        DataError: if a log-probability is not finite, or an image has no caption. If all probabilities of next words
            are NaN, the search finds no caption.
    """
    texts, log_probs = captions.texts.numpy(), captions.log_probs.numpy()
    if not np.isfinite(log_probs).all() or not np.all(texts[:, 0] != b""):
        raise DataError(
            "The probabilities of a caption's words hold NaN or infinity. The model is broken, or the "
            "image's features are."
        )
    written = []
    for row in zip(texts, log_probs, strict=True):
        pairs = zip(*row, strict=True)
        written.append([(text.decode(errors="replace"), float(log_prob)) for text, log_prob in pairs if text])
    return written


def caption_split(
    run: Run,
    dataset: StoredDataset,
    split_name: str,
    options: CaptionOptions = _DEFAULT,
    *,
    rows: np.ndarray | None = None,
) -> list[list[Written]]:
    """Write captions of the images of a split, with a progress bar.

    Args:
        run: the run.
        dataset: the dataset.
        split_name: name of the split.
        options: options of the search.
        rows: (n,) rows of the images; None for all, in split order.

    Returns:
        The captions of each image with their log-probabilities, best first.

    Raises:
        InvalidArgumentError: if an option is out of range, or the run does not support it.
        DataError: if run and dataset do not match, or the split is missing.

    Example:

        written = caption_split(open_captioning_run("runs/captions"), Dataset.open("data/flickr8k"), "val")
        text, log_prob = written[0][0]
    """
    part = dataset.split(split_name)
    rows = np.arange(len(part)) if rows is None else rows
    writer = CaptionWriter(run, options)
    source = writer.images.images_of(dataset, part)
    # Captioners with ranked candidates process the images of a batch one by one anyway.
    size = _RANKED if run.recipe.ranks_candidates else _SEARCHED
    written: list[list[Written]] = []
    with progress(total=len(rows), desc="captions", unit="image", leave=False) as bar:
        for batch in image_batches(source, rows, size):
            written += writer.of_rows(batch["image"])
            bar.update(len(written) - bar.n)
    return written


@dataclass(frozen=True)
class ImageCaptions:
    """The captions of one image.

    Attributes:
        image: file or key of the image.
        captions: captions with their log-probabilities, best first; empty after an error.
        error: the error message; None without an error.
    """

    image: str
    captions: tuple[Written, ...]
    error: str | None = None

    def cells(self) -> list[tuple[str, str]]:
        """Return the rows of a table: caption, log-probability."""
        return [(printable(text), f"{log_prob:.2f}") for text, log_prob in self.captions]

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        image = printable(self.image)
        if self.error is not None:
            return {"image": image, "error": printable(self.error)}
        return {
            "image": image,
            "captions": [{"text": text, "log_prob": log_prob} for text, log_prob in self.captions],
        }


class CaptionedImages(ImageResults[ImageCaptions]):
    """Captions of images."""

    columns = ("caption", "log-prob")


def caption_images(
    run: Run,
    images: Sequence[str],
    dataset: StoredDataset | None = None,
    options: CaptionOptions = _DEFAULT,
) -> CaptionedImages:
    """Write captions of images one by one; unreadable images are reported in the result.

    Args:
        run: the run.
        images: image files, or keys of images of the dataset.
        dataset: dataset of the keys; image files are resized as in its preparation. None: files only, not resized.
        options: options of the search.

    Raises:
        InvalidArgumentError: if an option is out of range, or the run does not support it.

    Example:

        (image,) = caption_images(open_captioning_run("runs/captions"), ["dog.jpg"])
        print(image.captions[0])
    """
    writer = CaptionWriter(run, options)
    captioned = []
    for image in progress(images, desc="captions", unit="image", leave=False):
        try:
            captioned.append(ImageCaptions(image, tuple(_captions_of(writer, image, dataset))))
        except DataError as error:
            captioned.append(ImageCaptions(image, (), one_line(error)))
    return CaptionedImages(tuple(captioned))


def _captions_of(writer: CaptionWriter, image: str, dataset: StoredDataset | None) -> list[Written]:
    place = find_key(dataset, image)
    if dataset is not None and place is not None:
        return writer.of_split_row(dataset, *place)
    return writer.of_bytes(read_image_file(image, dataset).encoded, image)
