"""Grey TIFF files of every depth, which Pillow reads and does not write."""

from __future__ import annotations

import numpy as np


def grey_tiff(values: np.ndarray, depth: int, *, white_is_zero: bool = False, signed: bool = False) -> bytes:
    """Write samples as they are, (height, width) int, as a little-endian TIFF of one strip without compression."""
    height, width = values.shape
    if depth == 12:
        first, second = values.reshape(-1, 2).T  # Two samples in three bytes.
        packed = np.stack([first >> 4, (first & 15) << 4 | second >> 8, second & 255], 1)
        data = packed.astype(np.uint8).tobytes()
    else:
        data = values.astype(f"<{'i' if signed else 'u'}{depth // 8}").tobytes()
    tags = {256: width, 257: height, 258: depth, 259: 1, 262: int(not white_is_zero), 273: None, 277: 1, 278: height}
    tags |= {279: len(data), 339: 2 if signed else 1}
    start = 8 + 2 + 12 * len(tags) + 4
    content = b"II*\0" + (8).to_bytes(4, "little") + len(tags).to_bytes(2, "little")
    for tag, value in tags.items():
        number = start if value is None else value
        content += b"".join(part.to_bytes(size, "little") for part, size in ((tag, 2), (4, 2), (1, 4), (number, 4)))
    return content + bytes(4) + data
