"""Tokenizer from parsed texts to word ids and head numbers, in graph."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import ClassVar

from vsemb.errors import DataError, InvalidArgumentError, invalid_argument
from vsemb.ops.tensorflow import tf
from vsemb.parts import Count, require
from vsemb.systems.trees.relations import RELATIONS
from vsemb.systems.trees.trees import is_parsed
from vsemb.text.composition import composed
from vsemb.text.spaces import NO_WORDS
from vsemb.text.tokenizers import Tokenizer
from vsemb.text.vocabulary import Vocabulary, count_tokens
from vsemb.unicode import readable_part

#: Function from raw texts to parsed texts, see `vsemb.systems.trees.trees`.
Parse = Callable[[list[str]], Sequence[str]]

_WORD = r"[^\t\n\r\x00]+"
_LINE = r"[^\t]*\t[0-9]{1,9}(?:\t[^\t\r\x00]+)?"
_NO_HEAD = "-1"
_ALL = 2**31 - 1


class TreeTokenizer(Tokenizer):
    r"""Tokenizer of parsed texts: word ids and head numbers.

    A token is (word id, head). Id 0 is padding, id 1 the unknown word. The head is the 1-based number of a word, 0 for
    the root. Words are looked up in lower case, since the vocabulary holds one capitalization of each. A text that is
    not a tree (`vsemb.systems.trees.trees.Tree.check`) has no tokens; other rows are unaffected.

    A longer tree keeps its first `max_length` words. A word whose head is cut off gets its nearest remaining ancestor
    as head. If the root is cut off, the first word without a remaining ancestor becomes the root. It becomes the head
    of the other words without a remaining ancestor. The whole tree must be valid, including words that are cut off.

    Args:
        vocabulary: the known words, distinct when capitalization is ignored; see `tree_vocabulary`.
        max_length: maximum words; default 64.

    Raises:
        InvalidArgumentError: if `max_length` < 1, or words differ in capitalization only.

    Example:

    >>> tokenizer = TreeTokenizer(Vocabulary(["a", "dog"]))
    >>> tokenizer(["A\t2\ndog\t3\nruns\t0", "A dog runs"]).numpy().tolist()
    [[[2, 2], [3, 3], [1, 0]], [[0, 0], [0, 0], [0, 0]]]
    >>> tokenizer.from_tokens([["A", "dog", ""]], [[2, 0, 0]]).numpy().tolist()
    [[[2, 2], [3, 0]]]
    """

    token_shape: ClassVar[tuple[int, ...]] = (2,)

    def __init__(self, vocabulary: Vocabulary, max_length: int = 64) -> None:
        keys = _lower(vocabulary.words)
        if len(set(keys)) < len(keys):
            ((twice, _),) = Counter(keys).most_common(1)
            words = [word for word, key in zip(vocabulary.words, keys, strict=True) if key == twice]
            raise invalid_argument("vocabulary", words, "words that differ in more than capitalization")
        super().__init__(Vocabulary(keys), max_length)
        self.vocabulary = vocabulary

    def pieces(self, texts: tf.Tensor) -> tf.RaggedTensor:
        """Return the words as written: (batch,) string -> (batch, None) ragged string."""
        return _cut(*_lines(texts), self.max_length)[0]

    def ragged(self, texts: tf.Tensor) -> tf.RaggedTensor:
        """Tokenize without padding: (batch,) string -> (batch, None, 2) int32, ragged in its steps."""
        return self._tokens(*_lines(tf.convert_to_tensor(texts)))

    def from_tokens(self, tokens: tf.Tensor, heads: tf.Tensor) -> tf.Tensor:
        """Tokenize trees given as words and heads; same result as `__call__` on their parsed texts.

        Args:
            tokens: (batch, steps) string; "" after the last word of a row is padding.
            heads: (batch, steps) int; ignored at padding.

        Returns:
            (batch, steps, 2) int32, steps the longest row of the batch, at least 1.

        Raises:
            tf.errors.InvalidArgumentError: if the shapes differ.
        """
        tokens, heads = tf.convert_to_tensor(tokens, tf.string), tf.convert_to_tensor(heads)
        tf.debugging.assert_equal(tf.shape(tokens), tf.shape(heads), "tokens and heads differ in shape.")
        places = tf.range(1, tf.shape(tokens)[1] + 1)
        lengths = tf.reduce_max(tf.where(tf.equal(tokens, ""), 0, places), axis=1)
        lengths = tf.maximum(lengths, 0)  # Over zero steps, the maximum is the smallest integer.
        inside = places <= lengths[:, tf.newaxis]
        words = _rows(_readable(tf.boolean_mask(tokens, inside)), lengths)
        relations = tf.zeros_like(words.flat_values)
        # A cast to int32 must not turn an impossible head into a possible one.
        heads = tf.clip_by_value(tf.cast(tf.boolean_mask(heads, inside), tf.int64), -1, _ALL)
        return self._padded(self._tokens(words, tf.cast(heads, tf.int32), relations))

    def _tokens(self, words: tf.RaggedTensor, heads: tf.Tensor, relations: tf.Tensor) -> tf.RaggedTensor:
        words, heads, relations = _cut(words, heads, relations, self.max_length)
        # Lower case after splitting: the lower case of a Greek sigma depends on the next character.
        ids = self.table.lookup(tf.strings.lower(words.flat_values, encoding="utf-8"))
        return words.with_flat_values(tf.stack(self._columns(ids, heads, relations), axis=1))

    def _columns(self, ids: tf.Tensor, heads: tf.Tensor, relations: tf.Tensor) -> list[tf.Tensor]:
        """Return the numbers of each token, one tensor (words,) int32 per entry of a token."""
        return [ids, heads]


class LabelledTreeTokenizer(TreeTokenizer):
    r"""Tokenizer of parsed texts with relations: word ids, head numbers and relation numbers.

    A token is (word id, head, relation), where the relation is its place in `vsemb.systems.trees.relations.RELATIONS`,
    0 for a label that is not in the list and for a missing one. Everything else is as in `TreeTokenizer`; a word whose
    head is cut off keeps its relation.

    Args:
        vocabulary: as for `TreeTokenizer`.
        max_length: maximum words; default 64.

    Example:

    >>> tokenizer = LabelledTreeTokenizer(Vocabulary(["a", "dog"]))
    >>> tokens = tokenizer(["A\t2\tdet\ndog\t0\troot"]).numpy()[0]
    >>> tokens[:, :2].tolist(), [RELATIONS[number] for number in tokens[:, 2]]
    ([[2, 2], [3, 0]], ['det', 'root'])
    """

    token_shape: ClassVar[tuple[int, ...]] = (3,)

    def __init__(self, vocabulary: Vocabulary, max_length: int = 64) -> None:
        super().__init__(vocabulary, max_length)
        names, numbers = tf.constant(RELATIONS), tf.range(len(RELATIONS))
        self.relation_table = tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer(names, numbers), 0)

    def _columns(self, ids: tf.Tensor, heads: tf.Tensor, relations: tf.Tensor) -> list[tf.Tensor]:
        universal = tf.strings.regex_replace(tf.strings.lower(relations, encoding="utf-8"), ":.*", "")
        return [ids, heads, self.relation_table.lookup(universal)]


def tree_vocabulary(texts: Iterable[str], min_count: int = 1, size: int | None = None) -> Vocabulary:
    r"""Count the words of parsed texts, ignoring capitalization; most frequent words first.

    Each word has the capitalization of most of its tokens ("maximum vote", imgcap section 3.1), so that its vector is
    found in files with capitals. On a tie, lower case wins, then alphabetical order.

    Args:
        texts: parsed texts of the training split, read once; other texts are ignored.
        min_count: words with fewer tokens are unknown; default 1. Words that `Vocabulary` refuses are unknown too.
        size: maximum words; None for all.

    Raises:
        InvalidArgumentError: if `size` < 1.
        DataError: if the vocabulary would be empty.

    Example:

    >>> tree_vocabulary(["The\t2\nU.S.\t0", "the\t2\nu.s.\t0", "U.S.\t0"]).words
    ('U.S.', 'the')
    """
    require("size", size, Count | None)
    counts = count_tokens(texts, lambda chunk: _cut(*_lines(chunk), _ALL)[0])
    # In lower case -> the spellings, each with its order: most frequent first, then lower case, then alphabetical.
    spellings: dict[str, list[tuple[int, bool, str]]] = {}
    totals: Counter[str] = Counter()
    for key, (word, count) in zip(_lower(counts), counts.items(), strict=True):
        spellings.setdefault(key, []).append((-count, word != key, word))
        totals[key] += count
    kept = []
    for key in sorted(totals, key=lambda key: (-totals[key], key)):
        _, _, word = min(spellings[key])
        if totals[key] >= min_count and _allowed(key) and _allowed(word):
            kept.append(word)
    if not kept:
        fix = f"Lower min_count={min_count}." if min_count > 1 else NO_WORDS
        raise DataError(f"A word of the parsed captions must occur {min_count} times; got 0 such words. {fix}")
    vocabulary = Vocabulary(kept[:size])
    vocabulary.seen = len(totals)
    return vocabulary


def _allowed(word: str) -> bool:
    try:
        Vocabulary([word])
    except InvalidArgumentError:
        return False
    return True


def _lower(words: Iterable[str]) -> list[str]:
    """Return words in lower case, computed in graph: Python differs for some letters."""
    lower = tf.strings.lower(tf.constant(list(words), tf.string), encoding="utf-8")
    return [word.decode() for word in lower.numpy().tolist()]


def _lines(texts: tf.Tensor) -> tuple[tf.RaggedTensor, tf.Tensor, tf.Tensor]:
    """Split texts into words (batch, None), their heads (words,) int32, -1 if missing, and relations (words,) or ""."""
    lines = tf.strings.split(_readable(texts), "\n")
    flat = lines.flat_values
    columns = tf.strings.regex_replace(flat, r"^[^\t]*\t", "")
    numbers = tf.strings.regex_replace(columns, r"\t.*", "")
    heads = tf.where(tf.strings.regex_full_match(flat, _LINE), numbers, _NO_HEAD)
    relations = tf.strings.regex_replace(columns, r"^[^\t]*\t?", "")
    words = lines.with_flat_values(tf.strings.regex_replace(flat, r"\t.*", ""))
    return words, tf.strings.to_number(heads, tf.int32), relations


def _cut(
    words: tf.RaggedTensor, heads: tf.Tensor, relations: tf.Tensor, size: int
) -> tuple[tf.RaggedTensor, tf.Tensor, tf.Tensor]:
    """Empty the rows that are not a tree, and cut longer trees.

    Pointer doubling over the words of all rows follows all ancestors at once. Its cost is O(words log(longest)), so one
    long row among short rows costs less than in a padded batch.

    Args:
        words: (batch, None) ragged string, valid UTF-8.
        heads: (words,) int32, counted from 1 in each row.
        relations: (words,) string.
        size: maximum words.

    Returns:
        The remaining words, heads and relations.
    """
    flat = words.flat_values
    lengths = tf.cast(words.row_lengths(), tf.int32)
    batch = tf.size(lengths)
    rows = tf.cast(words.value_rowids(), tf.int32)
    before = tf.gather(tf.cumsum(lengths, exclusive=True), rows) - 1  # places are counted from 1
    numbers = tf.range(tf.size(rows))

    sound = (heads >= 0) & (heads <= tf.gather(lengths, rows)) & tf.strings.regex_full_match(flat, _WORD)
    hangs = sound & (heads > 0)
    parents = tf.where(hangs, before + heads, numbers)
    kept = numbers - before <= size
    longest = tf.reduce_max(tf.pad(lengths, [[0, 1]]))

    def double(steps: tf.Tensor, tops: tf.Tensor, nearest: tf.Tensor) -> tuple[tf.Tensor, ...]:
        return 2 * steps, tf.gather(tops, tops), tf.gather(nearest, nearest)

    # `tops` ends at a root or stays in a cycle; `nearest` ends at the first kept word or at a root.
    _, tops, nearest = tf.while_loop(
        lambda steps, tops, nearest: steps < longest,
        double,
        (tf.constant(1), parents, tf.where(kept, numbers, parents)),
    )
    sound &= tf.equal(tf.gather(heads, tops), 0)
    unsound = tf.math.unsorted_segment_sum(tf.cast(~sound, tf.int32), rows, batch)
    roots = tf.math.unsorted_segment_sum(tf.cast(tf.equal(heads, 0), tf.int32), rows, batch)
    trees = tf.equal(unsound, 0) & tf.equal(roots, 1)

    above = tf.gather(nearest, parents)
    hangs &= tf.gather(kept, above)
    tallest = tf.math.unsorted_segment_min(tf.where(hangs, tf.size(rows), numbers), rows, batch)
    tallest = tf.gather(tallest, rows)
    above = tf.where(hangs, above, tallest)
    heads = tf.where(tf.equal(numbers, tallest), 0, above - before)

    left = kept & tf.gather(trees, rows)
    lengths = tf.where(trees, tf.minimum(lengths, size), 0)
    kept_words = _rows(tf.boolean_mask(flat, left), lengths)
    return kept_words, tf.boolean_mask(heads, left), tf.boolean_mask(relations, left)


def _readable(texts: tf.Tensor) -> tf.Tensor:
    return composed(tf.strings.unicode_transcode(texts, "UTF-8", "UTF-8", errors="replace"))


def _rows(values: tf.Tensor, lengths: tf.Tensor) -> tf.RaggedTensor:
    return tf.RaggedTensor.from_row_lengths(values, tf.cast(lengths, tf.int64), validate=False)


def parsed_texts(texts: Sequence[str], parse: Parse) -> list[str]:
    r"""Parse the raw texts among texts.

    Args:
        texts: read up to `vsemb.unicode.MAX_BYTES`. A parsed text stays unchanged, and a blank text becomes "".
        parse: called at most once, with all raw texts.

    Example:

    >>> parsed_texts(["dogs", " ", "a\t2\ndog\t0"], lambda texts: [f"{text}\t0" for text in texts])
    ['dogs\t0', '', 'a\t2\ndog\t0']
    """
    read = [text if is_parsed(text) else readable_part(text) for text in texts]
    raw = [row for row, text in enumerate(read) if text and not is_parsed(text)]
    if raw:
        parsed = parse([read[row] for row in raw])
        for row, text in zip(raw, parsed, strict=True):
            read[row] = text
    return read
