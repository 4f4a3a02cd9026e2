"""Captions of images, whatever kind of run writes them: the one way in for commands, reports and pages."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from tqdm import tqdm

from vsemb.data.batches import image_batches
from vsemb.data.sources import ImageSource
from vsemb.data.store import Dataset
from vsemb.errors import DataError, one_line, printable
from vsemb.runs.images import find_key, read_image_file
from vsemb.runs.run import Run, read_recipe
from vsemb.systems.captions.caption_writer import CaptionWriter, Written
from vsemb.systems.captions.captioner import Captioner, CaptionOptions
from vsemb.systems.captions.task import NextWordTask

# Images a batch, where a beam is searched and where candidates are ranked.
_SEARCHED, _RANKED = 64, 4


_DEFAULT = CaptionOptions()


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


def captioner_of(run: Run, options: CaptionOptions = _DEFAULT) -> Captioner:
    """Returns what writes captions of a run's images; images are rows of its model's input.

    Raises:
        InvalidArgumentError: for an option out of range, or one that the run does not read.
    """
    captioner: Captioner = run.recipe.captioner(run, options)
    return captioner


class _Rows(ImageSource):
    """Some rows of an image source, in the place of all."""

    def __init__(self, source: ImageSource, rows: np.ndarray) -> None:
        self._source, self._rows = source, rows

    @property
    def spec(self) -> tf.TensorSpec:
        return self._source.spec

    def gather(self, rows: np.ndarray) -> np.ndarray:
        return self._source.gather(self._rows[rows])

    def finish(self, images: tf.Tensor, seed: tf.Tensor | None) -> tf.Tensor:
        return self._source.finish(images, seed)


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
        InvalidArgumentError: as `captioner_of`.
        DataError: if run and dataset do not fit, or the split is not there.

    Example:

        written = caption_split(open_captioning_run("runs/captions"), Dataset.open("data/flickr8k"), "val")
        text, log_prob = written[0][0]
    """
    part = dataset.split(split_name)
    rows = np.arange(len(part)) if rows is None else rows
    writer = CaptionWriter(run, captioner_of(run, options))
    source = _Rows(writer.images.images_of(dataset, part), rows)
    # Where many candidates are written for an image, images are taken one after another anyway.
    size = _RANKED if run.recipe.ranks_candidates else _SEARCHED
    found: list[list[Written]] = []
    with tqdm(total=len(rows), desc="captions", unit="image", disable=None, leave=False) as bar:
        for batch in image_batches(source, len(rows), size):
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
        InvalidArgumentError: as `captioner_of`.

    Example:

        (found,) = caption_images(open_captioning_run("runs/captions"), ["dog.jpg"])
        print(found.captions[0])
    """
    writer = CaptionWriter(run, captioner_of(run, options))
    found = []
    for image in tqdm(images, desc="captions", unit="image", disable=None, leave=False):
        try:
            found.append(ImageCaptions(image, tuple(_captions_of(writer, image, dataset))))
        except DataError as error:
            found.append(ImageCaptions(image, (), one_line(error)))
    return found


def _captions_of(writer: CaptionWriter, image: str, dataset: Dataset | None) -> list[Written]:
    place = None if dataset is None or os.path.isfile(image) else find_key(dataset, image)
    if dataset is not None and place is not None:
        return writer.of_split_row(dataset, *place)
    (found,) = writer.of_bytes([read_image_file(image, dataset).encoded])
    if found is None:
        raise DataError(f"The image {image!r} does not decode as JPEG or PNG.")
    return found
