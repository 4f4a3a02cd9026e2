"""Readers of foreign dataset layouts, one file a format."""

from __future__ import annotations

import importlib
import inspect
import os
from typing import Any

from vsemb.data.readers.source import Source
from vsemb.errors import invalid_argument, unknown_name

# format -> module with a function `read(source, **options) -> Source`; imported when used.
READERS = {
    "karpathy": "vsemb.data.readers.karpathy",
    "coco": "vsemb.data.readers.coco",
    "flickr": "vsemb.data.readers.flickr",
    "table": "vsemb.data.readers.table",
    "tfds": "vsemb.data.readers.tfds",
    "vsepp": "vsemb.data.readers.vsepp",
    "cub": "vsemb.systems.zero_shot.readers.cub",
    "flowers102": "vsemb.systems.zero_shot.readers.flowers102",
    "wnid": "vsemb.systems.zero_shot.readers.wnid",
}


def read(format: str, source: str | os.PathLike[str], **options: Any) -> Source:
    """Reads a source.

    Args:
        format: a key of `READERS`.
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
    if format not in READERS:
        raise unknown_name("format", format, READERS)
    reader = importlib.import_module(READERS[format]).read
    given = {name: value for name, value in options.items() if value is not None}
    known = [name for name in inspect.signature(reader).parameters if name != "source"]
    for name, value in given.items():
        if name not in known:
            raise invalid_argument(name, value, f"nothing: the format {format} has only {', '.join(known)}")
    return reader(source, **given)
