"""Candidates: where the boxes of regions come from, in training, for new images and in the extractor."""

from __future__ import annotations

import io
import os
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, ClassVar

import numpy as np
from PIL import Image

from vsemb.data.store import StoredDataset
from vsemb.errors import DataError
from vsemb.ops.tensorflow import tf
from vsemb.systems.regions.detections import Detections, pad_rows
from vsemb.systems.regions.proposals import selective_search

# Ids of a batch, and the inputs of the extractor.
Batch = tuple[np.ndarray, tuple[Any, ...]]


class Candidates:
    """Boxes of a multi-scale grid, proposed in graph; base class of other candidates.

    Attributes:
        in_graph: whether boxes are proposed in graph; if false, the caller gives them.
        detected: whether boxes are a detector's, so that new images need its results.
        ranks: rankings of the boxes, the default first.
        classified: whether confidence is that of the network's own classifier.
        specs: inputs of the extractor besides the images.
    """

    in_graph: ClassVar[bool] = True
    detected: ClassVar[bool] = False
    ranks: ClassVar[tuple[str, ...]] = ("objectness",)
    classified: ClassVar[bool] = False
    specs: ClassVar[tuple[Any, ...]] = ()

    def require(self) -> None:
        """Raise `MissingExtraError` if a needed package is missing."""

    def batches(
        self, batches: Iterator[tuple[Any, Any]], dataset: StoredDataset, detections: Detections | None
    ) -> Iterator[Batch]:
        """Yield the ids of batches, and the extractor's inputs.

        Args:
            batches: ids and image bytes.
            dataset: the dataset, for the names of images in errors.
            detections: boxes of a detector.
        """
        for ids, images in batches:
            yield ids.numpy(), (images,)

    def propose(self, pixels: np.ndarray, name: str, fix: str = "") -> np.ndarray:
        """Propose boxes of a new image; not for boxes that are proposed in graph.

        Args:
            pixels: uint8 (height, width, 3), RGB.
            name: name of the image in errors.
            fix: first part of the sentence with the fix, for boxes of a detector.

        Returns:
            (boxes, 4) float32 fractions of the image's width and height.

        Raises:
            DataError: if the boxes are a detector's.
            MissingExtraError: if selective search is used without the extra `regions`.
        """
        raise NotImplementedError


class Searched(Candidates):
    """Boxes of OpenCV's selective search."""

    in_graph = False
    ranks = ("objectness", "confidence")
    classified = True
    specs = (tf.TensorSpec([None, None, 4], tf.float32),)

    def require(self) -> None:
        selective_search(np.zeros((32, 32, 3), np.uint8))

    def batches(
        self, batches: Iterator[tuple[Any, Any]], dataset: StoredDataset, detections: Detections | None
    ) -> Iterator[Batch]:
        """Search on all cores for one batch while the network computes the features of the batch before."""
        waiting: deque[tuple[np.ndarray, Any, list[Future[np.ndarray | None]]]] = deque()

        def oldest() -> Batch:
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

    def propose(self, pixels: np.ndarray, name: str, fix: str = "") -> np.ndarray:
        return selective_search(pixels)


class Detected(Candidates):
    """Boxes of a detector, with its scores."""

    in_graph = False
    detected = True
    ranks = ("confidence", "objectness")
    specs = (tf.TensorSpec([None, None, 4], tf.float32), tf.TensorSpec([None, None], tf.float32))

    def batches(
        self, batches: Iterator[tuple[Any, Any]], dataset: StoredDataset, detections: Detections | None
    ) -> Iterator[Batch]:
        assert detections is not None
        for ids, images in batches:
            yield ids.numpy(), (images, *detections.of(ids.numpy()))

    def propose(self, pixels: np.ndarray, name: str, fix: str = "") -> np.ndarray:
        raise DataError(
            f"The regions of the run are detections, and the image {name!r} has no detections. {fix or 'Give'} the "
            "key of an image of the dataset."
        )


#: The candidates of each source.
CANDIDATES = {"grid": Candidates(), "selective-search": Searched(), "detections": Detected()}


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
