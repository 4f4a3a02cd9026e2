"""The index of a split: an Arrow IPC file, read in place from a memory map.

Opening a file reads its schema and the offsets of its record batches, so its cost hardly grows with the number of
images. A value is read on access. All processes of a machine share the mapped pages.

Reference: https://arrow.apache.org/docs/format/Columnar.html#ipc-file-format
"""

from __future__ import annotations

import hashlib
import itertools
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, overload

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from vsemb.errors import DataError, one_line
from vsemb.files import require_regular
from vsemb.unicode import has_surrogate

#: Columns of an index. `objects` and `alignments` are JSON, since generators choose their fields. `offset` is the byte
#: offset of the image's TFRecord in its shard; `image_offset` and `image_bytes` are the offset and the length of its
#: JPEG or PNG bytes in the shard.
SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("key", pa.string(), nullable=False),
        pa.field("captions", pa.list_(pa.string()), nullable=False),
        pa.field("width", pa.int32()),
        pa.field("height", pa.int32()),
        pa.field("class", pa.string()),
        pa.field("sha256", pa.string()),
        pa.field("objects", pa.string()),
        pa.field("alignments", pa.string()),
        pa.field("caption_ids", pa.list_(pa.string())),
        pa.field("shard", pa.int32(), nullable=False),
        pa.field("offset", pa.int64(), nullable=False),
        pa.field("image_offset", pa.int64()),
        pa.field("image_bytes", pa.int64()),
    ]
)
_JSON = ("objects", "alignments")
# Images per record batch. A writer holds one batch in memory, and the texts of a batch must fit 32-bit offsets.
_BATCH = 16_384


class Column(Sequence[Any]):
    """A column that is read in place: `column[3]` is one value, `column[3:5]` and `column[rows]` are lists.

    Args:
        chunks: the column's Arrow arrays, in order.
        decode: converts a stored value to the returned one; default: no conversion.
        places: int64, positions of the selected values, in order; None for all.

    Attributes:
        places: the argument.

    Example:

    >>> texts = Column([pa.array(["a dog", "a cat"]), pa.array(["a bird"])])
    >>> texts[2], texts[np.array([1, 0])], texts.index("a bird"), len(texts)
    ('a bird', ['a cat', 'a dog'], 2, 3)
    """

    def __init__(
        self,
        chunks: Iterable[pa.Array],
        decode: Callable[[Any], Any] | None = None,
        places: np.ndarray | None = None,
    ) -> None:
        self._chunks = list(chunks)
        self._ends = np.cumsum([len(chunk) for chunk in self._chunks], dtype=np.int64)
        self._decode = decode
        self.places = places

    def __len__(self) -> int:
        if self.places is not None:
            return len(self.places)
        return int(self._ends[-1]) if len(self._ends) else 0

    @overload
    def __getitem__(self, place: int | np.integer[Any]) -> Any: ...
    @overload
    def __getitem__(self, place: slice | np.ndarray) -> list[Any]: ...
    def __getitem__(self, place: int | np.integer[Any] | slice | np.ndarray) -> Any:
        if isinstance(place, slice):
            return self._take(np.arange(*place.indices(len(self))))
        if isinstance(place, np.ndarray) and place.ndim:
            return self._take(place)
        number = int(place) + (len(self) if place < 0 else 0)
        if not 0 <= number < len(self):
            raise IndexError(f"{place} of {len(self)}")
        return self._take(np.array([number]))[0]

    def _take(self, places: np.ndarray) -> list[Any]:
        if self.places is not None:
            places = self.places[places]
        numbers = np.searchsorted(self._ends, places, "right")
        if len(places) and numbers[0] == numbers[-1] and np.all(numbers == numbers[0]):
            return self._of_chunk(int(numbers[0]), places)
        values = np.empty(len(places), object)
        for number in np.unique(numbers):
            where = np.flatnonzero(numbers == number)
            values[where] = np.fromiter(self._of_chunk(int(number), places[where]), object, len(where))
        return values.tolist()

    def _of_chunk(self, number: int, places: np.ndarray) -> list[Any]:
        chunk = self._chunks[number]
        inside = places - (self._ends[number] - len(chunk))
        whole = len(inside) == inside[-1] - inside[0] + 1 and bool(np.all(np.diff(inside) == 1))
        values = chunk.slice(inside[0], len(inside)) if whole else chunk.take(pa.array(inside))
        return values.to_pylist() if self._decode is None else [self._decode(value) for value in values.to_pylist()]

    def __iter__(self) -> Iterator[Any]:
        for start in range(0, len(self), _BATCH):
            yield from self[start : start + _BATCH]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Sequence) or len(self) != len(other):
            return False
        return all(a == b for a, b in zip(self, other, strict=True))

    def __repr__(self) -> str:
        shown = repr(self[:5])
        return shown if len(self) <= 5 else f"{shown[:-1]}, ... {len(self)} in all]"

    def rows_of(self, value: Any) -> np.ndarray:
        """Return the positions of a stored value, int64, ascending; none of a text with lone surrogates."""
        parts = [np.zeros(0, np.int64)]
        if isinstance(value, str) and has_surrogate(value):
            return parts[0]
        for chunk, end in zip(self._chunks, self._ends, strict=True):
            equal = pc.is_null(chunk) if value is None else pc.fill_null(pc.equal(chunk, value), False)
            parts.append(end - len(chunk) + np.flatnonzero(equal))
        places = np.concatenate(parts)
        return places if self.places is None else np.flatnonzero(np.isin(self.places, places))

    def index(self, value: Any, start: int = 0, stop: int | None = None) -> int:
        """Return the first position of a stored value.

        Raises:
            ValueError: if the column does not contain the value.
        """
        rows = self.rows_of(value)
        rows = rows[rows >= start]
        if stop is not None:
            rows = rows[rows < stop]
        if not len(rows):
            raise ValueError(f"{value!r} is not in the column")
        return int(rows[0])

    def __contains__(self, value: object) -> bool:
        return len(self.rows_of(value)) > 0

    def at(self, places: np.ndarray) -> Column:
        """Return the column of the values at some positions; they are read on access."""
        return Column(self._chunks, self._decode, places if self.places is None else self.places[places])


