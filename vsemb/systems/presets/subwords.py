"""Published tokenizers of CLIP, SigLIP, BERT and their relatives, rebuilt in graph.

They use core operations, so a SavedModel runs on every TensorFlow Serving. keras-hub's tokenizers need tensorflow_text.
"""

from __future__ import annotations

import base64
import functools
import itertools
import json
import re
import string
import struct
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from vsemb.errors import DataError, invalid_argument, one_line
from vsemb.files import read_json
from vsemb.ops.tensorflow import tf
from vsemb.text.normalize import WHITE_SPACE, readable
from vsemb.text.segmentation import NEVER, longest_pieces, merge_neighbours, segment_distinct, unigram_pieces
from vsemb.text.subwords import CONTINUES, MAX_CHARACTERS
from vsemb.text.tokenizers import Tokenizer
from vsemb.text.vocabulary import PADDING, UNKNOWN, Vocabulary

#: Added to published ids: 0 is padding, 1 the unknown word, which these tokenizers never return.
SHIFT = 2
#: Maximum bytes or letters read of a word.
MAX_WORD = 256
#: Suffix of a word's last subword (CLIP).
END_OF_WORD = "</w>"
#: Subword of words that cannot be split into known subwords (BERT).
UNKNOWN_PIECE = "[UNK]"
#: Represents the space before a word (SentencePiece).
BLANK = "▁"
# CLIP's pattern, from the code of Radford et al., for text whose white space was replaced by spaces.
_WORDS = r"'s|'t|'re|'ve|'m|'ll|'d|\pL+|\pN|[^ \pL\pN]+"
# White space and words of GPT-2's pattern, where the last white space before a word follows NUL.
_BLANKS = r"\t-\r\x20\x{85}\pZ"
_BYTE_WORDS = rf"('s|'t|'re|'ve|'m|'ll|'d| ?\pL+| ?\pN+| ?[^{_BLANKS}\pL\pN\x00]+|[{_BLANKS}]+)"
# Type of unigram models and supported types of pieces in the sentencepiece library.
_UNIGRAM = 1
_NORMAL, _UNKNOWN, CONTROL, _DEFINED, _BYTE = 1, 2, 3, 4, 6
# Steps of the tokenizers library for what the sentencepiece library does.
_UNIGRAM_STEPS = {"Precompiled", "Strip", "Replace", "WhitespaceSplit", "Metaspace"}
# Distance of an unknown letter's score below the lowest score, as in the library.
_UNKNOWN_PENALTY = 10.0
# What BERT's code drops, reads as a space, and reads as a word of its own, besides NUL and U+FFFD.
_DROPPED = r"\x01-\x08\x0b\x0c\x0e-\x1f\x7f-\x{9f}\x{fffd}\p{Cf}\p{Co}"
_IDEOGRAPHS = r"\x{3400}-\x{4dbf}\x{4e00}-\x{9fff}\x{f900}-\x{faff}\x{20000}-\x{2a6df}"
_IDEOGRAPHS += r"\x{2a700}-\x{2b81f}\x{2b920}-\x{2ceaf}\x{2f800}-\x{2fa1f}"
_SIGNS = r"!-/:-@\[-`{-~\pP"
_LETTERS = [chr(code) for code in range(0x80, 0x10000) if not 0xD800 <= code < 0xE000]


class PretrainedSubwordTokenizer(Tokenizer):
    """Base of the tokenizers with published ids; published id i becomes i + 2.

    Args:
        vocabulary: the result of `piece_vocabulary` for all subwords.
        max_length: longer texts are truncated to this many subwords.

    Raises:
        InvalidArgumentError: for `max_length` < 1.
    """

    def __init__(self, vocabulary: Vocabulary, max_length: int) -> None:
        super().__init__(vocabulary, max_length, lookup=False)

    def ids(self, texts: tf.Tensor) -> tf.RaggedTensor:
        """Tokenize without truncation: (batch,) string -> (batch, None) ragged int32."""
        raise NotImplementedError

    def pieces(self, texts: tf.Tensor) -> tf.RaggedTensor:
        ids = self.ragged(texts)
        return ids.with_flat_values(tf.gather(tf.constant(self.vocabulary.tokens), ids.flat_values))

    def ragged(self, texts: tf.Tensor) -> tf.RaggedTensor:
        return self.ids(tf.convert_to_tensor(texts))[:, : self.max_length]


