"""Byte pairs: words to pieces that a fixed list of merges makes of their bytes, in graph.

Core operations only, so that a SavedModel runs on every TensorFlow Serving; keras-hub's own tokenizers need
tensorflow_text's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import tensorflow as tf

from vsemb.errors import invalid_argument
from vsemb.text.given_pieces import PretrainedSubwordTokenizer
from vsemb.text.normalize import WHITE_SPACE, readable
from vsemb.text.vocabulary import Vocabulary

#: Bytes of a word that are looked at: what has no white space or punctuation for longer is no word.
MAX_WORD_BYTES = 256
#: Ends a word's last piece.
END_OF_WORD = "</w>"
_NO_RANK = np.iinfo(np.int32).max
# CLIP's, from the code of Radford et al.; white space has become a blank before.
_WORDS = r"'s|'t|'re|'ve|'m|'ll|'d|\pL+|\pN|[^ \pL\pN]+"


class BytePairTokenizer(PretrainedSubwordTokenizer):
    """The tokenizer of CLIP (arXiv:2103.00020): lower-cased words, digits and signs, and pieces of them.

    As in the code of Radford et al. and the `tokenizers` library, without repairing text (`ftfy`) and without
    composing letters and accents that are given apart. Within `tf.data`, keras-hub's own `CLIPTokenizer`
    keeps the digits of a number together; here, as in training CLIP, each stands for itself. Of a word
    `MAX_WORD_BYTES` are looked at.

    Args:
        vocabulary: `vocabulary.words[i]` stands for the piece of id i of the published vocabulary, whose id
            here is i + 2.
        ids: piece -> id in the published vocabulary.
        merges: pairs of pieces, first those merged first.
        specials: words that are pieces as they are, such as `"<|endoftext|>"`.
        unknown: the published id of bytes that have no piece.
        max_length: longer texts are cut to so many pieces.
        lower: whether texts are lower-cased.

    Raises:
        InvalidArgumentError: for a merge of pieces that are not in the vocabulary.

    Example:

    >>> ids = {"a": 0, "b": 1, "b</w>": 2, "ab</w>": 3, "<end>": 4}
    >>> tokenizer = BytePairTokenizer(Vocabulary(list(ids)), ids, [("a", "b</w>")], ["<end>"], 4)
    >>> tokenizer(["ab AB", "bab"]).numpy().tolist()
    [[5, 5], [3, 5]]
    """

    def __init__(
        self,
        vocabulary: Vocabulary,
        ids: Mapping[str, int],
        merges: Sequence[tuple[str, str]],
        specials: Sequence[str],
        unknown: int,
        max_length: int = 75,
        lower: bool = True,
    ) -> None:
        super().__init__(vocabulary, max_length)
        self.lower = lower
        self._size = 1 + max(ids.values())
        pairs, merged = [], []
        for left, right in merges:
            if not {left, right, left + right} <= ids.keys():
                raise invalid_argument("merges", f"{left} {right}", "pieces of the vocabulary")
            pairs.append(ids[left] * self._size + ids[right])
            merged.append(ids[left + right])
        letters = byte_letters()
        # Row 0: a byte within a word; row 1: its last.
        self._bytes = tf.constant(
            [[ids.get(letter + end, unknown) for letter in letters] for end in ("", END_OF_WORD)], tf.int32
        )
        self._merged = tf.constant(merged or [0], tf.int32)
        ranks = tf.lookup.KeyValueTensorInitializer(tf.constant(pairs or [-1], tf.int64), tf.range(len(pairs) or 1))
        self.ranks = tf.lookup.StaticHashTable(ranks, default_value=_NO_RANK)
        known = tf.lookup.KeyValueTensorInitializer(
            tf.constant(specials, tf.string), tf.constant([ids[word] for word in specials], tf.int32)
        )
        self.specials = tf.lookup.StaticHashTable(known, default_value=-1)
        quoted = [_quoted(word) for word in specials]
        self._words = f"({'|'.join([*quoted, _WORDS])})"

    def given(self, texts: tf.Tensor) -> tf.RaggedTensor:
        texts = readable(texts)
        if self.lower:
            texts = tf.strings.lower(texts, encoding="utf-8")
        texts = tf.strings.regex_replace(texts, f"[{WHITE_SPACE}]+", " ")
        words = tf.strings.split(tf.strings.regex_replace(texts, self._words, r"\1 "), sep=" ")
        # What is between two matches, and behind the last, is empty.
        words = tf.ragged.boolean_mask(words, tf.not_equal(words, ""))
        distinct, places = tf.unique(words.flat_values)
        pieces = tf.gather(self._pieces_of(distinct), places)
        return words.with_flat_values(pieces).merge_dims(1, 2)

    def _pieces_of(self, words: tf.Tensor) -> tf.RaggedTensor:
        """The pieces of words, each by itself: (words,) string -> (words, None) ragged int32."""
        special = self.specials.lookup(words)
        letters = tf.strings.bytes_split(tf.strings.substr(words, 0, MAX_WORD_BYTES))
        codes = tf.cast(tf.reshape(tf.io.decode_raw(letters.flat_values, tf.uint8), [-1]), tf.int32)
        last = tf.scatter_nd(letters.row_limits()[:, None] - 1, tf.ones_like(special), tf.shape(codes, tf.int64))
        ids = letters.with_flat_values(tf.gather_nd(self._bytes, tf.stack([last, codes], axis=1)))
        # One column more, so that there is always a neighbour, and -1 where a word has ended.
        dense = tf.pad(ids.to_tensor(-1), [[0, 0], [0, 1]], constant_values=-1)
        merged = self._merge(dense)
        alone = tf.concat([special[:, None], -tf.ones_like(merged[:, 1:])], axis=1)
        merged = tf.where(special[:, None] >= 0, alone, merged)
        return tf.ragged.boolean_mask(merged, merged >= 0)

    def _merge(self, ids: tf.Tensor) -> tf.Tensor:
        """Merges the pair of lowest rank in each word until none is left; (words, steps) int32."""
        columns = tf.range(tf.shape(ids)[1])

        def ranked(ids: tf.Tensor) -> tf.Tensor:
            left, right = (tf.cast(part, tf.int64) for part in (ids[:, :-1], ids[:, 1:]))
            ranks = self.ranks.lookup(left * self._size + right)
            return tf.where((left >= 0) & (right >= 0), ranks, _NO_RANK)

        def step(ids: tf.Tensor, ranks: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            place = tf.argmin(ranks, axis=1, output_type=tf.int32)
            best = tf.gather(ranks, place, batch_dims=1)
            found = best < _NO_RANK
            piece = tf.gather(self._merged, tf.where(found, best, 0))
            # What is behind the pair moves up by one.
            moved = tf.minimum(columns + tf.cast(columns > place[:, None], tf.int32), columns[-1])
            shorter = tf.where(columns == place[:, None], piece[:, None], tf.gather(ids, moved, batch_dims=1))
            ids = tf.where(found[:, None], shorter, ids)
            return ids, ranked(ids)

        ids, _ = tf.while_loop(
            lambda ids, ranks: tf.reduce_any(ranks < _NO_RANK),
            step,
            (ids, ranked(ids)),
            shape_invariants=(tf.TensorShape([None, None]), tf.TensorShape([None, None])),
        )
        return ids


def byte_letters() -> list[str]:
    """Returns the letter that stands for each byte in a vocabulary: itself where it can be seen (GPT-2).

    Example:

    >>> letters = byte_letters()
    >>> letters[65], letters[32], len(set(letters))
    ('A', 'Ġ', 256)
    """
    seen = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    others = iter(range(256, 512))
    return [chr(byte) if byte in seen else chr(next(others)) for byte in range(256)]


def _quoted(word: str) -> str:
    """A word as a regular expression that matches nothing else."""
    return "".join(letter if letter.isalnum() else rf"\{letter}" for letter in word)
