"""Requests of a client with dependency trees, and parsing of texts for models that read trees only."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Protocol

import numpy as np

from vsemb.errors import invalid_argument
from vsemb.serving.client import Client, Embeddings, Found, joined
from vsemb.unicode import readable_part, require_unicode


class TreeLike(Protocol):
    """An object with words and heads, such as `vsemb.systems.trees.trees.Tree`."""

    @property
    def words(self) -> Sequence[str]:
        """The words in sentence order."""

    @property
    def heads(self) -> Sequence[int]:
        """The number of each word's head, counted from 1; 0 for the root."""


AnyTree = tuple[Sequence[str], Sequence[int]] | TreeLike
ParserLike = str | os.PathLike[str] | Callable[[list[str]], Sequence[Any]]

_EXPECTED = "pairs of words and heads, or trees with `words` and `heads`"
# Maximum padding of a request, in places, or four times its number of words if that is more.
_MUCH_PADDING = 16_384

_Pair = tuple[list[bytes], np.ndarray]


def encode_tree(client: Client, trees: Sequence[AnyTree]) -> Embeddings:
    """Embed dependency trees.

    Args:
        client: client of the model.
        trees: n trees, each a pair (words, heads), or an object with both attributes, such as
            `vsemb.systems.trees.trees.Tree`. A head is the 1-based number of a word; 0 marks the root.

    Returns:
        Embeddings (n, dim). Rows that are not a tree have `valid = False`.

    Raises:
        InvalidArgumentError: for words and heads of different lengths.
        ServingError: as `Client.predict`.

    Example:

        client.encode_tree([(["a", "dog", "runs"], [2, 3, 0])]).embedding.shape
    """
    parts = trees_in_parts(trees, client.batch_size)
    return joined([client.encode("encode_tree", tokens=tokens, heads=heads) for tokens, heads in parts])


def search_tree(client: Client, trees: Sequence[AnyTree], k: int = 10) -> Found:
    """Find the best items of the exported corpus for dependency trees.

    Args:
        client: client of the model.
        trees: n queries, as for `encode_tree`.
        k: results per query, 1 to 1,000; default 10.

    Raises:
        VsembError: as `encode_tree`.
    """
    parts = trees_in_parts(trees, client.batch_size)
    return joined([client.search("search_tree", k, tokens=tokens, heads=heads) for tokens, heads in parts])


def encode_labelled_tree(client: Client, trees: Sequence[AnyTree]) -> Embeddings:
    """Embed dependency trees with relations.

    Args:
        client: client of the model.
        trees: n trees as for `encode_tree`, with `relations`, such as `vsemb.systems.trees.trees.Tree`. In a tree
            without relations, each counts as `dep`.

    Returns:
        Embeddings (n, dim). Rows that are not a tree have `valid = False`.

    Raises:
        InvalidArgumentError: if an entry is not a tree, or its words, heads and relations differ in length.
        ServingError: as `Client.predict`.

    Example:

        client.encode_labelled_tree([Tree(("dogs", "run"), (2, 0), relations=("nsubj", "root"))]).embedding.shape
    """
    return client.encode("encode_labelled_tree", text=to_labelled_texts(trees))


def search_labelled_tree(client: Client, trees: Sequence[AnyTree], k: int = 10) -> Found:
    """Find the best items of the exported corpus for dependency trees with relations.

    Args:
        client: client of the model.
        trees: n queries, as for `encode_labelled_tree`.
        k: results per query, 1 to 1,000; default 10.

    Raises:
        VsembError: as `encode_labelled_tree`.
    """
    return client.search("search_labelled_tree", k, text=to_labelled_texts(trees))


