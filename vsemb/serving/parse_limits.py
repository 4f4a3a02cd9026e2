"""Limits of what requests become in memory, checked in their bytes: a parsed value may take 80 times its bytes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from vsemb.serving.models import LoadedSignature
from vsemb.serving.request_handler import LARGE
from vsemb.serving.status import RequestError, invalid

# Values of a JSON body besides its rows, such as keys that are ignored.
_OTHER_VALUES = 1024

# Minimum limit of a JSON body's lists and objects where the size of a row is open; or one per so many bytes.
_LEAST_LISTS, _LIST_BYTES = 2**16, 8

# Maximum fields of a message per row.
_ROW_FIELDS = 64

# Maximum bytes of a number in a message's wire format.
_VARINT_BYTES = 10


def require_json_size(body: bytes, signatures: Iterable[LoadedSignature], max_rows: int) -> None:
    """Refuse a JSON body with more values, or lists and objects, than the largest legal request.

    Args:
        body: JSON, valid or not.
        signatures: the signatures that the body may be for.
        max_rows: maximum rows of a request.

    Raises:
        RequestError: INVALID_ARGUMENT for too many.
    """
    sizes = [signature.row_json for signature in signatures]
    known = [size for size in sizes if size is not None]
    if known and len(known) == len(sizes):
        values, lists = (max_rows * max(column) + _OTHER_VALUES for column in zip(*known, strict=True))
    else:
        values, lists = len(body), max(_LEAST_LISTS, len(body) // _LIST_BYTES)
    # A value has at least a byte.
    if len(body) <= lists:
        return
    counts = _json_counts(np.frombuffer(body, np.uint8))
    if counts[0] > values or counts[1] > lists:
        # Only now tell characters of strings, which take longer to find.
        unescaped = np.frombuffer(body.replace(b"\\\\", b"").replace(b'\\"', b""), np.uint8)
        inside = np.logical_xor.accumulate(unescaped == ord('"'))
        counts = _json_counts(unescaped[~inside])
    for count, most, name in zip(counts, (values, lists), ("values", "lists and objects"), strict=True):
        if count > most:
            raise _too_many(most, name, count)


def _json_counts(characters: np.ndarray) -> tuple[int, int]:
    """Return the numbers of values, and of lists and objects; an empty list counts as a value."""
    lists = np.count_nonzero(characters == ord("[")) + np.count_nonzero(characters == ord("{"))
    return int(np.count_nonzero(characters == ord(",")) + lists), int(lists)


def require_message_size(data: bytes, descriptor: Any, max_rows: int) -> None:
    """Refuse a message with more fields than a legal request.

    Args:
        data: the message in the wire format, valid or not.
        descriptor: protobuf's descriptor of its type.
        max_rows: maximum rows of a request.

    Raises:
        RequestError: INVALID_ARGUMENT for too many.
    """
    most = max_rows * _ROW_FIELDS
    if len(data) > LARGE and (count := count_fields(data, descriptor, most)) > most:
        raise _too_many(most, "fields", count)


def count_fields(data: bytes, descriptor: Any, most: int) -> int:
    """Return the number of fields of a message and the messages in it, up to one more than `most`.

    Args:
        data: the message in the wire format. Of a malformed message, only the fields before the error may count.
        descriptor: protobuf's descriptor of its type.
        most: number after which counting stops.
    """
    count, messages = 0, [(descriptor, 0, len(data))]
    try:
        while messages:
            kind, place, end = messages.pop()
            while place < end:
                count += 1
                if count > most:
                    return count
                tag, place = _varint(data, place)
                match tag & 7:
                    case 0:
                        _, place = _varint(data, place)
                    case 1:
                        place += 8
                    case 5:
                        place += 4
                    case 2:
                        length, place = _varint(data, place)
                        field = kind.fields_by_number.get(tag >> 3)
                        if field is not None and field.message_type is not None:
                            messages.append((field.message_type, place, min(place + length, end)))
                        place += length
    except IndexError:
        # The parser reports this.
        pass
    return count


def _varint(data: bytes, place: int) -> tuple[int, int]:
    """Return a number of the wire format, and the place after it."""
    number = 0
    for position in range(_VARINT_BYTES):
        byte = data[place + position]
        number |= (byte & 0x7F) << 7 * position
        if byte < 0x80:
            return number, place + position + 1
    raise IndexError


def _too_many(most: int, name: str, count: int) -> RequestError:
    return invalid(f"The request must have at most {most} {name}; got {count}. Send it in parts.")
