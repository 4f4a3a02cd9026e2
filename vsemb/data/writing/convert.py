"""Convert a dataset to formats of other programs: WebDataset tar files, or Parquet for Hugging Face `datasets`."""

from __future__ import annotations

import io
import json
import os
import tarfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import parquet

from vsemb.console import progress
from vsemb.data.store import Dataset, Split
from vsemb.errors import unknown_name
from vsemb.files import replacing_directory

# Maximum number of images in memory.
_BLOCK = 64
#: One image: id, key, bytes, captions, class or None.
_Row = tuple[int, str, bytes, list[str], str | None]

_SCHEMA = pa.schema(
    {
        "key": pa.string(),
        "image": pa.struct({"bytes": pa.binary(), "path": pa.string()}),
        "captions": pa.list_(pa.string()),
        "class": pa.string(),
        "split": pa.string(),
    },
    # Metadata with which `datasets.load_dataset` decodes the column of images.
    {
        "huggingface": json.dumps(
            {
                "info": {
                    "features": {
                        "key": {"dtype": "string", "_type": "Value"},
                        "image": {"_type": "Image"},
                        "captions": {"feature": {"dtype": "string", "_type": "Value"}, "_type": "Sequence"},
                        "class": {"dtype": "string", "_type": "Value"},
                        "split": {"dtype": "string", "_type": "Value"},
                    }
                }
            }
        )
    },
)


def convert(
    dataset: Dataset,
    out: str | os.PathLike[str],
    format: str,
    *,
    images_per_file: int = 1024,
    overwrite: bool = False,
) -> list[Path]:
    """Write all splits of a dataset in a format of other programs, which `vsemb prepare` can read.

    Args:
        dataset: a dataset with images.
        out: the directory to write, published in one step.
        format: `webdataset`, with `000000007.jpg`, `.txt` (one caption per line) and `.json` per image; or `parquet`,
            with the columns key, image, captions, class and split.
        images_per_file: images per file; the last of a split may have fewer.
        overwrite: whether to replace an existing directory.

    Returns:
        The files, such as `train-00000.tar`.

    Raises:
        InvalidArgumentError: for an unknown format.
        DataError: if the dataset has no images or is damaged, or `out` exists.

    Example:

    ```python
    convert(Dataset.open("data/flickr8k"), "flickr8k-shards", "webdataset")
    ```
    """
    if format not in FORMATS:
        raise unknown_name("format", format, FORMATS)
    ending, write = FORMATS[format]
    names = []
    with replacing_directory(out, overwrite) as folder:
        for name in dataset.splits:
            split = dataset.split(name)
            firsts = range(0, len(split), images_per_file)
            for number, first in enumerate(progress(firsts, desc=name, unit="file")):
                names.append(f"{name}-{number:05d}.{ending}")
                write(folder / names[-1], _rows(split, first, min(first + images_per_file, len(split))), name)
    return [Path(out) / name for name in names]


def _rows(split: Split, first: int, end: int) -> Iterator[list[_Row]]:
    """Yield blocks of a split's images."""
    for start in range(first, end, _BLOCK):
        rows = np.arange(start, min(start + _BLOCK, end))
        images = map(split.read_image, rows.tolist())  # `read_image` verifies checksums.
        yield [
            (int(split.ids[row]), split.keys[row], encoded, split.captions_of(row), split.class_names[row])
            for row, encoded in zip(rows.tolist(), images, strict=True)
        ]


def _write_tar(file: Path, blocks: Iterator[Sequence[_Row]], split: str) -> None:
    with tarfile.open(file, "w") as tar:
        for number, key, encoded, captions, class_name in (row for rows in blocks for row in rows):
            facts = {"key": key, "split": split, "captions": captions, "class": class_name}
            contents = {
                "jpg" if encoded.startswith(b"\xff\xd8") else "png": encoded,
                "txt": "\n".join(captions).encode(),
                "json": json.dumps(facts, ensure_ascii=False).encode(),
            }
            for ending, content in contents.items():
                member = tarfile.TarInfo(f"{number:09d}.{ending}")
                member.size = len(content)
                tar.addfile(member, io.BytesIO(content))
            tar.members = []  # type: ignore[attr-defined]  # Otherwise the headers of all members stay in memory.


def _write_parquet(file: Path, blocks: Iterator[Sequence[_Row]], split: str) -> None:
    with parquet.ParquetWriter(file, _SCHEMA) as writer:
        for rows in blocks:
            _, keys, images, captions, classes = zip(*rows, strict=True)
            structs = [{"bytes": encoded, "path": key} for key, encoded in zip(keys, images, strict=True)]
            columns: dict[str, Any] = {"key": keys, "image": structs, "captions": captions, "class": classes}
            columns["split"] = [split] * len(rows)
            writer.write_batch(pa.RecordBatch.from_pydict(columns, _SCHEMA))


#: Name of a format -> ending of its files, and the function that writes one.
FORMATS: dict[str, tuple[str, Callable[[Path, Iterator[Sequence[_Row]], str], None]]] = {
    "webdataset": ("tar", _write_tar),
    "parquet": ("parquet", _write_parquet),
}
