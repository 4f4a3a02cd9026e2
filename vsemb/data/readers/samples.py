"""Images and captions in a few large files, read as a stream without unpacking them.

The files are read twice. The first pass skips the images; it counts the samples and finds malformed ones.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath
from typing import Any

from vsemb.console import progress
from vsemb.data.readers.hash_splits import hash_split
from vsemb.data.readers.source import Source, check_text, one_split_note, row_class, row_split, split_name
from vsemb.data.records import ImageRecord
from vsemb.errors import DataError

_SPLIT = re.compile(r"(?<![a-z])(train|training|val|valid|validation|dev|test|testing)(?![a-z])", re.IGNORECASE)


@dataclass(frozen=True)
class Sample:
    """One image with texts, as its file stores it.

    Attributes:
        where: file and position of the sample, for error messages.
        key: unique in the source.
        image: bytes of the encoded image, path of its file, or None.
        captions: a string or strings, or None.
        fields: `split` and `class` as far as the source has them.
        split: name of its split, or None; set by `checked`.
        class_name: name of its class, or None; set by `checked`.
    """

    where: str
    key: str
    image: bytes | Path | None
    captions: Any
    fields: Mapping[str, Any] = field(default_factory=dict)
    split: str | None = None
    class_name: str | None = None

    def checked(self, split: str | None = None) -> Sample:
        """Return the sample with its captions as a tuple, its split and its class; numbers of classes become text.

        Args:
            split: the split of all samples; None for the one that the sample states.

        Raises:
            DataError: if a value is not text, or has a lone surrogate, or cannot be a split.
        """
        several = self.captions if isinstance(self.captions, list) else [self.captions]
        texts = () if self.captions is None else tuple(several)
        for text in texts:
            check_text(self.where, "caption", text)
        split = split or row_split(self.where, self.fields)
        return replace(self, captions=texts, split=split, class_name=row_class(self.where, self.fields))


#: A function of a file, the prefix of its samples' keys, and whether to read images. It yields a sample, or an error in
#: place of a malformed one.
SampleReader = Callable[[Path, str, bool], Iterable[Sample | DataError]]


@dataclass(frozen=True)
class _Records:
    """The images of some files; every iteration reads the files again, in the same order."""

    read: SampleReader
    files: Mapping[Path, str | None]
    prefixes: Mapping[Path, str]
    merge: bool
    split: str | None
    bad: list[str] = field(default_factory=list)
    counted: list[int] = field(default_factory=list)

    def __len__(self) -> int:
        return sum(self.counted)

    def samples(self, file: Path, images: bool) -> Iterator[Sample]:
        for sample in self.read(file, self.prefixes[file], images):
            try:
                if isinstance(sample, DataError):
                    raise sample
                yield sample.checked(self.split)
            except DataError as error:
                if not images:
                    self.bad.append(str(error))

    def __iter__(self) -> Iterator[ImageRecord]:
        for file in self.files:
            waiting = None
            for sample in self.samples(file, images=True):
                if waiting and self.continues(waiting, sample):
                    waiting = replace(waiting, captions=waiting.captions + sample.captions)
                    continue
                if waiting:
                    yield self.record(waiting, file)
                waiting = sample
            if waiting:
                yield self.record(waiting, file)

    def continues(self, before: Sample, sample: Sample) -> bool:
        """Return whether a sample has further captions of the image before."""
        return bool(self.merge and sample.image and sample.image == before.image and sample.split == before.split)

    def record(self, sample: Sample, file: Path) -> ImageRecord:
        split = sample.split or self.files[file] or hash_split(sample.key)
        # A sample without image bytes gets the path of a file that does not exist, so it counts as a missing image.
        image = Path(f"{file}#{sample.key}") if sample.image is None else sample.image
        return ImageRecord(sample.key, sample.captions, split, image, sample.class_name, where=sample.where)


def source_of(
    format: str,
    path: Path,
    read: SampleReader,
    files: Mapping[Path, str | None],
    *,
    split: str | None,
    options: Mapping[str, Any],
    notes: Sequence[str] = (),
    merge: bool = False,
) -> Source:
    """Return files of samples as a source.

    Args:
        format: the reader's name.
        path: the folder or file that the user named. With several files, keys begin with the file's path below it.
        read: reads the samples of a file.
        files: file -> the split in its path, or None. The split of a sample has precedence.
        split: put all images into this split; None: the splits of samples and files, else a hash of the key.
        options: the reader's options, for the manifest.
        notes: further lines to report.
        merge: whether adjacent samples with the same image become one image with several captions.

    Raises:
        DataError: if no sample can be used.
    """
    splits = set(files.values())
    only = splits.pop() if len(splits) == 1 else None
    if only:
        files = dict.fromkeys(files)
    root = path if path.is_dir() else path.parent
    names = {file: file.relative_to(root).as_posix() for file in files}
    prefixes = dict.fromkeys(files, "")
    if len(files) > 1:
        for file, name in names.items():
            prefixes[file] = f"{PurePosixPath(name).with_name(file.name.partition('.')[0])}/"
    records = _Records(read, files, prefixes, merge, split)
    digest, hashed = hashlib.sha256(), False
    for file in progress(files, desc=f"{format}: check", unit="file", leave=False):
        records.counted.append(0)
        for sample in records.samples(file, images=False):
            facts = (sample.key, sample.captions, sample.split, sample.class_name)
            digest.update(repr(facts).encode("utf-8", "replace"))
            records.counted[-1] += 1
            hashed = hashed or not (sample.split or files[file])
        digest.update(f"{names[file]} {file.stat().st_size}\n".encode())
    if not len(records):
        raise DataError(f"{path} has no samples that can be used. {' '.join(records.bad[:3])}".strip())
    if only and hashed:
        notes = [*notes, one_split_note("files", only, "key", "`split` keeps one")]
    described = {"files": len(files), "samples_sha256": digest.hexdigest(), "split": split, **options}
    described = {name: value for name, value in described.items() if value}
    return Source(format, path.resolve().name, records, (), described, tuple(notes), tuple(records.bad))


def splits_in_names(path: Path, files: Iterable[Path]) -> dict[Path, str | None]:
    """Return the split that the name of each file, or of its folders below the source, contains.

    Args:
        path: the source, a folder or a file.
        files: its files.

    Returns:
        file -> split, or None.

    Example:

    >>> file = Path("data/validation-00000-of-00001.parquet")
    >>> splits_in_names(file, [file])[file]
    'val'
    """
    root = path if path.is_dir() else path.parent
    splits = {}
    for file in files:
        names = _SPLIT.findall(file.relative_to(root).as_posix())
        splits[file] = split_name(names[-1]) if names else None
    return splits
