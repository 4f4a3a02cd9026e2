"""CUB-200-2011 (birds) and Oxford Flowers-102 with the descriptions of Reed et al. 2016.

Sources: Wah et al. 2011 (`images.txt`, `images/001.Black_footed_Albatross/*.jpg`, attributes of classes in percent);
Nilsback, Zisserman 2008 (`jpg/image_00001.jpg`); https://github.com/reedscot/cvpr2016 for both: one description per
line in `text_c10/CLASS/IMAGE.txt`, and beside `text_c10` lists of classes for disjoint splits. For Flowers-102, the
folders of the descriptions also give the class of each image.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from vsemb.data.readers import Reader
from vsemb.data.readers.hash_splits import SPLITS, ranked
from vsemb.data.readers.source import Source, existing, find_images, image_folders, image_path, text_lines
from vsemb.data.records import ImageRecord
from vsemb.data.uris import RemoteFolder
from vsemb.errors import DataError, counted
from vsemb.systems.zero_shot.readers import NEXT

if TYPE_CHECKING:
    from vsemb.systems.zero_shot.attributes import ClassAttributes, ClassSource

_VALUES = "attributes/class_attribute_labels_continuous.txt"
_TEXTS = "text_c10"


class Descriptions:
    """The descriptions of images, and the split that each class belongs to.

    Args:
        descriptions: the folder `text_c10`, or the folder with it and the lists; None to search `near`.
        near: folders to search for `text_c10`.

    Attributes:
        folder: folder with one folder per class.
        files: the lists.
        notes: notes for the user.

    Raises:
        DataError: if descriptions or lists are missing.
    """

    def __init__(self, descriptions: str | os.PathLike[str] | None, near: Sequence[Path]) -> None:
        self.folder = _texts_folder(descriptions, near)
        beside = self.folder if (self.folder / "testclasses.txt").is_file() else self.folder.parent
        self._splits, self.files, self.notes = class_lists(beside)
        self._used = 0
        self._digest = hashlib.sha256()

    def records(
        self, images: Iterable[tuple[str, str]], folder: Path | RemoteFolder, class_name: Callable[[str], str]
    ) -> list[ImageRecord]:
        """Return records of the images whose class is in a list; a note lists the other classes.

        Args:
            images: key (path in `folder`) and class folder of each image.
            folder: the images folder.
            class_name: folder of a class -> its name.
        """
        records, unlisted = [], []
        for key, class_folder in images:
            if class_folder not in self._splits:
                unlisted.append(class_folder)
                continue
            captions = self._texts(class_folder, Path(key).stem)
            split, path = self._splits[class_folder], image_path(folder, key)
            records.append(ImageRecord(key, captions, split, path, class_name=class_name(class_folder)))
        if unlisted:
            names = sorted(set(unlisted))
            more = ", ..." if len(names) > 3 else ""
            images_are = counted(len(unlisted), "image of a class in no list is", "images of classes in no list are")
            self.notes = [*self.notes, f"{images_are} left out: {', '.join(names[:3])}{more}"]
        return records

    def _texts(self, class_folder: str, stem: str) -> tuple[str, ...]:
        """Return the descriptions of an image in the order of its file; () without a file."""
        path = self.folder / class_folder / f"{stem}.txt"
        if not path.is_file():
            return ()
        # Lost characters of the original files are U+FFFD.
        lines = tuple(" ".join(line.replace("\ufffd", " ").split()) for line in text_lines(path))
        self._digest.update(f"{class_folder}/{stem}\n{lines!r}\n".encode())
        self._used += 1
        return tuple(line for line in lines if line)

    def sha256(self) -> str:
        """Return a SHA-256 over all descriptions read so far, to detect changes.

        Raises:
            DataError: if all images lack descriptions.
        """
        if not self._used:
            raise DataError(
                f"The folder {self.folder} must hold descriptions of the images, CLASS/IMAGE.txt. Name the folder "
                "with `descriptions`."
            )
        return self._digest.hexdigest()


def _texts_folder(descriptions: str | os.PathLike[str] | None, near: Sequence[Path]) -> Path:
    if descriptions is not None:
        folder = Path(descriptions)
        if not folder.is_dir():
            raise DataError(f"No descriptions folder at {folder}. Name it with `descriptions`.")
        return folder / _TEXTS if (folder / _TEXTS).is_dir() else folder
    for place in near:
        if (place / _TEXTS).is_dir():
            return place / _TEXTS
    tried = ", ".join(str(place / _TEXTS) for place in near)
    raise DataError(
        f"No descriptions at {tried}. Unpack the files of Reed et al. 2016 and name their folder with `descriptions`."
    )


@dataclass(frozen=True)
class Cub(Reader, kind="cub"):
    """CUB-200-2011 with Reed's descriptions: the folder `CUB_200_2011`, or its parent.

    The classes have attributes from 0 to 1, if their file is present.

    Attributes:
        images: images folder; default: `images/` in the source.
        descriptions: folder `text_c10` or its parent, with lists of classes (trainclasses.txt, valclasses.txt and
            testclasses.txt) in or beside it; default: searched near the source.
    """

    images: str | os.PathLike[str] | None = None
    descriptions: str | os.PathLike[str] | None = None

    next_command: ClassVar[str | None] = NEXT

    @classmethod
    def recognizes(cls, path: Path) -> bool:
        return any((root / "images.txt").is_file() for root in (path, path / "CUB_200_2011"))

    def read(self, source: str | os.PathLike[str]) -> ClassSource:
        from vsemb.systems.zero_shot.attributes import ClassSource

        root = existing(source)
        root = root / "CUB_200_2011" if (root / "CUB_200_2011").is_dir() else root
        listing = root / "images.txt"
        names = _numbered(listing)
        texts = Descriptions(
            self.descriptions, (root, root.parent, root / "cvpr2016_cub", root.parent / "cvpr2016_cub")
        )
        folder = find_images(names, image_folders(self.images, root / "images"))
        for name in names:
            if "/" not in name:
                raise DataError(f"{listing}: the image {name!r} must be in a class folder.")
        records = texts.records(((name, name.rpartition("/")[0]) for name in names), folder, class_name)
        attributes, files = _attributes(root)
        missing = [] if attributes else [f"{_VALUES} is missing in {root}, so the classes have no attributes."]
        return ClassSource(
            "cub",
            root.resolve().name,
            records,
            files=(listing, *texts.files, *files),
            options={"descriptions_sha256": texts.sha256()},
            notes=(*texts.notes, *missing),
            attributes=attributes,
        )


def class_name(folder: str) -> str:
    """Return the name of a class from the name of its folder.

    Example:

    >>> class_name("001.Black_footed_Albatross")
    'Black footed Albatross'
    """
    number, dot, rest = folder.partition(".")
    return (rest if dot and number.isdecimal() else folder).replace("_", " ")


def _numbered(path: Path) -> list[str]:
    """Return the names of a file of lines NUMBER NAME."""
    names = []
    for number, line in enumerate(text_lines(path), 1):
        if not line.strip():
            continue
        _, space, name = line.strip().partition(" ")
        if not space:
            raise DataError(f"{path}, line {number}, must be NUMBER NAME; got {line[:60]!r}.")
        names.append(name.strip())
    if not names:
        raise DataError(f"{path} must hold lines NUMBER NAME; got an empty file.")
    return names


def _attributes(root: Path) -> tuple[ClassAttributes | None, list[Path]]:
    import numpy as np

    from vsemb.systems.zero_shot.attributes import ClassAttributes

    values = root / _VALUES
    if not values.is_file():
        return None, []
    classes = _numbered(root / "classes.txt")
    try:
        rows = np.loadtxt(text_lines(values), comments=None, ndmin=2) / 100
    except ValueError as error:
        raise DataError(f"{values} must hold rows of numbers of equal length: {error}.") from error
    if len(rows) != len(classes):
        raise DataError(f"{values} must have {len(classes)} lines, one per class of classes.txt; got {len(rows)}.")
    files = [root / "classes.txt", values]
    # In the archive, the names of the attributes are beside the folder of the images.
    places = (root / "attributes" / "attributes.txt", root / "attributes.txt", root.parent / "attributes.txt")
    names_file = next((place for place in places if place.is_file()), None)
    if names_file is None:
        names = [f"attribute {number}" for number in range(1, len(rows[0]) + 1)]
    else:
        names = _numbered(names_file)
        files.append(names_file)
    vectors = {class_name(name): row for name, row in zip(classes, rows, strict=True)}
    return ClassAttributes(tuple(names), vectors), files


@dataclass(frozen=True)
class Flowers102(Reader, kind="flowers102"):
    """Flowers-102's folder with `jpg/`, with Reed's descriptions.

    With trainvalclasses.txt in place of the first two lists of classes, a fifth of it is val.

    Attributes:
        images: images folder; default: `jpg/` in the source.
        descriptions: folder `text_c10` or its parent, with lists of classes (trainclasses.txt, valclasses.txt and
            testclasses.txt) in or beside it; default: searched near the source.
        class_names: text file whose n-th line is the name of `class_n`; default: names of the folders, class_00001.
    """

    images: str | os.PathLike[str] | None = None
    descriptions: str | os.PathLike[str] | None = None
    class_names: str | os.PathLike[str] | None = None

    next_command: ClassVar[str | None] = NEXT

    @classmethod
    def recognizes(cls, path: Path) -> bool:
        return (path / "jpg").is_dir()

    def read(self, source: str | os.PathLike[str]) -> Source:
        root = existing(source)
        texts = Descriptions(self.descriptions, (root, root / "cvpr2016_flowers", root.parent / "cvpr2016_flowers"))
        names = _names(self.class_names)
        folder_of: dict[str, str] = {}
        for file in sorted(texts.folder.glob("class_*/image_*.txt")):
            key = f"{file.stem}.jpg"
            earlier = folder_of.setdefault(key, file.parent.name)
            if earlier != file.parent.name:
                raise DataError(
                    f"{file}: the image {file.stem} must be in one class; it is also described in {earlier}."
                )
        if not folder_of:
            raise DataError(f"{texts.folder} must hold files such as class_00001/image_00001.txt.")
        folder = find_images(list(folder_of), image_folders(self.images, root / "jpg", root))
        records = texts.records(folder_of.items(), folder, lambda name: _flower_name(name, names, self.class_names))
        files = tuple(texts.files)
        if self.class_names is not None:
            files += (Path(self.class_names),)
        return Source(
            "flowers102",
            root.resolve().name,
            records,
            files=files,
            options={"descriptions_sha256": texts.sha256()},
            notes=tuple(texts.notes),
        )


def _names(path: str | os.PathLike[str] | None) -> list[str]:
    if path is None:
        return []
    names = [line.strip() for line in text_lines(Path(path))]
    if len(set(names)) != len(names) or not all(names):
        raise DataError(f"{path} must hold a distinct, non-empty name per class.")
    return names


def _flower_name(folder: str, names: list[str], path: str | os.PathLike[str] | None) -> str:
    if path is None:
        return folder
    number = folder.removeprefix("class_")
    if not number.isdecimal() or not 1 <= int(number) <= len(names):
        raise DataError(f"{path} must have a line for {folder}; got {len(names)} lines.")
    return names[int(number) - 1]


def class_lists(folder: Path) -> tuple[dict[str, str], list[Path], list[str]]:
    """Read the lists trainclasses.txt, valclasses.txt and testclasses.txt, one class per line.

    With trainvalclasses.txt in place of the first two, a fifth of its classes, in the order of their hashes, is val.

    Args:
        folder: folder with the lists.

    Returns:
        class -> split, the files, and notes for the user.

    Raises:
        DataError: for a missing or empty list, or a class in two lists.
    """
    files = {split: folder / f"{split}classes.txt" for split in SPLITS}
    both = folder / "trainvalclasses.txt"
    whole = files["train"].is_file() and files["val"].is_file()
    if not files["test"].is_file() or not (whole or both.is_file()):
        raise DataError(
            f"The folder {folder} must hold trainclasses.txt, valclasses.txt and testclasses.txt, one class per line; "
            "trainvalclasses.txt can replace the first two. They come with the descriptions."
        )
    if whole:
        return _members({split: _class_list(path) for split, path in files.items()}), list(files.values()), []
    names = _class_list(both)
    count = max(1, round(len(names) / 5))
    order = ranked(names)
    members = {"train": order[count:], "val": order[:count], "test": _class_list(files["test"])}
    note = f"{count} of the {len(names)} classes of {both.name} are val, in the order of their hashes."
    return _members(members), [both, files["test"]], [note]


def _class_list(path: Path) -> list[str]:
    names = [line.strip() for line in text_lines(path) if line.strip()]
    if not names:
        raise DataError(f"{path} must hold one class per line; got an empty file.")
    return names


def _members(lists: dict[str, list[str]]) -> dict[str, str]:
    members: dict[str, str] = {}
    for split, names in lists.items():
        for name in names:
            if members.setdefault(name, split) != split:
                raise DataError(f"The class {name!r} must be in one list; it is in {members[name]} and {split}.")
    return members
