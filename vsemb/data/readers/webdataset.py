"""WebDataset: tar files of samples, each an image with a text or JSON of the same name, as img2dataset writes them.

Format: https://github.com/webdataset/webdataset - the name of a file up to its first dot is the key of its sample,
the rest is the type of the file, and the files of a sample are adjacent.
"""

from __future__ import annotations

import codecs
import io
import itertools
import os
import re
import tarfile
import zlib
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vsemb.data.readers import Reader
from vsemb.data.readers.samples import Sample, source_of, splits_in_names
from vsemb.data.readers.source import Source, existing, files_inside, json_object, raw_lines
from vsemb.data.readers.table import COLUMNS, WEAK, named_columns
from vsemb.data.uris import MAX_BYTES
from vsemb.errors import DataError, counted
from vsemb.files import require_regular

_SHARDS = (".tar", ".tar.gz", ".tgz")
_IMAGES = ("jpg", "jpeg", "png", "webp", "gif", "bmp", "tif", "tiff", "ppm")
_TEXTS = ("txt", "text", "caption")
_NAME = re.compile(r"((?:.*/)?[^./][^./]*)\.([^/]+)")
_BRACES = re.compile(r"\{([^{}]*)\}")
_RANGE = re.compile(r"(\d+)\.\.(\d+)")


@dataclass(frozen=True)
class WebDataset(Reader, kind="webdataset"):
    """WebDataset shards, also of img2dataset: tar files, their folder, or a pattern such as train-{000..099}.tar.

    The image of a sample is a file such as `000.jpg`. Its captions are the lines of `000.txt`, or a field such as
    `caption` of `000.json`. The JSON may also have the fields `key`, `split` and `class`.

    Attributes:
        split: put all images into this split; default: the field `split`, else the split in the name of the shard or
            its folder (`train-000.tar`), else a hash of the key. The hash also decides if all shards name one split.
    """

    split: str | None = None

    @classmethod
    def recognizes(cls, path: Path) -> bool:
        return bool(_shards(path)) if path.is_dir() else path.name.lower().endswith(_SHARDS)

    def read(self, source: str | os.PathLike[str]) -> Source:
        pattern = os.fspath(source)
        if _BRACES.search(pattern):
            shards = [existing(path) for path in _expanded(pattern)]
            path = Path(os.path.commonpath([shard.parent for shard in shards]))
        else:
            path = existing(source)
            shards = _shards(path) if path.is_dir() else [path]
        if not shards:
            raise DataError(f"{path} holds no tar files, neither itself nor one level down.")
        files = splits_in_names(path, shards)
        return source_of("webdataset", path, _samples, files, split=self.split, options={}, notes=_downloaded(shards))


def _shards(folder: Path) -> list[Path]:
    for below in ("*", "*/*"):
        shards = sorted(file for file in folder.glob(below) if file.name.lower().endswith(_SHARDS))
        if shards:
            return files_inside(folder, shards)
    return []


def _expanded(pattern: str) -> Iterator[str]:
    """Expand the braces of a pattern: `{000..099}` or `{a,b}`."""
    braces = _BRACES.search(pattern)
    if braces is None:
        yield pattern
        return
    numbers = _RANGE.fullmatch(braces[1])
    if numbers:
        first, last = numbers.groups()
        choices = [str(number).zfill(len(first)) for number in range(int(first), int(last) + 1)]
    else:
        choices = braces[1].split(",")
    for choice in choices:
        yield from _expanded(pattern[: braces.start()] + choice + pattern[braces.end() :])


def _samples(shard: Path, prefix: str, images: bool) -> Iterator[Sample | DataError]:
    try:
        with tarfile.open(require_regular(shard), "r:*") as tar:
            seen: dict[str, frozenset[str]] = {}
            equal: dict[frozenset[str], frozenset[str]] = {}  # One object for all samples of the same files.
            for key, parts in itertools.groupby(_parts(tar, images), lambda part: part[0]):
                contents: dict[str, bytes] = {}
                for _, kind, content in parts:
                    contents.setdefault(kind, content)
                where = f"{shard}, sample {key}"
                kinds = frozenset(contents)
                if seen.setdefault(key, equal.setdefault(kinds, kinds)).isdisjoint(kinds):
                    raise DataError(
                        f"{where}: its files must be adjacent in the tar file; they are not. Write it in the order of "
                        "names: tar --sort=name -cf FILE.tar FOLDER"
                    )
                lost = _lost(contents)
                if lost:
                    yield DataError(_dotted(where, lost))
                if not lost or not contents.keys().isdisjoint(_IMAGES):
                    try:
                        yield _sample(where, prefix + key, contents)
                    except DataError as error:
                        yield error
    except (tarfile.TarError, EOFError, OSError, zlib.error) as error:
        yield DataError(
            f"{shard}: the tar file is damaged or ends too early ({error}). Its remaining samples are lost."
        )


