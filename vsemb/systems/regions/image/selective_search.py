"""Selective search (Uijlings et al. 2013), OpenCV's: the candidates of R-CNN. Needs the extra `regions`."""

from __future__ import annotations

import numpy as np

from vsemb.errors import DataError, invalid_argument, missing_extra
from vsemb.systems.regions.image.config import RegionConfig

# Larger images are shrunk to this longer side: as wide as images were for R-CNN, and seconds each as it is.
_LONGEST = 500
# Boxes with a side shorter than this part of the image's are specks and seams.
_SHORTEST = 1 / 32


def selective_search(pixels: np.ndarray) -> np.ndarray:
    """Finds boxes by merging similar neighbouring segments step by step (the "fast" strategies).

    OpenCV orders the boxes partly by chance. Here they come in an order of their own, the largest first,
    so that the same image always gives the same boxes; rank them by what they show.

    Args:
        pixels: uint8 (height, width, 3), RGB.

    Returns:
        float32 (n, 4), `[x, y, w, h]` as fractions of the image's width and height, all different;
        some hundred to two thousand for a photograph.

    Raises:
        InvalidArgumentError: if `pixels` has another shape or type.
        MissingExtraError: if OpenCV with its contributed modules is not installed.
    """
    try:
        import cv2

        # Which of two distributions of OpenCV the stubs are of depends on the order of installation.
        create = vars(cv2)["ximgproc"].segmentation.createSelectiveSearchSegmentation
    except (ImportError, KeyError) as error:  # plain `opencv-python` lacks the module ximgproc
        raise missing_extra("opencv-contrib-python-headless", "regions") from error
    pixels = np.asarray(pixels)
    if pixels.dtype != np.uint8 or pixels.ndim != 3 or pixels.shape[2] != 3 or not pixels.size:
        received = f"{pixels.dtype} {pixels.shape}"
        raise invalid_argument("pixels", received, "uint8 (height, width, 3), not empty")
    longest = max(pixels.shape[:2])
    if longest > _LONGEST:
        sides = [max(1, round(side * _LONGEST / longest)) for side in pixels.shape[1::-1]]
        pixels = cv2.resize(pixels, sides, interpolation=cv2.INTER_AREA)
    search = create()
    search.setBaseImage(np.ascontiguousarray(pixels[..., ::-1]))  # OpenCV's order is blue, green, red
    search.switchToSelectiveSearchFast()
    found = np.unique(np.asarray(search.process()).reshape(-1, 4), axis=0)
    found = found[np.argsort(-found[:, 2] * found[:, 3], kind="stable")]
    height, width = pixels.shape[:2]
    boxes = (found / [width, height, width, height]).astype(np.float32)
    return boxes[(boxes[:, 2:] >= _SHORTEST).all(axis=1)]


def propose_boxes(regions: RegionConfig, pixels: np.ndarray, name: str, fix: str = "") -> np.ndarray:
    """Proposes candidate boxes of a new image where they are not proposed in graph.

    Args:
        regions: which regions, with `in_graph` false.
        pixels: uint8 (height, width, 3), RGB.
        name: what the image is called in an error.
        fix: what else helps where boxes are a detector's, the beginning of a sentence.

    Returns:
        (boxes, 4) float32 fractions of the image's width and height.

    Raises:
        DataError: if the boxes are a detector's.
        MissingExtraError: for selective search without the extra `regions`.
    """
    if regions.source == "detections":
        raise DataError(
            f"The regions of the run are detections, and there are none for the image {name!r}. {fix or 'Give'} the "
            "key of an image of the dataset."
        )
    return selective_search(pixels)
