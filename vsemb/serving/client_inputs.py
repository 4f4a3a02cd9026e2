"""What a client is given, checked and made ready to send: addresses, options, arrays, texts and images."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np

from vsemb.errors import DataError, invalid_argument
from vsemb.serving.transports import Address, TensorInfo

_PORTS = {"http": 80, "https": 443, "grpc": 8500, "grpcs": 443}


def parse_address(url: str, model: str, version: int | None, label: str | None) -> tuple[str, Address]:
    """Reads a URL.

    Returns:
        The scheme, and where the model is.

    Raises:
        InvalidArgumentError: for another URL, or a name that no model can have.

    Example:

    >>> scheme, address = parse_address("grpc://localhost", "pets", None, "stable")
    >>> scheme, address.port, address.label
    ('grpc', 8500, 'stable')
    """
    allowed = "http://HOST:PORT, https://HOST:PORT, grpc://HOST:PORT or grpcs://HOST:PORT"
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except (ValueError, TypeError, AttributeError) as error:
        raise invalid_argument("url", url, allowed) from error
    if parts.scheme not in _PORTS or not host or parts.query or parts.fragment or parts.username is not None:
        raise invalid_argument("url", url, allowed)
    path = parts.path.rstrip("/")
    if path and not parts.scheme.startswith("http"):
        raise invalid_argument("url", url, allowed, "gRPC has no paths.")
    if re.search(r"/v1(/|$)", path):
        raise invalid_argument("url", url, allowed, "Give the address alone, and the model by `model`.")
    if not isinstance(model, str) or not model or re.search(r"[/:\s]", model):
        raise invalid_argument("model", model, "a model's name, without / and :")
    if label is not None and (not label or re.search(r"[/:\s]", label)):
        raise invalid_argument("label", label, "a label's name, without / and :")
    host = f"[{host}]" if ":" in host else host
    secure = parts.scheme in ("https", "grpcs")
    return parts.scheme, Address(
        host, _PORTS[parts.scheme] if port is None else port, model, version, label, secure, path
    )


def check_options(version: object, label: object, timeout: object, **counts: object) -> None:
    """Refuses what no client can be made with.

    Args:
        version: a version's number, or None.
        label: a version's label, or None; not both.
        timeout: seconds.
        **counts: `retries`, from 0, and sizes of a request, from 1.

    Raises:
        InvalidArgumentError: for the first that is not allowed.

    Example:

    >>> check_options(None, "stable", 10.0, retries=0, batch_size=64)
    """
    if version is not None and label is not None:
        raise invalid_argument("label", label, "no label where a version is given", "Leave one out.")
    if version is not None and not (_is_integer(version, 0) and version < 2**63):  # type: ignore[operator]
        raise invalid_argument("version", version, "an integer >= 0 and below 2**63")
    if label is not None and not isinstance(label, str):
        raise invalid_argument("label", label, "a text")
    number = isinstance(timeout, int | float) and not isinstance(timeout, bool)
    if not number or not (timeout > 0 and math.isfinite(timeout)):  # type: ignore[operator, arg-type]
        raise invalid_argument("timeout", timeout, "a number of seconds > 0")
    for name, value in counts.items():
        least = 0 if name == "retries" else 1
        if not _is_integer(value, least):
            raise invalid_argument(name, value, f"an integer >= {least}")


def to_array(name: str, values: Any, info: TensorInfo) -> np.ndarray:
    """Returns values as an array of the input's type."""
    if info.dtype == object:
        array = np.asarray(values, object)
        flat = [value.encode() if isinstance(value, str) else value for value in array.ravel()]
        for value in flat:
            if not isinstance(value, bytes):
                raise invalid_argument(name, value, "strings or bytes, in rows of one length")
        result = np.empty(array.shape, object)
        result.reshape(-1)[:] = flat
    else:
        try:
            given = np.asarray(values)
            fits = given.size == 0 or np.can_cast(given.dtype, info.dtype, "same_kind")
            with np.errstate(over="ignore"):
                result = given.astype(info.dtype)
            # What is a whole number too large would come back as another one.
            fits = fits and (info.dtype.kind not in "iu" or np.array_equal(result, given))
        except (ValueError, TypeError, OverflowError):
            fits = False
        if not fits:
            raise invalid_argument(name, values, f"values of type {info.dtype}")
    if info.shape is not None and len(info.shape) != result.ndim:
        raise invalid_argument(name, f"shape {result.shape}", f"{len(info.shape)} dimensions")
    return result


def no_rows(info: TensorInfo) -> np.ndarray:
    """Returns an output for no rows at all."""
    shape = info.shape or (None,)
    return np.zeros((0, *(0 if size is None else size for size in shape[1:])), info.dtype)


def requests_of(arrays: Sequence[np.ndarray], most_rows: int, most_bytes: int) -> Iterator[tuple[int, int]]:
    """Yields the first and the last row but one of each request.

    Args:
        arrays: the inputs, with equally many rows, one at least.
        most_rows: of a request.
        most_bytes: of a request, unless a single row has more.

    Example:

    >>> list(requests_of([np.array([b"abc", b"d", b"e"], object)], most_rows=2, most_bytes=3))
    [(0, 1), (1, 3)]
    """
    sizes = np.zeros(len(arrays[0]), np.int64)
    for array in arrays:
        if array.dtype == object:
            flat = array.reshape(len(array), -1)
            sizes += [sum(map(len, row)) for row in flat]
        else:
            sizes += array[:1].nbytes
    start, size = 0, 0
    for row, row_size in enumerate(sizes.tolist()):
        if row > start and (row - start >= most_rows or size + row_size > most_bytes):
            yield start, row
            start, size = row, 0
        size += row_size
    yield start, len(sizes)


def to_texts(texts: Sequence[str | bytes]) -> list[bytes]:
    """Returns texts as bytes."""
    _refuse_one("texts", texts)
    encoded = []
    for text in texts:
        if not isinstance(text, str | bytes):
            raise invalid_argument("texts", text, "strings")
        # What is no text of Unicode is the server's to replace.
        encoded.append(text.encode(errors="surrogatepass") if isinstance(text, str) else text)
    return encoded


def to_images(images: Sequence[bytes | str | os.PathLike[str]]) -> list[bytes]:
    """Returns images as the content of their files; see `Client.encode_image`."""
    _refuse_one("images", images)
    contents = []
    for image in images:
        if isinstance(image, bytes | bytearray | memoryview):
            contents.append(bytes(image))
            continue
        if not isinstance(image, str | os.PathLike):
            raise invalid_argument("images", type(image).__name__, "bytes of a JPEG or PNG file, or its path")
        try:
            contents.append(Path(image).read_bytes())
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or error
            raise DataError(f"Cannot read the image {os.fspath(image)}: {reason}.") from error
    return contents


def _refuse_one(name: str, values: object) -> None:
    if isinstance(values, str | bytes | bytearray | os.PathLike):
        raise invalid_argument(name, type(values).__name__, "a list, with one entry for each row")


def _is_integer(value: object, least: int) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool) and bool(value >= least)
