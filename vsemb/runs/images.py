"""Embedding single images for search and classification: image files, or keys of a dataset's images."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import tensorflow as tf
from PIL import Image

from vsemb.data.images import BadImage, StoredImage, sanitise_image
from vsemb.data.store import Dataset, Split
from vsemb.errors import DataError
from vsemb.export import ServedModel
from vsemb.runs.image_run import ImageRun
from vsemb.runs.pictures import read_picture
from vsemb.runs.run import Run


def embed_image(
    run: Run, dataset: Dataset | None, encoders: ServedModel, image: str
) -> tuple[np.ndarray, bytes | tuple[Split, int]]:
    """Embeds an image file, or an image of a dataset by its key.

    Args:
        run: the run.
        dataset: where keys are looked up, and by whose limit of size files are shrunk; None for neither.
        encoders: the run's.
        image: the file's path, or the key.

    Returns:
        embedding: (dim,) float32.
        source: the bytes of the file as a dataset would store them; or the split and row of the key.

    Raises:
        DataError: if the image cannot be read or embedded.
    """
    found = None if dataset is None or os.path.isfile(image) else find_key(dataset, image)
    if dataset is not None and found is not None:
        return embed_dataset_image(run, dataset, *found, encoders), found
    encoded = read_image_file(image, dataset).encoded
    return embed_new_image(run, encoders, encoded, image), encoded


def embed_new_image(run: Run, encoders: ServedModel, encoded: bytes, name: str) -> np.ndarray:
    """Embeds the bytes of one image that no dataset has.

    Args:
        run: the run.
        encoders: the run's.
        encoded: the bytes, as a dataset would store them.
        name: what the image is called in an error.

    Returns:
        (dim,) float32; (regions, dim) for a run whose embeddings are sets.

    Raises:
        DataError: if it cannot be embedded.
    """
    boxes = None
    if wants_boxes(run):
        candidates = propose_boxes(run, read_picture(encoded, name), name)
        boxes = tf.constant(candidates[None], tf.float32)
    return embed_image_bytes(encoders, tf.constant([encoded]), [name], boxes)[0]


def wants_boxes(run: ImageRun) -> bool:
    """Whether a run of regions must be given candidate boxes of an image, for it proposes none in graph."""
    return run.feature_regions is not None and not run.feature_regions.in_graph


def propose_boxes(run: ImageRun, picture: Image.Image, name: str, fix: str = "") -> np.ndarray:
    """Proposes regions of an image that no dataset has, for a run that wants boxes.

    Args:
        run: the run.
        picture: the image.
        name: what it is called in an error.
        fix: what else helps where boxes are a detector's, the beginning of a sentence.

    Returns:
        (boxes, 4) float32 fractions of the image's width and height.

    Raises:
        DataError: if the run's boxes are a detector's.
        MissingExtraError: for selective search without the extra `regions`.
    """
    assert run.feature_regions is not None
    if run.feature_regions.source == "detections":
        raise DataError(
            f"The regions of {run.path} are a detector's, and there are none of the image {name!r}. "
            f"{fix or 'Give'} the key of an image of the dataset."
        )
    from vsemb.systems.regions.image import selective_search

    return selective_search(np.asarray(picture))


def find_key(dataset: Dataset, key: str) -> tuple[Split, int] | None:
    """Returns the split and row of the image of a dataset that has a key, or None."""
    for name in dataset.splits:
        if dataset.manifest["splits"][name]["images"] and key in dataset.split(name).keys:
            return dataset.split(name), dataset.split(name).keys.index(key)
    return None


def read_image_file(image: str, dataset: Dataset | None) -> StoredImage:
    """Reads an image file as a dataset would store it.

    Args:
        image: the file's path.
        dataset: the one by whose limit of size it is shrunk; None for none.

    Raises:
        DataError: if it cannot be read or is no image.
    """
    try:
        data = Path(image).read_bytes()
    except OSError as error:
        key = "" if dataset is None else f", or the key of an image of {dataset.path}"
        raise DataError(
            f"Cannot read the image {image!r}: {error.strerror or error}. Expected: an image file{key}."
        ) from error
    limit = None if dataset is None else dataset.manifest.get("writing", {}).get("max_side")
    try:
        # As it would be stored in the dataset: upright, and in a format that is decoded in graph.
        return sanitise_image(data, limit)
    except BadImage as error:
        raise DataError(f"The image {image!r} is unreadable: {error}.") from error


def has_features(run: ImageRun, dataset: Dataset) -> bool:
    """Whether the run takes images from the dataset's cached features."""
    if run.recipe.image.backbone is not None:
        return False
    # Without a backbone, cached features are the only way, and `ImageRun.images_of` says what is wrong.
    folder = "regions" if run.multi_vector else "features"
    return run.feature_backbone is None or (dataset.path / folder / run.info["features"]).is_dir()


def embed_image_bytes(
    encoders: ServedModel, encoded: tf.Tensor, names: list[str], boxes: tf.Tensor | None = None
) -> np.ndarray:
    """Embeds image bytes, all of which must decode.

    Args:
        encoders: the run's.
        encoded: string (n,).
        names: n names, for the error.
        boxes: float32 (n, candidates, 4), where the encoders want them; see `ServedModel`.

    Returns:
        (n, dim) float32; (n, regions, dim) for a run whose embeddings are sets.

    Raises:
        DataError: if the run has no image encoder, or an image does not decode.
    """
    if encoders.encode_image is None:
        raise DataError(
            "The run was trained on precomputed features, so it cannot embed images; give the key of an "
            "image of a dataset that has the same features."
        )
    outputs = encoders.encode_image(encoded) if boxes is None else encoders.encode_image(encoded, boxes)
    valid = outputs["valid"].numpy()
    if not valid.all():
        raise DataError(f"The image {names[int(np.argmin(valid))]!r} does not decode as JPEG or PNG.")
    return outputs["embedding"].numpy()


def embed_dataset_image(run: Run, dataset: Dataset, split: Split, row: int, encoders: ServedModel) -> np.ndarray:
    """Embeds one image of a dataset, from its cached features where those are used.

    Returns:
        (dim,) float32; (regions, dim) for a run whose embeddings are sets.

    Raises:
        DataError: if it cannot be embedded.
    """
    if not has_features(run, dataset):
        return embed_new_image(run, encoders, split.read_image(row), split.keys[row])
    features = run.images_of(dataset, split).gather(np.array([row]))
    return run.model.encode_images(tf.constant(features)).numpy()[0]