def piece_vocabulary(pieces: Sequence[str]) -> Vocabulary:
    r"""Return published subwords as a vocabulary.

    White space and control characters become `\u` and their number, reserved names are put in brackets, and duplicates
    get their id as suffix.

    Example:

    >>> piece_vocabulary(["<pad>", "a", "\n", "a"]).words
    ('[<pad>]', 'a', '\\u000a', 'a#3')
    """
    words: dict[str, None] = {}
    for number, piece in enumerate(pieces):
        word = "".join(map(_visible, piece)) or "[]"
        if word in (PADDING, UNKNOWN):
            word = f"[{word}]"
        if word in words:
            word = f"{word}#{number}"
        words[word] = None
    return Vocabulary(list(words))


def _visible(letter: str) -> str:
    return letter if letter.isprintable() and not letter.isspace() else f"\\u{ord(letter):04x}"


class _MergingTokenizer(PretrainedSubwordTokenizer):
    """Base of byte-pair encodings."""

    def set_merges(self, ids: Mapping[str, int], merges: Sequence[tuple[str, str]]) -> None:
        """Set the merges.

        Args:
            ids: subword -> id, above 0.
            merges: pairs of subwords in the order of merging.

        Raises:
            InvalidArgumentError: for a merge of subwords outside the vocabulary.
        """
        for left, right in merges:
            if not {left, right, left + right} <= ids.keys():
                raise invalid_argument("merges", f"{left} {right}", "subwords of the vocabulary")
        self._size = 1 + max(ids.values())
        pairs = [ids[left] * self._size + ids[right] for left, right in merges]
        self._merged = tf.constant([ids[left + right] for left, right in merges] or [0], tf.int32)
        self.ranks = _table(tf.constant(pairs or [-1], tf.int64), range(len(pairs) or 1), NEVER)

    def merge(self, symbols: tf.RaggedTensor, whole: tf.Tensor) -> tf.RaggedTensor:
        """Merge the symbols of words.

        Args:
            symbols: (words, None) ragged int32.
            whole: (words,) int32, the id of a word that is never split, else 0.

        Returns:
            (words, None) ragged int32.
        """
        # One more column, since a batch without words has none.
        merged = tf.pad(merge_neighbours(symbols.to_tensor(), self._join), [[0, 0], [0, 1]])
        alone = tf.pad(whole[:, None], [[0, 0], [0, tf.shape(merged)[1] - 1]])
        merged = tf.where(whole[:, None] > 0, alone, merged)
        return tf.ragged.boolean_mask(merged, merged > 0)

    def _join(self, left: tf.Tensor, right: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        ranks = self.ranks.lookup(tf.cast(left, tf.int64) * self._size + tf.cast(right, tf.int64))
        return tf.gather(self._merged, tf.where(ranks < NEVER, ranks, 0)), ranks


class BytePairTokenizer(_MergingTokenizer):
    """Tokenizer of CLIP (arXiv:2103.00020): lower-case words, digits and signs, split into subwords.

    Returns the ids of the code of Radford et al. and of the `tokenizers` library, but does not repair text (`ftfy`).
    Texts are composed (NFC), as in that library. Each digit is a word, as in CLIP's training; keras-hub's
    `CLIPTokenizer` keeps the digits of a number together inside `tf.data`. Only the first `MAX_WORD` bytes of a word
    are read.

    Args:
        vocabulary: `vocabulary.words[i]` is the subword of published id i, whose id is i + 2.
        ids: subword -> published id.
        merges: pairs of subwords in the order of merging.
        specials: words that are never split, such as `"<|endoftext|>"`.
        unknown: published id of bytes outside the vocabulary.
        max_length: longer texts are truncated to this many subwords; default 75.
        lower: whether to lower-case texts.

    Raises:
        InvalidArgumentError: for a merge of subwords outside the vocabulary.

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
        ids = {piece: number + SHIFT for piece, number in ids.items()}
        self.set_merges(ids, merges)
        letters = byte_letters()
        unknown += SHIFT
        inside = [ids.get(letter, unknown) for letter in letters]
        last = [ids.get(letter + END_OF_WORD, unknown) for letter in letters]
        # Row 0: bytes inside a word; row 1: its last byte.
        self._bytes = tf.constant([inside, last], tf.int32)
        self.specials = _table(tf.constant(specials, tf.string), [ids[word] for word in specials], 0)
        self._words = f"({'|'.join([*map(re.escape, specials), _WORDS])})"

    def ids(self, texts: tf.Tensor) -> tf.RaggedTensor:
        texts = readable(texts)
        if self.lower:
            texts = tf.strings.lower(texts, encoding="utf-8")
        texts = tf.strings.regex_replace(texts, f"[{WHITE_SPACE}]+", " ")
        words = tf.strings.split(tf.strings.regex_replace(texts, self._words, r"\1 "), sep=" ")
        # Strings between matches and after the last are empty.
        words = tf.ragged.boolean_mask(words, tf.not_equal(words, ""))
        return segment_distinct(words, self._segment)

    def _segment(self, words: tf.Tensor) -> tf.RaggedTensor:
        """Split words into subwords: (words,) string -> (words, None) ragged int32."""
        special = self.specials.lookup(words)
        letters = tf.strings.bytes_split(tf.strings.substr(words, 0, MAX_WORD))
        codes = tf.cast(tf.reshape(tf.io.decode_raw(letters.flat_values, tf.uint8), [-1]), tf.int32)
        last = tf.scatter_nd(letters.row_limits()[:, None] - 1, tf.ones_like(special), tf.shape(codes, tf.int64))
        ids = letters.with_flat_values(tf.gather_nd(self._bytes, tf.stack([last, codes], axis=1)))
        return self.merge(ids, special)


class CanonicalTokenizer(PretrainedSubwordTokenizer):
    """Tokenizer of texts in the canonical form of open_clip: lower-case, without ASCII punctuation.

    An underscore becomes a space. White space between words is one space.

    Args:
        tokenizer: tokenizer of the canonical texts.

    Example:

    >>> pieces = ["[UNK]", "a", "dog", "house"]
    >>> tokenizer = CanonicalTokenizer(BertWordPieceTokenizer(piece_vocabulary(pieces), pieces, 64))
    >>> (tokenizer(["A dog_house!"]) - 2).numpy().tolist()
    [[1, 2, 3]]
    """

    def __init__(self, tokenizer: PretrainedSubwordTokenizer) -> None:
        super().__init__(tokenizer.vocabulary, tokenizer.max_length)
        self.tokenizer = tokenizer

    def is_known(self, ids: Any) -> Any:
        return self.tokenizer.is_known(ids)

    def ids(self, texts: tf.Tensor) -> tf.RaggedTensor:
        texts = tf.strings.regex_replace(readable(texts), "_", " ")
        texts = tf.strings.regex_replace(texts, f"[{re.escape(string.punctuation)}]", "")
        texts = tf.strings.lower(texts, encoding="utf-8")
        return self.tokenizer.ids(tf.strings.strip(tf.strings.regex_replace(texts, f"[{WHITE_SPACE}]+", " ")))


class ByteMergeTokenizer(_MergingTokenizer):
    """Tokenizer of GPT-2 and RoBERTa (arXiv:1907.11692): words with the space before them, split into subwords.

    Returns the ids of the tokenizers library, except that texts are composed (NFC) and white space before a text is
    dropped. Names such as `</s>` in a text are read as text. Only the first `MAX_WORD` bytes of a word are read.

    Args:
        vocabulary: the result of `piece_vocabulary` for the subwords.
        ids: subword -> published id, with all bytes.
        merges: pairs of subwords in the order of merging.
        max_length: longer texts are truncated to this many subwords.

    Raises:
        InvalidArgumentError: for a merge of subwords outside the vocabulary, or a byte without subword.

    Example:

    >>> ids = {letter: number for number, letter in enumerate([*byte_letters(), "ab", "Ġab"])}
    >>> merges = [("a", "b"), ("Ġ", "ab")]
    >>> tokenizer = ByteMergeTokenizer(piece_vocabulary(list(ids)), ids, merges, 64)
    >>> (tokenizer(["ab  ab"]) - 2).numpy().tolist()
    [[256, 32, 257]]
    """

    def __init__(
        self, vocabulary: Vocabulary, ids: Mapping[str, int], merges: Sequence[tuple[str, str]], max_length: int
    ) -> None:
        super().__init__(vocabulary, max_length)
        missing = [letter for letter in byte_letters() if letter not in ids]
        if missing:
            raise invalid_argument("ids", missing[0], "a subword for each byte")
        ids = {piece: number + SHIFT for piece, number in ids.items()}
        self.set_merges(ids, merges)
        self._bytes = tf.constant([ids[letter] for letter in byte_letters()], tf.int32)

    def ids(self, texts: tf.Tensor) -> tf.RaggedTensor:
        # The last white space of a run belongs to the next word if it is a space, and is a word of its own otherwise.
        texts = tf.strings.regex_replace(readable(texts), f"([{_BLANKS}][^{_BLANKS}])", "\0\\1")
        words = _split(tf.strings.regex_replace(texts, _BYTE_WORDS, "\\1\0"))
        return segment_distinct(words, self._segment)

    def _segment(self, words: tf.Tensor) -> tf.RaggedTensor:
        """Split words into subwords: (words,) string -> (words, None) ragged int32."""
        letters = tf.strings.bytes_split(tf.strings.substr(words, 0, MAX_WORD))
        codes = tf.cast(tf.reshape(tf.io.decode_raw(letters.flat_values, tf.uint8), [-1]), tf.int32)
        symbols = letters.with_flat_values(tf.gather(self._bytes, codes))
        return self.merge(symbols, tf.zeros_like(symbols.row_lengths(), tf.int32))


def byte_letters() -> list[str]:
    """Return the letter of each byte in a vocabulary: printable bytes represent themselves (GPT-2).

    Example:

    >>> letters = byte_letters()
    >>> letters[65], letters[32], len(set(letters))
    ('A', 'Ġ', 256)
    """
    seen = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    others = itertools.count(256)
    return [chr(byte if byte in seen else next(others)) for byte in range(256)]


class BertWordPieceTokenizer(PretrainedSubwordTokenizer):
    """Tokenizer of BERT (Devlin et al. 2019, arXiv:1810.04805): words and signs, split into the longest known subwords.

    Returns the ids of the tokenizers library, except that texts are composed (NFC), and that names such as `[SEP]` in a
    text are read as text.

    Args:
        vocabulary: the result of `piece_vocabulary` for `pieces`.
        pieces: subwords by published id; a subword that continues a word begins with `##`.
        max_length: longer texts are truncated to this many subwords.
        lower: whether to lower-case texts.
        strip_accents: whether to remove accents and other marks.

    Example:

    >>> pieces = ["[UNK]", "a", "dog", "##s", "."]
    >>> tokenizer = BertWordPieceTokenizer(piece_vocabulary(pieces), pieces, 64)
    >>> (tokenizer(["A dóg.", "dogs ran"]) - 2).numpy().tolist()
    [[1, 2, 4], [2, 3, 0]]
    """

    def __init__(
        self,
        vocabulary: Vocabulary,
        pieces: Sequence[str],
        max_length: int,
        lower: bool = True,
        strip_accents: bool = True,
    ) -> None:
        super().__init__(vocabulary, max_length)
        self._unknown = pieces.index(UNKNOWN_PIECE) + SHIFT
        self._longest = max(len(piece.removeprefix(CONTINUES)) for piece in pieces)
        self.known = _table(tf.constant(pieces), range(SHIFT, len(pieces) + SHIFT), 0)
        letters = changed_letters(lower, strip_accents)
        self.letters = _table(list(letters), list(letters.values()), "\0") if letters else None

    def is_known(self, ids: Any) -> Any:
        return super().is_known(ids) & (ids != self._unknown)

    def ids(self, texts: tf.Tensor) -> tf.RaggedTensor:
        texts = tf.strings.regex_replace(readable(texts), f"[{_DROPPED}]+", "")
        texts = tf.strings.regex_replace(texts, f"([{_IDEOGRAPHS}])", r" \1 ")
        if self.letters is not None:
            texts = _with_letters(texts, self.letters)
        texts = tf.strings.regex_replace(texts, f"([{_SIGNS}])", r" \1 ")
        words = tf.strings.split(tf.strings.regex_replace(texts, f"[{WHITE_SPACE}]+", " "), sep=" ")
        words = tf.ragged.boolean_mask(words, tf.not_equal(words, ""))
        return segment_distinct(words, self._segment)

    def _segment(self, words: tf.Tensor) -> tf.RaggedTensor:
        """Split words into subwords: (words,) string -> (words, None) ragged int32."""
        long = tf.strings.length(words, unit="UTF8_CHAR") > MAX_CHARACTERS
        _, ids, fits = longest_pieces(tf.where(long, "", words), self.known, self._longest, CONTINUES)
        unknown = tf.pad(tf.fill((tf.size(words), 1), self._unknown), [[0, 0], [0, tf.shape(ids)[1] - 1]])
        ids = tf.where((fits & ~long)[:, None], ids, unknown)
        return tf.ragged.boolean_mask(ids, ids > 0)


@functools.cache
def changed_letters(lower: bool, strip_accents: bool) -> dict[str, str]:
    """Return the letters that lower-casing or the removal of marks changes -> what they become.

    Example:

    >>> letters = changed_letters(True, True)
    >>> letters["É"], letters["́"], "e" in letters
    ('e', '', False)
    """
    changed = {}
    # Letters behind this plane have neither case nor marks, except for selectors of variants.
    for code in (*range(0x20000), *range(0xE0100, 0xE01F0)):
        if 0xD800 <= code < 0xE000:
            continue
        letter = text = chr(code)
        if strip_accents:
            text = "".join(c for c in unicodedata.normalize("NFD", text) if unicodedata.category(c) != "Mn")
        if lower:
            text = "".join(map(str.lower, text))
        if text != letter:
            changed[letter] = text
    return changed


def _with_letters(texts: tf.Tensor, table: tf.lookup.StaticHashTable) -> tf.Tensor:
    """Replace letters of texts by their entries in a table, whose default is NUL."""
    letters = tf.strings.unicode_split(texts, "UTF-8")
    replaced = table.lookup(letters.flat_values)
    letters = letters.with_flat_values(tf.where(tf.equal(replaced, "\0"), letters.flat_values, replaced))
    return tf.strings.reduce_join(letters, axis=-1)


@dataclass(frozen=True)
class PieceModel:
    """A model of the sentencepiece library.

    Attributes:
        pieces: subwords by id.
        scores: float32 log probabilities.
        kinds: types, as numbered by the library.
        normalized: letter -> its normalized form, for letters that change.
        blank_first: whether a space is added before a text.
    """

    pieces: tuple[str, ...]
    scores: np.ndarray
    kinds: tuple[int, ...]
    normalized: dict[str, str]
    blank_first: bool

    @classmethod
    def read(cls, proto: bytes, name: str = "the sentencepiece model") -> PieceModel:
        """Read the content of a `.spm` or `.model` file.

        Args:
            proto: the content.
            name: name of the file in errors.

        Raises:
            DataError: for malformed content, or another model than unigram.
        """
        import sentencepiece

        try:
            model = list(_fields(proto))
            parts = [dict(_fields(value)) for number, value in model if number == 1]
            messages = {number: dict(_fields(value)) for number, value in reversed(model) if number in (2, 3)}
            trainer, normalizer = messages.get(2, {}), messages.get(3, {})
            pieces = tuple(part[1].decode() for part in parts)
            scores = np.array([struct.unpack("<f", part.get(2, b"\0\0\0\0"))[0] for part in parts], np.float32)
            kinds = tuple(part.get(3, _NORMAL) for part in parts)
            processor = sentencepiece.SentencePieceProcessor(model_proto=proto)
        except (ValueError, LookupError, AttributeError, TypeError, struct.error, RuntimeError) as error:
            raise DataError(f"{name} must be a sentencepiece model: {error}.") from error
        if trainer.get(3, _UNIGRAM) != _UNIGRAM or _UNKNOWN not in kinds:
            raise DataError(
                f"{name} must be a unigram model of sentencepiece, as in presets of SigLIP. Presets of SigLIP 2 have "
                "another model."
            )
        # `|` is not composed with letters, so the two mark the ends of a normalized letter.
        whole = processor.Normalize([f"|{letter}|" for letter in _LETTERS])
        changed = {}
        for letter, marked in zip(_LETTERS, whole, strict=True):
            text = marked.removeprefix(BLANK)[1:-1].replace(BLANK, " ")
            if text != letter:
                changed[letter] = text
        return cls(pieces, scores, kinds, changed, bool(normalizer.get(3, 1)))


@dataclass(frozen=True)
class UnigramModel:
    """A unigram model of the tokenizers library, which a model of the sentencepiece library was converted to.

    Attributes:
        pieces: subword, log probability and type by id.
        charsmap: compiled normalization of the sentencepiece library; empty for no normalization.
        blank_first: whether a space is added before a text.
    """

    pieces: tuple[tuple[str, float, int], ...]
    charsmap: bytes
    blank_first: bool

    @classmethod
    def read(cls, path: Path) -> UnigramModel:
        """Read a `tokenizer.json`.

        Raises:
            DataError: for a malformed file, another model, or steps that sentencepiece does not have.
        """
        content = read_json(path, "tokenizer")
        try:
            model, names = content["model"], {token["content"] for token in content["added_tokens"] if token["special"]}
            if model["type"] != "Unigram":
                raise DataError(f"`model` in {path} must have the type Unigram; got {model['type']!r}.")
            steps = [*_steps(content["normalizer"], "normalizers"), *_steps(content["pre_tokenizer"], "pretokenizers")]
            others = sorted({str(step["type"]) for step in steps} - _UNIGRAM_STEPS)
            if others:
                allowed = ", ".join(sorted(_UNIGRAM_STEPS))
                raise DataError(f"Normalization and splitting in {path} must be of {allowed}; got {others[0]}.")
            charsmaps = [step["precompiled_charsmap"] for step in steps if step["type"] == "Precompiled"]
            blanks = [step.get("prepend_scheme", "always") for step in steps if step["type"] == "Metaspace"]
            kinds = dict.fromkeys(names, CONTROL) | {model["vocab"][model["unk_id"]][0]: _UNKNOWN}
            if model.get("byte_fallback"):
                kinds |= {f"<0x{byte:02X}>": _BYTE for byte in range(256)}
            pieces = tuple((str(piece), float(score), kinds.get(piece, _NORMAL)) for piece, score in model["vocab"])
            charsmap = base64.b64decode(charsmaps[0] or "") if charsmaps else b""
            return cls(pieces, charsmap, blanks != ["never"])
        except (LookupError, TypeError, AttributeError, ValueError) as error:
            raise DataError(f"{path} must be a tokenizer of the tokenizers library: {one_line(error)}.") from error

    def proto(self) -> bytes:
        """Return the content of a file of the sentencepiece library, for `PieceModel.read`."""
        pieces = [_message({1: piece.encode(), 2: score, 3: kind}) for piece, score, kind in self.pieces]
        trainer = _message({3: _UNIGRAM})
        normalizer = _message({2: self.charsmap, 3: int(self.blank_first)})
        return b"".join([*(_message({1: piece}) for piece in pieces), _message({2: trainer, 3: normalizer})])


def _steps(step: Any, inside: str) -> list[dict[str, Any]]:
    """Return the steps of a normalizer or pre-tokenizer of the tokenizers library in their order."""
    if step is None:
        return []
    return step[inside] if step["type"] == "Sequence" else [step]


class SentencePieceTokenizer(PretrainedSubwordTokenizer):
    """Split texts into the subwords of a unigram model.

    Returns the ids of the sentencepiece library, with two exceptions: letters are normalized one by one, so separate
    accents stay separate, and words are truncated to 256 letters. Subwords never span two words. Each word is segmented
    by dynamic programming over its letters.

    Args:
        vocabulary: the result of `piece_vocabulary` for the model's subwords.
        model: the model.
        max_length: longer texts are truncated to this many subwords; default 63.
        lower: whether to lower-case texts; default True.
        punctuation: whether to keep ASCII punctuation, which SigLIP removes; default False.

    Raises:
        DataError: for a model with subwords that span words.

    Example:

        model = PieceModel.read(Path("vocabulary.spm").read_bytes())
        tokenizer = SentencePieceTokenizer(piece_vocabulary(model.pieces), model)
        tokenizer(["a dog on a beach"])
    """

    def __init__(
        self,
        vocabulary: Vocabulary,
        model: PieceModel,
        max_length: int = 63,
        *,
        lower: bool = True,
        punctuation: bool = False,
    ) -> None:
        super().__init__(vocabulary, max_length)
        self.lower, self.punctuation = lower, punctuation
        self.blank_first = model.blank_first
        self._unknown = model.kinds.index(_UNKNOWN) + SHIFT
        kinds = np.array(model.kinds)
        words = np.flatnonzero(np.isin(kinds, (_NORMAL, _DEFINED))).tolist()
        for place in words:
            if BLANK in model.pieces[place].strip(BLANK):
                raise DataError(
                    f"Subwords of the sentencepiece model must be within words; got {model.pieces[place]!r}."
                )
        self._longest = max(len(model.pieces[place]) for place in words)
        scores = model.scores.copy()
        normal = model.scores[kinds == _NORMAL]
        if not len(normal):
            normal = model.scores[words]
        for place in np.flatnonzero(kinds == _DEFINED).tolist():
            scores[place] = len(model.pieces[place].encode()) * normal.max() - 0.1
        scores[self._unknown - SHIFT] = normal.min() - _UNKNOWN_PENALTY
        self._scores = tf.constant(np.append([-np.inf] * SHIFT, scores), tf.float32)
        self.known = _table([model.pieces[place] for place in words], [place + SHIFT for place in words], 0)
        # Subwords of single bytes such as <0x0A>, which spell unknown letters, if the model has them.
        of_bytes = np.flatnonzero(kinds == _BYTE).tolist()
        of_bytes.sort(key=lambda place: int(model.pieces[place][1:-1], 16))
        self._bytes = tf.constant(of_bytes, tf.int32) + SHIFT if len(of_bytes) == 256 else None
        letters = model.normalized or {"\0": "\0"}
        self.letters = _table(list(letters), list(letters.values()), "\0")

    def is_known(self, ids: Any) -> Any:
        return super().is_known(ids) & (ids != self._unknown)

    def ids(self, texts: tf.Tensor) -> tf.RaggedTensor:
        texts = readable(texts)
        if self.lower:
            texts = tf.strings.lower(texts, encoding="utf-8")
        if not self.punctuation:
            texts = tf.strings.regex_replace(texts, f"[{re.escape(string.punctuation)}]", "")
        texts = tf.strings.regex_replace(_with_letters(texts, self.letters), f"[{WHITE_SPACE}]+", " ")
        words = tf.strings.split(tf.strings.strip(texts), sep=" ")
        words = tf.ragged.boolean_mask(words, tf.not_equal(words, ""))
        blanks = tf.fill(tf.shape(words.flat_values), BLANK)
        if not self.blank_first:
            starts = tf.boolean_mask(words.row_starts(), words.row_lengths() > 0)[:, None]
            blanks = tf.tensor_scatter_nd_update(blanks, starts, tf.fill(tf.shape(starts)[:1], ""))
        words = words.with_flat_values(tf.strings.join([blanks, words.flat_values]))
        return self._joined(segment_distinct(words, self._segment))

    def _segment(self, words: tf.Tensor) -> tf.RaggedTensor:
        """Find the most probable subwords: (words,) string -> (words, None) ragged int32."""
        counts = tf.minimum(tf.strings.length(words, unit="UTF8_CHAR"), MAX_WORD)
        _, pieces, letters = unigram_pieces(words, counts, self.known, self._scores, self._longest, self._unknown)
        if self._bytes is not None:
            codes = tf.cast(tf.io.decode_raw(letters, tf.uint8, fixed_length=4), tf.int32)
            there = tf.range(4) < tf.strings.length(letters)[:, :, None]
            spelled = tf.where(there, tf.gather(self._bytes, codes), 0)
            alone = tf.pad(pieces[:, :, None], [[0, 0], [0, 0], [0, 3]])
            every = tf.where(tf.equal(pieces, self._unknown)[:, :, None], spelled, alone)
            pieces = tf.reshape(every, tf.stack([tf.shape(every)[0], 4 * tf.shape(every)[1]]))
        return tf.ragged.boolean_mask(pieces, pieces > 0)

    def _joined(self, ids: tf.RaggedTensor) -> tf.RaggedTensor:
        """Merge consecutive unknown letters."""
        flat, rows = ids.flat_values, ids.value_rowids()
        unknown = tf.equal(flat, self._unknown)
        again = unknown[1:] & unknown[:-1] & tf.equal(rows[1:], rows[:-1])
        # The first has no predecessor.
        again = tf.concat([tf.zeros_like(unknown[:1]), again], axis=0)
        return tf.ragged.boolean_mask(ids, ids.with_flat_values(~again))


@dataclass(frozen=True)
class PieceMerges:
    """A byte-pair encoding of the tokenizers library with pieces of sentencepiece, as Gemma's.

    Attributes:
        ids: subword -> id.
        merges: pairs of subwords in the order of merging.
        added: words that are never split, found before texts are normalized.
    """

    ids: dict[str, int]
    merges: tuple[tuple[str, str], ...]
    added: tuple[str, ...]

    @classmethod
    def read(cls, path: Path) -> PieceMerges:
        """Read a `tokenizer.json`.

        Raises:
            DataError: for a malformed file, or another model than a byte-pair encoding that spells unknown letters in
                bytes.
        """
        content = read_json(path, "tokenizer")
        try:
            model, added = content["model"], content["added_tokens"]
            wanted = {"type": "BPE", "byte_fallback": True}
            got = {field: model.get(field) for field in wanted}
            ids = {**model["vocab"], **{token["content"]: token["id"] for token in added}}
            pairs = [pair.split(" ") if isinstance(pair, str) else pair for pair in model["merges"]]
            names = tuple(sorted((token["content"] for token in added), key=len, reverse=True))
        except (LookupError, TypeError, AttributeError) as error:
            raise DataError(f"{path} must be a tokenizer of the tokenizers library: {one_line(error)}.") from error
        if got != wanted:
            raise DataError(f"`model` in {path} must have {json.dumps(wanted)}; got {json.dumps(got)}.")
        if sorted(ids.values()) != list(range(len(ids))):
            raise DataError(f"{path} must map each subword to a distinct number from 0.")
        known = all(len(pair) == 2 and {*pair, "".join(pair)} <= ids.keys() for pair in pairs)
        if not known or not {f"<0x{byte:02X}>" for byte in range(256)} <= ids.keys():
            raise DataError(
                f"{path} must have a subword for each byte, and for both sides of each merge and its result."
            )
        spanning = [name for name in ids if BLANK in name.lstrip(BLANK) and name not in names]
        if spanning:
            raise DataError(f"Subwords in {path} must be within words; got {spanning[0]!r}.")
        return cls(ids, tuple((left, right) for left, right in pairs), names)


class PieceMergeTokenizer(_MergingTokenizer):
    """Split texts by a byte-pair encoding with pieces of sentencepiece, as for SigLIP 2.

    Returns the ids of the tokenizers library, except that texts are composed (NFC), white space before a text is
    dropped and words are truncated to 256 letters. Spaces belong to the word behind them; letters outside the
    vocabulary are spelled in bytes.

    Args:
        vocabulary: the result of `piece_vocabulary` for the subwords.
        model: the subwords and their merges.
        max_length: longer texts are truncated to this many subwords.
        lower: whether to lower-case texts.

    Example:

        model = PieceMerges.read(Path("tokenizer.json"))
        tokenizer = PieceMergeTokenizer(piece_vocabulary(list(model.ids)), model, 63)
        tokenizer(["a dog on a beach"])
    """

    def __init__(self, vocabulary: Vocabulary, model: PieceMerges, max_length: int, lower: bool = True) -> None:
        super().__init__(vocabulary, max_length)
        self.lower = lower
        ids = {piece: number + SHIFT for piece, number in model.ids.items()}
        self.set_merges(ids, model.merges)
        letters = [piece for piece in ids if len(piece) == 1]
        self.letters = _table(tf.constant(letters, tf.string), [ids[letter] for letter in letters], 0)
        self.added = _table(tf.constant(model.added, tf.string), [ids[word] for word in model.added], 0)
        self._bytes = tf.constant([ids[f"<0x{byte:02X}>"] for byte in range(256)], tf.int32)
        self._added = f"({'|'.join(map(re.escape, model.added))})"

    def ids(self, texts: tf.Tensor) -> tf.RaggedTensor:
        # NUL cannot be in a readable text.
        parts = _split(tf.strings.regex_replace(readable(texts), self._added, "\0\\1\0"))
        flat = parts.flat_values
        if self.lower:
            flat = tf.where(self.added.lookup(flat) > 0, flat, tf.strings.lower(flat, encoding="utf-8"))
        flat = tf.strings.regex_replace(flat, " ", BLANK)
        words = _split(tf.strings.regex_replace(flat, f"({BLANK}*[^{BLANK}]+)", "\\1\0"))
        return segment_distinct(parts.with_flat_values(words).merge_dims(1, 2), self._segment)

    def _segment(self, words: tf.Tensor) -> tf.RaggedTensor:
        """Split words into subwords: (words,) string -> (words, None) ragged int32."""
        added = self.added.lookup(words)
        letters = tf.strings.unicode_split(tf.strings.substr(words, 0, MAX_WORD, unit="UTF8_CHAR"), "UTF-8")
        known = self.letters.lookup(letters.flat_values)
        codes = tf.cast(tf.io.decode_raw(letters.flat_values, tf.uint8, fixed_length=4), tf.int32)
        there = tf.range(4) < tf.strings.length(letters.flat_values)[:, None]
        spelled = tf.where(there, tf.gather(self._bytes, codes), 0)
        symbols = tf.where(known[:, None] > 0, tf.pad(known[:, None], [[0, 0], [0, 3]]), spelled)
        rows = letters.with_flat_values(tf.RaggedTensor.from_tensor(symbols)).merge_dims(1, 2)
        return self.merge(tf.ragged.boolean_mask(rows, rows > 0), added)


def _split(texts: tf.Tensor) -> tf.RaggedTensor:
    """Split strings at NUL, without empty parts."""
    parts = tf.strings.split(texts, sep="\0")
    return tf.ragged.boolean_mask(parts, tf.not_equal(parts, ""))


def _table(keys: Any, values: Sequence[Any], default: Any) -> tf.lookup.StaticHashTable:
    """Return a table from strings or int64 to strings or int32."""
    values = tf.constant(values, tf.string if isinstance(default, str) else tf.int32)
    return tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer(keys, values), default)


def _message(fields: Mapping[int, bytes | float]) -> bytes:
    """Write fields of a protocol buffer, by number: bytes, a float or an integer from 0."""
    written = b""
    for number, value in fields.items():
        if isinstance(value, bytes):
            written += _varint(number << 3 | 2) + _varint(len(value)) + value
        elif isinstance(value, float):
            written += _varint(number << 3 | 5) + struct.pack("<f", value)
        else:
            written += _varint(number << 3) + _varint(value)
    return written


def _varint(value: int) -> bytes:
    written = []
    while value > 0x7F:
        written.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*written, value])


def _fields(message: bytes) -> Iterator[tuple[int, Any]]:
    """Read the fields of a protocol buffer: number and value, bytes or an integer.

    The generated module of the sentencepiece library is not used, because it requires one version of protobuf.
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
        number, wire_type = divmod(varint(), 8)
        if wire_type == 0:
            yield number, varint()
            continue
        if wire_type not in (1, 2, 5):
            raise ValueError("the file is malformed")
        length = varint() if wire_type == 2 else {1: 8, 5: 4}[wire_type]
        if place + length > len(message):
            raise ValueError("the file is truncated")
        yield number, message[place : place + length]
        place += length
