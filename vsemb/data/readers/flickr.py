"""Flickr8k and Flickr30k: a token file (`NAME.jpg#N<tab>caption`) and split lists.

Sources: Hodosh, Young, Hockenmaier 2013 (Flickr8k); Young et al. 2014 (Flickr30k). Known error: the token
file of Flickr8k also describes `2258277193_586949ec62.jpg.1`, which has no image and is not in a split list.
"""

from __future__ import annotations

import os
import re
from collections.abc import Container
from dataclasses import dataclass
from pathlib import Path

from vsemb.data.readers import Reader
from vsemb.data.readers.source import (
    BadRows,
    Source,
    file_name,
    find_images,
    head,
    image_folders,
    image_path,
    numbered_lines,
    the_file,
)
from vsemb.data.records import ImageRecord
from vsemb.errors import DataError, counted

_LABELLED = re.compile(r"[^\t\n]+#\d+[ ]*\t")
_LISTS = {
    "train": ("Flickr_8k.trainImages.txt", "train.txt", "flickr30k_train.txt"),
    "val": ("Flickr_8k.devImages.txt", "val.txt", "dev.txt", "flickr30k_val.txt"),
    "test": ("Flickr_8k.testImages.txt", "test.txt", "flickr30k_test.txt"),
}
_IMAGE_FOLDERS = (
    "Flicker8k_Dataset",  # the spelling of the original archive
    "Flickr8k_Dataset",
    "flickr30k-images",
    "flickr30k_images",
    "images",
    "Images",
)


@dataclass(frozen=True)
class Flickr(Reader, kind="flickr"):
    """Flickr8k or Flickr30k: a token file, or a folder that holds it, itself or one level down.

    The token files are Flickr8k.token.txt and results_20130124.token. Split lists stand beside them.

    Attributes:
        images: images folder, a path or URI; default: a folder with a usual name near the token file.
        split: put all images into this split and ignore split lists; default: the split lists beside the token file,
            and images outside the lists are left out.
    """

    images: str | os.PathLike[str] | None = None
    split: str | None = None

    @classmethod
    def recognizes(cls, path: Path) -> bool:
        return bool(_token_files(path)) if path.is_dir() else _LABELLED.match(head(path)) is not None

    def read(self, source: str | os.PathLike[str]) -> Source:
        token = the_file(source, _token_files, "token files (*.token.txt or *.token)")
        bad = BadRows()
        captions = _captions(token, bad)
        lists: dict[str, Path] = {}
        notes = []
        if self.split is not None:
            members = dict.fromkeys(captions, self.split)
        else:
            for split, names in _LISTS.items():
                files = [token.parent / name for name in names]
                file = next(filter(Path.is_file, files), None)
                if file is not None:
                    lists[split] = file
            if not lists:
                raise DataError(
                    f"{token} must have split lists beside it (such as Flickr_8k.trainImages.txt or train.txt). No "
                    "split list was found. Copy them there, or put all images into one split with `split`."
                )
            members = _members(lists, captions, bad)
            outside = [name for name in captions if name not in members]
            if outside:
                more = ", ..." if len(outside) > 3 else ""
                images = counted(len(outside), "image is", "images are")
                notes.append(f"{images} in no split list: {', '.join(outside[:3])}{more}")
        near = dict.fromkeys([token.parent, token.parent.parent])
        usual = [root / name for root in near for name in _IMAGE_FOLDERS]
        folder = find_images(list(members), image_folders(self.images, *usual, token.parent))
        records = []
        for name, split in members.items():
            with bad:
                image, texts = image_path(folder, name), captions.get(name, {})
                records.append(ImageRecord(name, tuple(texts.values()), split, image, caption_ids=tuple(texts)))
        options = {} if self.split is None else {"split": self.split}
        name, read = Path(source).resolve().name, (token, *lists.values())
        return Source("flickr", name, records, read, options, tuple(notes), tuple(bad))


def _token_files(folder: Path) -> list[Path]:
    for below in ("", "*/"):
        files = sorted({*folder.glob(f"{below}*.token.txt"), *folder.glob(f"{below}*.token")})
        # Flickr8k has a lemmatized copy of the token file beside the original.
        files = [file for file in files if "lemma" not in file.name]
        if files:
            return files
    return []


def _captions(token: Path, bad: BadRows) -> dict[str, dict[str, str]]:
    """Return image name -> label -> caption, in the order of the file."""
    captions: dict[str, dict[str, str]] = {}
    for where, line in numbered_lines(token, bad=bad):
        if not line.strip():
            continue
        label, tab, caption = line.partition("\t")
        label = label.strip()
        name, mark, number = label.rpartition("#")
        with bad:
            if not tab or not mark or not name or not number.isdecimal():
                raise DataError(f"{where}: the line must be NAME.jpg#N<tab>caption; got {line[:60]!r}.")
            name = file_name(name)
            if label in captions.setdefault(name, {}):
                raise DataError(f"{where}: {label} occurs twice.")
            captions[name][label] = caption
    bad.require(token, captions)
    return captions


def _members(lists: dict[str, Path], captions: Container[str], bad: BadRows) -> dict[str, str]:
    """Return image name -> split, in the order of the lists."""
    members: dict[str, str] = {}
    for split, path in lists.items():
        for where, line in numbered_lines(path, bad=bad):
            name = file_name(line.strip())
            if not name:
                continue
            if name not in captions and f"{name}.jpg" in captions:
                name = f"{name}.jpg"  # The lists of Flickr30k Entities name images without the ending.
            with bad:
                if name in members:
                    raise DataError(f"{where}: {name} is already in the split {members[name]}.")
                members[name] = split
    return members
