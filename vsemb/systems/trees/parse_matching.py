"""Which sentence of a CoNLL-U file is which caption of a dataset."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import chain

import numpy as np

from vsemb.data.caption_index import CaptionIndex
from vsemb.data.records import caption_id
from vsemb.data.store import Dataset
from vsemb.errors import DataError
from vsemb.systems.trees.trees import Sentence, Tree

_SHOWN = 100
# The Penn Treebank's spellings, which CoreNLP writes; captions are compared with them taken back.
_SPELLINGS = {
    "-LRB-": "(",
    "-RRB-": ")",
    "-LSB-": "[",
    "-RSB-": "]",
    "-LCB-": "{",
    "-RCB-": "}",
    "``": '"',
    "''": '"',
}


def match_sentences(
    dataset: Dataset, sentences: Iterable[Sentence], report: Callable[[str], None] | None = None
) -> dict[str, list[Tree]]:
    """Finds the tree of every caption of a dataset, whatever parser made the trees.

    A sentence is known by its id: the one that the caption has in the dataset's source (`sentid` of a
    Karpathy file, the id of a COCO annotation), or `KEY#NUMBER` with the image's key and the caption's
    number within the image, from 0. Where no sentence has an id, as CoreNLP writes them, the sentences must
    be all captions in the order of `dataset.splits`. White space apart, a sentence must read as its caption:
    that is how a wrong file shows.

    Args:
        dataset: the dataset.
        sentences: as `vsemb.systems.trees.trees.read_conllu` yields them; read once.
        report: called with lines worth showing about sentences left out.

    Returns:
        Name of a split -> trees in the order of its captions, for all splits.

    Raises:
        DataError: if a caption has no sentence or two, a sentence reads otherwise than its caption, or only
            some sentences have ids.

    Example:

    ```python
    dataset = Dataset.open("data/flickr8k")
    trees = match_sentences(dataset, read_conllu("captions.conllu.gz"), report=print)
    write_parses(dataset, trees)
    ```
    """
    sentences = iter(sentences)
    first = next(sentences, None)
    if first is None:
        raise DataError(f"There is no sentence for the captions of {dataset.path}.")
    captions = CaptionIndex(dataset)
    together = chain([first], sentences)
    if first.id is None:
        trees = _by_order(captions, together)
    else:
        trees = _by_id(captions, together, report or (lambda line: None))
    return captions.by_split(trees)


def _by_id(captions: CaptionIndex, sentences: Iterator[Sentence], report: Callable[[str], None]) -> list[Tree]:
    trees: list[Tree | None] = [None] * len(captions.texts)
    lines = np.zeros(len(captions.texts), np.int64)
    unknown: list[Sentence] = []
    left_out = 0
    check = _Reading(captions)
    for sentence in sentences:
        if sentence.id is None:
            raise DataError(f"{_named(sentence)} has no id and others have; all need one, or none.")
        place = captions.find(sentence.id)
        if place is None:
            left_out += 1
            unknown = unknown or [sentence]
            continue
        if trees[place] is not None:
            raise DataError(
                f"{_named(sentence)} is of the same caption as the sentence of line {lines[place]}. "
                "A caption has one parse: leave one of them out."
            )
        check.add(sentence, place)
        trees[place], lines[place] = sentence.tree, sentence.line
    missing = [place for place, tree in enumerate(trees) if tree is None]
    if missing:
        raise DataError(_lacking(captions, missing, unknown))
    check.finish(report)
    if unknown:
        report(
            f"{left_out} sentences left out whose ids the dataset does not have, first {unknown[0].id!r} "
            f"(line {unknown[0].line})."
        )
    return [tree for tree in trees if tree is not None]


def _lacking(captions: CaptionIndex, missing: list[int], unknown: list[Sentence]) -> str:
    first = missing[0]
    key_form = caption_id(captions.splits[0].keys[0], 0)
    message = (
        f"No sentence for the caption {captions.ids[first]!r} of the split {captions.split_of(first)!r} of "
        f"{captions.path}, {captions.texts[first][:_SHOWN]!r}"
        f"{f', and for {len(missing) - 1} more' if len(missing) > 1 else ''}. "
    )
    if not unknown:
        return message + "The file must hold every caption of the dataset."
    own = f"{captions.ids[0]!r} or " if captions.ids[0] != key_form else ""
    message += (
        f"Ids in the file look like {unknown[0].id!r}, those of captions like {own}{key_form!r}; sentences "
        "without ids are taken in the order of the captions."
    )
    if not captions.has_own and captions.source in ("karpathy", "coco"):
        message += (
            " The dataset was prepared by a vsemb that did not keep the ids of its source; prepare it again "
            "with --overwrite."
        )
    return message


def _by_order(captions: CaptionIndex, sentences: Iterator[Sentence]) -> list[Tree]:
    trees: list[Tree] = []
    count = 0
    for count, sentence in enumerate(sentences, 1):
        if sentence.id is not None:
            raise DataError(f"{_named(sentence)} has an id and others have none; all need one, or none.")
        if count > len(captions.texts):
            continue
        caption = captions.texts[count - 1]
        if not _reads_as(sentence, caption):
            raise DataError(
                f"{_named(sentence)} has no id, so it should be caption {count} of {captions.path}, "
                f"{captions.ids[count - 1]!r}; it is {_text(sentence)[:_SHOWN]!r} and the caption is "
                f"{caption[:_SHOWN]!r}. Sentences without ids must be all captions of the splits "
                f"{', '.join(split.name for split in captions.splits)}, in this order."
            )
        trees.append(sentence.tree)
    if count != len(captions.texts):
        raise DataError(
            f"{count} sentences without ids for {len(captions.texts)} captions of {captions.path}; there "
            "must be one for each, in the order of the splits "
            f"{', '.join(split.name for split in captions.splits)}."
        )
    return trees


class _Reading:
    """Checks that sentences known by their ids read as their captions.

    The text of a sentence must. Words alone need not, since a parser may rewrite them (`du` is `de le` in
    French treebanks), but a file of which no sentence does is of other texts.
    """

    def __init__(self, captions: CaptionIndex) -> None:
        self._captions = captions
        self._without_text = 0
        self._differing: list[str] = []

    def add(self, sentence: Sentence, place: int) -> None:
        same = _reads_as(sentence, self._captions.texts[place])
        self._without_text += sentence.text is None
        if same:
            return
        message = (
            f"{_named(sentence)} is {_text(sentence)[:_SHOWN]!r}, and the caption of this id in "
            f"{self._captions.path} is {self._captions.texts[place][:_SHOWN]!r}."
        )
        if sentence.text is not None:
            raise DataError(f"{message} Is the file of another dataset?")
        self._differing.append(message if not self._differing else "")

    def finish(self, report: Callable[[str], None]) -> None:
        count = len(self._differing)
        if not count:
            return
        if count == self._without_text:
            raise DataError(f"{self._differing[0]} No sentence without `# text` reads as its caption.")
        report(f"{count} sentences have other words than their captions and no `# text`: {self._differing[0]}")


def _reads_as(sentence: Sentence, caption: str) -> bool:
    """Compares without white space."""
    if sentence.text is not None:
        return "".join(sentence.text.split()) == "".join(caption.split())
    words = "".join("".join(sentence.tree.words).split())
    return words == "".join(caption.split()) or _respelt(words) == _respelt("".join(caption.split()))


def _respelt(text: str) -> str:
    for spelling, plain in _SPELLINGS.items():
        text = text.replace(spelling, plain)
    return text


def _text(sentence: Sentence) -> str:
    return " ".join(sentence.tree.words) if sentence.text is None else sentence.text


def _named(sentence: Sentence) -> str:
    name = "A sentence" if sentence.id is None else f"The sentence {sentence.id[:_SHOWN]!r}"
    return f"{name} (line {sentence.line})" if sentence.line else name
