"""Computation of the regions of a dataset's images and their features, in one pass of a backbone."""

from __future__ import annotations

import io
import os
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from vsemb.data.features.compute import fill_folder
from vsemb.data.features.files import CLASSIFIER_NAME, WEIGHTS_NAME
from vsemb.data.store import StoredDataset
from vsemb.errors import DataError, invalid_argument
from vsemb.files import sha256_bytes
from vsemb.image.backbones import BackboneConfig, build_backbone, save_backbone_weights
from vsemb.image.backbones import weights_sha256 as hash_weights
from vsemb.ops.tensorflow import tf
from vsemb.systems.regions.detections import Detections, pad_rows
from vsemb.systems.regions.extractor import RegionExtractor, build_classifier
from vsemb.systems.regions.proposals import selective_search
from vsemb.systems.regions.region_store import RegionConfig, RegionStore, refuse_wrong_regions, region_fingerprint
from vsemb.weights import save_weights

_FLOAT16_MAX = float(np.finfo(np.float16).max)


def cache_regions(
    dataset: StoredDataset,
    backbone: BackboneConfig,
    regions: RegionConfig,
    *,
    weights: str | os.PathLike[str] | None,
    detections: Detections | None = None,
    batch_size: int = 32,
) -> RegionStore:
    """Compute the regions of all images of a dataset and their features, or open them if they are cached.

    An interrupted run resumes when it is called with the same arguments. Its files are then equal, byte for byte, to
    the files of an uninterrupted run.

    Args:
        dataset: dataset; regions of all splits are computed.
        backbone: configuration of the network, with one crop.
        regions: configuration of the regions.
        weights: as in `build_backbone`.
        detections: result of `read_detections`, if `regions.source` is `"detections"`; else None.
        batch_size: images per batch; default 32.

    Returns:
        The opened regions.

    Raises:
        DataError: if weights or images cannot be read (images are named), or a feature is not finite or too large for
            float16.
        InvalidArgumentError: if an argument is not allowed.
        MissingExtraError: if selective search is used without the extra `regions`.
    """
    if batch_size < 1:
        raise invalid_argument("batch_size", batch_size, "a number of images >= 1")
    if (detections is None) == (regions.source == "detections"):
        allowed = f"{'the' if detections is None else 'no'} detections with source={regions.source!r}"
        raise invalid_argument("detections", detections, allowed)
    if regions.source == "selective-search":
        # Without OpenCV this fails here, before the network is built and a folder is made.
        selective_search(np.zeros((32, 32, 3), np.uint8))
    network = build_backbone(backbone, weights)
    weights_sha256 = hash_weights(network)
    classifier = None
    candidates_sha256 = None if detections is None else detections.sha256
    if regions.by_classifier:
        classifier = build_classifier(backbone, weights or "random")
        candidates_sha256 = sha256_bytes(b"".join(value.tobytes() for value in classifier.get_weights()))
    extractor = RegionExtractor(backbone, regions, network, classifier)
    what = f"{backbone.name} with these weights"

    def compute(encoded: Any) -> Iterator[tuple[np.ndarray, np.ndarray, dict[str, np.ndarray]]]:
        extract = _in_graph(extractor)
        batches = dataset.readable(encoded.prefetch(1))
        searches = regions.source == "selective-search"
        for ids, inputs in _searched(batches, dataset) if searches else detected(batches):
            rows, boxes, scores, valid = (part.numpy() for part in extract(*inputs))
            dataset.refuse_undecodable(ids[~valid])
            _refuse_too_large(rows, ids, dataset, what)
            refuse_wrong_regions(rows, boxes, scores, ids=ids, dataset=dataset, what=what)
            yield ids, rows.astype(np.float16), {"boxes": boxes, "scores": scores}

    def detected(batches: Iterator[tuple[Any, Any]]) -> Iterator[tuple[np.ndarray, tuple[Any, ...]]]:
        for ids, images in batches:
            boxes_and_scores = () if detections is None else detections.of(ids.numpy())
            yield ids.numpy(), (images, *boxes_and_scores)

    def save(folder: Path) -> None:
        save_backbone_weights(network, folder / WEIGHTS_NAME)
        if classifier is not None:
            save_weights(classifier, folder / CLASSIFIER_NAME)

    described = {
        "backbone": backbone.to_json(),
        "weights_sha256": weights_sha256,
        "regions": regions.to_json(),
        "candidates_sha256": candidates_sha256,
    }
    return fill_folder(
        RegionStore,
        dataset,
        region_fingerprint(backbone, weights_sha256, regions, candidates_sha256),
        compute,
        (extractor.count, extractor.dim),
        described,
        save,
        batch_size=batch_size,
        dtype=np.float16,
        beside={"boxes": (extractor.count, 4), "scores": (extractor.count,)},
    )


def _in_graph(extractor: RegionExtractor) -> Any:
    """Return the extractor as a graph function with a single trace."""
    takes = [tf.TensorSpec([None], tf.string)]
    if not extractor.regions.in_graph:
        takes.append(tf.TensorSpec([None, None, 4], tf.float32))
    if extractor.regions.source == "detections":
        takes.append(tf.TensorSpec([None, None], tf.float32))
    return tf.function(lambda *inputs: extractor(*inputs), takes, autograph=False)


def _searched(
    batches: Iterator[tuple[Any, Any]], dataset: StoredDataset
) -> Iterator[tuple[np.ndarray, tuple[Any, ...]]]:
    """Run selective search on all cores for one batch while the network computes the features of the batch before.

    Yields:
        The ids of a batch, and the extractor's inputs: bytes and candidate boxes.
    """
    waiting: deque[tuple[np.ndarray, Any, list[Future[np.ndarray | None]]]] = deque()

    def oldest() -> tuple[np.ndarray, tuple[Any, ...]]:
        ids, images, searches = waiting.popleft()
        boxes = [search.result() for search in searches]
        dataset.refuse_undecodable(ids[[part is None for part in boxes]])
        return ids, (images, pad_rows([part for part in boxes if part is not None]))

    # Threads are sufficient, since OpenCV releases the interpreter lock.
    pool = ThreadPoolExecutor(os.cpu_count(), thread_name_prefix="vsemb-regions")
    try:
        for ids, images in batches:
            waiting.append((ids.numpy(), images, [pool.submit(_search, data) for data in images.numpy()]))
            if len(waiting) > 1:
                yield oldest()
        while waiting:
            yield oldest()
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _search(encoded: bytes) -> np.ndarray | None:
    """Return the boxes of an image by selective search; None if it does not decode."""
    try:
        with Image.open(io.BytesIO(encoded)) as image:
            pixels = np.asarray(image.convert("RGB"))
    except MemoryError:
        raise
    except Exception:  # Pillow's decoders raise many types on broken input
        return None
    return selective_search(pixels)


def _refuse_too_large(rows: np.ndarray, ids: np.ndarray, dataset: StoredDataset, what: str) -> None:
    large = (np.abs(rows) > _FLOAT16_MAX) & np.isfinite(rows)
    bad = large.any(axis=(1, 2))
    if bad.any():
        raise DataError(
            f"{what}: features above {_FLOAT16_MAX:.0f}, which the cache of regions cannot hold, in "
            f"{dataset.name_images(ids[bad])}. Features should be of the order of 1."
        )
