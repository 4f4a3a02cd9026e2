"""The parts of speech of a dataset's captions: from a tagger or a file, `vsemb annotate --pos-tags` as functions.

DATASET/tags/
    tags.json            what the rest is, with checksums; which dataset they are of, where they came from
    SPLIT.tags.gz        a line for each caption of a split, in order: its words' tags by spaces
"""

from __future__ import annotations

import gzip
import os
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from tqdm import tqdm

from vsemb.data.annotations import CaptionAnnotation
from vsemb.data.caption_index import CaptionIndex
from vsemb.data.store import Dataset, Split
from vsemb.errors import DataError
from vsemb.files import sha256_bytes, sha256_file
from vsemb.systems.language.taggers import Tagger, Token, align_tags, read_tags
from vsemb.text.normalize import words_of

_SHOWN = 100


class CaptionTags(CaptionAnnotation):
    """The parts of speech of all captions of a dataset.

    Attributes:
        path: their directory.
        fingerprint: hex; equal for equal tags, wherever they came from.
        source: what made them: `{"tagger": ...}`, or `{"file": ..., "sha256": ...}`.
        count: the number of captions.

    Example:

    ```python
    tags = Dataset.open("data/flickr8k").annotation("tags")
    print(tags.of(dataset.split("val"))[0])
    ```
    """

    kind: ClassVar[str] = "tags"
    option: ClassVar[str] = "--pos-tags"

    def __init__(self, dataset: Dataset, content: Mapping[str, Any]) -> None:
        super().__init__(dataset, content)
        self.source: dict[str, Any] = content["source"]

    @classmethod
    def check(cls, content: Mapping[str, Any]) -> None:
        if not isinstance(content["source"], dict):
            raise TypeError("source")

    @classmethod
    def files(cls, split: str, record: Mapping[str, Any]) -> dict[str, str]:
        return {_file_name(split): record["sha256"]}

    def of(self, split: Split) -> list[list[str]]:
        """Returns the tags of each caption of a split.

        Args:
            split: of this dataset, also with few of its captions (`Split.with_captions`).

        Returns:
            For each caption a Penn tag for each word, as `vsemb.text.normalize.split_words` splits it.

        Raises:
            DataError: if it is of another dataset or has other texts than captions, or the file is damaged.
            InvalidArgumentError: if the dataset has no such split.
        """
        lines = self.read(split, _file_name(split.name), lambda file: self.unpacked(file).split("\n")[:-1])
        return [line.split() for line in lines]


find = CaptionTags.find


def tag_captions(dataset: Dataset, tagger: Tagger, *, overwrite: bool = False) -> CaptionTags:
    """Tags all captions of a dataset and writes their tags beside it.

    Args:
        dataset: the dataset.
        tagger: the tagger.
        overwrite: whether other tags are replaced.

    Returns:
        The tags, opened; at once where this tagger's are there already.

    Raises:
        DataError: if other tags are there, which is said before any work, the tagger's tokens are not of a
            caption, or the file system refuses.

    Example:

    ```python
    tags = tag_captions(Dataset.open("data/flickr8k"), open_tagger())
    ```
    """
    source = {"tagger": tagger.name}
    if (present := _present_tags(dataset, source, overwrite)) is not None:
        return present
    captions = CaptionIndex(dataset)
    tokens = ((f"The tagger {tagger.name}", tagger(text)) for text in captions.texts)
    return write_tags(dataset, _aligned(captions, tokens, "tag"), source=source, overwrite=overwrite)


def import_tags(
    dataset: Dataset,
    file: str | os.PathLike[str],
    *,
    overwrite: bool = False,
    report: Callable[[str], None] | None = None,
) -> CaptionTags:
    """Takes the tags of all captions from a file and writes them beside the dataset.

    A line belongs to the caption of its id: the one that the caption has in the dataset's source, or
    `KEY#NUMBER` with the image's key and the caption's number from 0.

    Args:
        dataset: the dataset.
        file: as `vsemb.systems.language.taggers.read_tags` reads it, with every caption.
        overwrite: whether other tags are replaced.
        report: called with lines worth showing, about ids that the dataset does not have.

    Returns:
        The tags, opened; at once where those of this file are there already.

    Raises:
        DataError: if other tags are there, which is said before any work, the file is broken, a caption has
            no line or two, or a line's words are not those of its caption.

    Example:

    ```python
    import_tags(Dataset.open("data/flickr8k"), "pos_tags.txt.gz", report=print)
    ```
    """
    try:
        source = {"file": Path(file).name, "sha256": sha256_file(file)}
    except OSError as error:
        raise DataError(f"The file of tags {file} cannot be read: {error.strerror or error}.") from error
    if (present := _present_tags(dataset, source, overwrite)) is not None:
        return present
    captions = CaptionIndex(dataset)
    lines = tqdm(read_tags(file), desc="read", unit="caption", disable=None, leave=False)
    found = captions.match(lines, "line", report or (lambda line: None))
    tokens = ((f"{file}, line {line.line},", line.tokens) for line in found)
    return write_tags(dataset, _aligned(captions, tokens, "match"), source=source, overwrite=overwrite)


