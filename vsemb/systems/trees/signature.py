"""Signatures of models on dependency trees: rows of words and heads; Python parses texts before the call."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import numpy as np

from vsemb.exporting import TextInput
from vsemb.exporting.reference_outputs import Arrays
from vsemb.exporting.signatures import Outputs, first_rows, function_of, one_row_at_least
from vsemb.ops.tensorflow import tf
from vsemb.systems.trees.tree_tokenizer import Parse, TreeTokenizer, parsed_texts


class TreeInput(TextInput):
    """Input of dependency trees, since a SavedModel cannot parse: `encode_tree` and `search_tree`.

    The inputs are `tokens` string (batch, steps), "" as padding on either side, and `heads` int32 (batch, steps): the
    1-based number of each word's head in its row, 0 for the root and padding. A row that is not a tree has
    `valid = False`.

    Args:
        tokenizer: tokenizer of parsed texts.
        parse: function from raw texts to parsed texts.
        parser: name of the parser used for training; "" if not recorded.
    """

    name: ClassVar[str] = "tree"
    specs = (
        tf.TensorSpec([None, None], tf.string, name="tokens"),
        tf.TensorSpec([None, None], tf.int32, name="heads"),
    )
    max_bytes: ClassVar[int | None] = None

    def __init__(self, tokenizer: TreeTokenizer, parse: Parse, parser: str = "") -> None:
        super().__init__(tokenizer)
        self.parse = parse
        self.parser = parser

    @property
    def takes(self) -> str:
        return "dependency trees"

    @property
    def instance(self) -> Mapping[str, Any]:
        return {"tokens": ["", "a", "dog", "runs"], "heads": [0, 2, 3, 0]}

    def ids(self, tokens: tf.Tensor, heads: tf.Tensor) -> tf.Tensor:  # type: ignore[override]
        return self.tokenizer.from_tokens(*from_the_left(one_row_at_least(tokens), one_row_at_least(heads)))

    def from_strings(self, served: Any) -> Callable[[tf.Tensor], Outputs]:
        # Parsing runs in Python; the steps after it are compiled.
        shape = [None, None, *self.tokenizer.token_shape]
        encode_ids = function_of(served.id_rows, tf.TensorSpec(shape, tf.int32, name="ids"))

        def encode_text(text: tf.Tensor) -> Outputs:
            raw = [line.decode(errors="replace") for line in tf.convert_to_tensor(text).numpy().tolist()]
            texts = one_row_at_least(tf.constant(parsed_texts(raw, self.parse), tf.string))
            return first_rows(encode_ids(self.tokenizer(texts)), len(raw))

        return encode_text

    def examples(self, short: bool = False) -> Arrays:
        return golden_trees(self.tokenizer)

    def limits(self) -> list[str]:
        return [f"A tree is read up to {self.max_tokens} tokens."]

    def cannot(self) -> list[str]:
        return [
            "A SavedModel cannot parse: send tokens and heads (`encode_tree`). The parser used for training was "
            f"{self.parser or 'not recorded'}. `vsemb.serving.Client(parser=…)` and `vsemb search` parse before the "
            "call."
        ]


class LabelledTreeInput(TreeInput):
    """Input of dependency trees with relations: `encode_labelled_tree` and `search_labelled_tree` of parsed texts.

    The input is `text` string (batch,). A parsed text has one line per word: the word, its head and its relation, with
    tabs between them (`vsemb.systems.trees.trees.Tree.labelled_text`). A row that is not a tree has `valid = False`.
    """

    name: ClassVar[str] = "labelled_tree"
    specs = TextInput.specs
    max_bytes: ClassVar[int | None] = TextInput.max_bytes

    @property
    def takes(self) -> str:
        return "parsed texts"

    @property
    def instance(self) -> Mapping[str, Any]:
        return {"text": "a\t2\tdet\ndog\t3\tnsubj\nruns\t0\troot"}

    def ids(self, text: tf.Tensor) -> tf.Tensor:  # type: ignore[override]
        return self.tokenizer(one_row_at_least(text))

    def examples(self, short: bool = False) -> Arrays:
        word = (self.tokenizer.vocabulary.words or ("dog",))[0]
        rows = [f"{word}\t0\troot", f"{word}\t2\tdet\n{word}\t0\troot", f"{word}\t1\tdet", f"{word} runs", ""]
        return {"text": np.array(rows, object)}

    def cannot(self) -> list[str]:
        return [
            "A SavedModel cannot parse: send parsed texts (`encode_labelled_tree`). The parser used for training was "
            f"{self.parser or 'not recorded'}. `vsemb.serving.Client(parser=…)` and `vsemb search` parse before the "
            "call."
        ]


def from_the_left(tokens: tf.Tensor, heads: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Move the words of each row to its left end.

    TensorFlow Serving pads the shorter of two merged requests with its first element. That element must be padding, so
    rows may begin with padding.

    Args:
        tokens: (batch, steps) string, "" for padding.
        heads: (batch, steps) int32, counted from the row's first word.

    Returns:
        Tokens and heads (batch, steps), padded on the right only; steps >= 1.

    Example:

    >>> tokens, heads = from_the_left(tf.constant([["", "a", "dog"]]), tf.constant([[0, 2, 0]]))
    >>> tokens.numpy().tolist(), heads.numpy().tolist()
    ([[b'a', b'dog', b'']], [[2, 0, 0]])
    """
    same = tf.debugging.assert_equal(tf.shape(tokens), tf.shape(heads), "tokens and heads differ in shape.")
    with tf.control_dependencies([same] if same is not None else []):
        steps = tf.maximum(tf.shape(tokens)[1], 1)
    first = tf.argmax(tf.cast(tf.not_equal(tf.pad(tokens, [[0, 0], [0, 1]]), ""), tf.int32), axis=1)
    places = tf.cast(first, tf.int32)[:, None] + tf.range(steps)[None, :]

    def moved(values: tf.Tensor) -> tf.Tensor:
        return tf.gather(tf.pad(values, [[0, 0], [0, steps]]), places, axis=1, batch_dims=1)

    return moved(tokens), moved(heads)


