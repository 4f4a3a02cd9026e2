"""Makes the image features of a dataset: by running a backbone once, or from precomputed arrays."""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import os
import shutil
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import keras
import numpy as np

from vsemb.console import progress, say
from vsemb.data.features.files import WEIGHTS_NAME, FeatureWriter, blocks, check_ids
from vsemb.data.features.store import FeatureFolder, FeatureStore, feature_fingerprint, refuse_not_finite, views_kept
from vsemb.data.store import StoredDataset
from vsemb.errors import DataError, VsembError, counted, invalid_argument
from vsemb.files import remove_partial
from vsemb.image.backbones import BackboneConfig, build_backbone, save_backbone_weights
from vsemb.image.backbones import weights_sha256 as hash_weights
from vsemb.image.views import decode_views, encode_views
from vsemb.ops.tensorflow import tf
from vsemb.parts import Count, require

# Pixels that the network reads at a time, all views of an image, which bounds its memory.
_PIXELS = 32 * 224**2

_Folder = TypeVar("_Folder", bound=FeatureFolder)


def cache_features(
    dataset: StoredDataset,
    backbone: BackboneConfig,
    *,
    weights: str | os.PathLike[str] | None,
    batch_size: int = 64,
    keep_crops: bool = False,
    mirror: bool = False,
    training_crops: bool = False,
) -> FeatureStore:
    """Compute the features of all images of a dataset once, or open the cached ones.

    A call with the same arguments resumes an interrupted one. The files have the same bytes as after an uninterrupted
    call, and are published in one step.

    Args:
        dataset: the dataset; all of its splits.
        backbone: which network, at which size.
        weights: as in `build_backbone`.
        batch_size: images at a time.
        keep_crops: whether to store each crop's features and not their mean.
        mirror: whether to store the features of each image's mirror image too, for training; twice the
            time. Ten crops hold mirror images anyway.
        training_crops: whether to store the features of ten crops of each image beside its own, one of
            which is drawn each time in training (Reed et al. 2016, section 5); eleven times the time.

    Returns:
        The opened features.

    Raises:
        DataError: if weights or images cannot be read (images are named), or a feature is not finite.
        InvalidArgumentError: if an argument is not allowed.
    """
    require("batch_size", batch_size, Count)
    if keep_crops and backbone.crops == 1:
        raise invalid_argument("keep_crops", keep_crops, "False with crops=1", "Use a backbone with crops=10.")
    if mirror and (backbone.crops != 1 or training_crops):
        raise invalid_argument("mirror", mirror, "False with ten crops", "They hold mirror images.")
    if training_crops and backbone.crops != 1:
        allowed = "False with crops=10"
        raise invalid_argument("training_crops", training_crops, allowed, "Use crops=1, or keep_crops=True.")
    views = backbone.crops if keep_crops else 1
    if mirror:
        views = 2
    if training_crops:
        views = 11
    network = build_backbone(backbone, weights)
    weights_sha256 = hash_weights(network)
    cropped = dataclasses.replace(backbone, crops=10)
    # Maps are many times as large as feature vectors.
    dtype = np.float16 if backbone.inner_map else np.float32

    def compute(encoded: Any) -> Iterator[tuple[np.ndarray, np.ndarray, dict[str, np.ndarray]]]:
        if keras.backend.backend() != "tensorflow":
            fix = f"Compute them first: vsemb features {dataset.path} --backbone {backbone.name}"
            raise VsembError(f"Image features must be computed on TensorFlow; got {keras.backend.backend()}. {fix}")
        encode = tf.function(lambda pixels: encode_views(network, pixels), reduce_retracing=True, autograph=False)

        @tf.autograph.experimental.do_not_convert
        def decoded(ids: tf.Tensor, images: tf.Tensor) -> tuple[tf.Tensor, ...]:
            return ids, images, *decode_views(images, backbone)

        batches = encoded.map(decoded).prefetch(1)
        for batch_ids, images, pixels, valid in dataset.readable(batches):
            batch_ids = batch_ids.numpy()
            dataset.refuse_undecodable(batch_ids[~valid.numpy()])
            if mirror:
                pixels = tf.concat([pixels, pixels[:, :, :, ::-1]], axis=1)
            if training_crops:
                pixels = tf.concat([pixels, decode_views(images, cropped)[0]], axis=1)
            step = max(1, _PIXELS // (backbone.size**2 * pixels.shape[1]))
            parts = [pixels[start : start + step] for start in range(0, len(pixels), step)]
            features = np.concatenate([encode(part).numpy() for part in parts])
            rows = (features if views > 1 else features.mean(axis=1)).astype(dtype)
            refuse_not_finite(rows, batch_ids, dataset, f"{backbone.name} with these weights")
            yield batch_ids, rows, {}

    dim = int(network.output_shape[-1])
    return fill_folder(
        FeatureStore,
        dataset,
        feature_fingerprint(backbone, weights_sha256, views_kept(backbone.crops, views)),
        compute,
        (views, dim) if views > 1 else (dim,),
        {"backbone": backbone.to_json(), "weights_sha256": weights_sha256, "crops": backbone.crops},
        lambda folder: save_backbone_weights(network, folder / WEIGHTS_NAME),
        batch_size=batch_size,
        dtype=dtype,
    )


def fill_folder(
    kind: type[_Folder],
    dataset: StoredDataset,
    fingerprint: str,
    compute: Callable[[Any], Iterator[tuple[np.ndarray, np.ndarray, dict[str, np.ndarray]]]],
    shape: tuple[int, ...],
    manifest: dict[str, Any],
    save_weights: Callable[[Path], None],
    *,
    batch_size: int,
    **options: Any,
) -> _Folder:
    """Compute the missing features of a folder, or open a complete folder.

    Args:
        kind: class of the folder.
        dataset: the dataset; all of its splits.
        fingerprint: name of the folder.
        compute: from batches of (id, bytes) to ids, features, and arrays beside them, each batch in its place.
        shape: of the features of one image.
        manifest: entries of the manifest besides dataset and fingerprint.
        save_weights: writes the weights of the network into the folder.
        batch_size: images at a time.
        **options: `dtype` and `beside` of `FeatureWriter`.

    Raises:
        DataError: if the folder cannot be opened or written, or `compute` raises it.
    """
    directory = dataset.path / kind.plural() / fingerprint
    if (directory / "manifest.json").is_file():
        remove_partial(directory)
        return kind.open(directory, dataset)
    ids, started = dataset.ids, time.perf_counter()
    made_of = {"fingerprint": fingerprint, "dataset": dataset.fingerprint}
    # The batch size is part of the state: batches of other sizes may differ in a feature's last bits.
    state = {**made_of, "batch_size": batch_size}
    order = np.concatenate([dataset.split(name).ids for name in dataset.splits])
    with FeatureWriter(directory, ids, shape, state, order=order, kind=kind.format, **options) as writer:
        if (directory / "manifest.json").is_file():
            # Another process made them before this one had the lock.
            shutil.rmtree(writer.work)
            return kind.open(directory, dataset)
        computed = len(ids) - writer.done
        encoded = dataset.encoded_images().skip(writer.done).batch(batch_size)
        name = manifest["backbone"]["name"]
        images = counted(computed, "image")
        say(f"Computing the {kind.plural()} of {images} with {name}. They are cached in {directory}.")
        with progress(desc=kind.plural(), total=len(ids), initial=writer.done, unit="image") as bar:
            for batch_ids, rows, beside in compute(encoded):
                writer.write(batch_ids, rows, **beside)
                bar.update(len(batch_ids))
        save_weights(writer.work)
        writer.finish({**made_of, **manifest})
    store = kind.open(directory, dataset)
    store.images_computed, store.seconds = computed, time.perf_counter() - started
    return store


def write_precomputed(dataset: StoredDataset, ids: np.ndarray, rows: np.ndarray | Iterable[np.ndarray]) -> FeatureStore:
    """Store features that were computed elsewhere, such as VSE++'s `*_ims.npy`.

    Args:
        dataset: the dataset that they describe.
        ids: int64 (n,), the image of each row: every image of the dataset once, in any order.
        rows: float (n, dim) or (n, crops, dim); or an iterable of such arrays, one behind the other.
            Memory-mapped arrays are read block by block.

    Returns:
        The opened features. Their fingerprint is that of the values.

    Raises:
        DataError: if the ids are not exactly the dataset's, shapes differ, or a value is not finite.
    """
    ids = np.asarray(ids, np.int64)
    arrays = [rows] if isinstance(rows, np.ndarray) else list(rows)
    shapes = {array.shape[1:] for array in arrays}
    shape = shapes.pop() if len(shapes) == 1 else ()
    if len(shape) not in (1, 2):
        received = sorted({array.shape[1:] for array in arrays})
        raise DataError(f"Precomputed features have shapes {received}; expected (dim,) or (crops, dim).")
    rows_count = sum(map(len, arrays))
    if rows_count != len(ids):
        raise DataError(
            f"Precomputed features have {counted(rows_count, 'row')}, and there are {counted(len(ids), 'image id')}."
        )
    expected = dataset.ids
    check_ids(np.sort(ids), expected, "Precomputed features")
    digest = hashlib.sha256(ids.tobytes())
    for block in itertools.chain.from_iterable(map(blocks, arrays)):
        digest.update(block.data)
    fingerprint = digest.hexdigest()[:16]
    directory = dataset.path / "features" / fingerprint
    if (directory / "manifest.json").is_file():
        remove_partial(directory)
        return FeatureStore.open(directory, dataset)
    with FeatureWriter(directory, expected, shape, {"fingerprint": fingerprint}) as writer:
        # An interrupted call may have had its rows in other arrays, so its rows are written again.
        writer.start_afresh()
        try:
            for block in itertools.chain.from_iterable(map(blocks, arrays)):
                block_ids = ids[writer.done : writer.done + len(block)]
                refuse_not_finite(block, block_ids, dataset, "Precomputed features")
                writer.write(block_ids, block)
            made_of = {"fingerprint": fingerprint, "dataset": dataset.fingerprint}
            crops = shape[0] if len(shape) == 2 else 1
            writer.finish({**made_of, "backbone": None, "weights_sha256": None, "crops": crops})
        finally:
            # Cheap to do again: after an error nothing of it stays.
            shutil.rmtree(writer.work, ignore_errors=True)
    return FeatureStore.open(directory, dataset)
