"""Captions of images, whatever kind of run writes them: the one way in for commands, reports and pages."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import tensorflow as tf

from vsemb.console import progress
from vsemb.data.batches import image_batches
from vsemb.data.sources import ImageSource
from vsemb.data.store import Dataset, Split
from vsemb.errors import DataError, one_line, printable
from vsemb.runs.images import find_key, read_image_file
from vsemb.runs.run import Run, read_recipe
from vsemb.systems.captions.decoding import Captioner, CaptionOptions, Captions
from vsemb.systems.captions.signature import ServedCaptioner
from vsemb.systems.captions.task import NextWordTask

# Images a batch, where a beam is searched and where candidates are ranked.
_SEARCHED, _RANKED = 64, 4
_DEFAULT = CaptionOptions()

#: A caption and the natural logarithm of its probability.
Written: TypeAlias = tuple[str, float]


def open_captioning_run(path: str | os.PathLike[str]) -> Run:
    """Opens a run that writes captions.

    Raises:
        DataError: if it is not a run, has no selected weights yet, or writes none.

    Example:

        open_captioning_run("runs/captions")
    """
    recipe = read_recipe(Path(path))
    reason = recipe.refusal() if isinstance(recipe, NextWordTask) else f"is for {recipe.kind}"
    if reason is None:
        return Run.open(path)
    raise DataError(
        f"{path} must be a run that writes captions, such as one of multimodal-rnn or sc-nlm; it was trained with the "
        f"recipe {recipe.name!r}, which {reason}."
    )


class CaptionWriter:
    """A run and its captioner, compiled once and asked often.

    Args:
        run: the run.
        options: how captions are looked for.

    Raises:
        InvalidArgumentError: for an option out of range, or one that the run does not read.

    Example:

        writer = CaptionWriter(run)
        text, log_prob = writer.of_bytes(Path("dog.jpg").read_bytes())[0]
    """

    def __init__(self, run: Run, options: CaptionOptions = _DEFAULT) -> None:
        self.run = run
        self.captioner: Captioner = run.recipe.captioner(run, options)
        #: The run that says how images become what the captioner reads.
        self.images: Run = run.recipe.image_run(run)
        self._compiled: Callable[[tf.Tensor], Captions] | None = None
        self._sources: dict[tuple[Path, str], ImageSource] = {}

    def of_rows(self, images: tf.Tensor) -> list[list[Written]]:
        """Writes captions of images as the run takes them from a dataset.

        Args:
            images: (n, ...) as `Run.images_of` gives them.

        Returns:
            For each image its captions, best first.

        Raises:
            DataError: if the model is broken.
        """
        if self._compiled is None:
            signature = [tf.TensorSpec((None, *images.shape[1:]), images.dtype)]
            self._compiled = tf.function(self.captioner, input_signature=signature)
        return written_of(self._compiled(images))

    def of_bytes(self, encoded: bytes, name: str = "") -> list[Written]:
        """Writes captions of an image, with the function that is served.

        Args:
            encoded: JPEG or PNG.
            name: what the image is called in an error.

        Returns:
            Its captions, best first.

        Raises:
            DataError: if it does not decode, the run cannot look at new images, or its model is broken.
        """
        outputs = self._served.caption(tf.constant([encoded]))
        if not outputs["valid"].numpy()[0]:
            raise DataError(f"The image {f'{name!r} ' if name else ''}does not decode as JPEG or PNG.")
        (found,) = written_of(Captions(outputs["captions"], outputs["log_probs"]))
        return found

    @cached_property
    def _served(self) -> ServedCaptioner:
        taken = self.images.image_input
        if taken is None:
            raise DataError(
                f"{self.run.path} was trained on precomputed features, so it cannot look at images; give the "
                "key of an image of a dataset that has the same features."
            )
        return ServedCaptioner(self.captioner, taken)

    def of_split_row(self, dataset: Dataset, split: Split, row: int) -> list[Written]:
        """Writes captions of an image of a dataset, from its cached features where the run reads those.

        Raises:
            DataError: if it does not decode, or run and dataset do not fit.
        """
        if not self.images.has_features(dataset):
            return self.of_bytes(split.read_image(row), split.keys[row])
        place = (dataset.path, split.name)
        if place not in self._sources:
            self._sources[place] = self.images.images_of(dataset, split)
        source = self._sources[place]
        return self.of_rows(source.finish(tf.constant(source.gather(np.array([row]))), None))[0]


def written_of(captions: Captions) -> list[list[Written]]:
    """Returns texts with their log-probabilities, image by image; an empty text is none.

    Args:
        captions: what a captioner wrote about images that are some.

    Raises:
        DataError: if a log-probability is not finite, or an image has no caption: where all next words are
            as likely as NaN, a search finds none.
    """
    texts, log_probs = captions.texts.numpy(), captions.log_probs.numpy()
    if not np.isfinite(log_probs).all() or not np.all(texts[:, 0] != b""):
        raise DataError(
            "The probabilities of a caption's words hold NaN or infinity. The model is broken, or the "
            "image's features are."
        )
    return [
        [(text.decode(errors="replace"), float(each)) for text, each in zip(*row, strict=True) if text]
        for row in zip(texts, log_probs, strict=True)
    ]


def caption_split(
    run: Run,
    dataset: Dataset,
    split_name: str,
    options: CaptionOptions = _DEFAULT,
    *,
    rows: np.ndarray | None = None,
) -> list[list[Written]]:
    """Writes captions of a split's images, with a progress bar.

    Args:
        run: the run.
        dataset: the dataset.
        split_name: name of the split.
        options: how captions are looked for.
        rows: (n,) the rows of the images wanted; None for all, in their order.

    Returns:
        For each image its captions with their log-probabilities, best first.

    Raises:
        InvalidArgumentError: for an option out of range, or one that the run does not read.
        DataError: if run and dataset do not fit, or the split is not there.

    Example:

        written = caption_split(open_captioning_run("runs/captions"), Dataset.open("data/flickr8k"), "val")
        text, log_prob = written[0][0]
    """
    part = dataset.split(split_name)
    rows = np.arange(len(part)) if rows is None else rows
    writer = CaptionWriter(run, options)
    source = writer.images.images_of(dataset, part)
    # Where many candidates are written for an image, images are taken one after another anyway.
    size = _RANKED if run.recipe.ranks_candidates else _SEARCHED
    found: list[list[Written]] = []
    with progress(total=len(rows), desc="captions", unit="image", leave=False) as bar:
        for batch in image_batches(source, rows, size):
            found += writer.of_rows(batch["image"])
            bar.update(len(found) - bar.n)
    return found


@dataclass(frozen=True)
class ImageCaptions:
    """The captions of one image.

    Attributes:
        image: its file or key.
        captions: with their log-probabilities, best first; empty where there is an error.
        error: why there are none, else None.
    """

    image: str
    captions: tuple[Written, ...]
    error: str | None = None

    def to_json(self) -> dict[str, Any]:
        """Returns plain values."""
        image = printable(self.image)
        if self.error is not None:
            return {"image": image, "error": printable(self.error)}
        return {
            "image": image,
            "captions": [{"text": text, "log_prob": log_prob} for text, log_prob in self.captions],
        }


def caption_images(
    run: Run,
    images: Sequence[str],
    dataset: Dataset | None = None,
    options: CaptionOptions = _DEFAULT,
) -> list[ImageCaptions]:
    """Writes captions of images one by one; one that cannot be read does not stop the others.

    Args:
        run: the run.
        images: image files, or keys of images of the dataset.
        dataset: where keys are looked up; files are shrunk as it was prepared. None for neither.
        options: how captions are looked for.

    Raises:
        InvalidArgumentError: for an option out of range, or one that the run does not read.

    Example:

        (found,) = caption_images(open_captioning_run("runs/captions"), ["dog.jpg"])
        print(found.captions[0])
    """
    writer = CaptionWriter(run, options)
    found = []
    for image in progress(images, desc="captions", unit="image", leave=False):
        try:
            found.append(ImageCaptions(image, tuple(_captions_of(writer, image, dataset))))
        except DataError as error:
            found.append(ImageCaptions(image, (), one_line(error)))
    return found


def _captions_of(writer: CaptionWriter, image: str, dataset: Dataset | None) -> list[Written]:
    place = find_key(dataset, image)
    if dataset is not None and place is not None:
        return writer.of_split_row(dataset, *place)
    return writer.of_bytes(read_image_file(image, dataset).encoded, image)
