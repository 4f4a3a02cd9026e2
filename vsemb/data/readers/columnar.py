"""Parquet files and Hugging Face datasets on disk (`save_to_disk`): tables with a column of encoded images.

Formats: https://parquet.apache.org, https://huggingface.co/docs/datasets/about_arrow
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from vsemb.data.readers import Reader
from vsemb.data.readers.samples import source_of, splits_in_names
from vsemb.data.readers.source import Source, existing, files_inside, split_name, typed_fields
from vsemb.errors import DataError
from vsemb.files import inside, read_json, reading


@dataclass(frozen=True)
class Columnar(Reader):
    """Base class of formats with a column of images and a column of captions.

    Attributes:
        split: put all images into this split; default: the column `split`, else the splits of the files, else a hash
            of the key. The hash also decides if there is only one split.
        image_feature: column of images; default: the only column of bytes.
        text_feature: column of captions, strings or lists of strings; default: a column with a name like `caption`.
    """

    split: str | None = None
    image_feature: str | None = None
    text_feature: str | None = None

    def read_files(self, path: Path, files: Mapping[Path, str | None]) -> Source:
        """Read files.

        Args:
            path: the source.
            files: file -> the split in its path, or None.

        Raises:
            DataError: if a column is missing, a file is damaged, or no row can be used.
        """
        from vsemb.data.readers.columns import samples

        options = {"image_feature": self.image_feature, "text_feature": self.text_feature}
        read = partial(samples, image=self.image_feature, text=self.text_feature)
        return source_of(str(self.kind), path, read, files, split=self.split, options=options, merge=True)


@dataclass(frozen=True)
class Parquet(Columnar, kind="parquet"):
    """Parquet files, for example of Hugging Face's hub or of img2dataset, or a folder that holds some.

    They have a column of images (bytes) and a column of captions. The name of a file or of its folder contains its
    split, as in train-00000-of-00002.parquet.
    """

    @classmethod
    def recognizes(cls, path: Path) -> bool:
        if path.is_dir():
            return bool(_files(path, "parquet")) and not any(_files(path, "tar"))
        return path.suffix.lower() == ".parquet"

    def read(self, source: str | os.PathLike[str]) -> Source:
        path = existing(source)
        files = _files(path, "parquet") if path.is_dir() else [path]
        if not files:
            raise DataError(f"{path} holds no .parquet files, neither itself nor one level down.")
        return self.read_files(path, splits_in_names(path, files))


@dataclass(frozen=True)
class HuggingFace(Columnar, kind="hf"):
    """The folder that `save_to_disk` of a Hugging Face `Dataset` or `DatasetDict` wrote."""

    @classmethod
    def recognizes(cls, path: Path) -> bool:
        return any((path / name).is_file() for name in ("dataset_dict.json", "state.json"))

    def read(self, source: str | os.PathLike[str]) -> Source:
        path = existing(source)
        folders: dict[Path, str | None] = {path: None}
        described = path / "dataset_dict.json"
        if described.is_file():
            folders = {path / str(name): split_name(str(name)) for name in _field(described, "splits")}
        files: dict[Path, str | None] = {}
        for folder, split in folders.items():
            state = folder / "state.json"
            for entry in _field(state, "_data_files"):
                (name,) = typed_fields(f"{state}: each of `_data_files`", entry, filename=str)
                file = folder / name
                with reading(file):
                    files[inside(path, os.path.relpath(file, path))] = split
        return self.read_files(path, files)


def _field(file: Path, name: str) -> list[Any]:
    content = read_json(file, "file of a Hugging Face dataset")
    if not isinstance(content, dict) or not isinstance(content.get(name), list):
        raise DataError(f"{file} is not of a Hugging Face dataset: it has no list {name!r}.")
    return content[name]


def _files(folder: Path, ending: str) -> list[Path]:
    return files_inside(folder, sorted(folder.glob(f"*.{ending}")) or sorted(folder.glob(f"*/*.{ending}")))