def to_labelled_texts(trees: Sequence[AnyTree]) -> list[bytes]:
    r"""Convert trees to the input `text` of a model that reads relations: parsed texts.

    Args:
        trees: n trees, see `encode_labelled_tree`.

    Returns:
        One parsed text per tree, UTF-8; b"" for a tree without words.

    Raises:
        InvalidArgumentError: as `encode_labelled_tree`, and for a tab or line end in a word or relation.

    Example:

    >>> from vsemb.systems.trees.trees import Tree
    >>> to_labelled_texts([Tree(("dogs", "run"), (2, 0), relations=("nsubj", "root"))])
    [b'dogs\t2\tnsubj\nrun\t0\troot']
    """
    pairs = zip(trees, _pairs(trees), strict=True)
    return [_labelled_text(tree, *pair, number) for number, (tree, pair) in enumerate(pairs)]


def _labelled_text(tree: Any, words: list[bytes], heads: np.ndarray, number: int) -> bytes:
    relations = [str(relation).encode() for relation in getattr(tree, "relations", ())]
    if relations and len(relations) != len(words):
        received = f"{len(words)} words and {len(relations)} relations in tree {number}"
        raise invalid_argument("trees", received, "one relation per word")
    for text in (*words, *relations):
        if b"\t" in text or b"\n" in text:
            allowed = "words and relations without tabs and line ends"
            raise invalid_argument("trees", text.decode(errors="replace"), allowed, f"This is tree {number}.")
    columns = (words, [b"%d" % head for head in heads.tolist()], *([relations] if relations else []))
    return b"\n".join(b"\t".join(line) for line in zip(*columns, strict=True))


