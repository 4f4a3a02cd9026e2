"""`vsemb annotate --pos-tags` as functions: the parts of speech of all captions, from a tagger or from a file."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tqdm import tqdm

from vsemb.data.caption_index import CaptionIndex
from vsemb.data.store import Dataset
from vsemb.errors import DataError
from vsemb.files import sha256_file
from vsemb.systems.language.taggers import TaggedText, Tagger, Token, align_tags, read_tags, words_of
from vsemb.systems.language.tags import CaptionTags, present_tags, write_tags

_SHOWN = 100


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
    if (present := present_tags(dataset, source, overwrite)) is not None:
        return present
    tags: dict[str, list[list[str]]] = {}
    total = sum(len(dataset.split(name).captions) for name in dataset.splits)
    with tqdm(total=total, desc="tag", unit="caption", disable=None, leave=False) as progress:
        for name in dataset.splits:
            split = dataset.split(name)
            tags[name] = []
            for caption, text, words in zip(split.caption_ids, split.captions, words_of(split.captions), strict=True):
                tokens = tagger(text)
                tags[name].append(_aligned(tokens, words, f"The tagger {tagger.name}", caption, text))
                progress.update()
    return write_tags(dataset, tags, source=source, overwrite=overwrite)


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
    if (present := present_tags(dataset, source, overwrite)) is not None:
        return present
    captions = CaptionIndex(dataset)
    found: list[TaggedText | None] = [None] * len(captions.texts)
    unknown: list[TaggedText] = []
    for text in tqdm(read_tags(file), desc="read", unit="caption", disable=None, leave=False):
        place = captions.find(text.id)
        if place is None:
            unknown.append(text)
            continue
        if (before := found[place]) is not None:
            raise DataError(
                f"{file}, line {text.line}: {text.id[:_SHOWN]!r} is the caption of line {before.line}. A "
                "caption has its tags once: leave one of the lines out."
            )
        found[place] = text
    tags = []
    words = tqdm(words_of(captions.texts), desc="match", unit="caption", total=len(found), disable=None, leave=False)
    for place, (text_, some) in enumerate(zip(found, words, strict=True)):
        if text_ is None:
            raise DataError(_lacking(captions, place, sum(text is None for text in found), unknown, file))
        where = f"{file}, line {text_.line},"
        tags.append(_aligned(text_.tokens, some, where, captions.ids[place], captions.texts[place]))
    if unknown and report:
        report(
            f"{len(unknown)} lines left out whose ids the dataset does not have, first {unknown[0].id!r} "
            f"(line {unknown[0].line})."
        )
    return write_tags(dataset, captions.by_split(tags), source=source, overwrite=overwrite)


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


def _aligned(tokens: list[Token], words: list[str], where: str, caption: str, text: str) -> list[str]:
    tags = align_tags(tokens, words)
    if tags is None:
        read = " ".join(token for token, _ in tokens)
        raise DataError(
            f"{where} has other words than the caption {caption!r}: it has {read[:_SHOWN]!r} and the caption "
            f"is {text[:_SHOWN]!r}."
        )
    return tags


def _lacking(
    captions: CaptionIndex,
    place: int,
    count: int,
    unknown: list[TaggedText],
    file: str | os.PathLike[str],
) -> str:
    more = f", and for {count - 1} more" if count > 1 else ""
    ids = f" Its ids look like {unknown[0].id!r}." if unknown else ""
    return (
        f"{file} has no line for the caption {captions.ids[place]!r} of the split "
        f"{captions.split_of(place)!r} of {captions.path}{more}; it must hold every caption.{ids}"
    )
