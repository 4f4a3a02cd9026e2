"""Oxford Flowers-102 with the descriptions of Reed et al. 2016.

Sources: Nilsback, Zisserman 2008 (`jpg/image_00001.jpg`); https://github.com/reedscot/cvpr2016
(`text_c10/class_00001/image_06734.txt`, which say the classes of the images, and lists of classes).
"""

from __future__ import annotations

import os
from pathlib import Path

from vsemb.data.readers.source import Source, existing, find_images, image_path, text_lines
from vsemb.data.records import ImageRecord
from vsemb.errors import DataError
from vsemb.systems.zero_shot.readers.description_folders import DescriptionFolders, unlisted


def read(
    source: str | os.PathLike[str],
    *,
    images: str | os.PathLike[str] | None = None,
    descriptions: str | os.PathLike[str] | None = None,
    class_names: str | os.PathLike[str] | None = None,
) -> Source:
    """Reads Flowers-102.

    Args:
        source: the folder that holds `jpg/`.
        images: the images folder; default: `jpg/` in it.
        descriptions: the folder `text_c10` or the one that holds it, with `trainclasses.txt`,
            `valclasses.txt` and `testclasses.txt` in or beside it; where `trainvalclasses.txt` stands for
            the first two, a fifth of it is val. By default it is looked for around `source`.
        class_names: a text file whose n-th line is the name of `class_n`; without it classes are called as
            their folders are, "class_00001".

    Raises:
        DataError: if a file is missing or broken, an image is in two classes, or no image is found.
    """
    root = existing(source)
    texts = DescriptionFolders(descriptions, (root, root / "cvpr2016_flowers", root.parent / "cvpr2016_flowers"))
    names = _names(class_names)
    files = sorted(texts.folder.glob("class_*/image_*.txt"))
    folder_of: dict[str, str] = {}
    for file in files:
        if (earlier := folder_of.setdefault(file.stem, file.parent.name)) != file.parent.name:
            raise DataError(f"{file}: the image {file.stem} is described as one of {earlier} too.")
    if not files:
        raise DataError(f"{texts.folder} holds no class_00001/image_00001.txt or the like.")
    images_folder = find_images(
        [f"{file.stem}.jpg" for file in files], [root / "jpg", root] if images is None else [Path(images)]
    )
    records, left_out = [], []
    for stem, class_folder in folder_of.items():
        if class_folder not in texts.splits:
            left_out.append(class_folder)
            continue
        records.append(
            ImageRecord(
                f"{stem}.jpg",
                texts.texts(class_folder, stem),
                texts.splits[class_folder],
                image_path(images_folder, f"{stem}.jpg"),
                class_name=_class_name(class_folder, names, class_names),
            )
        )
    return Source(
        "flowers102",
        root.resolve().name,
        records,
        files=(*texts.files, *([] if class_names is None else [Path(class_names)])),
        options={"descriptions_sha256": texts.sha256()},
        total=len(records),
        notes=(*texts.notes, *unlisted(left_out)),
    )


def _names(path: str | os.PathLike[str] | None) -> list[str]:
    if path is None:
        return []
    names = [line.strip() for line in text_lines(Path(path))]
    if len(set(names)) != len(names) or not all(names):
        raise DataError(f"{path} needs a name of its own for each class; some lines are empty or equal.")
    return names


def _class_name(folder: str, names: list[str], path: str | os.PathLike[str] | None) -> str:
    if path is None:
        return folder
    number = folder.removeprefix("class_")
    if not number.isdecimal() or not 1 <= int(number) <= len(names):
        raise DataError(f"{path} has {len(names)} lines and no name for {folder}.")
    return names[int(number) - 1]
