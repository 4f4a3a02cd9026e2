"""Convert published region features, for example of bottom-up attention and SCAN, to cached regions.

Three forms are read, each with the features of about 36 boxes per image:

- `.tsv`: one image per line, with boxes and features in base64, as bottom-up attention publishes them (columns
  `image_id, image_w, image_h, num_boxes, boxes, features`) or LXMERT does (ten columns);
- a folder of `.npz`, one per image and named like it, with `x` or `features`, and `bbox`, `image_w` and `image_h`;
- `.npy`, (images, regions, dim) without boxes, as SCAN publishes them, with a file of one image name per line.

Published features lack the whole image. Its features, region 0 of the store, are the mean over the boxes.
"""

from __future__ import annotations

import base64
import itertools
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from vsemb.console import progress
from vsemb.data.features.files import FeatureWriter, load_array
from vsemb.data.readers.source import text_lines
from vsemb.data.store import StoredDataset
from vsemb.errors import DataError, counted, invalid_argument, one_line
from vsemb.files import open_regular, reading, remove_partial, require_regular, sha256_bytes, sha256_file
from vsemb.systems.regions.detections import ImageNames
from vsemb.systems.regions.region_store import WHOLE_IMAGE, RegionConfig, RegionStore, refuse_wrong_regions

_COLUMNS = {
    6: ("image_id", "image_w", "image_h", "num_boxes", "boxes", "features"),
    10: (*("img_id", "image_h", "image_w", "", "", "", ""), "num_boxes", "boxes", "features"),
}
_BATCH = 64


@dataclass(frozen=True)
class PublishedRegions:
    """Regions of one image in a published file.

    Attributes:
        name: id or name of the image.
        features: (regions, dim) float32.
        boxes: (regions, 4) float, `[x1, y1, x2, y2]` in pixels; None if they are not published.
        size: width and height of the detector's image in pixels; None for the stored image's.
    """

    name: str
    features: np.ndarray
    boxes: np.ndarray | None = None
    size: tuple[float, float] | None = None


def read_published(path: Path, names: Path | None = None) -> Iterator[PublishedRegions]:
    """Yield the regions of each image of a published file, or a folder of them.

    Args:
        path: a `.tsv` or `.npy` file, or a folder of `.npz` files.
        names: file with the name of each image of a `.npy`, one per line.

    Raises:
        DataError: if a file or a line has another form.
        InvalidArgumentError: if `names` is missing for a `.npy`, or given for another form.
    """
    if (path.suffix == ".npy") != (names is not None):
        fix = "An array does not name its images: give `ids`, a file with one name per line."
        raise invalid_argument(
            "ids", None if names is None else str(names), f"a file for .npy alone; {path} is given", fix
        )
    if path.is_dir():
        yield from map(_of_npz, sorted(path.glob("*.npz")))
    elif path.suffix == ".tsv":
        with reading(path), open_regular(path, "r", encoding="utf-8-sig", newline="\n") as file:
            for number, line in enumerate(file, 1):
                yield _of_line(f"{path}, line {number}", line.rstrip("\r\n").split("\t"))
    elif names is not None:
        rows = load_array(path)
        listed = [line.strip() for line in text_lines(names)]
        if rows.ndim != 3 or len(rows) != len(listed):
            raise DataError(f"{path} must be (images, regions, dim) for {len(listed):,} names; got {rows.shape}.")
        for name, row in zip(listed, rows, strict=True):
            yield PublishedRegions(name, row.astype(np.float32))
    else:
        raise DataError(f"{path} must be a .tsv or .npy file, or a folder of .npz files.")


def _of_line(where: str, fields: Sequence[str]) -> PublishedRegions:
    try:
        columns = dict(zip(_COLUMNS[len(fields)], fields, strict=True))
        count = int(columns["num_boxes"])
        boxes = np.frombuffer(base64.b64decode(columns["boxes"], validate=True), "<f4").reshape(count, 4)
        features = np.frombuffer(base64.b64decode(columns["features"], validate=True), "<f4").reshape(count, -1)
        size = (float(columns["image_w"]), float(columns["image_h"]))
        return PublishedRegions(columns.get("image_id") or columns["img_id"], features, boxes, size)
    except (KeyError, ValueError) as error:
        raise DataError(f"{where}: regions must have 6 or 10 columns, of base64 ({one_line(error, 100)}).") from error


def _of_npz(path: Path) -> PublishedRegions:
    try:
        with np.load(require_regular(path), allow_pickle=False) as arrays:
            features = np.asarray(arrays["x" if "x" in arrays else "features"], np.float32)
            features = features.reshape(-1, features.shape[-1])
            if "bbox" not in arrays:
                return PublishedRegions(path.stem, features)
            size = (float(arrays["image_w"]), float(arrays["image_h"])) if "image_w" in arrays else None
            return PublishedRegions(path.stem, features, arrays["bbox"].reshape(len(features), 4), size)
    except (OSError, ValueError, KeyError, EOFError, TypeError) as error:
        raise DataError(f"{path} must hold x or features, and bbox: {one_line(error, 100)}.") from error


