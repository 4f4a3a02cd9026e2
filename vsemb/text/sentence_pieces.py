"""Sentence pieces: words to the pieces that are likeliest under a unigram model, in graph.

Kudo 2018, arXiv:1804.10959, as the sentencepiece library finds them (arXiv:1808.06226). Core operations only,
so that a SavedModel runs on every TensorFlow Serving; tensorflow_text has an operation of its own.
"""

from __future__ import annotations

import string
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf

from vsemb.errors import DataError
from vsemb.text.given_pieces import PretrainedSubwordTokenizer
from vsemb.text.normalize import WHITE_SPACE, readable
from vsemb.text.unigram import likeliest, substrings
from vsemb.text.vocabulary import Vocabulary

#: Stands for the blank in front of a word.
BLANK = "▁"
#: Letters of a word that are looked at.
MAX_WORD = 256
_UNIGRAM = 1
# Kinds of pieces that texts are made of: normal ones, and those that a user defined.
_NORMAL, _UNKNOWN, _DEFINED, _BYTE = 1, 2, 4, 6
# What an unknown letter costs beside the worst piece, in the library.
_UNKNOWN_PENALTY = 10.0
_LETTERS = [chr(code) for code in range(0x80, 0x10000) if not 0xD800 <= code < 0xE000]


@dataclass(frozen=True)
class PieceModel:
    """A model of the sentencepiece library.

    Attributes:
        pieces: by id.
        scores: float32, their logarithmic probabilities.
        kinds: their types, as the library numbers them.
        normalized: letter -> what the library makes of it, where that is something else.
        blank_first: whether a blank is put in front of a text.
    """

    pieces: tuple[str, ...]
    scores: np.ndarray
    kinds: tuple[int, ...]
    normalized: dict[str, str]
    blank_first: bool

    @classmethod
    def read(cls, proto: bytes, name: str = "the sentencepiece model") -> PieceModel:
        """Reads a `.spm` or `.model` file's content.

        Args:
            proto: the content.
            name: what the file is called in an error.

        Raises:
            DataError: if it is no such model, or not one of unigrams.
        """
        import sentencepiece

        try:
            model = list(_fields(proto))
            parts = [dict(_fields(value)) for number, value in model if number == 1]
            trainer, normalizer = (
                dict(_fields(next((value for found, value in model if found == number), b""))) for number in (2, 3)
            )
            pieces = tuple(part[1].decode() for part in parts)
            scores = np.array([struct.unpack("<f", part.get(2, b"\0\0\0\0"))[0] for part in parts], np.float32)
            kinds = tuple(part.get(3, _NORMAL) for part in parts)
            processor = sentencepiece.SentencePieceProcessor(model_proto=proto)
        except (
            ValueError,
            KeyError,
            IndexError,
            AttributeError,
            TypeError,
            struct.error,
            RuntimeError,
        ) as error:
            raise DataError(f"{name} is no model of sentencepiece: {error}.") from error
        if trainer.get(3, _UNIGRAM) != _UNIGRAM or _UNKNOWN not in kinds:
            raise DataError(
                f"{name} is no unigram model, the one kind of sentencepiece models that is read in graph. "
                "The presets of SigLIP have one; those of SigLIP 2 do not."
            )
        # Neighbours that letters do not merge with.
        whole = processor.Normalize([f"|{letter}|" for letter in _LETTERS])
        found = {
            letter: text.removeprefix(BLANK)[1:-1].replace(BLANK, " ")
            for letter, text in zip(_LETTERS, whole, strict=True)
        }
        changed = {letter: text for letter, text in found.items() if text != letter}
        return cls(pieces, scores, kinds, changed, bool(normalizer.get(3, 1)))


