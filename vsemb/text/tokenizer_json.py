"""Tokenizers as `tokenizer.json` of the Hugging Face library tokenizers, which needs no TensorFlow.

The library reads the file in Python, Rust and JavaScript. Its regular expressions have categories of characters and
look around a match, so each step of `vsemb.text.normalize` is one replacement. Two things differ: the library reads
texts of any length, and splits words of any length into subwords.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from vsemb.text.normalize import NOT_IN_WORDS, in_python
from vsemb.text.vocabulary import PADDING, PADDING_ID, UNKNOWN, UNKNOWN_ID, Vocabulary

# As in `vsemb.text.normalize`; a private-use character.
_KEPT = "\ue000"
_BLANK = "[\t-\r\x1c-\x20\x85\\p{Z}\x00\ufffd]+"


def _replace(pattern: str, replacement: str) -> dict[str, Any]:
    return {"type": "Replace", "pattern": {"Regex": pattern}, "content": replacement}


# The library lower-cases a sigma regardless of its place in a word.
_LOWER = (_replace("(?<=\\p{L})\u03a3(?!\\p{L})", "\u03c2"), {"type": "Lowercase"})

#: Leaves the words of a text as `vsemb.text.normalize.split_words` finds them, with spaces between them.
WORDS = (
    {"type": "NFC"},
    _replace("\u00ad", ""),
    _replace("\x00", " "),
    *_LOWER,
    _replace("[\u2018\u2019]", "'"),
    _replace("(?<=\\p{L})(?<!\\p{L}'s)'s(?![0-9A-Za-z_])", f" {_KEPT}s "),
    _replace("(?<=\\p{L})'(?=\\p{L})", ""),
    _replace(f"(?:[^\\p{{L}}\\p{{M}}\\p{{N}}{_KEPT}]|[{in_python(NOT_IN_WORDS)}])+", " "),
    _replace(_KEPT, "'"),
)

#: Leaves the characters of a text as `vsemb.text.tokenizers.CharacterTokenizer` finds them.
CHARACTERS = (
    {"type": "NFC"},
    _replace(_BLANK, " "),
    {"type": "Strip", "strip_left": True, "strip_right": True},
    *_LOWER,
)

_SPACES = {"type": "WhitespaceSplit"}
_EACH = {"type": "Split", "pattern": {"Regex": "[\\s\\S]"}, "behavior": "Isolated", "invert": False}


def ids_of(vocabulary: Vocabulary) -> dict[str, int]:
    """Return token -> id, with padding and the unknown token."""
    return {PADDING: PADDING_ID, UNKNOWN: UNKNOWN_ID, **vocabulary.ids}


def tokenizer_json(
    model: dict[str, Any],
    max_length: int,
    normalizers: Sequence[dict[str, Any]] = WORDS,
    splits: Sequence[dict[str, Any]] = (_SPACES,),
) -> dict[str, Any]:
    """Return the content of the file.

    Args:
        model: the library's model, from a word to tokens.
        max_length: longer texts are truncated to this many tokens.
        normalizers: the library's normalizers.
        splits: its pre-tokenizers, from a text to words.
    """
    return {
        "version": "1.0",
        "truncation": {"direction": "Right", "max_length": max_length, "strategy": "LongestFirst", "stride": 0},
        "padding": {
            "strategy": "BatchLongest",
            "direction": "Right",
            "pad_to_multiple_of": None,
            "pad_id": PADDING_ID,
            "pad_type_id": 0,
            "pad_token": PADDING,
        },
        "added_tokens": [],
        "normalizer": {"type": "Sequence", "normalizers": list(normalizers)},
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": list(splits)},
        "post_processor": None,
        "decoder": None,
        "model": model,
    }


def words_json(vocabulary: Vocabulary, max_length: int) -> dict[str, Any]:
    """Return the file of a tokenizer of whole words."""
    return tokenizer_json(_level(vocabulary), max_length)


def characters_json(vocabulary: Vocabulary, max_length: int) -> dict[str, Any]:
    """Return the file of a tokenizer of characters."""
    return tokenizer_json(_level(vocabulary), max_length, CHARACTERS, [_EACH])


def _level(vocabulary: Vocabulary) -> dict[str, Any]:
    return {"type": "WordLevel", "vocab": ids_of(vocabulary), "unk_token": UNKNOWN}


def wordpiece_json(vocabulary: Vocabulary, max_length: int, continues: str, characters: int) -> dict[str, Any]:
    """Return the file of a WordPiece tokenizer.

    Args:
        vocabulary: the subwords.
        max_length: longer texts are truncated to this many tokens.
        continues: prefix of a subword that continues a word.
        characters: longer words are unknown.
    """
    model = {
        "type": "WordPiece",
        "vocab": ids_of(vocabulary),
        "unk_token": UNKNOWN,
        "continuing_subword_prefix": continues,
        "max_input_chars_per_word": characters,
    }
    return tokenizer_json(model, max_length)


def unigram_json(vocabulary: Vocabulary, max_length: int, begins: str) -> dict[str, Any]:
    """Return the file of a tokenizer by SentencePiece's unigram model.

    Args:
        vocabulary: the subwords and their scores.
        max_length: longer texts are truncated to this many tokens.
        begins: prefix of a subword that begins a word.
    """
    assert vocabulary.scores is not None
    scores = zip(vocabulary.words, map(float, vocabulary.scores), strict=True)
    pieces = [[PADDING, 0.0], [UNKNOWN, 0.0], *map(list, scores)]
    model = {"type": "Unigram", "unk_id": UNKNOWN_ID, "vocab": pieces, "byte_fallback": False}
    return tokenizer_json(model, max_length, splits=[_SPACES, _prefixed(begins)])


def bpe_json(vocabulary: Vocabulary, max_length: int, begins: str) -> dict[str, Any]:
    """Return the file of a tokenizer by byte-pair encoding; arguments as for `unigram_json`."""
    ids = ids_of(vocabulary)
    merges = []
    for piece in vocabulary.ids:
        halves = [(piece[:place], piece[place:]) for place in range(1, len(piece))]
        merges += [[left, right] for left, right in halves if left in ids and right in ids]
    model = {
        "type": "BPE",
        "vocab": ids,
        "merges": merges,
        "unk_token": UNKNOWN,
        "fuse_unk": True,
        "byte_fallback": False,
        "ignore_merges": False,
        "dropout": None,
        "continuing_subword_prefix": None,
        "end_of_word_suffix": None,
    }
    return tokenizer_json(model, max_length, splits=[_SPACES, _prefixed(begins)])


def _prefixed(begins: str) -> dict[str, Any]:
    return {"type": "Metaspace", "replacement": begins, "prepend_scheme": "always", "split": True}