def trees_in_parts(trees: Sequence[AnyTree], rows: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Convert trees to the inputs `tokens` and `heads` of a model, in parts: a long tree does not widen all rows.

    The first column is padding, and so is the end of a shorter row. TensorFlow Serving merges requests of different
    lengths by padding with the first element of a request, which therefore must not be a word.

    Args:
        trees: n trees, see `encode_tree`.
        rows: maximum rows per part.

    Yields:
        tokens: (rows, 1 + longest) bytes objects, b"" for padding.
        heads: (rows, 1 + longest) int32, 0 for padding.

    Raises:
        InvalidArgumentError: if an entry is not a tree, or its words and heads differ in length; before the first part.

    Example:

    >>> tokens, heads = next(trees_in_parts([(["a", "dog"], [2, 0]), (["dogs"], [0])], 64))
    >>> tokens.tolist(), heads.tolist()
    ([[b'', b'a', b'dog'], [b'', b'dogs', b'']], [[0, 2, 0], [0, 0, 0]])
    >>> trees = [(["dogs"], [0])] * 9 + [(["dogs"] * 20_000, [0] * 20_000)]
    >>> [tokens.shape for tokens, _ in trees_in_parts(trees, 64)]
    [(9, 2), (1, 20001)]
    """
    part: list[_Pair] = []
    longest = words = 0
    for pair in _pairs(trees):
        size = len(pair[0])
        places = (1 + len(part)) * max(longest, size)
        if part and (len(part) == rows or places - words - size > max(_MUCH_PADDING, 4 * (words + size))):
            yield _filled_up(part)
            part, longest, words = [], 0, 0
        part.append(pair)
        longest, words = max(longest, size), words + size
    yield _filled_up(part)


def _filled_up(pairs: Sequence[_Pair]) -> tuple[np.ndarray, np.ndarray]:
    steps = 1 + max((len(words) for words, _ in pairs), default=0)
    tokens = np.full((len(pairs), steps), b"", object)
    numbers = np.zeros((len(pairs), steps), np.int32)
    for row, (words, heads) in enumerate(pairs):
        tokens[row, 1 : 1 + len(words)] = words
        numbers[row, 1 : 1 + len(words)] = heads
    return tokens, numbers


def _pairs(trees: Sequence[AnyTree]) -> list[_Pair]:
    if isinstance(trees, str | bytes) or hasattr(trees, "heads") or not isinstance(trees, Iterable):
        raise invalid_argument("trees", type(trees).__name__, "a list with one tree per row")
    return [_pair(tree, number) for number, tree in enumerate(trees)]


def _pair(tree: Any, number: int) -> _Pair:
    if hasattr(tree, "words") and hasattr(tree, "heads"):
        tree = (tree.words, tree.heads)
    if isinstance(tree, str | bytes) or not isinstance(tree, Sequence) or len(tree) != 2:
        raise invalid_argument("trees", tree, _EXPECTED)
    words, heads = tree
    listed = isinstance(words, Sequence | np.ndarray) and not isinstance(words, str | bytes)
    if not listed or not all(isinstance(word, str | bytes) for word in words):
        raise invalid_argument("trees", words, "a list of words, each a string", f"This is tree {number}.")
    try:
        numbers = np.asarray(heads)
    except ValueError:  # Lists of several lengths in a list.
        numbers = np.array(None)
    whole = numbers.ndim == 1 and (numbers.dtype.kind in "iu" or not numbers.size)
    # A cast to int32 must not turn an impossible head into a possible one.
    if not whole or (numbers.size and (numbers.max() >= 2**31 or numbers.min() < -(2**31))):
        raise invalid_argument("trees", heads, "a list of heads, each an integer", f"This is tree {number}.")
    if len(words) != len(numbers):
        received = f"{len(words)} words and {len(numbers)} heads in tree {number}"
        raise invalid_argument("trees", received, "one head per word")
    require_unicode(f"trees[{number}]", words)
    encoded = [word.encode() if isinstance(word, str) else word for word in words]
    return encoded, numbers


class TextParser:
    """Parse texts to trees, with a parser that is opened on first use.

    Args:
        parser: see `vsemb.serving.Client`; None without a parser.

    Example:

    >>> parse = TextParser(lambda texts: [(text.split(), [0]) for text in texts])
    >>> parse([b"dogs", b" "])
    [(['dogs'], [0]), ((), ())]
    """

    def __init__(self, parser: ParserLike | None) -> None:
        self._parser: Any = parser
        self._opened = parser if callable(parser) else None
        self._lock = threading.Lock()

    def __call__(self, texts: Sequence[bytes]) -> list[AnyTree]:
        """Parse texts.

        Args:
            texts: UTF-8. A parsed text (see `vsemb.systems.trees.trees`) is read unchanged, and an empty text
                gives a tree without words. Other texts are parsed up to 4,096 bytes.

        Raises:
            InvalidArgumentError: if a text needs a parser and none was given.
            MissingExtraError: if the parser is a pipeline and the extra `parse` is not installed.
            DataError: if a parsed text is broken.
        """
        # In a parsed text, too, NUL is a blank.
        decoded = [text.decode(errors="replace").replace("\0", " ") for text in texts]
        raw = [row for row, text in enumerate(decoded) if text.strip() and "\t" not in text]
        parsed = self._parse([readable_part(decoded[row]) for row in raw]) if raw else []
        trees: list[Any] = list(decoded)
        for row, tree in zip(raw, parsed, strict=True):
            trees[row] = tree
        return [_tree(tree) for tree in trees]

    def _parse(self, texts: list[str]) -> Sequence[Any]:
        if self._parser is None:
            raise invalid_argument(
                "parser",
                None,
                "a parser, since the model reads dependency trees only",
                "Pass one, as in Client(..., parser='en_core_web_sm'), or use encode_tree or encode_labelled_tree.",
            )
        with self._lock:
            if self._opened is None:
                # The import loads TensorFlow, which a client avoids.
                from vsemb.systems.trees.parsers import open_parser

                self._opened = open_parser(self._parser)
        parsed = list(self._opened(texts))
        if len(parsed) != len(texts):
            received = f"{len(parsed)} trees for {len(texts)} texts"
            raise invalid_argument("parser", received, "a parser that returns one tree per text")
        return parsed


def _tree(tree: Any) -> AnyTree:
    if not isinstance(tree, str):
        return tree
    if not tree.strip():
        return (), ()
    from vsemb.systems.trees.trees import Tree

    return Tree.from_text(tree)
