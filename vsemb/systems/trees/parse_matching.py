"""Which sentence of a CoNLL-U file is which caption of a dataset."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import chain

from vsemb.data.caption_index import CaptionIndex
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
    hint = "Sentences without ids are taken in the order of the captions. "
    found = captions.match(_with_ids(sentences), "sentence", report, hint)
    differing: list[str] = []
    for place, sentence in enumerate(found):
        if _reads_as(sentence, captions.texts[place]):
            continue
        message = (
            f"{_named(sentence)} is {_text(sentence)[:_SHOWN]!r}, and the caption of this id in "
            f"{captions.path} is {captions.texts[place][:_SHOWN]!r}."
        )
        if sentence.text is not None:
            raise DataError(f"{message} Is the file of another dataset?")
        differing.append(message)
    # Words alone may differ, since a parser may rewrite them (`du` is `de le` in French treebanks), but a file of
    # which no sentence reads as its caption is of other texts.
    if differing and len(differing) == sum(sentence.text is None for sentence in found):
        raise DataError(f"{differing[0]} No sentence without `# text` reads as its caption.")
    if differing:
        report(f"{len(differing)} sentences have other words than their captions and no `# text`: {differing[0]}")
    return [sentence.tree for sentence in found]


def _with_ids(sentences: Iterator[Sentence]) -> Iterator[Sentence]:
    for sentence in sentences:
        if sentence.id is None:
            raise DataError(f"{_named(sentence)} has no id and others have; all need one, or none.")
        yield sentence


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


def _reads_as(sentence: Sentence, caption: str) -> bool:
    """Compares without white space."""
    read, caption = ("".join(text.split()) for text in (_text(sentence), caption))
    return read == caption or (sentence.text is None and _respelt(read) == _respelt(caption))


def _respelt(text: str) -> str:
    for spelling, plain in _SPELLINGS.items():
        text = text.replace(spelling, plain)
    return text


def _text(sentence: Sentence) -> str:
    return " ".join(sentence.tree.words) if sentence.text is None else sentence.text


def _named(sentence: Sentence) -> str:
    name = "A sentence" if sentence.id is None else f"The sentence {sentence.id[:_SHOWN]!r}"
    return f"{name} (line {sentence.line})" if sentence.line else name
