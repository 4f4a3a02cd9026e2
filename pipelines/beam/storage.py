"""Files by path or URI: local files by the standard library, others by Beam's file systems."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, Any

from vsemb.data.uris import scheme
from vsemb.errors import DataError, missing_extra, one_line, reason_of
from vsemb.files import open_regular, replacing


def need_beam() -> None:
    """Check that Apache Beam is installed.

    Raises:
        MissingExtraError: with the name of the extra.
    """
    before = logging.root.manager.disable
    logging.disable(max(before, logging.WARNING))  # Warnings of a BigQuery client that is not used.
    try:
        import apache_beam  # noqa: F401
    except ImportError as error:
        raise missing_extra("apache_beam", "beam") from error
    finally:
        logging.disable(before)


def is_local(path: str) -> bool:
    """Return whether a path is local, not a URI."""
    return not scheme(path)


def join(base: str, *names: str) -> str:
    """Return the path or URI of a name in a folder."""
    return os.path.join(base, *names) if is_local(base) else "/".join([base.rstrip("/"), *names])


def exists(path: str) -> bool:
    """Return whether a file exists."""
    if is_local(path):
        return os.path.exists(path)
    return bool(_systems(path).exists(path))


def listing(folder: str) -> dict[str, int]:
    """Return the files directly in a folder, name -> size in bytes; {} for a missing folder."""
    if is_local(folder):
        if not os.path.isdir(folder):
            return {}
        return {item.name: item.stat().st_size for item in os.scandir(folder) if item.is_file()}
    (matches,) = _systems(folder).match([join(folder, "*")])
    return {item.path.rsplit("/", 1)[1]: item.size_in_bytes for item in matches.metadata_list}


@contextlib.contextmanager
def reading(path: str) -> Iterator[IO[bytes]]:
    """Yield a seekable file for reading.

    Raises:
        DataError: if the file cannot be opened.
    """
    try:
        file = _opened(path)
    except OSError as error:
        raise DataError(f"Cannot read {path}: {one_line(reason_of(error))}.") from error
    with file:
        yield file


def read_json(path: str) -> Any:
    """Read a JSON file.

    Raises:
        DataError: if the file does not exist or is not JSON.
    """
    with reading(path) as file:
        try:
            return json.loads(file.read())
        except ValueError as error:
            raise DataError(f"{path} is not JSON: {error}.") from error


def _opened(path: str) -> IO[bytes]:
    if is_local(path):
        local: IO[bytes] = open_regular(path)
        return local
    file: IO[bytes] = _systems(path).open(path, compression_type=_plain())
    return file


@contextlib.contextmanager
def writing(path: str) -> Iterator[Path]:
    """Yield a local temporary file, stored atomically at `path` without an exception."""
    if is_local(path):
        with replacing(path) as temporary:
            yield temporary
        return
    with tempfile.TemporaryDirectory(prefix="vsemb-beam-") as folder:
        temporary = Path(folder) / "content"
        yield temporary
        # An object in a store becomes visible when it is closed.
        with open(temporary, "rb") as source, _systems(path).create(path, compression_type=_plain()) as file:
            shutil.copyfileobj(source, file, 1 << 20)


def write_json(path: str, value: Any) -> None:
    """Write a JSON file on one line, atomically."""
    with writing(path) as temporary:
        temporary.write_text(json.dumps(value, allow_nan=False), encoding="utf-8")


def read_lines(path: str) -> list[Any]:
    """Read a file of JSON lines.

    Raises:
        DataError: if the file cannot be opened.
    """
    with reading(path) as file:
        return [json.loads(line) for line in file.read().decode().split("\n") if line]


def write_lines(path: str, values: Iterable[Any]) -> None:
    """Write JSON lines, atomically."""
    with writing(path) as temporary, open(temporary, "w", encoding="utf-8") as file:
        file.writelines(json.dumps(value) + "\n" for value in values)


def remove(paths: list[str]) -> None:
    """Remove files; missing files are ignored."""
    for path in paths:
        if is_local(path):
            Path(path).unlink(missing_ok=True)
        elif exists(path):
            _systems(path).delete([path])


def move(source: str, target: str) -> None:
    """Rename a file in a store: an atomic copy, then a deletion."""
    systems = _systems(source)
    if systems.exists(target):
        systems.delete([target])
    systems.rename([source], [target])


def _systems(path: str) -> Any:
    need_beam()
    from apache_beam.io.filesystems import FileSystems

    try:
        FileSystems.get_filesystem(path)
    except ValueError as error:
        raise DataError(
            f"Nothing that is installed reads or writes {path!r}. Install Beam's package for the store, e.g. "
            "pip install 'apache-beam[gcp]' for gs:// or 'apache-beam[aws]' for s3://."
        ) from error
    return FileSystems


def _plain() -> str:
    from apache_beam.io.filesystem import CompressionTypes

    plain: str = CompressionTypes.UNCOMPRESSED
    return plain
