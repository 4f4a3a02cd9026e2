"""A dataset of any size without pixels: five captions an image from a grammar, written in bounded memory."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from vsemb.data.columns import SCHEMA
from vsemb.data.manifest import FORMAT, MANIFEST, VERSION, fingerprint, index_name
from vsemb.files import sha256_file, write_json

CAPTIONS = 5
_ROWS = 16_384
_SLOTS = (
    ("a", "the", "one", "another"),
    ("red", "blue", "small", "large", "old", "young", "wet", "sleeping"),
    ("dog", "cat", "child", "woman", "man", "horse", "bird", "bicycle", "boat", "train"),
    ("runs", "stands", "sits", "waits", "plays", "jumps"),
    ("on", "near", "behind", "beside", "under"),
    ("the",),
    ("beach", "street", "table", "river", "bridge", "field", "house", "tree", "wall"),
)
_OPTIONAL = ("", "", "in the morning", "at night", "with another dog", "while it is raining")


def captions(count: int, generator: np.random.Generator) -> pa.Array:
    """Draw captions of eight to twelve words, (count,) string."""
    drawn = [
        pa.array(words).take(pa.array(generator.integers(len(words), size=count))) for words in (*_SLOTS, _OPTIONAL)
    ]
    return pc.utf8_rtrim_whitespace(pc.binary_join_element_wise(*drawn, " "))


def write_scale(path: Path, images: dict[str, int]) -> None:
    """Write a dataset of features only (which are not there); its fingerprint is not that of its content.

    Args:
        path: its directory.
        images: split -> number of images.
    """
    path.mkdir(parents=True)
    first, splits = 0, {}
    for name, count in images.items():
        with pa.OSFile(str(path / index_name(name)), "wb") as file, pa.ipc.new_file(file, SCHEMA) as writer:
            for start in range(first, first + count, _ROWS):
                writer.write_batch(_batch(start, min(_ROWS, first + count - start)))
        first += count
        splits[name] = {
            "images": count,
            "captions": CAPTIONS * count,
            "shards": [],
            "bytes": [],
            "sha256": [],
            "index": index_name(name),
            "index_bytes": (path / index_name(name)).stat().st_size,
            "index_sha256": sha256_file(path / index_name(name)),
            "content": f"scale-{count}",
        }
    manifest = {
        "format": FORMAT,
        "version": VERSION,
        "name": "scale",
        "source": {"format": "scale", "path_name": "", "sha256": {}, "options": {}},
        "writing": {},
        "splits": splits,
        "skipped": [],
        "dropped_captions": 0,
        "fingerprint": fingerprint({name: split["content"] for name, split in splits.items()}),
    }
    write_json(path / MANIFEST, manifest)


def _batch(first: int, count: int) -> pa.RecordBatch:
    ids = np.arange(first, first + count)
    offsets = pa.array(np.arange(0, CAPTIONS * count + 1, CAPTIONS), pa.int32())
    given = {
        "id": pa.array(ids),
        "key": pc.binary_join_element_wise(pa.array(ids).cast(pa.string()), ".jpg", ""),
        "captions": pa.ListArray.from_arrays(offsets, captions(CAPTIONS * count, np.random.default_rng(first))),
        "shard": pa.array(np.zeros(count, np.int32)),
        "offset": pa.array(np.zeros(count, np.int64)),
    }
    return pa.RecordBatch.from_arrays(
        [given.get(field.name, pa.nulls(count, field.type)) for field in SCHEMA], schema=SCHEMA
    )
