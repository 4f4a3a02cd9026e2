"""Embedding on workers: units of a dataset or a list are read in blocks, embedded, and written to files.

The rows of a block do not depend on the runner and the number of workers. The reason: the last bits of an embedding
depend on the other rows of its batch.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from apache_beam.ml.inference.base import ModelHandler

from pipelines.beam import storage
from pipelines.beam.vectors import WRITERS, Vectors, joined
from vsemb.data.images import BadImage, sanitise_image
from vsemb.data.records import caption_id
from vsemb.data.uris import located, scheme
from vsemb.data.writing.validate import source_bytes
from vsemb.errors import DataError
from vsemb.files import sha256_file


@dataclass(frozen=True)
class Unit:
    """Input of one step of a worker: a shard of a dataset, or a part of a list.

    Attributes:
        kind: `image` or `text`.
        path: the shard, or the file of JSON lines `[number, text or location of an image]`.
        split: split of the shard; `""` for a part of a list.
        first: index of its first row among all rows.
        rows: number of its rows.
        batch: number of rows per block.
        file: number of the output file.
    """

    kind: str
    path: str
    split: str
    first: int
    rows: int
    batch: int
    file: int


@dataclass(frozen=True, eq=False)
class Block:
    """Rows that are embedded together.

    Attributes:
        file: number of the output file.
        first: index of the first row among all rows.
        split: split of the rows.
        ids: ids of the rows.
        keys: names of the rows.
        values: image bytes or texts; `b""` for a missing image.
        reasons: error per row, or None.
    """

    file: int
    first: int
    split: str
    ids: list[int]
    keys: list[str]
    values: list[bytes]
    reasons: list[str | None]


@dataclass(frozen=True, eq=False)
class Embedded:
    """Embedded block.

    Attributes:
        block: rows of the block, without values.
        embeddings: (n, dim) float32.
        valid: (n,) bool.
    """

    block: Block
    embeddings: np.ndarray
    valid: np.ndarray


def read_blocks(unit: Unit) -> Iterator[Block]:
    """Read a unit in blocks of `unit.batch` rows.

    Raises:
        DataError: if the unit is damaged.
    """
    rows = _rows_of_shard(unit) if unit.split else _rows_of_list(unit)
    pending: list[tuple[int, str, bytes, str | None]] = []
    first = unit.first
    for row in rows:
        pending.append(row)
        if len(pending) == unit.batch:
            yield _block(unit, first, pending)
            first, pending = first + len(pending), []
    if pending:
        yield _block(unit, first, pending)


def _block(unit: Unit, first: int, rows: Sequence[tuple[int, str, bytes, str | None]]) -> Block:
    ids, keys, values, reasons = (list(column) for column in zip(*rows, strict=True))
    return Block(unit.file, first, unit.split, ids, keys, values, reasons)


def _rows_of_shard(unit: Unit) -> Iterator[tuple[int, str, bytes, str | None]]:
    import tensorflow as tf

    try:
        for data in tf.data.TFRecordDataset(unit.path).as_numpy_iterator():
            feature = tf.train.Example.FromString(data).features.feature
            number = feature["image/id"].int64_list.value[0]
            key = feature["image/key"].bytes_list.value[0].decode()
            if unit.kind == "image":
                yield number, key, feature["image/encoded"].bytes_list.value[0], None
                continue
            for place, text in enumerate(feature["captions"].bytes_list.value):
                yield number, caption_id(key, place), text, None
    except (tf.errors.OpError, IndexError) as error:
        raise DataError(f"The shard {unit.path} is damaged, or no worker can read it: {error}") from error


def _rows_of_list(unit: Unit) -> Iterator[tuple[int, str, bytes, str | None]]:
    for number, value in storage.read_lines(unit.path):
        if unit.kind == "text":
            yield number, value, value.encode(), None
            continue
        try:
            yield number, value, _stored_image(value), None
        except BadImage as error:
            yield number, value, b"", str(error)


def _stored_image(place: str) -> bytes:
    """Read an image in the form of a dataset: upright, JPEG or PNG."""
    try:
        image = located(place) if scheme(place) else Path(place)
    except DataError as error:
        raise BadImage(str(error)) from error
    return sanitise_image(source_bytes(image)).encoded


class SavedModelHandler(ModelHandler[Block, Embedded, Any]):
    """Handler of Beam's `RunInference` for a signature of a SavedModel of `vsemb export`.

    Args:
        path: directory of the version.
        signature: `encode_image` or `encode_text`.
        argument: name of the signature's input.
    """

    def __init__(self, path: str, signature: str, argument: str) -> None:
        super().__init__()
        self._path, self._signature, self._argument = path, signature, argument

    def load_model(self) -> Any:
        """Load the SavedModel, once per process."""
        import tensorflow as tf

        return tf.saved_model.load(self._path)

    def should_skip_batching(self) -> bool:
        """Return that elements are batches already: Dask's runner loses what Beam's own batching emits last."""
        return True

    def get_num_bytes(self, batch: Sequence[Block]) -> int:
        """Return the size of a batch, for Beam's metrics."""
        return sum(len(value) for block in batch for value in block.values)

    def get_metrics_namespace(self) -> str:
        """Return the namespace of the handler's metrics in Beam."""
        return "vsemb"

    def run_inference(
        self, batch: Sequence[Block], model: Any, inference_args: dict[str, Any] | None = None
    ) -> Iterable[Embedded]:
        """Embed blocks."""
        import tensorflow as tf

        for block in batch:
            values = tf.constant(block.values, tf.string)
            outputs = model.signatures[self._signature](**{self._argument: values})
            bare = Block(block.file, block.first, block.split, block.ids, block.keys, [], block.reasons)
            yield Embedded(bare, outputs["embedding"].numpy(), outputs["valid"].numpy())


@dataclass(frozen=True)
class FileTask:
    """Output file.

    Attributes:
        number: number of the file, from 0.
        rows: number of rows of its units.
        path: path of the file.
        report: path of the description of its content, written last.
        kind: `parquet` or `tfrecord`.
    """

    number: int
    rows: int
    path: str
    report: str
    kind: str


def write_file(task: FileTask, embedded: Iterable[Embedded]) -> None:
    """Write the valid rows of blocks in order; the report lists the invalid rows.

    Raises:
        RuntimeError: if the runner lost rows or repeated them.
    """
    parts: list[Vectors] = []
    bad: list[dict[str, Any]] = []
    for item in sorted(embedded, key=lambda item: item.block.first):
        block, valid = item.block, item.valid & np.isfinite(item.embeddings).all(axis=1)
        for place in np.flatnonzero(~valid).tolist():
            reason = block.reasons[place] or "the model calls it invalid"
            bad.append({"id": block.ids[place], "key": block.keys[place], "reason": reason})
        kept = np.flatnonzero(valid)
        keys = [block.keys[place] for place in kept]
        ids = np.array(block.ids, np.int64)[kept]
        parts.append(Vectors(ids, keys, [block.split] * len(kept), item.embeddings[kept]))
    vectors = joined(parts)
    if len(vectors) + len(bad) != task.rows:
        raise RuntimeError(f"{len(vectors) + len(bad)} of {task.rows} rows came back")
    report = {"rows": len(vectors), "dim": int(vectors.embeddings.shape[1]), "bad": bad}
    with storage.writing(task.path) as temporary:
        WRITERS[task.kind](temporary, vectors)
        report |= {"bytes": temporary.stat().st_size, "sha256": sha256_file(temporary)}
    storage.write_json(task.report, report)
