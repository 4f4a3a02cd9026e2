"""Files of embeddings: Parquet or TFRecord with (id, key, split, embedding), and their manifest."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pyarrow.parquet as parquet

from pipelines.beam import storage
from vsemb.errors import DataError

FORMAT, VERSION = "vsemb-embeddings", 1
MANIFEST = "manifest.json"


@dataclass(frozen=True, eq=False)
class Vectors:
    """Embeddings with ids, keys and splits of their items.

    Attributes:
        ids: (n,) int64, ids of images; line numbers from 0 for lists of files or texts.
        keys: n names: key or file of an image, `KEY#NUMBER` of a caption, or the text itself.
        splits: n names of splits; `""` for lists.
        embeddings: (n, dim) float32.
    """

    ids: np.ndarray
    keys: Sequence[str]
    splits: Sequence[str]
    embeddings: np.ndarray

    def __len__(self) -> int:
        return len(self.ids)


def joined(parts: Sequence[Vectors]) -> Vectors:
    """Concatenate embeddings.

    Example:

    >>> one = Vectors(np.array([3]), ["a"], ["val"], np.ones((1, 2), np.float32))
    >>> joined([one, one]).embeddings.shape
    (2, 2)
    """
    return Vectors(
        np.concatenate([part.ids for part in parts]),
        [key for part in parts for key in part.keys],
        [split for part in parts for split in part.splits],
        np.concatenate([part.embeddings for part in parts]),
    )


def write_parquet(path: Path, vectors: Vectors) -> None:
    """Write the columns `id` int64, `key` and `split` string, `embedding` lists of float32 of one length."""
    flat = pyarrow.array(np.ascontiguousarray(vectors.embeddings, np.float32).ravel())
    dim = vectors.embeddings.shape[1]
    columns = {
        "id": pyarrow.array(vectors.ids, pyarrow.int64()),
        "key": pyarrow.array(list(vectors.keys), pyarrow.string()),
        "split": pyarrow.array(list(vectors.splits), pyarrow.string()),
        "embedding": pyarrow.FixedSizeListArray.from_arrays(flat, dim),
    }
    parquet.write_table(pyarrow.table(columns), str(path))


def read_parquet(path: Path, dim: int) -> Vectors:
    """Read a file of `write_parquet` with embeddings of size `dim`."""
    table = parquet.read_table(str(path))
    flat = table["embedding"].combine_chunks().flatten().to_numpy()
    return Vectors(
        table["id"].to_numpy(),
        table["key"].to_pylist(),
        table["split"].to_pylist(),
        flat.reshape(table.num_rows, dim),
    )


def write_tfrecord(path: Path, vectors: Vectors) -> None:
    """Write `tf.train.Example`s: `id` int64, `key` and `split` bytes, `embedding` floats."""
    import tensorflow as tf

    with tf.io.TFRecordWriter(str(path)) as writer:
        for number, key, split, row in zip(vectors.ids, vectors.keys, vectors.splits, vectors.embeddings, strict=True):
            example = tf.train.Example()
            feature = example.features.feature
            feature["id"].int64_list.value.append(int(number))
            feature["key"].bytes_list.value.append(key.encode())
            feature["split"].bytes_list.value.append(split.encode())
            feature["embedding"].float_list.value.extend(row.tolist())
            writer.write(example.SerializeToString(deterministic=True))


def read_tfrecord(path: Path, dim: int) -> Vectors:
    """Read a file of `write_tfrecord` with embeddings of size `dim`."""
    import tensorflow as tf

    ids, keys, splits, rows = [], [], [], []
    for data in tf.data.TFRecordDataset(str(path)).as_numpy_iterator():
        feature = tf.train.Example.FromString(data).features.feature
        ids.append(feature["id"].int64_list.value[0])
        keys.append(feature["key"].bytes_list.value[0].decode())
        splits.append(feature["split"].bytes_list.value[0].decode())
        rows.append(np.array(feature["embedding"].float_list.value, np.float32))
    return Vectors(np.array(ids, np.int64), keys, splits, np.array(rows, np.float32).reshape(len(rows), dim))


#: Suffix of the files -> function that writes or reads them.
WRITERS: dict[str, Callable[[Path, Vectors], None]] = {"parquet": write_parquet, "tfrecord": write_tfrecord}
READERS: dict[str, Callable[[Path, int], Vectors]] = {"parquet": read_parquet, "tfrecord": read_tfrecord}


def read_vectors(folder: str) -> tuple[dict[str, Any], Vectors]:
    """Read all embeddings of a local folder, and the manifest.

    Raises:
        DataError: if the folder does not contain embeddings.

    Example:

        manifest, vectors = read_vectors("embeddings/flickr8k")
    """
    manifest = storage.read_json(storage.join(folder, MANIFEST))
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        raise DataError(f"{folder} holds no embeddings of `pipelines.beam_embed`.")
    names = [file["name"] for file in manifest["files"]]
    parts = [READERS[manifest["files_are"]](Path(folder) / name, manifest["dim"]) for name in names]
    return manifest, joined(parts)
