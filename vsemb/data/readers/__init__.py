"""Readers of the dataset layouts of others, as parts with their options as fields; one file per format."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from vsemb import registry
from vsemb.acts import Fields, chosen
from vsemb.data.readers.source import Source, existing
from vsemb.errors import DataError
from vsemb.parts import Part


@dataclass(frozen=True)
class Reader(Part, family="reader"):
    """A format of images and captions that `vsemb.prepare` reads.

    Its module imports nothing heavy outside functions, because `--help` shows its fields.

    Class attributes:
        next_command: command that usually follows, with `{data}` and `{out}`; None for training on image features.
    """

    next_command: ClassVar[str | None] = None

    @classmethod
    def recognizes(cls, path: Path) -> bool:
        """Return whether a file or folder has the format, from names and first lines."""
        return False

    def read(self, source: str | os.PathLike[str]) -> Source:
        """Read a source.

        Args:
            source: the file or folder, or another name of the data.

        Raises:
            DataError: if the source is missing or broken.
        """
        raise NotImplementedError


def infer_format(source: str | os.PathLike[str]) -> str:
    """Infer the format of a source from the names and first lines of its files.

    Args:
        source: the file or folder.

    Raises:
        DataError: if the source is missing, or if no format or more than one matches.

    Example:

    ```python
    infer_format("photos.csv")  # "table"
    ```
    """
    try:
        path = existing(source)
    except DataError as error:
        fix = "Name the format `tfds` for a name of tensorflow-datasets, `webdataset` for a pattern with {}."
        raise DataError(f"{error} {fix}") from error
    formats = []
    for kind, reader in Fields("reader").parts.items():
        if issubclass(reader, Reader) and reader.recognizes(path):
            formats.append(kind)
    if len(formats) == 1:
        return formats[0]
    fits = f"fits several formats: {', '.join(formats)}" if formats else "has no known format"
    pictures = " Pictures without captions need no dataset: vsemb index RUN --images" if path.is_dir() else ""
    names = ", ".join(formats or registry.kinds("reader"))
    raise DataError(f"{path} {fits}. Name the `format`: {names}.{pictures}")


def read(format: Reader | str, source: str | os.PathLike[str], **options: Any) -> Source:
    """Read a source.

    Args:
        format: a reader or its kind.
        source: the file or folder, or another name of the data.
        **options: fields of the reader.

    Raises:
        InvalidArgumentError: for an unknown format, or an option that the format does not have.
        DataError: if the source is missing or broken.

    Example:

    ```python
    source = read("karpathy", "flickr8k/dataset_flickr8k.json", images="flickr8k/images")
    ```
    """
    return chosen(Reader, "format", format, options).read(source)
