"""Memory limits of all requests together: bytes read, bytes answered, and pixels of images decoded at once."""

from __future__ import annotations

import asyncio
import contextlib
import math
import re
import struct
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf

from vsemb.image.decode import MAX_PIXELS
from vsemb.serving.status import Code, RequestError

#: Maximum seconds for a request to arrive, and to wait for memory before it is read.
ARRIVAL_SECONDS = 60

#: First bytes of the images that models decode.
JPEG_MAGIC = b"\xff\xd8\xff"
PNG_MAGIC = b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR"

# As in libjpeg, a marker is the last 0xFF of a run, followed by a byte other than 0.
_MARKER = re.compile(rb"\xff([^\xff\x00])")
_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
_ALONE = frozenset(range(0xD0, 0xD9)) | {0x01}

# Maximum segments of a JPEG that are read before its size.
_SEGMENTS = 256

#: Minimum pixels of an image row: also rows that cannot be decoded have the size of the model's input.
ROW_PIXELS = 256 * 256


@dataclass(eq=False)
class Budget:
    """A limit of bytes that all requests may hold together, granted in the order of arrival; for one event loop.

    Args:
        limit: maximum bytes. A request for more bytes waits for all of them.
    """

    limit: int

    def __post_init__(self) -> None:
        self.used = 0
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    @contextlib.asynccontextmanager
    async def share(self, size: int) -> AsyncIterator[Callable[[int], None]]:
        """Hold bytes inside this context.

        Args:
            size: number of bytes.

        Yields:
            A function of a number of bytes that releases all bytes beyond this number.

        Raises:
            RequestError: as `take`.
        """
        keep = await self.take(size)
        try:
            yield keep
        finally:
            keep(0)

    async def take(self, size: int) -> Callable[[int], None]:
        """Hold bytes until they are released.

        Args:
            size: number of bytes.

        Returns:
            A function of a number of bytes that releases all bytes beyond this number.

        Raises:
            RequestError: RESOURCE_EXHAUSTED if the bytes are not free in time.
        """
        held = min(size, self.limit)
        if not self._waiting and self.used + held <= self.limit:
            # The common case, without a future.
            self.used += held
        else:
            await self._turn(held)

        def keep(fewer: int) -> None:
            nonlocal held
            self.used -= max(0, held - fewer)
            held = min(held, fewer)
            self._grant()

        return keep

    async def _turn(self, held: int) -> None:
        """Wait for bytes and count them."""
        turn = asyncio.get_running_loop().create_future()
        self._waiting.append((held, turn))
        self._grant()
        try:
            async with asyncio.timeout(ARRIVAL_SECONDS):
                await turn
        except BaseException as error:
            if turn.done() and not turn.cancelled():
                self.used -= held
            self._grant()
            if not isinstance(error, TimeoutError):
                raise
            busy = f"The server holds {self.limit} bytes of requests, its maximum. Try again."
            raise RequestError(Code.RESOURCE_EXHAUSTED, busy, 503) from None

    def _grant(self) -> None:
        while self._waiting:
            size, turn = self._waiting[0]
            if not turn.done() and self.used + size > self.limit:
                return
            self._waiting.popleft()
            if not turn.done():
                self.used += size
                turn.set_result(None)


def image_pixels(encoded: bytes) -> int:
    """Return the number of pixels in the header of a JPEG or PNG; 0 for other bytes.

    A JPEG whose header cannot be read counts as the largest image.

    Example:

    >>> image_pixels(PNG_MAGIC + bytes([0, 0, 0, 3, 0, 0, 0, 5])), image_pixels(b"a dog")
    (15, 0)
    """
    if encoded.startswith(PNG_MAGIC):
        width, height = struct.unpack(">II", encoded[16:24].ljust(8, b"\0"))
        return int(width * height)
    if not encoded.startswith(JPEG_MAGIC):
        return 0
    place = 2
    for _ in range(_SEGMENTS):
        match = _MARKER.search(encoded, place)
        if match is None or len(encoded) < match.end() + 7:
            break
        marker, place = match[1][0], match.end()
        length, _, height, width = struct.unpack_from(">HBHH", encoded, place)
        if marker in _FRAMES:
            return int(width * height)
        place += 0 if marker in _ALONE else length
    return MAX_PIXELS


def count_rows(inputs: Mapping[str, np.ndarray]) -> int:
    """Return the rows of a request: the largest 0th dimension; 1 without dimensions."""
    return max((len(array) for array in inputs.values() if array.ndim), default=1)


def row_pixels(inputs: Mapping[str, np.ndarray]) -> list[int]:
    """Return the pixels of the images in each row of a request.

    Args:
        inputs: name -> array, rows in the 0th dimension; strings as arrays of `bytes` objects. Each value of an input
            whose name ends in `_bytes` counts as an image.
    """
    rows = [0] * count_rows(inputs)
    for name, array in inputs.items():
        if array.dtype == object and rows:
            each = max(1, array.size // len(rows))
            least = ROW_PIXELS if name.endswith("_bytes") else 0
            for place, value in enumerate(array.ravel()):
                if pixels := max(image_pixels(value), least):
                    rows[min(place // each, len(rows) - 1)] += pixels
    return rows


def tensor_bytes(proto: Any) -> int:
    """Return the bytes of the array that a TensorProto describes, which may have one value for all elements.

    Args:
        proto: a TensorProto.
    """
    elements = math.prod(max(0, dim.size) for dim in proto.tensor_shape.dim)
    if proto.string_val:
        values = sum(map(len, proto.string_val))
        return values + max(0, elements - len(proto.string_val)) * len(proto.string_val[-1])
    try:
        return elements * int(tf.as_dtype(proto.dtype).size)
    except TypeError:
        # An unknown type, which is refused later.
        return 0
