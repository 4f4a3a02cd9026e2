"""Annotations of a dataset's captions, such as parses, in the dataset's directory.

    DATASET/KIND/
        KIND.json            manifest: the dataset's fingerprint, checksums, counts
        ...                  the files of each split

The dataset's index, shards and fingerprint stay as they are, so features and runs stay usable.
"""

from __future__ import annotations

import contextlib
import gzip
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Self, TypeVar

from vsemb.data.store import Split, StoredDataset
from vsemb.errors import DataError, counted
from vsemb.files import inside, read_bytes, read_json, reading, replacing_directory, sha256_file, write_json

_VERSION = 1

_Value = TypeVar("_Value")


class CaptionAnnotation:
    """Base of the annotations of a dataset's captions: opens, verifies, reads and write them.

    Class attributes:
        kind: name of the annotation, its folder and its manifest, such as `parses`.
        annotation: name for `vsemb annotate`, which makes it.
        unit: key of the number of captions of a split in the manifest.

    Attributes:
        path: its directory.
        fingerprint: hex; equal for equal annotations, wherever they came from.
        count: the number of captions.
    """

    kind: ClassVar[str]
    annotation: ClassVar[str]
    unit: ClassVar[str] = "captions"

    def __init__(self, dataset: StoredDataset, content: Mapping[str, Any]) -> None:
        self.path = dataset.path / self.kind
        self.fingerprint: str = content["fingerprint"]
        self.count = sum(record[self.unit] for record in content["splits"].values())
        self._dataset = dataset
        self._splits: Mapping[str, Any] = content["splits"]
        self._read: dict[str, list[Any]] = {}

    def __repr__(self) -> str:
        return f"<{type(self).__name__} at {self.path} ({self.count} {self.unit})>"

    @classmethod
    def open(cls, dataset: StoredDataset) -> Self:
        """Open the annotation of a dataset and verify its files.

        Raises:
            DataError: if it is missing, damaged, of another version or of another dataset.
        """
        path = dataset.path / cls.kind
        manifest = path / f"{cls.kind}.json"
        if not path.is_dir():
            raise DataError(
                f"{dataset.path} has no {cls.kind}. Make them with `vsemb annotate {dataset.path} {cls.annotation}`."
            )
        content = read_json(manifest, f"list of {cls.kind}")
        if not isinstance(content, dict) or content.get("format") != f"vsemb-{cls.kind}":
            raise cls.unusable(f"{manifest} is not a list of {cls.kind}")
        if content.get("version") != _VERSION:
            version = content.get("version")
            raise cls.unusable(
                f"The {cls.kind} at {path} have version {version!r}; this vsemb reads version {_VERSION}"
            )
        try:
            cls.check(content)
            counts = {name: record[cls.unit] for name, record in content["splits"].items()}
            files = [cls.files(name, record) for name, record in content["splits"].items()]
            digests = [content["dataset"], content["fingerprint"]]
            for files_of_split in files:
                digests += files_of_split.values()
            if not all(isinstance(digest, str) for digest in digests):
                raise TypeError("no text where a checksum should be")
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise cls.unusable(f"{manifest} is damaged ({error!r})") from error
        if content["dataset"] != dataset.fingerprint:
            raise cls.unusable(f"The {cls.kind} at {path} are of another dataset than {dataset.path} is now")
        if counts != {name: split["captions"] for name, split in dataset.manifest["splits"].items()}:
            raise cls.unusable(f"{manifest} is damaged: it counts other captions")
        for files_of_split in files:
            cls.verify(path, files_of_split)
        return cls(dataset, content)

    @classmethod
    def find(cls, dataset: StoredDataset) -> Self | None:
        """Open the annotation of a dataset; None where it has none.

        Raises:
            DataError: if it is damaged, of another version or of another dataset.
        """
        return cls.open(dataset) if (dataset.path / cls.kind).exists() else None

    @classmethod
    def check(cls, content: Mapping[str, Any]) -> None:
        """Check the manifest's fields of this kind; for subclasses.

        Raises:
            TypeError: for a value of another type.
            ValueError: for another value that is not allowed.
        """

    @classmethod
    def files(cls, split: str, record: Mapping[str, Any]) -> dict[str, str]:
        """Return the names of a split's files, with their hex SHA-256 as the manifest records it."""
        raise NotImplementedError

    @classmethod
    def unusable(cls, why: str) -> DataError:
        """Return the error for an annotation that cannot be read, with the fix."""
        return DataError(f"{why}. Make them again with `vsemb annotate DATA {cls.annotation} --overwrite`.")

    @classmethod
    def verify(cls, folder: Path, files: Mapping[str, str]) -> None:
        """Check files against their checksums.

        Args:
            folder: where they are.
            files: relative name -> hex SHA-256.

        Raises:
            DataError: naming the first that is missing or has other content.
        """
        for name, expected in files.items():
            if not (folder / name).exists():
                raise cls.unusable(f"The {cls.kind} are damaged: {folder / name} is missing")
            with reading(folder / name):
                digest = sha256_file(inside(folder, name))
            if digest != expected:
                raise cls.unusable(f"The {cls.kind} are damaged: {folder / name} has other content")

    def read(self, split: Split, name: str, parse: Callable[[Path], list[_Value]]) -> list[_Value]:
        """Read the annotations of a split's texts from a file of the split, which is read once.

        Args:
            split: of this dataset, also with few of its captions (`Split.with_captions`).
            name: name of the file.
            parse: reads the annotations of all captions of the split from the file.

        Raises:
            DataError: if it is of another dataset or has other texts than captions, or the file is damaged.
            InvalidArgumentError: if the dataset has no such split.
        """
        if split.dataset is None or split.dataset.fingerprint != self._dataset.fingerprint:
            raise DataError(
                f"The split {split.name!r} is of another dataset than these {self.kind}, which are of "
                f"{self._dataset.path}."
            )
        if split.caption_places is None:
            raise DataError(
                f"The texts of the split {split.name!r} are not its captions, and only those have {self.kind}."
            )
        if name not in self._read:
            self._read[name] = parse(self.path / name)
            count = len(self._read[name])
            if count != self._splits[split.name][self.unit]:
                raise self.unusable(f"{self.path / name} is damaged: it has {count} {self.unit}")
        return [self._read[name][place] for place in split.caption_places]

    def unpacked(self, file: Path) -> str:
        """Return the text of a file that is compressed with gzip.

        Raises:
            DataError: if it cannot be read.
        """
        with reading(file):
            return gzip.decompress(read_bytes(file)).decode()

    @classmethod
    def check_given(cls, dataset: StoredDataset, by_split: Mapping[str, Sequence[Any]]) -> None:
        """Check that every caption of a dataset has an annotation.

        Args:
            dataset: the dataset.
            by_split: name of a split -> the annotations of its captions.

        Raises:
            DataError: if a split is missing or unknown, or has another number of captions.
        """
        if set(by_split) != set(dataset.splits):
            raise DataError(
                f"{cls.kind.capitalize()} are given for the splits {', '.join(by_split) or 'none'}; {dataset.path} has "
                f"{', '.join(dataset.splits)}, and all need theirs."
            )
        for name in dataset.splits:
            count = len(dataset.split(name).captions)
            if len(by_split[name]) != count:
                given = f"{cls.kind.capitalize()} are given for {counted(len(by_split[name]), 'caption')}"
                raise DataError(f"{given}; the split {name!r} of {dataset.path} has {count}.")

    @classmethod
    @contextlib.contextmanager
    def writing(
        cls, dataset: StoredDataset, described: Mapping[str, Any], overwrite: bool
    ) -> Iterator[tuple[Path, dict[str, Any]]]:
        """Write an annotation into the dataset's directory, whole or not at all.

        Args:
            dataset: the dataset; its annotation of this kind is this one from then on.
            described: further fields of the manifest, `fingerprint` among them.
            overwrite: whether another one is replaced.

        Yields:
            folder: where files are written.
            splits: to be filled: name of a split -> its record in the manifest.

        Raises:
            DataError: if there is one and `overwrite` is false, or the file system refuses.
        """
        splits: dict[str, Any] = {}
        with replacing_directory(dataset.path / cls.kind, overwrite) as folder:
            yield folder, splits
            head = {"format": f"vsemb-{cls.kind}", "version": _VERSION, "dataset": dataset.fingerprint}
            write_json(folder / f"{cls.kind}.json", {**head, **described, "splits": splits})
        dataset.forget_annotation(cls.kind)