class SplitIndex:
    """The columns of a split's index, memory-mapped.

    Args:
        path: the index file.
        images: expected number of images.
        captions: expected number of captions.

    Attributes:
        batches: the record batches of the file.
        keys, class_names, digests: columns with one value per image, None where it is missing.
        objects, alignments: columns with one list per image, [] where it is missing.
        captions: all captions, image by image.

    Raises:
        DataError: if the file is not an index, or has other columns or counts.
    """

    def __init__(self, path: Path, images: int, captions: int) -> None:
        self.path = path
        self._table = open_columns(path, SCHEMA, "Prepare the dataset again.")
        self.batches = self._table.to_batches()
        self._ends = np.cumsum([len(batch) for batch in self.batches], dtype=np.int64)
        self.keys, self.class_names, self.digests = map(self._column, ("key", "class", "sha256"))
        self.objects, self.alignments = (self._column(name, _read_list) for name in _JSON)
        self.captions = Column(chunk.flatten() for chunk in self._table["captions"].chunks)
        if (len(self.keys), len(self.captions)) != (images, captions):
            raise DataError(
                f"The index {path} must have {images:,} images and {captions:,} captions; got {len(self.keys):,} and "
                f"{len(self.captions):,}. Prepare the dataset again."
            )

    def _column(self, name: str, decode: Callable[[Any], Any] | None = None) -> Column:
        return Column(self._table[name].chunks, decode)

    def numbers(self, name: str) -> np.ndarray:
        """Return a column of integers, (n,), without a copy if the file has one record batch."""
        parts = [_in_place(batch.column(name)) for batch in self.batches]
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    def gather(self, names: Sequence[str], rows: np.ndarray) -> np.ndarray:
        """Return integer columns of some images, int64 (len(rows), len(names))."""
        values = np.empty((len(rows), len(names)), np.int64)
        numbers = np.searchsorted(self._ends, rows, "right")
        for number in np.unique(numbers):
            where, batch = numbers == number, self.batches[number]
            inside = rows[where] - (self._ends[number] - len(batch))
            values[where] = np.stack([_in_place(batch.column(name))[inside] for name in names], axis=1)
        return values

    def has(self, name: str, every: bool = True) -> bool:
        """Return whether every image has a value in a column; with `every=False`, whether any has."""
        missing = self._table[name].null_count
        return missing == 0 if every else missing < len(self._table)

    def caption_offsets(self) -> np.ndarray:
        """Return the offsets of each image's captions among all captions, int64 (n + 1,)."""
        counts = [np.diff(_in_place(batch.column("captions").offsets)) for batch in self.batches]
        offsets = np.zeros(len(self._table) + 1, np.int64)
        np.cumsum(np.concatenate(counts), out=offsets[1:])
        return offsets

    def caption_ids(self) -> Iterator[list[str] | None]:
        """Yield the source's caption ids of each image; None for an image without them."""
        return iter(self._column("caption_ids"))

    def entries(self) -> Iterator[dict[str, Any]]:
        """Yield the entries that `write_index` wrote, image by image."""
        for batch in self.batches:
            for row in batch.to_pylist():
                yield row | {name: json.loads(row[name]) for name in _JSON if row[name] is not None}


