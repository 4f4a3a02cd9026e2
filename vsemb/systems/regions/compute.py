"""Computation of the regions of a dataset's images and their features, in one pass of a backbone."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from vsemb.data.features.compute import fill_folder
from vsemb.data.features.files import CLASSIFIER_NAME, WEIGHTS_NAME
from vsemb.data.store import StoredDataset
from vsemb.errors import DataError, invalid_argument
from vsemb.files import sha256_bytes
from vsemb.image.backbones import BackboneConfig, build_backbone, save_backbone_weights
from vsemb.image.backbones import weights_sha256 as hash_weights
from vsemb.ops.tensorflow import tf
from vsemb.systems.regions.detections import Detections
from vsemb.systems.regions.extractor import RegionExtractor, build_classifier
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
    candidates = regions.candidates
    if (detections is None) == candidates.detected:
        allowed = f"{'the' if detections is None else 'no'} detections with source={regions.source!r}"
        raise invalid_argument("detections", detections, allowed)
    # Without OpenCV, selective search fails here, before the network is built and a folder is made.
    candidates.require()
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
        for ids, inputs in candidates.batches(dataset.readable(encoded.prefetch(1)), dataset, detections):
            rows, boxes, scores, valid = (part.numpy() for part in extract(*inputs))
            dataset.refuse_undecodable(ids[~valid])
            _refuse_too_large(rows, ids, dataset, what)
            refuse_wrong_regions(rows, boxes, scores, ids=ids, dataset=dataset, what=what)
            yield ids, rows.astype(np.float16), {"boxes": boxes, "scores": scores}

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
    takes = [tf.TensorSpec([None], tf.string), *extractor.regions.candidates.specs]
    return tf.function(lambda *inputs: extractor(*inputs), takes, autograph=False)


def _refuse_too_large(rows: np.ndarray, ids: np.ndarray, dataset: StoredDataset, what: str) -> None:
    large = (np.abs(rows) > _FLOAT16_MAX) & np.isfinite(rows)
    bad = large.any(axis=(1, 2))
    if bad.any():
        raise DataError(
            f"{what}: features above {_FLOAT16_MAX:.0f}, which the cache of regions cannot hold, in "
            f"{dataset.name_images(ids[bad])}. Features should be of the order of 1."
        )