def write_tags(
    dataset: Dataset,
    tags: Mapping[str, Sequence[Sequence[str]]],
    *,
    source: Mapping[str, Any],
    overwrite: bool = False,
) -> CaptionTags:
    """Writes the tags of a dataset's captions into its directory, whole or not at all.

    Where these tags are there already, nothing happens.

    Args:
        dataset: the dataset; its annotation `tags` are these from then on.
        tags: name of a split -> for each caption in order a tag for each word, for all splits.
        source: JSON-able, what made them.
        overwrite: whether other tags are replaced.

    Returns:
        The tags, opened.

    Raises:
        DataError: if a caption has none or another number of words, a tag is none, other tags are there and
            `overwrite` is false, or the file system refuses.

    Example:

    ```python
    write_tags(dataset, {"train": [["DT", "NN"]], "val": [["NNS"]]}, source={"tagger": "by hand"})
    ```
    """
    _check_tags(dataset, tags)
    texts = {name: "".join(" ".join(some) + "\n" for some in tags[name]) for name in dataset.splits}
    fingerprint = sha256_bytes("".join(f"{name}\n{text}" for name, text in texts.items()).encode())
    present = _present_tags(dataset, source, overwrite)
    if present is not None:
        if present.fingerprint != fingerprint:
            raise _other_tags(present)
        return present
    described = {"fingerprint": fingerprint, "source": dict(source)}
    with CaptionTags.writing(dataset, described, overwrite) as (folder, splits):
        for name, text in texts.items():
            packed = gzip.compress(text.encode(), 6, mtime=0)
            (folder / _file_name(name)).write_bytes(packed)
            splits[name] = {"captions": len(tags[name]), "sha256": sha256_bytes(packed)}
    return CaptionTags.open(dataset)


def _file_name(split: str) -> str:
    return f"{split}.tags.gz"


def _present_tags(dataset: Dataset, source: Mapping[str, Any], overwrite: bool) -> CaptionTags | None:
    """Returns the tags that are there already; None where there are none, or they are to be replaced.

    Raises:
        DataError: if those that are there are damaged, or of another source.
    """
    present = None if overwrite else find(dataset)
    if present is not None and present.source != source:
        raise _other_tags(present)
    return present


def _other_tags(present: CaptionTags) -> DataError:
    origin = f"of {present.source['tagger']}" if "tagger" in present.source else "from a file"
    return DataError(f"{present.path} already holds tags {origin}; replace them with --overwrite.")


def _check_tags(dataset: Dataset, tags: Mapping[str, Sequence[Sequence[str]]]) -> None:
    CaptionTags.check_given(dataset, tags)
    for name in dataset.splits:
        split = dataset.split(name)
        for caption, words, some in zip(split.caption_ids, words_of(split.captions), tags[name], strict=True):
            if len(some) != len(words):
                raise DataError(
                    f"{len(some)} tags for the {len(words)} words of the caption {caption!r} of the split "
                    f"{name!r}; each word needs one."
                )
            if any(tag.split() != [tag] for tag in some):
                raise DataError(f"The caption {caption!r} has a tag that is empty or holds white space.")


def describe_tags(dataset: Dataset, tags: CaptionTags) -> dict[str, Any]:
    """Returns what `vsemb annotate --pos-tags` shows of a dataset's tags, as plain values."""
    counts = Counter(tag for name in dataset.splits for some in tags.of(dataset.split(name)) for tag in some)
    return {
        "captions": tags.count,
        "splits": {name: len(dataset.split(name).captions) for name in dataset.splits},
        "words": counts.total(),
        "tags": dict(counts.most_common()),
        "source": tags.source,
        "fingerprint": tags.fingerprint,
        "directory": str(tags.path),
    }


def _aligned(
    captions: CaptionIndex, tokens: Iterable[tuple[str, list[Token]]], step: str
) -> dict[str, list[list[str]]]:
    """Gives the words of all captions their tags, from where tokens come from and tokens with tags."""
    tags = []
    found = tqdm(tokens, desc=step, unit="caption", total=len(captions.texts), disable=None, leave=False)
    for (where, some), words, name, text in zip(
        found, words_of(captions.texts), captions.ids, captions.texts, strict=True
    ):
        aligned = align_tags(some, words)
        if aligned is None:
            read = " ".join(token for token, _ in some)
            raise DataError(
                f"{where} has other words than the caption {name!r}: it has {read[:_SHOWN]!r} and the caption "
                f"is {text[:_SHOWN]!r}."
            )
        tags.append(aligned)
    return captions.by_split(tags)
