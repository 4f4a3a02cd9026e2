"""Check the structure of encoded images, so that damage is found that some decoders do not notice."""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterable, Iterator
from typing import TypeAlias

_PNG_SIGNATURE = b"\x89PNG\r\n\x1a\n"
# Chunks that decoders must understand, in their order.
_CRITICAL = {b"IHDR": 0, b"PLTE": 1, b"IDAT": 2, b"IEND": 3}
# libpng refuses a chunk of more than 8 MB, and orientations are not read from compressed text of more than 64 KB.
_METADATA = 60_000
# Bytes of pixels that are decompressed at once.
_BLOCK = 1 << 20
# Colour type -> samples per pixel.
_SAMPLES = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}
# First column and row of a pass of interlacing, and their steps (PNG, 8.2).
_PASSES = ((0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2))

# Within entropy-coded data of a JPEG, 0xFF is followed by 0 or by the number of a restart.
_NEXT_MARKER = re.compile(rb"\xff[^\x00\xd0-\xd7]")
_SCAN, _END = 0xDA, 0xD9
# Baseline, extended and progressive frames with Huffman codes.
_FRAMES = (0xC0, 0xC1, 0xC2)
_OTHER_FRAMES = frozenset(range(0xC3, 0xD0)) - {0xC4, 0xC8}

# Name -> content of the chunks of a PNG that were read.
_Chunks: TypeAlias = dict[bytes, memoryview]

_NO_END = "truncated: the JPEG has no end, the marker EOI"


class Damaged(Exception):
    """An image that was damaged after it was written, or has unknown parts; the message is the reason."""


def is_plain_png(data: bytes) -> bool:
    """Whether all decoders read a PNG alike: chunks in their order, and few metadata, none of them compressed text.

    Args:
        data: bytes of the file. Bytes behind the chunk IEND are not read.

    Raises:
        Damaged: if the checksum of a chunk is wrong, the file ends before IEND, decoders must understand an unknown
            chunk, or a header, palette or transparent colour is not as the PNG standard has it.

    Example:

    >>> is_plain_png(b"\\x89PNG\\r\\n\\x1a\\n")
    Traceback (most recent call last):
    ...
    vsemb.data.damage.Damaged: truncated: the PNG has no end, the chunk IEND
    """
    order: list[int] = []
    seen: _Chunks = {}
    previous, metadata, packed = b"", 0, False
    for name, content in _chunks(data):
        if name in _CRITICAL:
            # All IDAT chunks follow one another.
            if not name == previous == b"IDAT":
                order.append(_CRITICAL[name])
        elif name[:1].isupper():
            # Such chunks may change the pixels; decoders of TensorFlow refuse them, and Pillow reads over them.
            raise Damaged(f"the PNG has the unknown chunk {name.decode('ascii', 'replace')}; write it anew")
        else:
            metadata += len(content) + 12
            # The graph refuses text that does not decompress.
            packed |= name == b"zTXt" or (name == b"iTXt" and b"\0\1" in bytes(content[:81]))
        if name in _RULES and not _RULES[name](content, seen):
            raise Damaged(
                f"damaged: the PNG's chunk {name.decode()} is cut, repeated, misplaced, or does not fit others"
            )
        seen[name] = content
        previous = name
    return order in ([0, 2, 3], [0, 1, 2, 3]) and metadata <= _METADATA and not packed


def require_pixels(data: bytes) -> None:
    """Refuse a PNG with fewer pixels than its header says; Pillow shows the others black.

    Args:
        data: bytes of a file whose chunks are whole, as `is_plain_png` finds, with a known colour type.

    Raises:
        Damaged: if pixels are missing, or their compressed data has no end.

    Example:

        require_pixels(Path("dog.png").read_bytes())
    """
    chunks = list(_chunks(data))
    header = chunks[0][1]
    width, height = int.from_bytes(header[:4], "big"), int.from_bytes(header[4:8], "big")
    bits = header[8] * _SAMPLES[header[9]]
    passes = _PASSES if header[12] else ((0, 0, 1, 1),)
    wanted = 0
    for left, top, across, down in passes:
        columns, rows = -((left - width) // across), -((top - height) // down)
        # Each row begins with the number of its filter.
        wanted += rows * (1 + (columns * bits + 7) // 8) if columns > 0 and rows > 0 else 0
    if not _inflates((content for name, content in chunks if name == b"IDAT"), wanted):
        raise Damaged("truncated: the PNG has fewer pixels than its header says")


def _inflates(parts: Iterable[memoryview], wanted: int) -> bool:
    """Whether compressed parts hold a number of bytes and an end, or more bytes."""
    inflate, count = zlib.decompressobj(), 0
    try:
        for part in parts:
            rest: bytes | memoryview = part
            while rest and not inflate.eof and count <= wanted:
                count += len(inflate.decompress(rest, _BLOCK))
                rest = inflate.unconsumed_tail
    except zlib.error as error:
        raise Damaged(f"damaged: the PNG's pixels cannot be decompressed: {error}") from error
    return count > wanted or (inflate.eof and count == wanted)


def _is_header(content: memoryview, seen: _Chunks) -> bool:
    # Compression and filters of method 0 are the only ones.
    return len(content) == 13 and not seen and not any(content[10:12])


def _is_palette(content: memoryview, seen: _Chunks) -> bool:
    return len(content) % 3 == 0 and 0 < len(content) <= 768 and seen.keys().isdisjoint((b"PLTE", b"IDAT"))


def _is_transparency(content: memoryview, seen: _Chunks) -> bool:
    if b"IHDR" not in seen or not seen.keys().isdisjoint((b"tRNS", b"IDAT")):
        return False
    depth, kind = seen[b"IHDR"][8:10]
    if kind == 3:
        return 0 < len(content) <= len(seen.get(b"PLTE", b"")) // 3
    values = [int.from_bytes(content[place : place + 2], "big") for place in range(0, len(content), 2)]
    # Decoders read the lower bits of larger values, but of one bit, Pillow reads all.
    return kind in (4, 6) or (len(content) == 2 * _SAMPLES.get(kind, 0) and (depth > 1 or values[0] < 2))


def _is_pixels(_: memoryview, seen: _Chunks) -> bool:
    return b"IHDR" in seen and (seen[b"IHDR"][9] != 3 or b"PLTE" in seen)


# Name of a chunk -> whether its content fits the chunks in front of it (PNG, 11.2 and 11.3.1.1). Decoders differ on
# others.
_RULES = {b"IHDR": _is_header, b"PLTE": _is_palette, b"tRNS": _is_transparency, b"IDAT": _is_pixels}


def _chunks(data: bytes) -> Iterator[tuple[bytes, memoryview]]:
    """Yield name and content of each chunk of a PNG, IEND the last."""
    start, name, view = len(_PNG_SIGNATURE), b"", memoryview(data)
    while name != b"IEND":
        length, name = int.from_bytes(data[start : start + 4], "big"), data[start + 4 : start + 8]
        end = start + 12 + length
        if end > len(data):
            raise Damaged("truncated: the PNG has no end, the chunk IEND")
        checksum = zlib.crc32(view[start + 4 : end - 4])
        if data[end - 4 : end] != checksum.to_bytes(4, "big"):
            raise Damaged(f"damaged: the checksum of the PNG's chunk {name.decode('ascii', 'replace')} is wrong")
        yield name, view[start + 8 : end - 4]
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
