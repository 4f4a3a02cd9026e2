"""A store of objects for tests: `shelf://...` is a folder of this machine, as Beam's file systems see it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from apache_beam.io.filesystem import FileMetadata, FileSystem


class Shelf(FileSystem):
    """Knows no folders and renames nothing at once, as object stores do."""

    root = Path()
    #: URIs of objects in the order in which they appeared.
    appeared: list[str] = []

    @classmethod
    def scheme(cls) -> str:
        return "shelf"

    def _local(self, path: str) -> Path:
        return self.root / path.removeprefix("shelf://").replace("/", "\\")

    def _uri(self, name: str) -> str:
        return "shelf://" + name.replace("\\", "/")

    def join(self, basepath: str, *paths: str) -> str:
        return "/".join([basepath.rstrip("/"), *paths])

    def split(self, path: str) -> tuple[str, str]:
        head, _, tail = path.rpartition("/")
        return head, tail

    def mkdirs(self, path: str) -> None:
        pass

    def has_dirs(self) -> bool:
        return False

    def _list(self, dir_or_prefix: str) -> Iterator[FileMetadata]:
        for item in os.scandir(self.root):
            if self._uri(item.name).startswith(dir_or_prefix):
                yield self.metadata(self._uri(item.name))

    def create(self, path: str, mime_type: str = "", compression_type: str = "") -> BinaryIO:
        self.appeared.append(path)
        return open(self._local(path), "wb")

    def open(self, path: str, mime_type: str = "", compression_type: str = "") -> BinaryIO:
        return open(self._local(path), "rb")

    def copy(self, source_file_names: list[str], destination_file_names: list[str]) -> None:
        raise NotImplementedError

    def rename(self, source_file_names: list[str], destination_file_names: list[str]) -> None:
        for source, target in zip(source_file_names, destination_file_names, strict=True):
            self.appeared.append(target)
            self._local(source).rename(self._local(target))

    def exists(self, path: str) -> bool:
        return self._local(path).exists()

    def size(self, path: str) -> int:
        return self._local(path).stat().st_size

    def last_updated(self, path: str) -> float:
        return self._local(path).stat().st_mtime

    def checksum(self, path: str) -> str:
        return str(self.size(path))

    def metadata(self, path: str) -> FileMetadata:
        return FileMetadata(path, self.size(path), self.last_updated(path))

    def delete(self, paths: list[str]) -> None:
        for path in paths:
            self._local(path).unlink()
