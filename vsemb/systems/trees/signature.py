"""Dependency trees on their way into a served model: rows of words and heads, and texts to be parsed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeGuard

import tensorflow as tf

from vsemb.errors import invalid_argument
from vsemb.systems.trees.tree_tokenizer import TreeTokenizer
from vsemb.systems.trees.trees import is_parsed
from vsemb.text.normalize import readable_part

#: From raw texts to parsed texts, see `vsemb.systems.trees.trees`.
Parse = Callable[[list[str]], Sequence[str]]


def takes_trees(tokenizer: object) -> TypeGuard[TreeTokenizer]:
    """Tells whether a tokenizer takes dependency trees in place of texts."""
    return isinstance(tokenizer, TreeTokenizer)


def from_the_left(tokens: tf.Tensor, heads: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Moves rows to the left until each begins with a word, and makes them one place long at least.

    TensorFlow Serving fills the shorter of two requests up with its first element, so that must be padding,
    and padding must be allowed to come first.

    Args:
        tokens: (batch, steps) string, "" for padding.
        heads: (batch, steps) int32, counted from the row's first word.

    Returns:
        Both with padding on the right alone, (batch, steps), steps at least 1.

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
    padded = (tf.pad(values, [[0, 0], [0, steps]]) for values in (tokens, heads))
    tokens, heads = (tf.gather(values, places, axis=1, batch_dims=1) for values in padded)
    return tokens, heads


def parsed_texts(texts: Sequence[bytes], parse: Parse | None) -> list[str]:
    r"""Parses texts for a model that takes trees.

    Args:
        texts: in UTF-8, read up to `vsemb.text.normalize.MAX_BYTES`. One that is parsed already stays as it
            is, and what has nothing in it is "".
        parse: the parser; called once with all texts that need it, not at all where none does.

    Raises:
        InvalidArgumentError: for a text that has to be parsed where there is no parser.

    Example:

    >>> parsed_texts([b"dogs", b" ", b"a\t2\ndog\t0"], lambda texts: [f"{text}\t0" for text in texts])
    ['dogs\t0', '', 'a\t2\ndog\t0']
    """
    decoded = [text.decode(errors="replace") for text in texts]
    decoded = [text if is_parsed(text) else readable_part(text) for text in decoded]
    raw = [row for row, text in enumerate(decoded) if text and not is_parsed(text)]
    if raw and parse is None:
        raise invalid_argument(
            "text",
            decoded[raw[0]],
            "a parsed text, since the model takes dependency trees and has no parser",
            "Name a parser with --parser, or parse the texts before: vsemb parse.",
        )
    if raw and parse is not None:
        for row, text in zip(raw, parse([decoded[row] for row in raw]), strict=True):
            decoded[row] = text
    return decoded
