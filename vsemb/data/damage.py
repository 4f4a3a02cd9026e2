"""Check the structure of encoded images, so that damage is found that some decoders do not notice."""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator

_PNG_SIGNATURE = b"\x89PNG\r\n\x1a\n"
# Chunks that decoders must understand, in their order.
_CRITICAL = {b"IHDR": 0, b"PLTE": 1, b"IDAT": 2, b"IEND": 3}
# libpng refuses a chunk of more than 8 MB, and orientations are not read from compressed text of more than 64 KB.
_METADATA = 60_000

# Within entropy-coded data of a JPEG, 0xFF is followed by 0 or by the number of a restart.
_NEXT_MARKER = re.compile(rb"\xff[^\x00\xd0-\xd7]")
_SCAN, _END = 0xDA, 0xD9
# Baseline, extended and progressive frames with Huffman codes.
_FRAMES = (0xC0, 0xC1, 0xC2)
_OTHER_FRAMES = frozenset(range(0xC3, 0xD0)) - {0xC4, 0xC8}

_NO_END = "truncated: the JPEG has no end, the marker EOI"


class Damaged(Exception):
    """An image that was damaged after it was written, or has unknown parts; the message is the reason."""


def is_plain_png(data: bytes) -> bool:
    """Whether all decoders read a PNG alike: chunks in their order, and few metadata.

    Args:
        data: bytes of the file. Bytes behind the chunk IEND are not read.

    Raises:
        Damaged: if the checksum of a chunk is wrong, the file ends before IEND, or decoders must understand an unknown
            chunk.

    Example:

    >>> is_plain_png(b"\\x89PNG\\r\\n\\x1a\\n")
    Traceback (most recent call last):
    ...
    vsemb.data.damage.Damaged: truncated: the PNG has no end, the chunk IEND
    """
    order, previous, metadata = [], b"", 0
    for name, length in _chunks(data):
        if name in _CRITICAL:
            # All IDAT chunks follow one another.
            if not name == previous == b"IDAT":
                order.append(_CRITICAL[name])
        elif name[:1].isupper():
            # Such chunks may change the pixels; decoders of TensorFlow refuse them, and Pillow reads over them.
            raise Damaged(f"the PNG has the unknown chunk {name.decode('ascii', 'replace')}; write it anew")
        else:
            metadata += length + 12
        previous = name
    return order in ([0, 2, 3], [0, 1, 2, 3]) and metadata <= _METADATA


def _chunks(data: bytes) -> Iterator[tuple[bytes, int]]:
    """Yield name and length of each chunk of a PNG, IEND the last."""
    start, name = len(_PNG_SIGNATURE), b""
    while name != b"IEND":
        length, name = int.from_bytes(data[start : start + 4], "big"), data[start + 4 : start + 8]
        end = start + 12 + length
        if end > len(data):
            raise Damaged("truncated: the PNG has no end, the chunk IEND")
        checksum = zlib.crc32(memoryview(data)[start + 4 : end - 4])
        if data[end - 4 : end] != checksum.to_bytes(4, "big"):
            raise Damaged(f"damaged: the checksum of the PNG's chunk {name.decode('ascii', 'replace')} is wrong")
        yield name, length
        start = end


def is_plain_jpeg(data: bytes) -> bool:
    """Whether all decoders read a JPEG alike: segment behind segment, a known frame, and an end.

    Args:
        data: bytes of the file. Bytes behind the marker EOI are not read.

    Raises:
        Damaged: if the file ends before EOI, or bytes between two segments belong to none, behind which decoders
            continue differently.

    Example:

    >>> is_plain_jpeg(b"\\xff\\xd8\\xff\\xd9")  # It has no frame.
    False
    """
    place, frames, scans = 2, 0, 0
    while True:
        if len(data) < place + 2:
            raise Damaged(_NO_END)
        if data[place] != 0xFF:
            raise Damaged(f"damaged: the JPEG has no marker at byte {place:,}")
        marker = data[place + 1]
        if marker == 0xFF:  # A marker may follow any number of such bytes.
            place += 1
            continue
        if marker == _END:
            return frames == 1 and scans > 0
        length = int.from_bytes(data[place + 2 : place + 4], "big")
        if marker < 0xC0 or 0xD0 <= marker <= 0xD8 or length < 2 or marker in _OTHER_FRAMES:
            return False
        frames += marker in _FRAMES
        place += 2 + length
        if marker == _SCAN:
            scans += 1
            next_marker = _NEXT_MARKER.search(data, place)
            if next_marker is None:
                raise Damaged(_NO_END)
            place = next_marker.start()
