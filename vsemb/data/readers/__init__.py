"""Readers of foreign dataset layouts, one file a format."""

from __future__ import annotations

import inspect
import os
from typing import Any

from vsemb import registry
from vsemb.data.readers.source import Source
from vsemb.errors import invalid_argument, unknown_name


def formats() -> list[str]:
    """Returns the formats that `read` reads, those of the base first.

    Example:

    >>> formats()[:2]
    ['karpathy', 'coco']
    """
    return list(registry.entries("readers"))


def read(format: str, source: str | os.PathLike[str], **options: Any) -> Source:
    """Reads a source.

    Args:
        format: one of `formats()`.
        source: the file, folder or (tfds) name.
        **options: the reader's options; None means its default.

    Raises:
        InvalidArgumentError: for an unknown format, or an option that the format does not have.
        DataError: if the source is missing or broken.

    Example:

    ```python
    source = read("karpathy", "flickr8k/dataset_flickr8k.json", images="flickr8k/images")
    ```
    """
    readers = registry.entries("readers")
    if format not in readers:
        raise unknown_name("format", format, readers)
    reader = registry.load(readers[format])
    given = {name: value for name, value in options.items() if value is not None}
    known = [name for name in inspect.signature(reader).parameters if name != "source"]
    for name, value in given.items():
        if name not in known:
            raise invalid_argument(name, value, f"nothing: the format {format} has only {', '.join(known)}")
    return reader(source, **given)