class SentencePieceTokenizer(PretrainedSubwordTokenizer):
    """Splits a text into the pieces of a unigram model.

    As the sentencepiece library, but that letters are normalised one by one, so that an accent given apart
    stays apart, and that a word is cut at 256 letters. Pieces never reach from one word into the next, so
    each word is segmented by itself, by dynamic programming over its letters.

    Args:
        vocabulary: what `piece_vocabulary` makes of the model's pieces.
        model: the model.
        max_length: longer texts are cut to so many pieces.
        canonical: whether texts are lower-cased and lose ASCII's punctuation first, as SigLIP's.

    Raises:
        DataError: if the model has pieces that reach across words.

    Example:

        model = PieceModel.read(Path("vocabulary.spm").read_bytes())
        tokenizer = SentencePieceTokenizer(piece_vocabulary(model.pieces), model)
        tokenizer(["a dog on a beach"])
    """

    def __init__(self, vocabulary: Vocabulary, model: PieceModel, max_length: int = 63, canonical: bool = True) -> None:
        super().__init__(vocabulary, max_length)
        self.canonical = canonical
        self.blank_first = model.blank_first
        self._unknown = model.kinds.index(_UNKNOWN)
        known = [place for place, kind in enumerate(model.kinds) if kind in (_NORMAL, _DEFINED)]
        across = [model.pieces[place] for place in known if model.pieces[place].strip(BLANK).count(BLANK)]
        if across:
            raise DataError(f"Pieces of the sentencepiece model reach across words: {across[0]!r}.")
        self._longest = max(len(model.pieces[place]) for place in known)
        scores = model.scores.copy()
        normal = model.scores[[place for place in known if model.kinds[place] == _NORMAL] or known]
        for place in known:
            if model.kinds[place] == _DEFINED:
                scores[place] = len(model.pieces[place].encode()) * normal.max() - 0.1
        scores[self._unknown] = normal.min() - _UNKNOWN_PENALTY
        # One more, for what is no piece at all.
        self._scores = tf.constant(np.append(scores, -np.inf), tf.float32)
        self._none = len(scores)
        self.ids = _table([model.pieces[place] for place in known], known, -1)
        spelling = sorted(
            (int(piece[1:-1], 16), place)
            for place, (piece, kind) in enumerate(zip(model.pieces, model.kinds, strict=True))
            if kind == _BYTE
        )
        # Pieces of single bytes, which spell what is unknown, if there are such.
        self._bytes = tf.constant([place for _, place in spelling], tf.int32) if len(spelling) == 256 else None
        letters = model.normalized or {"\0": "\0"}
        self.letters = tf.lookup.StaticHashTable(
            tf.lookup.KeyValueTensorInitializer(tf.constant(list(letters)), tf.constant(list(letters.values()))),
            default_value="\0",
        )

    def given(self, texts: tf.Tensor) -> tf.RaggedTensor:
        texts = readable(texts)
        if self.canonical:
            texts = tf.strings.lower(texts, encoding="utf-8")
            signs = "".join(rf"\{sign}" for sign in string.punctuation)
            texts = tf.strings.regex_replace(texts, f"[{signs}]", "")
        letters = tf.strings.unicode_split(texts, "UTF-8")
        found = self.letters.lookup(letters.flat_values)
        letters = letters.with_flat_values(tf.where(tf.equal(found, "\0"), letters.flat_values, found))
        texts = tf.strings.regex_replace(tf.strings.reduce_join(letters, axis=-1), f"[{WHITE_SPACE}]+", " ")
        words = tf.strings.split(tf.strings.strip(texts), sep=" ")
        words = tf.ragged.boolean_mask(words, tf.not_equal(words, ""))
        blanks = tf.fill(tf.shape(words.flat_values), BLANK)
        if not self.blank_first:
            starts = tf.boolean_mask(words.row_starts(), words.row_lengths() > 0)[:, None]
            blanks = tf.tensor_scatter_nd_update(blanks, starts, tf.fill(tf.shape(starts)[:1], ""))
        words = words.with_flat_values(tf.strings.join([blanks, words.flat_values]))
        distinct, places = tf.unique(words.flat_values)
        pieces = tf.gather(self._pieces_of(distinct), places)
        return self._joined(words.with_flat_values(pieces).merge_dims(1, 2))

    def _pieces_of(self, words: tf.Tensor) -> tf.RaggedTensor:
        """The likeliest pieces of words: (words,) string -> (words, None) ragged int32."""
        counts = tf.minimum(tf.strings.length(words, unit="UTF8_CHAR"), MAX_WORD)
        texts, there = substrings(words, counts, self._longest)
        found = self.ids.lookup(texts)
        # A letter is unknown where it is no piece.
        ids = tf.where(found >= 0, found, tf.one_hot(0, self._longest, self._unknown, self._none))
        ids = tf.where(there, ids, self._none)
        lengths, ends = likeliest(tf.gather(self._scores, ids), counts)
        pieces = tf.where(ends, tf.gather(ids, lengths - 1, batch_dims=2), -1)
        if self._bytes is None:
            return tf.ragged.boolean_mask(pieces, pieces >= 0)
        letters = texts[:, :, 0]
        codes = tf.cast(tf.io.decode_raw(letters, tf.uint8, fixed_length=4), tf.int32)
        there = tf.range(4) < tf.strings.length(letters)[:, :, None]
        spelled = tf.where(there, tf.gather(self._bytes, codes), -1)
        alone = tf.pad(pieces[:, :, None], [[0, 0], [0, 0], [0, 3]], constant_values=-1)
        every = tf.where(tf.equal(pieces, self._unknown)[:, :, None], spelled, alone)
        flat = tf.reshape(every, tf.stack([tf.shape(every)[0], 4 * tf.shape(every)[1]]))
        return tf.ragged.boolean_mask(flat, flat >= 0)

    def _joined(self, ids: tf.RaggedTensor) -> tf.RaggedTensor:
        """Keeps one of unknown letters that follow each other."""
        flat, rows = ids.flat_values, ids.value_rowids()
        unknown = tf.equal(flat, self._unknown)
        again = unknown[1:] & unknown[:-1] & tf.equal(rows[1:], rows[:-1])
        # The first has none before it, if there is a first.
        again = tf.concat([tf.zeros_like(unknown[:1]), again], axis=0)
        return tf.ragged.boolean_mask(ids, ids.with_flat_values(~again))


def _table(keys: list[str], values: list[int], default: int) -> tf.lookup.StaticHashTable:
    initializer = tf.lookup.KeyValueTensorInitializer(tf.constant(keys, tf.string), tf.constant(values, tf.int32))
    return tf.lookup.StaticHashTable(initializer, default_value=default)


def _fields(message: bytes) -> Iterator[tuple[int, Any]]:
    """Reads the fields of a protocol buffer: number and value, bytes or an integer.

    The library's own module of its messages needs the very protobuf that it was made with.
    """
    place = 0

    def varint() -> int:
        nonlocal place
        value = shift = 0
        while True:
            byte = message[place]
            place += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    while place < len(message):
        tag = varint()
        kind = tag & 7
        if kind == 0:
            yield tag >> 3, varint()
            continue
        length = {1: 8, 5: 4}.get(kind) or (varint() if kind == 2 else -1)
        if length < 0 or place + length > len(message):
            raise ValueError("it is damaged")
        yield tag >> 3, message[place : place + length]
        place += length
