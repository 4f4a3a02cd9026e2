"""Readers of the dataset layouts of others, one file per format.

Each module has a function `read`. It may have a function `recognizes`, from which the format of a source is inferred.
"""

from __future__ import annotations

import inspect
import os
from typing import Any

from vsemb import registry
from vsemb.data.readers.source import Source, existing
from vsemb.errors import DataError, invalid_argument, unknown_name


def formats() -> list[str]:
    """Return the formats that `read` supports, first the built-in ones, then the systems'.

    Example:

    >>> formats()[:2]
    ['karpathy', 'coco']
    """
    return list(registry.entries("readers"))


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
        fix = "Pass --format tfds for a name of tensorflow-datasets, --format webdataset for a pattern with {}."
        raise DataError(f"{error} {fix}") from error
    found = []
    for name, reference in registry.entries("readers").items():
        module, _, function = reference.partition(":")
        recognizes = getattr(registry.load(module), function.replace("read", "recognizes", 1), None)
        if recognizes is not None and recognizes(path):
            found.append(name)
    if len(found) != 1:
        fits = f"fits several formats: {', '.join(found)}" if found else "has no known format"
        pictures = " Pictures without captions need no dataset: vsemb index RUN --images" if path.is_dir() else ""
        raise DataError(f"{path} {fits}. Name one with --format: {', '.join(found or formats())}.{pictures}")
    return found[0]


def read(format: str, source: str | os.PathLike[str], **options: Any) -> Source:
    """Read a source.

    Args:
        format: one of `formats()`.
        source: the file or folder, or the name of a tfds dataset.
        **options: the reader's options; None means the default.

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
            raise invalid_argument(name, value, f"omitted, since the format {format} has only {', '.join(known)}")
    return reader(source, **given)
