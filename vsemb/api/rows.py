"""Rows of a table or a list, as images with captions, splits and names."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from vsemb.data.images import BadImage, check_image, image_source
from vsemb.data.readers.hash_splits import dealt, hash_split, shares
from vsemb.data.readers.source import label_name, row_split
from vsemb.data.readers.table import COLUMNS, NUMBERED
from vsemb.data.records import ImageRecord
from vsemb.errors import DataError, InvalidArgumentError, invalid_argument, one_line, plain_repr, unknown_name
from vsemb.files import sha256_bytes
from vsemb.unicode import has_surrogate


@dataclass
class Item:
    """One image with its captions, split and key."""

    place: int
    image: Any
    captions: list[str]
    split: str | None
    key: str

    @property
    def identity(self) -> Any:
        if isinstance(self.image, bytes):
            return sha256_bytes(self.image)
        return os.path.abspath(self.image) if isinstance(self.image, Path) else id(self.image)

    def encoded(self) -> Path | bytes | BadImage:
        """Return the file or the bytes of the image; for a broken one the reason, for which the writer rejects it."""
        try:
            return image_source(self.image)
        except BadImage as error:
            return error

    def record(self) -> ImageRecord:
        split = self.split or hash_split(self.key)
        return ImageRecord(self.key, tuple(self.captions), split, self.encoded(), where=f"row {self.place}")


def digest(item: Item) -> str:
    """Return a hash of a row; files are hashed by size and modification time."""
    image: Any = item.image
    with contextlib.suppress(OSError, ValueError, SyntaxError):
        if isinstance(image, Path):
            image = [image.stat().st_size, image.stat().st_mtime_ns]
        else:
            image = sha256_bytes(image if isinstance(image, bytes) else np.asarray(image).tobytes())
    return sha256_bytes(repr([item.key, item.captions, item.split, image]).encode("utf-8", "replace"))


class Records(Sequence[ImageRecord]):
    """Records of items; images are encoded on access."""

    def __init__(self, items: list[Item]) -> None:
        self._items = items

    def __len__(self) -> int:
        return len(self._items)

    def __getitem__(self, place: Any) -> Any:
        return self._items[place].record()


class Columns:
    """Select image, captions and split from rows."""

    def __init__(
        self,
        columns: list[str],
        image: str | None = None,
        caption: str | Sequence[str] | None = None,
        split: str | None = None,
        labels: Mapping[str, Sequence[str]] | None = None,
    ) -> None:
        self.image = self._find(columns, "image", "file", image)
        if caption is None:
            # Columns caption_0, caption_1 and so on hold captions of one image.
            numbered = [name for name in columns if NUMBERED.sub("", str(name).lower()) in COLUMNS["caption"]]
            caption = numbered if numbered and all(NUMBERED.search(str(name)) for name in numbered) else None
        several = [caption] if caption is None or isinstance(caption, str) else caption
        self.captions = [self._find(columns, "caption", "caption", each) for each in several]
        self.split = self._find(columns, "split", "split", split)
        # Names of splits that are stored as numbers.
        self._splits = (labels or {}).get(self.split or "", ())
        for name, column in (("image", self.image), ("caption", self.captions[0])):
            if column is None:
                fix = f"Name the column: {name}='…'"
                raise invalid_argument("columns", columns, f"a column of the {name}s, such as {name}", fix)
        self.names = [name for name in (self.image, *self.captions, self.split) if name is not None]
        repeated = [name for name in self.names if columns.count(name) > 1]
        if repeated:
            raise invalid_argument("columns", columns, "columns with different names", f"Rename one {repeated[0]!r}.")

    @staticmethod
    def _find(columns: list[str], argument: str, ours: str, given: str | None) -> str | None:
        if given is not None:
            if given not in columns:
                raise unknown_name(argument, given, columns)
            return given
        fitting = [name for name in columns if str(name).lower() in COLUMNS[ours]]
        fitting = [name for name in fitting if str(name).lower() == argument] or fitting
        if len(fitting) > 1:
            raise invalid_argument("columns", fitting, f"one column of the {argument}s", f"Name it: {argument}='…'")
        return fitting[0] if fitting else None

    def __call__(self, row: Mapping[str, Any]) -> tuple[Any, Any, dict[str, Any]]:
        texts = [row[name] for name in self.captions if name is not None]
        stated = {}
        if self.split is not None:
            split = row[self.split]
            # Strings of TensorFlow are bytes.
            split = split.decode("utf-8", "surrogateescape") if isinstance(split, bytes) else split
            stated["split"] = label_name(split, self._splits) if self._splits else split
        return row[str(self.image)], texts[0] if len(texts) == 1 else texts, stated


def item_of(place: int, image: Any, captions: Any, stated: Mapping[str, Any], problems: list[str]) -> Item | None:
    """Return a row as an item; for an unusable row, append the reason to `problems` and return None.

    Args:
        place: number of the row.
        image, captions: its values.
        stated: its value of `split`, if the rows have one.
        problems: reasons so far.
    """
    if isinstance(image, Mapping):
        # The form of Hugging Face's feature `Image(decode=False)`.
        image = image.get("bytes") or image.get("path")
    texts = _texts(captions)
    try:
        check_image(image)
    except InvalidArgumentError:
        problems.append(f"row {place}: image is {_shown(image)}{_hint(image)}")
    else:
        if texts is None:
            problems.append(f"row {place}: caption is {_shown(captions)}")
        elif wrong := [text for text in texts if has_surrogate(text)]:
            problems.append(f"row {place}: caption has a lone surrogate, {_shown(wrong[0])}")
        else:
            source = image_source(image) if isinstance(image, str | os.PathLike | bytes) else image
            try:
                return Item(place, source, texts, row_split(f"row {place}", stated), f"{place:06d}")
            except DataError as error:
                problems.append(str(error))
    return None


def _texts(captions: Any) -> list[str] | None:
    """Return one caption, or nested lists of captions, as a flat list; None if one is not text."""
    if isinstance(captions, bytes):
        captions = captions.decode("utf-8", "surrogateescape")
    if isinstance(captions, str):
        return [captions]
    if not isinstance(captions, Iterable) or isinstance(captions, Mapping | Set):
        return None
    each = [_texts(caption) for caption in captions]
    return None if None in each else [text for texts in each for text in texts or ()]


def _shown(value: Any) -> str:
    return (
        f"{value.dtype} {value.shape}"
        if hasattr(value, "dtype") and np.ndim(value)
        else one_line(plain_repr(value), 60)
    )


def _hint(image: Any) -> str:
    """Return a fix for the two most common wrong arrays, a batch and floats; "" for other values."""
    if not hasattr(image, "dtype") or not np.ndim(image):
        return ""
    if image.dtype.kind in "OSU" or np.ndim(image) > 3:
        return ", a batch; pass one image per row (tf.data: dataset.unbatch())"
    return "; convert it to uint8 from 0 to 255" if image.dtype.kind == "f" else ""


def name_files(items: list[Item]) -> None:
    """Name images by their files; if file names repeat, by their paths below the common folder."""
    files = [item for item in items if isinstance(item.image, Path)]
    if not files:
        return
    names = [item.image.name for item in files]
    if len(set(names)) < len(names):
        folder = os.path.commonpath([os.path.abspath(item.image.parent) for item in files])
        names = [Path(os.path.relpath(os.path.abspath(item.image), folder)).as_posix() for item in files]
    for item, name in zip(files, names, strict=True):
        item.key = name


def assign_splits(items: list[Item]) -> None:
    """Assign images to splits by hashes of their names; three or more images give at least one per split."""
    names = [item.key for item in items]
    splits = {name: hash_split(name) for name in names}
    if len(set(splits.values())) < 3 <= len(splits):
        splits = dealt(names, shares(len(splits), 0.1, 0.1))
    for item in items:
        item.split = splits[item.key]
