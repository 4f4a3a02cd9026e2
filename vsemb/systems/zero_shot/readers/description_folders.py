"""The descriptions of Reed et al. 2016: a folder for each class, a text file for each image.

Source: https://github.com/reedscot/cvpr2016 - `text_c10/CLASS/IMAGE.txt`, one description a line, and lists
of classes beside `text_c10`.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from pathlib import Path

from vsemb.data.readers.class_splits import class_lists
from vsemb.data.readers.source import text_lines
from vsemb.errors import DataError

_TEXTS = "text_c10"


class DescriptionFolders:
    """The descriptions of images, and the split that each class belongs to.

    Attributes:
        folder: holds a folder for each class.
        splits: class folder -> split, for the classes that the lists name.
        files: the lists read.
        notes: lines worth showing.
        used: the number of images that descriptions were found for.
    """

    def __init__(self, given: str | os.PathLike[str] | None, near: Sequence[Path]) -> None:
        """Finds descriptions and reads the lists of classes.

        Args:
            given: the folder `text_c10`, or the one that holds it and the lists.
            near: where to look for `text_c10` if none is given.

        Raises:
            DataError: if there are no descriptions or no lists.
        """
        self.folder = _found(given, near)
        beside = self.folder if (self.folder / "testclasses.txt").is_file() else self.folder.parent
        self.splits, self.files, self.notes = class_lists(beside)
        self.used = 0
        self._digest = hashlib.sha256()

    def texts(self, class_folder: str, stem: str) -> tuple[str, ...]:
        """Returns the descriptions of an image, in the order of its file; none where there is no file."""
        path = self.folder / class_folder / f"{stem}.txt"
        if not path.is_file():
            return ()
        # Where their collectors lost a character, the files have one or more U+FFFD.
        lines = tuple(" ".join(line.replace("\ufffd", " ").split()) for line in text_lines(path))
        self._digest.update(f"{class_folder}/{stem}\n{lines!r}\n".encode())
        self.used += 1
        return tuple(line for line in lines if line)

    def sha256(self) -> str:
        """Returns a SHA-256 over all descriptions so far, by which a later call sees that they changed.

        Raises:
            DataError: if no image had any.
        """
        if not self.used:
            raise DataError(
                f"No image of the source has a description in {self.folder}; expected CLASS/IMAGE.txt, named "
                "like the images. Name the folder with --descriptions."
            )
        return self._digest.hexdigest()


def _found(given: str | os.PathLike[str] | None, near: Sequence[Path]) -> Path:
    if given is not None:
        folder = Path(given)
        if not folder.is_dir():
            raise DataError(f"No descriptions folder at {folder}.")
        return folder / _TEXTS if (folder / _TEXTS).is_dir() else folder
    for place in near:
        if (place / _TEXTS).is_dir():
            return place / _TEXTS
    tried = ", ".join(str(place / _TEXTS) for place in near)
    raise DataError(
        f"No descriptions at {tried}. Unpack those of Reed et al. 2016 and name their folder with --descriptions."
    )


def unlisted(classes: Sequence[str]) -> list[str]:
    """Returns the note on classes that no list names; `classes` holds one entry an image left out."""
    if not classes:
        return []
    names = sorted(set(classes))
    more = ", ..." if len(names) > 3 else ""
    return [f"{len(classes)} images of classes in no list are left out: {', '.join(names[:3])}{more}"]