def golden_trees(tokenizer: TreeTokenizer) -> Arrays:
    """Return reference inputs of an export, valid and invalid trees: `tokens` and `heads`.

    Args:
        tokenizer: tokenizer of the model.
    """
    # A vocabulary may have a single word.
    words = (tokenizer.vocabulary.words or ("dog",)) * 6
    longest = tokenizer.max_length + 6
    rows: list[tuple[list[str | bytes], list[int]]] = [
        ([words[0]], [0]),
        ([*words[:6]], [0, 1, 2, 3, 4, 5]),
        ([*words[:5]], [3, 3, 0, 3, 3]),
        ([*words[1:5]], [3, 4, 0, 3]),  # Not projective: the arcs 1-3 and 2-4 cross.
        ([words[2].upper(), words[2].title(), words[2].lower()], [2, 0, 2]),
        (["zyzzyva", b"\xff\xfe"], [2, 0]),
        (["", words[0], words[1]], [0, 2, 0]),  # Padding may come first.
        ([words[number % 6] for number in range(longest)], [*range(longest)]),
        ([], []),
        ([*words[:2]], [2, 1]),
        ([*words[:3]], [0, 3, 2]),
        ([*words[:2]], [0, 0]),
        ([*words[:2]], [0, 3]),
        ([*words[:2]], [0, -1]),
        ([words[0], "", words[1]], [0, 1, 1]),
    ]
    tokens = np.full((len(rows), longest), b"", object)
    heads = np.zeros((len(rows), longest), np.int32)
    for row, (sentence, numbers) in enumerate(rows):
        tokens[row, : len(sentence)] = [word.encode() if isinstance(word, str) else word for word in sentence]
        heads[row, : len(numbers)] = numbers
    return {"tokens": tokens, "heads": heads}