def _read_list(text: str | None) -> list[Any]:
    return json.loads(text) if text else []


def _in_place(numbers: pa.Array) -> np.ndarray:
    """Return integers without nulls as a NumPy view; `Array.to_numpy` would import pandas."""
    dtype = np.dtype(f"i{numbers.type.bit_width // 8}")
    return np.frombuffer(numbers.buffers()[1], dtype, len(numbers), numbers.offset * dtype.itemsize)


def open_columns(path: Path, schema: pa.Schema, fix: str) -> pa.Table:
    """Map a file of `write_columns` into memory.

    Args:
        path: the file.
        schema: the columns that it must have.
        fix: last sentence of error messages, such as `Prepare the dataset again.`

    Raises:
        DataError: if the file is of another format, or a column is missing or of another type.
    """
    try:
        table: pa.Table = pa.ipc.open_file(pa.memory_map(str(require_regular(path)))).read_all()
    except (pa.ArrowException, OSError, ValueError) as error:
        reason = one_line(str(error).partition(". Detail:")[0]).rstrip(".")
        raise DataError(f"The index {path} cannot be read: {reason}. {fix}") from error
    for field in schema:
        stored = table.schema.field(field.name).type if field.name in table.schema.names else "missing"
        if stored != field.type:
            raise DataError(f"The column {field.name!r} of the index {path} must be {field.type}; got {stored}. {fix}")
    return table


def write_columns(path: Path, schema: pa.Schema, rows: Iterable[Mapping[str, Any]]) -> None:
    """Write rows as columns in bounded memory.

    Args:
        path: the file.
        schema: the columns.
        rows: dictionaries from column to value; missing values become null.
    """
    rest = iter(rows)
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, schema) as writer:
        while block := list(itertools.islice(rest, _BATCH)):
            writer.write_batch(pa.RecordBatch.from_pylist(block, schema))


def write_index(path: Path, entries: Iterable[Mapping[str, Any]]) -> str:
    """Write the index of a split in bounded memory.

    Args:
        path: the file.
        entries: one dictionary per image from column to value, in the order of ids; missing values become null.

    Returns:
        Hex SHA-256 of the content. It does not depend on the version of Arrow.
    """
    digest = hashlib.sha256()

    def flat() -> Iterator[dict[str, Any]]:
        for entry in entries:
            digest.update(content_line(entry))
            row = dict(entry)
            for name in _JSON:
                if row.get(name):
                    row[name] = _json(row[name])
            yield row

    write_columns(path, SCHEMA, flat())
    return digest.hexdigest()


def content_line(entry: Mapping[str, Any]) -> bytes:
    """Return the entry of an image as bytes, the input of fingerprints."""
    return _json({name: entry[name] for name in SCHEMA.names if entry.get(name) is not None}).encode() + b"\n"


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