def _parts(tar: tarfile.TarFile, images: bool) -> Iterator[tuple[str, str, bytes]]:
    """Yield (key, file type, content) of each file; without `images`, the contents of images are empty."""
    for member in tar:
        tar.members = []  # type: ignore[attr-defined]  # Otherwise the headers of all members stay in memory.
        name = _NAME.fullmatch(member.name.removeprefix("./"))
        if not member.isfile() or name is None:
            continue
        kind, content = name[2].lower(), b""
        wanted = kind in (*_TEXTS, "json") or (images and kind in _IMAGES)
        file = tar.extractfile(member) if wanted and member.size <= MAX_BYTES else None
        if file is not None:
            content = file.read()
        yield name[1], kind, content
    # A file that was cut between two members lacks only the two empty blocks at the end of an archive.
    assert tar.fileobj is not None
    tar.fileobj.seek(tar.offset)
    if len(tar.fileobj.read(tarfile.BLOCKSIZE)) < tarfile.BLOCKSIZE:
        raise tarfile.ReadError("missing end of archive")


def _lost(kinds: Collection[str]) -> list[str]:
    """Return the names, after the key, of images that are read with no sample because of further dots in their names.

    An image beside that of its sample is only lost if it has a text of its own.
    """
    names = [kind.rpartition(".") for kind in kinds]
    texts = {name for name, _, ending in names if ending in (*_TEXTS, "json")}
    alone = not any(kind in kinds for kind in _IMAGES)
    lost = []
    for name, _, ending in names:
        if name and ending in _IMAGES and (alone or name in texts):
            lost.append(f"{name}.{ending}")
    return lost


def _dotted(where: str, lost: Sequence[str]) -> str:
    images = counted(len(lost), "image is", "images are")
    return (
        f"{where}: {images} lost (.{lost[0]}). The key of a sample ends at the first dot of a name, so names must have "
        "one dot, as KEY.jpg does."
    )


def _sample(where: str, key: str, contents: dict[str, bytes]) -> Sample:
    facts: dict[str, Any] = {}
    texts = [contents[kind] for kind in _TEXTS if kind in contents]
    if "json" in contents:
        facts = json_object(where, contents["json"])
    wanted = ("split", "class") if texts else ("split", "class", "caption")
    named = named_columns(where, list(facts), {name: COLUMNS[name] for name in wanted}, (), WEAK)
    values = {name: facts[column] for name, column in named.items()}
    captions = values.get("caption")
    if texts:
        try:
            lines = raw_lines(io.BytesIO(texts[0].removeprefix(codecs.BOM_UTF8)))
            captions = [line.decode().rstrip("\r\n") for line in lines if line.strip()]
        except UnicodeDecodeError as error:
            raise DataError(f"{where}: not UTF-8 text.") from error
    image = next((contents[kind] for kind in _IMAGES if kind in contents), None)
    if isinstance(facts.get("key"), str):
        key = facts["key"] or key
    return Sample(where, key, image, captions, values)


def _downloaded(shards: list[Path]) -> list[str]:
    """Return a line about failed downloads of img2dataset, from the Parquet file beside each shard."""
    counts: Counter[str] = Counter()
    for shard in shards:
        table = shard.with_suffix(".parquet")
        if table.is_file():
            import pyarrow as pa
            from pyarrow import parquet

            try:
                counts.update(parquet.read_table(table, columns=["status"])["status"].to_pylist())
            except (pa.ArrowException, OSError, KeyError):
                continue  # Not a table of img2dataset.
    reasons = [f"{status} {count:,}" for status, count in counts.items() if status != "success"]
    if not reasons:
        return []
    return [f"img2dataset downloaded {counts['success']:,} of {counts.total():,} images: {', '.join(reasons)}."]
