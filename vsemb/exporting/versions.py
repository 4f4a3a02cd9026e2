"""Numbered versions of a model for TensorFlow Serving: `NAME/1`, `NAME/2`, …

TensorFlow Serving loads a directory with an integer name as soon as it appears. A version is therefore written to a
temporary directory beside NAME and then moved into NAME.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from vsemb.errors import DataError, invalid_argument
from vsemb.files import claimed, sync_tree, writing
from vsemb.parts import Version, require

#: Directory beside the models with the contracts of their newest exports.
CONTRACTS = "contracts"

# Larger integers are no versions to TensorFlow Serving.
_LAST = 2**63 - 1


def existing_versions(base: Path) -> list[int]:
    """Return the version numbers in a model's directory, ascending; an empty list if it does not exist."""
    if not base.is_dir():
        return []
    numbers = (int(path.name) for path in base.iterdir() if path.name.isascii() and path.name.isdigit())
    return sorted(number for number in numbers if number <= _LAST)


@dataclass
class Publication:
    """A version that is being written.

    Attributes:
        temporary: the empty directory to fill.
        path: published directory; None before.
        numbered: called with the version number before publication, to write files that contain it; called again with
            the next number if another export took it.
    """

    temporary: Path
    path: Path | None = None
    numbered: Callable[[int], None] | None = None


@contextlib.contextmanager
def publishing(base: str | os.PathLike[str], version: int | None = None) -> Iterator[Publication]:
    """Yield a temporary directory that becomes a version of `base` on a clean exit.

    Args:
        base: the model's directory, e.g. `savedmodels/flickr8k`.
        version: version number; None for the next.

    Raises:
        DataError: if the version exists, `base` cannot hold versions, or writing fails.
        InvalidArgumentError: for a version below 1 or above 2^63 - 1.

    Example:

        with publishing("savedmodels/flickr8k") as publication:
            tf.saved_model.save(module, str(publication.temporary))
        print(publication.path)
    """
    # The temporary directory must be on the same file system, so links are resolved.
    base = Path(os.path.realpath(base))
    _check(base, version)
    with writing(base), claimed(base) as folder:
        publication = Publication(folder)
        yield publication
        sync_tree(folder)
        base.mkdir(exist_ok=True)
        publication.path = _move(publication, base, version)
        sync_tree(base)


def _check(base: Path, version: int | None) -> None:
    require("version", max(existing_versions(base), default=0) + 1 if version is None else version, Version)
    if base.name.isdigit():
        allowed, fix = "the model's directory, without a version", "Pass the version as `version`."
        raise invalid_argument("out", str(base), allowed, fix)
    if base.name == CONTRACTS:
        fix = f"The directory {CONTRACTS} beside the models holds their contracts."
        raise invalid_argument("out", str(base), "another name", fix)
    if base.exists() and not base.is_dir():
        raise DataError(f"{base} must be a directory for the model's versions; got a file.")
    if version is not None and version in existing_versions(base):
        raise DataError(
            f"{base / str(version)} already exists, and published versions are immutable. "
            "Choose another version, or omit it for the next."
        )


def _move(publication: Publication, base: Path, version: int | None) -> Path:
    while True:
        number = version if version is not None else max(existing_versions(base), default=0) + 1
        target = base / str(number)
        if publication.numbered is not None:
            publication.numbered(number)
        try:
            # Fails if another export took the number: a non-empty directory is never replaced.
            os.rename(publication.temporary, target)
            return target
        except OSError:
            if version is not None or not target.exists():
                raise