def write_published(
    dataset: StoredDataset, paths: Sequence[Path], names: Sequence[Path] = (), *, count: int = 36
) -> tuple[RegionStore, tuple[str, ...]]:
    """Write published regions of all images of a dataset into its cache.

    Args:
        dataset: the dataset.
        paths: the files, see `read_published`; together they have every image of the dataset once.
        names: for `.npy` files, the file of names of each.
        count: number of first boxes per image; default 36; images with fewer are padded.

    Returns:
        The opened regions, and notes about images that the dataset does not have.

    Raises:
        DataError: if a file is broken, an image is missing or occurs twice, or sizes differ.
    """
    if names and len(names) != len(paths):
        raise invalid_argument("ids", f"{len(names)} files", f"{len(paths)}, one per file of features")
    regions = RegionConfig("detections", count, overlap=1.0)
    files: list[Path] = []
    for path in (*paths, *names):
        files += sorted(path.glob("*.npz")) if path.is_dir() else [path]
    sources = [sha256_file(file) for file in files if file.is_file()]
    fingerprint = sha256_bytes(json.dumps([sources, regions.to_json()], sort_keys=True).encode())[:16]
    directory = dataset.path / RegionStore.plural() / fingerprint
    if (directory / "manifest.json").is_file():
        remove_partial(directory)
        return RegionStore.open(directory, dataset), ()
    name_files: Sequence[Path | None] = names or [None] * len(paths)
    stream = itertools.chain.from_iterable(map(read_published, paths, name_files))
    images, others = _Images(dataset), 0
    first = next(stream, None)
    if first is None:
        raise DataError(f"{paths[0]} holds no regions.")
    shape = (1 + count, first.features.shape[1])
    beside = {"boxes": (1 + count, 4), "scores": (1 + count,)}
    options: dict[str, Any] = {"dtype": np.float16, "beside": beside, "kind": RegionStore.format}
    seen: set[int] = set()
    with FeatureWriter(directory, dataset.ids, shape, {"fingerprint": fingerprint}, **options) as writer:
        writer.done = 0
        for published in progress(itertools.chain([first], stream), desc="regions", unit="image"):
            name, features = published.name, published.features
            image = images.find(name)
            if image is None:
                others += 1
                continue
            if image in seen:
                raise DataError(f"The image {name!r} occurs twice in the regions.")
            seen.add(image)
            if features.shape[1] != shape[1]:
                raise DataError(f"Regions must have {shape[1]} features; {name!r} has {features.shape[1]}.")
            ids = np.array([image])
            rows, boxes = (part[None] for part in _padded(published, images.sizes.get(image), count))
            scores = np.where(boxes.any(axis=-1), np.linspace(1, 0, 1 + count, dtype=np.float32), 0)
            if not (np.abs(rows) <= np.finfo(np.float16).max).all():
                raise DataError(f"The features of {name!r} must be finite and at most 65,504.")
            refuse_wrong_regions(rows, boxes, scores, ids=ids, dataset=dataset, what="Published regions")
            writer.write(ids, rows.astype(np.float16), boxes=boxes, scores=scores)
        missing = sorted(set(dataset.ids.tolist()) - seen)
        if missing:
            raise DataError(
                f"The regions lack {counted(len(missing), 'image')}: {dataset.name_images(np.array(missing))}."
            )
        manifest = {"dataset": dataset.fingerprint, "backbone": None, "weights_sha256": None, "candidates_sha256": None}
        writer.finish({**manifest, "regions": regions.to_json(), "fingerprint": fingerprint})
    notes: tuple[str, ...] = ()
    if others:
        images_are = counted(others, "image of the files is", "images of the files are")
        notes = (f"{images_are} not in {dataset.path}.",)
    return RegionStore.open(directory, dataset), notes


def _padded(
    published: PublishedRegions, stored: tuple[float, float] | None, count: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return features (1 + count, dim) and boxes (1 + count, 4), as fractions, of the whole image and its boxes."""
    kept = np.asarray(published.features.any(axis=1))
    boxes = np.tile(np.array(WHOLE_IMAGE, np.float32), (len(kept), 1))
    size = published.size or stored
    if published.boxes is not None:
        if size is None:
            raise DataError(f"The boxes of {published.name!r} are in pixels, and its size is not known.")
        corners = np.clip(np.asarray(published.boxes, np.float64) / np.tile(size, 2), 0, 1)
        boxes = np.concatenate([corners[:, :2], corners[:, 2:] - corners[:, :2]], axis=1).astype(np.float32)
        kept &= np.asarray((boxes[:, 2:] > 0).all(axis=1))
    features = published.features[kept][:count]
    if not len(features):
        raise DataError(f"The image {published.name!r} has no region with features and an area.")
    whole = np.zeros((1 + count, features.shape[1]), np.float32)
    places = np.zeros((1 + count, 4), np.float32)
    whole[0], places[0] = features.mean(axis=0), WHOLE_IMAGE
    whole[1 : 1 + len(features)], places[1 : 1 + len(features)] = features, boxes[kept][:count]
    return whole, places


class _Images:
    """Images of a dataset by the names that published files give them.

    Attributes:
        sizes: id -> width and height; empty for a dataset without images.
    """

    def __init__(self, dataset: StoredDataset) -> None:
        splits = [dataset.split(name) for name in dataset.splits]
        self._ids = [image for split in splits for image in split.ids.tolist()]
        self._names = ImageNames([key for split in splits for key in split.keys])
        self.sizes: dict[int, tuple[float, float]] = {}
        for split in splits:
            if split.has_images:
                sides = ((float(width), float(height)) for width, height in split.sizes.tolist())
                self.sizes.update(zip(split.ids.tolist(), sides, strict=True))

    def find(self, name: str) -> int | None:
        """Return the id of an image; None if the dataset lacks it."""
        for rows in self._names.matches(name):
            # A name that two images share identifies neither.
            if len(rows) == 1:
                return self._ids[rows[0]]
        return None
