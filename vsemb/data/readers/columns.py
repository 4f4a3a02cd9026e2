"""Rows of Parquet files and of Hugging Face's Arrow files, as samples.

An image is bytes, or a struct with the field `bytes`. Without bytes, its field `path` is a file in the folder of the
table.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import parquet

from vsemb.data.readers.samples import Sample
from vsemb.data.readers.source import below, image_path, label_name
from vsemb.data.readers.table import COLUMNS, NUMBERED, WEAK, named_columns
from vsemb.errors import DataError, invalid_argument
from vsemb.files import require_regular

_KEYS = ("key", "file_name", "filename", "image_id", "uid", "id")
_ROWS = 64


def samples(
    file: Path, prefix: str, images: bool, *, image: str | None, text: str | None
) -> Iterator[Sample | DataError]:
    """Yield the rows of a file as samples, or an error in place of a malformed row or a damaged rest.

    Args:
        file: a Parquet file, or an Arrow file of a Hugging Face dataset.
        prefix: beginning of the keys of rows without a key of their own.
        images: whether to read the images.
        image: the column of images; None for the only column of bytes.
        text: the column of captions; None for a column with a name like `caption`.
    """
    try:
        schema, batches = _batches(file)
        pick = _Columns(file, schema, image, text)
        number = 0
        for batch in batches(pick.names(images)):
            for row in batch.to_pylist():
                where, key = f"{file}, row {number}", f"{prefix}{number:06d}"
                number += 1
                try:
                    yield pick.sample(where, key, row)
                except DataError as error:
                    yield DataError(f"{where}: {error}")
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        yield DataError(f"{file}: the file is damaged or ends too early ({reason}). Its remaining rows are lost.")


def _batches(file: Path) -> tuple[pa.Schema, Any]:
    """Return the schema of a file, and a function that reads named columns in batches of a few rows."""
    if file.suffix.lower() == ".parquet":
        table = parquet.ParquetFile(require_regular(file), memory_map=True)
        return table.schema_arrow, lambda columns: table.iter_batches(_ROWS, columns=columns)
    stream = pa.ipc.open_stream(pa.memory_map(str(require_regular(file))))

    def batches(columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        for batch in stream:
            for start in range(0, len(batch), _ROWS):
                yield batch.select(columns).slice(start, _ROWS)

    return stream.schema, batches


class _Columns:
    """The columns of a table that hold images, captions, keys, splits and classes."""

    def __init__(self, file: Path, schema: pa.Schema, image: str | None, text: str | None) -> None:
        schema = pa.schema([field.with_type(_plain(field.type)) for field in schema], schema.metadata)
        for option, name in (("image_feature", image), ("text_feature", text)):
            if name is not None and name not in schema.names:
                raise invalid_argument(option, name, f"one of {', '.join(schema.names)}")
        binary = [field.name for field in schema if _holds_bytes(field.type)]
        if image is None and len(binary) != 1:
            received = ", ".join(binary) or f"none among {', '.join(schema.names)}"
            fix = "Name it with `image_feature`." if binary else "Download images with img2dataset first."
            raise DataError(
                f"{file} must have one column of images (bytes, or a struct with bytes); got {received}. {fix}"
            )
        self.folder = file.parent
        self.image = image or binary[0]
        self.texts = [text] if text else self._captions(file, schema)
        labels = _class_names(schema)
        free = [field for field in schema if field.name not in (*self.texts, self.image)]
        usable = [field.name for field in free if _is_text(field.type) or field.name in labels]
        wanted = {name: COLUMNS[name] for name in ("split", "class")}
        self.others = named_columns(str(file), usable, wanted, ())
        # Without a column of text, numbers may be classes. `Sample.checked` refuses splits that are no text.
        others = {"split": [field.name for field in free]}
        others["class"] = [field.name for field in free if pa.types.is_integer(field.type)]
        for ours in wanted.keys() - self.others.keys():
            self.others |= named_columns(str(file), others[ours], {ours: wanted[ours]}, ())
        self.labels = {ours: labels[name] for ours, name in self.others.items() if name in labels}
        self.key = next((name for name in _KEYS if name in schema.names), None)
        repeated = [name for name in self.names(images=True) if schema.names.count(name) > 1]
        if repeated:
            raise DataError(f"{file}: columns must have different names; got {repeated[0]} twice. Rename one of them.")

    @staticmethod
    def _captions(file: Path, schema: pa.Schema) -> list[str]:
        texts = [field.name for field in schema if _is_text(field.type)]
        numbered: dict[str, list[str]] = {}
        for name in texts:
            numbered.setdefault(NUMBERED.sub("", name), []).append(name)
        named = named_columns(str(file), list(numbered), {"caption": COLUMNS["caption"]}, ("caption",), WEAK)
        return numbered[named["caption"]]

    def names(self, images: bool) -> list[str]:
        """Return the columns to read."""
        names = [*self.texts, *self.others.values()]
        if self.key:
            names.append(self.key)
        if images:
            names.append(self.image)
        return list(dict.fromkeys(names))

    def sample(self, where: str, key: str, row: dict[str, Any]) -> Sample:
        """Return a row as a sample."""
        captions: list[Any] = []
        for name in self.texts:
            value = row[name]
            if isinstance(value, list):
                captions += value
            elif value is not None:
                captions.append(value)
        image: Any = row.get(self.image)
        if isinstance(image, dict):
            name, image = image.get("path") or "", image["bytes"]
            if image is None and below(self.folder, name):
                image = image_path(self.folder, name)
        if self.key and row[self.key] is not None:
            key = str(row[self.key])
        values = {name: row[column] for name, column in self.others.items()}
        for name, labels in self.labels.items():
            values[name] = label_name(values[name], labels)
        return Sample(where, key, image, captions, values)


def _plain(kind: pa.DataType) -> pa.DataType:
    """Return the type of the values that a column gives to Python: without dictionaries, views and extensions."""
    if isinstance(kind, pa.BaseExtensionType):
        return _plain(kind.storage_type)
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_plain(field.type)) for field in kind])
    if pa.types.is_dictionary(kind) or pa.types.is_run_end_encoded(kind):
        return _plain(kind.value_type)
    if pa.types.is_map(kind) or not hasattr(kind, "value_type"):
        views = {"string_view": pa.string(), "binary_view": pa.binary()}
        return views.get(str(kind), kind)
    return pa.list_(_plain(kind.value_type))


def _holds_bytes(kind: pa.DataType) -> bool:
    if pa.types.is_struct(kind):
        return any(field.name == "bytes" and _holds_bytes(field.type) for field in kind)
    return pa.types.is_binary(kind) or pa.types.is_large_binary(kind)


def _is_text(kind: pa.DataType) -> bool:
    if pa.types.is_list(kind):
        return _is_text(kind.value_type)
    return pa.types.is_string(kind) or pa.types.is_large_string(kind)


def _class_names(schema: pa.Schema) -> dict[str, list[str]]:
    """Return column -> names of its classes, from Hugging Face's metadata in the schema; {} if they cannot be read."""
    try:
        described = json.loads((schema.metadata or {}).get(b"huggingface", b"{}"))
        features = dict(described["info"]["features"])
    except (ValueError, RecursionError, KeyError, TypeError):
        return {}
    labels = {name: each for name, each in features.items() if isinstance(each, dict) and _is_label(each)}
    return {name: each["names"] for name, each in labels.items()}


def _is_label(feature: dict[str, Any]) -> bool:
    return feature.get("_type") == "ClassLabel" and isinstance(feature.get("names"), list)
