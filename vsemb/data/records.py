"""`ImageRecord`: the form in which all readers and generators return an image and its captions."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vsemb.data.uris import RemoteImage

if TYPE_CHECKING:
    from vsemb.data.images import BadImage


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
