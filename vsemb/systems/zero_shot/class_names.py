"""A class's name as one token, for encoders that know classes by what is stored of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import tensorflow as tf

from vsemb.data.store import Dataset, Split
from vsemb.errors import DataError, invalid_argument
from vsemb.systems.zero_shot.attributes import ClassAttributes
from vsemb.text.normalize import WHITE_SPACE, readable
from vsemb.text.tokenizers import TextReader, Tokenizer, TokenizerPart
from vsemb.text.vocabulary import Vocabulary

#: Splits whose classes a recipe trains on, selects on and recognises.
USUAL_SPLITS = ("train", "val", "test")


class ClassTokenizer(Tokenizer):
    """Looks up the whole text, trimmed, as the name of a class (0 no name, 1 unknown class).

    Case counts, as it does in the names of a dataset.

    Args:
        vocabulary: the names.

    Example:

    >>> tokenizer = ClassTokenizer(Vocabulary(["Blue Jay", "Crow"]))
    >>> tokenizer([" Crow", "Blue Jay", "blue jay", ""]).numpy().tolist()
    [[3], [2], [1], [0]]
    """

    unit: ClassVar[tuple[str, str]] = ("name of a class", "classes")

    def __init__(self, vocabulary: Vocabulary) -> None:
        super().__init__(vocabulary, max_length=1)

    def pieces(self, texts: tf.Tensor) -> tf.RaggedTensor:
        names = tf.strings.regex_replace(readable(texts), rf"^[{WHITE_SPACE}]+|[{WHITE_SPACE}]+$", "")
        named = tf.not_equal(names, "")
        return tf.RaggedTensor.from_row_lengths(tf.boolean_mask(names, named), tf.cast(named, tf.int64))


def class_attributes(dataset: Dataset) -> ClassAttributes:
    """Returns the attributes of a dataset's classes.

    Raises:
        DataError: if there are none, or a class to train on or to recognise has none.
    """
    attributes: ClassAttributes | None = dataset.annotation("attributes")
    if attributes is None:
        raise DataError(
            f"The recipe reads attributes of the classes and {dataset.path} has none. `vsemb scenes "
            "--fine-grained` makes a dataset that has, and `vsemb prepare --format cub` where "
            "CUB-200-2011's folder `attributes` is at hand."
        )
    for name in dataset.splits:
        if name in USUAL_SPLITS:
            attributes.matrix(dataset.split(name).class_ids()[0])
    return attributes


class ClassReader(TextReader):
    """Names of classes, as they are."""

    def knows(self, word: str) -> bool:
        return False

    def check(self, texts: Sequence[str], run: Path) -> None:
        unknown = sorted(set(texts) - set(self.vocabulary.words))
        if unknown:
            more = f" and {len(unknown) - 1} more" if len(unknown) > 1 else ""
            raise DataError(f"{run} knows no attributes of the class {unknown[0]!r}{more}.")


@dataclass(frozen=True)
class ClassNames(TokenizerPart, kind="classes"):
    """The name of an image's class in place of captions, for datasets that hold attributes of classes."""

    produces: ClassVar[str] = "classes"
    per_caption: ClassVar[bool] = False
    made_of: ClassVar[Mapping[str, str]] = {"attributes": "other attributes"}

    @property
    def length(self) -> int:
        return 1

    def select(self, split: Split) -> Split:
        names, classes = split.class_ids()
        return split.with_captions([[names[place]] for place in classes])

    def describe(self, dataset: Dataset) -> dict[str, Any]:
        attributes = class_attributes(dataset)
        return {"attributes": attributes.fingerprint, "attribute_dim": len(attributes.names)}

    def learn(self, texts: Iterable[str], dataset: Dataset | None = None) -> Vocabulary:
        if dataset is None:
            raise invalid_argument("text.tokenizer", self.kind, "another where texts have no classes")
        return Vocabulary(sorted(class_attributes(dataset).values))

    def build(self, vocabulary: Vocabulary) -> ClassTokenizer:
        return ClassTokenizer(vocabulary)

    def text_input(self, tokenizer: ClassTokenizer, reader: TextReader) -> Any:
        from vsemb.systems.zero_shot.classify import ClassNamesInput

        return ClassNamesInput(tokenizer)

    def reader(self, vocabulary: Vocabulary, run: Path) -> ClassReader:
        return ClassReader(vocabulary)
