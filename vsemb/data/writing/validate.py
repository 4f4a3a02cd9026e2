"""Validation of source records: whether a record is usable, and which content is stored."""

from __future__ import annotations

import dataclasses
import json
from collections import deque
from collections.abc import Collection, Generator, Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

from vsemb.data.images import BadImage, sanitise_image
from vsemb.data.records import ImageRecord, caption_id, check_split_name
from vsemb.data.uris import RemoteImage
from vsemb.errors import DataError, reason_of
from vsemb.files import read_bytes, sha256_bytes
from vsemb.unicode import has_surrogate

_AHEAD = 64
_WORKERS = 2
#: Beginning of the reason for skipping an image that another attempt may be able to read.
UNREADABLE = "cannot be read"

#: Outcome of a record: its journal line, and the bytes to store.
Outcome = tuple[dict[str, Any], bytes | None]


def clean_caption(text: Any, key: str) -> str:
    """Return a caption on one line: runs of white space, including line breaks, become one space.

    Raises:
        DataError: if the caption is not text.

    Example:

    >>> clean_caption(" A dog .\\n", "dog.jpg")
    'A dog .'
    """
    if not isinstance(text, str):
        raise DataError(f"A caption of image {key!r} must be text; got {text!r}.")
    return " ".join(text.split())


def signature(record: ImageRecord) -> str:
    """Return a short hash of a record, with which a resumed run detects that its source changed.

    A changed image behind an unchanged URI is not detected.
    """
    image: Any = None
    if isinstance(record.image, Path):
        try:
            status = record.image.stat()
            image = [status.st_size, status.st_mtime_ns]
        except OSError:
            image = "missing"
    elif isinstance(record.image, RemoteImage):
        image = record.image.uri  # A request per image would take as long as reading it.
    elif isinstance(record.image, BadImage):
        image = str(record.image)
    elif record.image is not None:
        image = sha256_bytes(record.image)
    names = [field.name for field in dataclasses.fields(record) if field.name not in ("image", "where")]
    parts = [getattr(record, name) for name in names]
    return sha256_bytes(json.dumps([parts, image], sort_keys=True, default=str).encode())[:16]


def examine(record: ImageRecord, max_side: int | None) -> Outcome:
    """Clean the captions of a record, and check and convert its image.

    Returns:
        line: the journal line, a dictionary. `signature` is the result of `signature`. `entry` is the index entry,
            whose id, shard and offset are set later; None if the record is left out, for `reason`. `dropped` is the
            number of empty captions left out.
        encoded: image bytes to store, or None.

    Raises:
        DataError: if the record itself is malformed. A bad image is not an error; it is left out.
    """
    key = record.key
    if not isinstance(key, str) or not key:
        raise DataError(f"The key of an image must be non-empty text; got {key!r}.")
    if has_surrogate(key):
        raise DataError(f"The key of image {key!r} must be valid Unicode. Rename the image.")
    check_split_name(record.split)
    for name, values in (("alignments", record.alignments), ("ids", record.caption_ids)):
        if values and len(values) != len(record.captions):
            raise DataError(f"Image {key!r} has {len(record.captions)} captions and {len(values)} {name}.")
    captions = [clean_caption(text, key) for text in record.captions]
    kept = [place for place, text in enumerate(captions) if text]
    # Compute the signature before reading the bytes, so that a file that changes in between counts as changed later.
    dropped = len(captions) - len(kept)
    line = {"signature": signature(record), "key": key, "entry": None, "reason": None, "dropped": dropped}
    if not kept:
        return line | {"reason": "no caption"}, None
    # Half a character, from broken JSON, which no file can hold.
    if any(map(has_surrogate, [*captions, record.class_name or ""])):
        return line | {"reason": "a caption or the class has a lone surrogate, which is not valid Unicode"}, None
    entry: dict[str, Any] = {"id": None, "key": key, "captions": [captions[place] for place in kept]}
    entry |= {"width": None, "height": None, "class": record.class_name or None}
    encoded, scale = None, (1.0, 1.0)
    if record.image is not None:
        try:
            stored = sanitise_image(source_bytes(record.image), max_side)
            if stored.turned and record.objects:
                raise BadImage("has an EXIF orientation, which its object boxes would not follow")
        except BadImage as error:
            return line | {"reason": str(error)}, None
        encoded, scale = stored.encoded, stored.scale
        entry |= {"width": stored.width, "height": stored.height, "sha256": sha256_bytes(encoded)}
    if record.objects:
        entry["objects"] = [_scaled(item, scale) for item in record.objects]
    if record.alignments:
        entry["alignments"] = [[list(pair) for pair in record.alignments[place]] for place in kept]
    ids = []
    if record.caption_ids:
        ids = [_clean_id(record.caption_ids[place], key) for place in kept]
    # Ids equal to `caption_id` are left out, so that the fingerprint is the same as for a source without ids.
    if ids != [caption_id(key, number) for number in range(len(ids))]:
        entry["caption_ids"] = ids
    return line | {"entry": entry | {"shard": None, "offset": None}}, encoded


def _clean_id(name: Any, key: str) -> str:
    if not isinstance(name, str) or not name.strip() or has_surrogate(name):
        raise DataError(f"The id of a caption of image {key!r} must be Unicode text that is not empty; got {name!r}.")
    return name.strip()


def _scaled(item: Mapping[str, Any], scale: tuple[float, float]) -> dict[str, Any]:
    if scale == (1.0, 1.0):
        return dict(item)
    x, y, width, height = item["box"]
    return {**item, "box": [x * scale[0], y * scale[1], width * scale[0], height * scale[1]]}


def source_bytes(image: Path | RemoteImage | bytes | BadImage) -> bytes:
    """Return the bytes of an image of a source.

    Raises:
        BadImage: if it cannot be read.
    """
    if isinstance(image, BadImage):
        raise image
    if isinstance(image, bytes):
        return image
    try:
        return read_bytes(image) if isinstance(image, Path) else image.read_bytes()
    except FileNotFoundError as error:
        raise BadImage("no such file") from error
    except OSError as error:
        raise BadImage(f"{UNREADABLE}: {reason_of(error)}") from error


def examine_all(
    records: Iterable[ImageRecord], known: Collection[int], max_side: int | None, workers: int = _WORKERS
) -> Generator[tuple[int, ImageRecord, Outcome | None], None, None]:
    """Examine records in threads and yield them in their order.

    Args:
        records: the source.
        known: positions (from 0) of records that an earlier run finished; they are not examined again.
        max_side: see `sanitise_image`.
        workers: number of threads.

    Yields:
        (position, record, result of `examine`; None for a known position).
    """
    pool = ThreadPoolExecutor(workers, thread_name_prefix="vsemb-prepare")
    waiting: deque[tuple[int, ImageRecord, Future[Outcome] | None]] = deque()

    def oldest() -> tuple[int, ImageRecord, Outcome | None]:
        position, record, future = waiting.popleft()
        outcome = None if future is None else future.result()
        return position, record, outcome

    try:
        for position, record in enumerate(records):
            future = None if position in known else pool.submit(examine, record, max_side)
            waiting.append((position, record, future))
            if len(waiting) >= _AHEAD:
                yield oldest()
        while waiting:
            yield oldest()
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
