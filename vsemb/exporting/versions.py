"""Numbered versions of a model, as TensorFlow Serving reads them: `NAME/1`, `NAME/2`, …

TensorFlow Serving loads every directory with an integer name as soon as it sees it, so a version is
written beside NAME under a name that is no number, and moved into NAME whole.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from vsemb.errors import DataError, invalid_argument
from vsemb.files import sync_tree

#: The directory beside the models in which the contracts of their newest exports lie.
CONTRACTS = "contracts"


def existing_versions(base: Path) -> list[int]:
    """Returns the version numbers in a model's directory, ascending; none where it does not exist."""
    if not base.is_dir():
        return []
    return sorted(int(path.name) for path in base.iterdir() if path.name.isascii() and path.name.isdigit())


@dataclass
class Publication:
    """A version in the making.

    Attributes:
        temporary: the empty directory to fill.
        path: where it was published; None before.
        numbered: called with the version's number before it is published, to write what names it; again with
            the next where another export took the number meanwhile.
    """

    temporary: Path
    path: Path | None = None
    numbered: Callable[[int], None] | None = None


@contextlib.contextmanager
def publishing(base: str | os.PathLike[str], version: int | None = None) -> Iterator[Publication]:
    """Yields a temporary directory that becomes a version of `base` on a clean exit.

    Args:
        base: the model's directory, e.g. `savedmodels/flickr8k`.
        version: its number; None for the next one.

    Raises:
        DataError: if the version exists, `base` cannot hold versions, or the file system refuses.
        InvalidArgumentError: for a version below 1.

    Example:

        with publishing("savedmodels/flickr8k") as publication:
            tf.saved_model.save(module, str(publication.temporary))
        print(publication.path)
    """
    # The temporary directory must lie on the file system of the real one, whatever links lead there.
    base = Path(os.path.realpath(base))
    _check(base, version)
    prefix = f".{base.name}."
    try:
        base.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(".tmp", prefix, base.parent, ignore_cleanup_errors=True) as folder:
            publication = Publication(Path(folder))
            publication.temporary.chmod(0o755)
            yield publication
            sync_tree(folder)
            base.mkdir(exist_ok=True)
            publication.path = _move(publication, base, version)
            sync_tree(base)
    except OSError as error:
        raise DataError(f"Cannot write {base}: {error.strerror or error}.") from error


def _check(base: Path, version: int | None) -> None:
    if version is not None and (isinstance(version, bool) or version < 1):
        raise invalid_argument("version", version, "an integer >= 1")
    if base.name.isdigit():
        allowed, fix = "the model's directory, without a version", "Give the version by --version."
        raise invalid_argument("out", str(base), allowed, fix)
    if base.name == CONTRACTS:
        fix = f"Beside the models, {CONTRACTS} holds their contracts."
        raise invalid_argument("out", str(base), "another name", fix)
    if base.exists() and not base.is_dir():
        raise DataError(f"{base} is a file; name a directory for the model's versions.")
    if version is not None and version in existing_versions(base):
        raise DataError(
            f"{base / str(version)} already exists, and a published version is never changed. "
            "Choose another --version, or none for the next."
        )


def _move(publication: Publication, base: Path, version: int | None) -> Path:
    while True:
        number = version if version is not None else max(existing_versions(base), default=0) + 1
        target = base / str(number)
        if publication.numbered is not None:
            publication.numbered(number)
        try:
            # Fails where another export took the number meanwhile: a full directory is never replaced.
            os.rename(publication.temporary, target)
            return target
        except OSError:
            if version is not None or not target.exists():
                raise
