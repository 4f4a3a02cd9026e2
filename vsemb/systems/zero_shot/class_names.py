"""Class names as tokens, for encoders with stored class attributes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from vsemb.data.store import Split, StoredDataset
from vsemb.errors import DataError, invalid_argument
from vsemb.ops.tensorflow import tf
from vsemb.systems.zero_shot.attributes import ClassAttributes
from vsemb.text.normalize import WHITE_SPACE, readable
from vsemb.text.tokenizers import TextReader, Tokenizer, TokenizerPart
from vsemb.text.vocabulary import Vocabulary

#: Splits with the classes of training, model selection and test.
USUAL_SPLITS = ("train", "val", "test")


class ClassTokenizer(Tokenizer):
    """Look up a trimmed text as the name of a class: one id per text, 0 for an empty text, 1 for an unknown class.

    Names are case-sensitive, as in a dataset.

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


def class_attributes(dataset: StoredDataset) -> ClassAttributes:
    """Return the attributes of a dataset's classes.

    Raises:
        DataError: if the dataset, or a class for training or recognition, has no attributes.
    """
    attributes: ClassAttributes | None = dataset.annotation("attributes")
    if attributes is None:
        raise DataError(
            f"The dataset {dataset.path} must have class attributes for this recipe. Make one with `vsemb scenes "
            "--fine-grained`, or with `vsemb prepare --format cub` and CUB-200-2011's folder `attributes`."
        )
    for name in dataset.splits:
        if name in USUAL_SPLITS:
            attributes.matrix(dataset.split(name).class_ids()[0])
    return attributes


class ClassReader(TextReader):
    """Class names, unchanged."""

    def knows(self, word: str) -> bool:
        return False

    def check(self, texts: Sequence[str], run: Path) -> None:
        unknown = sorted(name for name in set(texts) if name not in self.vocabulary)
        if unknown:
            more = f" and {len(unknown) - 1} more" if len(unknown) > 1 else ""
            raise DataError(f"The run {run} has no attributes of the class {unknown[0]!r}{more}. Choose another split.")


@dataclass(frozen=True)
class ClassNames(TokenizerPart, kind="classes"):
    """Class names in place of captions, for datasets with class attributes."""

    produces: ClassVar[str] = "classes"
    per_caption: ClassVar[bool] = False
    made_of: ClassVar[Mapping[str, str]] = {"attributes": "other attributes"}

    @property
    def length(self) -> int:
        return 1

    def select(self, split: Split) -> Split:
        names, classes = split.class_ids()
        return split.with_captions([[names[place]] for place in classes])

    def describe(self, dataset: StoredDataset) -> dict[str, Any]:
        attributes = class_attributes(dataset)
        return {"attributes": attributes.fingerprint, "attribute_dim": len(attributes.names)}

    def learn(self, texts: Iterable[str], dataset: StoredDataset | None = None) -> Vocabulary:
        if dataset is None:
            raise invalid_argument("text.tokenizer", self.kind, "a tokenizer for captions, or a dataset with classes")
        return Vocabulary(sorted(class_attributes(dataset).values))

    def build(self, vocabulary: Vocabulary) -> ClassTokenizer:
        return ClassTokenizer(vocabulary)

    def text_input(self, tokenizer: ClassTokenizer, reader: TextReader) -> Any:
        from vsemb.systems.zero_shot.classify import ClassNamesInput

        return ClassNamesInput(tokenizer)

    def reader(self, vocabulary: Vocabulary, run: Path) -> ClassReader:
        return ClassReader(vocabulary)
