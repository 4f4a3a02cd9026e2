"""Embed single images for search and classification: image files, or images of a dataset by key."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from vsemb.data.images import BadImage, StoredImage, sanitise_image
from vsemb.data.store import Split, StoredDataset
from vsemb.errors import DataError, printable, reason_of
from vsemb.files import read_bytes
from vsemb.ops.tensorflow import tf
from vsemb.runs.run import Run


def embed_image(run: Run, dataset: StoredDataset | None, image: str) -> tuple[np.ndarray, bytes | tuple[Split, int]]:
    """Embed an image file, or an image of a dataset by its key.

    Args:
        run: the run.
        dataset: the dataset of the keys, whose size limit also applies to files; None for files without a limit.
        image: path of the file, or the key.

    Returns:
        embedding: (dim,) float32.
        source: bytes of the file as a dataset would store them, or the split and row of the key.

    Raises:
        DataError: if the image cannot be read or embedded.
    """
    place = find_key(dataset, image)
    if dataset is None or place is None:
        encoded = read_image_file(image, dataset).encoded
        return embed_new_image(run, encoded, image), encoded
    split, row = place
    if not run.has_features(dataset):
        return embed_new_image(run, split.read_image(row), image), place
    features = run.images_of(dataset, split).gather(np.array([row]))
    return run.model.encode_images(tf.constant(features)).numpy()[0], place


def embed_new_image(run: Run, encoded: bytes, name: str) -> np.ndarray:
    """Embed the bytes of an image outside a dataset.

    Args:
        run: the run.
        encoded: the bytes, as a dataset would store them.
        name: name of the image in errors.

    Returns:
        (dim,) float32; (regions, dim) for a run with several vectors per item.

    Raises:
        DataError: if the image cannot be embedded.
    """
    further = run.recipe.image.further_inputs(run.path, encoded, name)
    return embed_image_bytes(run, tf.constant([encoded]), [name], **further)[0]


def find_key(dataset: StoredDataset | None, image: str) -> tuple[Split, int] | None:
    """Return the split and row of the image with a key; None for an unknown key or an image file."""
    if dataset is None or os.path.isfile(image):
        return None
    splits = (dataset.split(name) for name in dataset.splits)
    return next(((split, split.keys.index(image)) for split in splits if image in split.keys), None)


def open_keys(
    run: Run, data: StoredDataset | str | os.PathLike[str] | None, images: Sequence[str] = ()
) -> StoredDataset | None:
    """Open the dataset whose keys may name images; None if it is missing and files need none.

    Args:
        run: the run.
        data: the dataset that was named; None for the training dataset.
        images: files or keys. One that is a file is enough to go on without a dataset.

    Raises:
        DataError: if there is neither the file nor the dataset.
    """
    try:
        dataset: StoredDataset = run.open_data(data)
        return dataset
    except DataError as error:
        # Image files need no dataset; only one that was asked for is missed.
        if data is not None:
            raise
        if images and not any(map(os.path.isfile, images)):
            raise DataError(
                f"No image file {printable(images[0])!r}, and no dataset with such a key (name one as `data`): {error}"
            ) from error
    return None


def read_image_file(image: str, dataset: StoredDataset | None) -> StoredImage:
    """Read an image file as a dataset would store it.

    Args:
        image: path of the file.
        dataset: the dataset whose size limit applies; None for no limit.

    Raises:
        DataError: if the file cannot be read or is not an image.
    """
    try:
        data = read_bytes(image)
    except OSError as error:
        key = "" if dataset is None else f", or the key of an image of {dataset.path}"
        raise DataError(
            f"Cannot read the image {image!r}: {reason_of(error)}. Expected: an image file{key}."
        ) from error
    return stored_image(data, dataset, f"image {image!r}")


def stored_image(data: bytes, dataset: StoredDataset | None, what: str = "image") -> StoredImage:
    """Return an image as a dataset would store it: upright, and in a format that is decoded in the graph.

    Args:
        data: bytes of the file.
        dataset: the dataset whose size limit applies; None for no limit.
        what: name of the image in errors.

    Raises:
        DataError: if the bytes are not an image.
    """
    limit = None if dataset is None else dataset.manifest.get("writing", {}).get("max_side")
    try:
        return sanitise_image(data, limit)
    except BadImage as error:
        raise DataError(f"The {what} is unreadable: {error}.") from error


def embed_image_bytes(run: Run, encoded: tf.Tensor, names: list[str], **further: np.ndarray) -> np.ndarray:
    """Embed image bytes; all images must decode.

    Args:
        run: the run.
        encoded: (n,) string.
        names: n names for errors.
        **further: (n, ...), further inputs of the encoder, see `ImageTower.further_inputs`.

    Returns:
        (n, dim) float32; (n, regions, dim) for a run with several vectors per item.

    Raises:
        DataError: if the run does not have an image encoder, or an image does not decode.
    """
    outputs = image_encoder(run)(image_bytes=encoded, **further)
    valid = outputs["valid"].numpy()
    if not valid.all():
        raise DataError(f"The image {names[int(np.argmin(valid))]!r} does not decode as JPEG or PNG.")
    return outputs["embedding"].numpy()


def image_encoder(run: Run) -> Any:
    """Return the function that maps image bytes to `embedding` and `valid`.

    Raises:
        DataError: if the run does not have an image encoder.
    """
    encode = run.encoders().encode_image
    if encode is None:
        raise DataError(
            "The run was trained on precomputed features, so it cannot embed images. Give the key of an image of a "
            "dataset with the same features, or train on features of a named backbone: vsemb features DATA"
        )
    return encode
