"""The files of a parser that is a folder on disk, such as a spaCy pipeline."""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Mapping
from pathlib import Path

from vsemb.errors import DataError


def parser_files(folder: Path) -> dict[str, Path]:
    """Returns the files of a parser that is a folder on disk, such as a spaCy pipeline.

    Args:
        folder: the parser.

    Returns:
        Relative name -> the file that holds the content, by alphabet.

    Raises:
        DataError: if there is none, it cannot be read, or it holds links that lead out of it, links to
            folders or what is no file.
    """
    found: dict[str, Path] = {}
    if not folder.is_dir():
        raise DataError(f"No parser at {folder}: there is no such folder.")
    inside = folder.resolve()

    def refuse(error: OSError) -> None:
        raise DataError(f"The parser {folder} cannot be read: {error.strerror or error}.") from error

    for directory, names, files in os.walk(folder, onerror=refuse):
        names[:] = [name for name in names if name != "__pycache__"]
        for name in [*names, *files]:
            path = Path(directory, name)
            real = path.resolve()
            if path.is_symlink() and (name in names or not real.is_relative_to(inside)):
                raise DataError(
                    f"The parser {folder} cannot be copied: {path} is a link to {real}. Copy the folder with "
                    "`cp -rL` and name the copy."
                )
            if name in names:
                continue
            if not real.exists() or not stat.S_ISREG(real.stat().st_mode):
                raise DataError(f"The parser {folder} cannot be copied: {path} is no file.")
            found[path.relative_to(folder).as_posix()] = real
    if not found:
        raise DataError(f"No parser at {folder}: the folder is empty.")
    return dict(sorted(found.items()))


def copy_parser(files: Mapping[str, Path], folder: Path) -> None:
    """Copies the files of a parser, without the rights of the originals.

    Args:
        files: as `parser_files` returns them.
        folder: where to.
    """
    for relative, file in files.items():
        target = folder / relative
        target.parent.mkdir(parents=True, exist_ok=True)
        # The content alone: a read-only original must not make a copy that cannot be removed.
        shutil.copyfile(file, target)
