"""Sentences of CoNLL-U files, matched with the captions of a dataset."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator

from vsemb.data.caption_index import CaptionIndex
from vsemb.data.store import StoredDataset
from vsemb.errors import DataError, counted
from vsemb.systems.trees.trees import Sentence, Tree
from vsemb.unicode import composed

_SHOWN = 100
# Spellings of the Penn Treebank, written by CoreNLP; undone when captions are compared.
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
    dataset: StoredDataset, sentences: Iterable[Sentence], report: Callable[[str], None] = print
) -> dict[str, list[Tree]]:
    """Match sentences of any parser with the captions of a dataset.

    A sentence is matched by its id: the caption's id in the dataset's source (`sentid` of a Karpathy file, id of a
    COCO annotation), or `KEY#NUMBER` with the image's key and the caption's number within the image, from 0. If no
    sentence has an id, as in CoreNLP's output, the sentences must be all captions in the order of `dataset.splits`.
    Apart from white space, a sentence must equal its caption, which detects wrong files.

    Args:
        dataset: the dataset.
        sentences: output of `vsemb.systems.trees.trees.read_conllu`; read once.
        report: called with messages about ignored sentences.

    Returns:
        Split name -> trees in caption order, for all splits.

    Raises:
        DataError: if a caption has no sentence or two, a sentence differs from its caption, or only some sentences
            have ids.

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
        raise DataError(f"The files must contain the captions of {dataset.path}; got 0 sentences.")
    captions = CaptionIndex(dataset)
    together = itertools.chain([first], sentences)
    trees = _by_order(captions, together) if first.id is None else _by_id(captions, together, report)
    return captions.by_split(trees)


def _by_id(captions: CaptionIndex, sentences: Iterator[Sentence], report: Callable[[str], None]) -> list[Tree]:
    hint = "Sentences without ids are matched in caption order. "
    matched = captions.match(_with_ids(sentences), "sentence", report, hint)
    differing: list[str] = []
    for place, sentence in enumerate(matched):
        if _reads_as(sentence, captions.texts[place]):
            continue
        message = (
            f"{_named(sentence)} is {_text(sentence)[:_SHOWN]!r}, and the caption of this id in "
            f"{captions.path} is {captions.texts[place][:_SHOWN]!r}."
        )
        if sentence.text is not None:
            raise DataError(f"{message} Check that the file belongs to this dataset.")
        differing.append(message)
    # Single words may differ, since a parser may rewrite them (`du` is `de le` in French treebanks). A file in which
    # every sentence differs belongs to other texts.
    if differing and len(differing) == sum(sentence.text is None for sentence in matched):
        raise DataError(f"{differing[0]} Every sentence without `# text` differs from its caption.")
    if differing:
        differ = counted(len(differing), "sentence without `# text` differs", "sentences without `# text` differ")
        report(f"{differ} from the dataset's captions: {differing[0]}")
    return [sentence.tree for sentence in matched]


def _with_ids(sentences: Iterator[Sentence]) -> Iterator[Sentence]:
    for sentence in sentences:
        if sentence.id is None:
            raise DataError(
                f"{_named(sentence)} has no id, and other sentences have one. Give all or no sentences an id."
            )
        yield sentence


def _by_order(captions: CaptionIndex, sentences: Iterator[Sentence]) -> list[Tree]:
    trees: list[Tree] = []
    splits = ", ".join(split.name for split in captions.splits)
    count = 0
    for count, sentence in enumerate(sentences, 1):
        if sentence.id is not None:
            raise DataError(
                f"{_named(sentence)} has an id, and other sentences have none. Give all or no sentences an id."
            )
        if count > len(captions.texts):
            continue
        caption = captions.texts[count - 1]
        if not _reads_as(sentence, caption):
            raise DataError(
                f"{_named(sentence)} has no id and must be caption {count} of {captions.path}, "
                f"{captions.ids[count - 1]!r}: {caption[:_SHOWN]!r}; got {_text(sentence)[:_SHOWN]!r}. Sentences "
                f"without ids must be all captions of the splits {splits}, in order."
            )
        trees.append(sentence.tree)
    if count != len(captions.texts):
        raise DataError(
            f"Sentences without ids must be the {len(captions.texts)} captions of {captions.path}, in the order of the "
            f"splits {splits}; got {count} sentences."
        )
    return trees


def _reads_as(sentence: Sentence, caption: str) -> bool:
    """Return whether a sentence is canonically equal to its caption, without white space."""
    read = composed("".join(_text(sentence).split()))
    caption = composed("".join(caption.split()))
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
