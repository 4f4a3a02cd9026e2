"""Convert a dataset to formats of other programs: WebDataset tar files, or Parquet for Hugging Face `datasets`."""

from __future__ import annotations

import io
import itertools
import json
import os
import tarfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import pyarrow as pa
from pyarrow import parquet

from vsemb.acts import Option, act
from vsemb.console import progress
from vsemb.data.store import Split, StoredDataset
from vsemb.files import replacing_directory
from vsemb.parts import Count
from vsemb.results import Result

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


@dataclass(frozen=True, repr=False)
class Files(Result):
    """Result of `convert`.

    Attributes:
        out: the directory.
        files: its files.
    """

    out: str
    files: tuple[Path, ...]

    @property
    def size(self) -> int:
        """Size of all files in bytes."""
        return sum(file.stat().st_size for file in self.files)

    def to_json(self) -> dict[str, Any]:
        return {"files": [str(file) for file in self.files], "bytes": self.size}

    def __str__(self) -> str:
        return f"{self.out}: {len(self.files):,} files, {self.size / 1e6:,.1f} MB"


@act
def convert(
    data: StoredDataset | str | os.PathLike[str],
    out: Annotated[str | os.PathLike[str], Option(by_place=False)],
    format: Annotated[Literal["webdataset", "parquet"], Option(by_place=False)],
    *,
    images_per_file: Count = 1024,
    overwrite: bool = False,
) -> Files:
    """Write a dataset in the format of other programs, which `vsemb.prepare` can read too.

    The format webdataset has tar files with image, captions (.txt, one per line) and .json (key, split, captions,
    class) per image. The format parquet has the columns key, image, captions, class and split, as
    `datasets.load_dataset` of Hugging Face reads them.

    Args:
        data: a prepared dataset with images.
        out: directory to write.
        format: format to write.
        images_per_file: images per file; the last of a split may have fewer.
        overwrite: replace an existing directory.

    Returns:
        The files, such as `train-00000.tar`.

    Raises:
        InvalidArgumentError: for an unknown format.
        DataError: if the dataset has no images or is damaged, or `out` exists.

    Example:

        vsemb.convert("data/flickr8k", "flickr8k-shards", "webdataset")
    """
    dataset = StoredDataset.of(data)
    ending, write = FORMATS[format]
    names = []
    with replacing_directory(out, overwrite) as folder:
        for name in dataset.splits:
            split = dataset.split(name)
            firsts = range(0, len(split), images_per_file)
            for number, first in enumerate(progress(firsts, desc=name, unit="file")):
                names.append(f"{name}-{number:05d}.{ending}")
                end = min(first + images_per_file, len(split))
                write(folder / names[-1], _rows(split, first, end), name)
    return Files(str(out), tuple(Path(out) / name for name in names))


def _rows(split: Split, first: int, end: int) -> Iterator[list[_Row]]:
    """Yield blocks of a split's images."""
    for start in range(first, end, _BLOCK):
        block = []
        for row in range(start, min(start + _BLOCK, end)):
            encoded = split.read_image(row)  # It verifies the checksum.
            block.append(
                (int(split.ids[row]), split.keys[row], encoded, split.captions_of(row), split.class_names[row])
            )
        yield block


def _write_tar(file: Path, blocks: Iterator[Sequence[_Row]], split: str) -> None:
    with tarfile.open(file, "w") as tar:
        for number, key, encoded, captions, class_name in itertools.chain.from_iterable(blocks):
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
