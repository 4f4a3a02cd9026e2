"""`ImageRecord`: the form in which all readers and generators return an image and its captions."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vsemb.data.uris import RemoteImage
from vsemb.errors import DataError, invalid_argument

if TYPE_CHECKING:
    from vsemb.data.images import BadImage

_SPLIT_NAME = re.compile(r"[A-Za-z0-9_]+")


@dataclass(frozen=True)
class ImageRecord:
    """One image, its captions and its annotations.

    Args:
        key: the name of the image in its source, unique there, e.g. a file name.
        captions: 1 to N captions.
        split: the split that the image belongs to, e.g. `"train"`.
        image: a path, a URI, encoded JPEG or PNG bytes, the reason why the image is left out, or `None` for
            features without images.
        class_name: the class of the image, for class-labelled data.
        objects: one dictionary per object, with at least `"label"` and `"box"` (`[x, y, w, h]` in pixels).
        alignments: for each caption, the `(word_index, object_index)` pairs of the words that name an object;
            words are counted over `caption.split()`. Empty if unknown.
        caption_ids: the source's id of each caption; empty if the source has none. Ids that differ from
            `caption_id` are stored, and the fingerprint of the dataset depends on them.
        where: file and place of the image in its source, for error messages; empty if unknown.

    Example:

    >>> record = ImageRecord(key="1.jpg", captions=("a dog",), split="train", image=Path("1.jpg"))
    >>> record.captions
    ('a dog',)
    """

    key: str
    captions: tuple[str, ...]
    split: str
    image: Path | RemoteImage | bytes | BadImage | None
    class_name: str | None = None
    objects: tuple[dict[str, Any], ...] = ()
    alignments: tuple[tuple[tuple[int, int], ...], ...] = ()
    caption_ids: tuple[str, ...] = ()
    where: str = ""


def repeated_key(records: Iterable[ImageRecord], position: int, record: ImageRecord) -> DataError:
    """Build the error for a record whose key an earlier record has; it names both.

    Args:
        records: the source. The earlier record is searched from its start, unless it can be read only once.
        position: position of the record in the source, from 0.
        record: the record.
    """
    first = "an earlier image"
    if iter(records) is not records:
        numbered = enumerate(records)
        place, earlier = next((place, other) for place, other in numbered if other.key == record.key)
        first = earlier.where or f"image number {place + 1}"
    second = record.where or f"image number {position + 1}"
    fix = "Give each image its own key, or join the captions of one image."
    return DataError(f"The key of an image must be unique; {record.key!r} is that of {first} and of {second}. {fix}")


def check_split_name(name: object, argument: str = "split") -> str:
    """Return the name of a split if it can be part of a file name.

    Args:
        name: the name.
        argument: name of the argument that has it, for the message.

    Raises:
        InvalidArgumentError: if it cannot.

    Example:

    >>> check_split_name("val")
    'val'
    """
    if not isinstance(name, str) or not _SPLIT_NAME.fullmatch(name):
        raise invalid_argument(argument, name, "letters, digits and underscores")
    return name


def caption_id(key: str, number: int) -> str:
    """Return the default id of a caption, for a source without ids.

    Args:
        key: the image's key.
        number: the caption's number within the image, from 0.

    Example:

    >>> caption_id("1.jpg", 0)  # As in `Flickr8k.token.txt`.
    '1.jpg#0'
    """
    return f"{key}#{number}"
