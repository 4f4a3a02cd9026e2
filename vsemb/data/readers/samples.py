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
from vsemb.data.readers.source import Source, check_text, split_name
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
        split: name of its split, or None.
        class_name: name of its class, or None.
    """

    where: str
    key: str
    image: bytes | Path | None
    captions: Any
    split: Any = None
    class_name: Any = None

    def checked(self) -> Sample:
        """Return the sample with its captions as a tuple.

        Raises:
            DataError: if a value is not text, or has a lone surrogate.
        """
        several = self.captions if isinstance(self.captions, list) else [self.captions]
        texts = () if self.captions is None else tuple(several)
        for what, value in (*(("caption", text) for text in texts), ("split", self.split), ("class", self.class_name)):
            if what == "caption" or value is not None:
                check_text(self.where, what, value)
        return replace(self, captions=texts)


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
                yield sample.checked()
            except DataError as error:
                if not images:
                    self.bad.append(str(error))

    def __iter__(self) -> Iterator[ImageRecord]:
        for file in self.files:
            waiting = None
            for sample in self.samples(file, images=True):
                again = self.merge and waiting and sample.image and sample.image == waiting.image
                if waiting and again and sample.split == waiting.split:
                    waiting = replace(waiting, captions=waiting.captions + sample.captions)
                    continue
                if waiting:
                    yield self.record(waiting, file)
                waiting = sample
            if waiting:
                yield self.record(waiting, file)

    def record(self, sample: Sample, file: Path) -> ImageRecord:
        own = split_name(sample.split) if sample.split else None
        split = self.split or own or self.files[file] or hash_split(sample.key)
        # A sample without image bytes gets the path of a file that does not exist, so it counts as a missing image.
        image = Path(f"{file}#{sample.key}") if sample.image is None else sample.image
        return ImageRecord(sample.key, sample.captions, split, image, sample.class_name)


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
    named = set(files.values())
    only = named.pop() if len(named) == 1 else None
    if only:
        files = dict.fromkeys(files)
    root = path if path.is_dir() else path.parent
    names = {file: file.relative_to(root).as_posix() for file in files}
    stems = {file: PurePosixPath(name).with_name(file.name.partition(".")[0]) for file, name in names.items()}
    prefixes = {file: f"{stem}/" if len(files) > 1 else "" for file, stem in stems.items()}
    records = _Records(read, files, prefixes, merge, split)
    digest, hashed = hashlib.sha256(), False
    for file in progress(files, desc=f"{format}: check", unit="file", leave=False):
        records.counted.append(0)
        for sample in records.samples(file, images=False):
            facts = (sample.key, sample.captions, sample.split, sample.class_name)
            digest.update(repr(facts).encode("utf-8", "replace"))
            records.counted[-1] += 1
            hashed = hashed or not (split or sample.split or files[file])
        digest.update(f"{names[file]} {file.stat().st_size}\n".encode())
    if not len(records):
        raise DataError(f"{path} has no samples that can be used. {' '.join(records.bad[:3])}".strip())
    if only and hashed:
        notes = [*notes, f"All files are of the split {only}. A hash of the key splits them; `split` keeps one."]
    described = {"files": len(files), "samples_sha256": digest.hexdigest(), "split": split, **options}
    described = {name: value for name, value in described.items() if value}
    return Source(format, path.resolve().name, records, (), described, tuple(notes), tuple(records.bad))


def split_in_path(file: Path, root: Path) -> str | None:
    """Return the split that the name of a file or of its folders below `root` contains.

    Example:

    >>> split_in_path(Path("data/validation-00000-of-00001.parquet"), Path("data"))
    'val'
    """
    found = _SPLIT.findall(file.relative_to(root).as_posix())
    return split_name(found[-1]) if found else None
