"""Dependency trees as a client sends them, and the parsing of texts for models that take nothing else."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Protocol

import numpy as np

from vsemb.errors import invalid_argument
from vsemb.serving.client import Client, Embeddings, Found, joined


class TreeLike(Protocol):
    """What has words and heads, such as `vsemb.systems.trees.trees.Tree`."""

    @property
    def words(self) -> Sequence[str]:
        """The words in their order."""

    @property
    def heads(self) -> Sequence[int]:
        """The number of each word's head, counted from 1; 0 for the root."""


AnyTree = tuple[Sequence[str], Sequence[int]] | TreeLike
ParserLike = str | os.PathLike[str] | Callable[[list[str]], Sequence[Any]]

_EXPECTED = "pairs of words and heads, or trees with `words` and `heads`"
# As much of a text is parsed as models of texts read (`vsemb.text.normalize`, which comes with TensorFlow).
_MAX_BYTES = 4096
# So many places of a request may be padding, and more only up to four for each word.
_MUCH_PADDING = 16_384

_Pair = tuple[list[bytes], np.ndarray]


def encode_tree(client: Client, trees: Sequence[AnyTree]) -> Embeddings:
    """Embeds dependency trees.

    Args:
        client: asks the model.
        trees: n of them, each a pair of words and heads, or what has both, such as
            `vsemb.systems.trees.trees.Tree`. A head is the number of a word, counted from 1, and 0 for
            the root.

    Returns:
        What is no tree is not valid.

    Raises:
        InvalidArgumentError: for words and heads of different lengths.
        ServingError: as `Client.predict`.

    Example:

        client.encode_tree([(["a", "dog", "runs"], [2, 3, 0])]).embedding.shape
    """
    parts = trees_in_parts(trees, client.batch_size)
    return joined([client.encode("encode_tree", tokens=tokens, heads=heads) for tokens, heads in parts])


def search_tree(client: Client, trees: Sequence[AnyTree], k: int = 10) -> Found:
    """Finds the best items for dependency trees among those that the model was exported with.

    Args:
        client: asks the model.
        trees: n queries, as `encode_tree`.
        k: results of each, 1 to 1,000.

    Raises:
        VsembError: as `encode_tree`.
    """
    parts = trees_in_parts(trees, client.batch_size)
    return joined([client.search("search_tree", k, tokens=tokens, heads=heads) for tokens, heads in parts])


def to_trees(trees: Sequence[AnyTree]) -> tuple[np.ndarray, np.ndarray]:
    """Returns trees as the inputs `tokens` and `heads` of a model.

    The first column is padding, as the end of a shorter row is. Where requests of different lengths are put
    together, TensorFlow Serving fills a request up with its first element, and that must be no word.

    Args:
        trees: n of them, see `encode_tree`.

    Returns:
        (n, 1 + longest) tokens, bytes objects, b"" for padding, and int32 heads, 0 for padding.

    Raises:
        InvalidArgumentError: for what is no tree, or words and heads of different lengths.

    Example:

    >>> tokens, heads = to_trees([(["a", "dog"], [2, 0]), (["dogs"], [0])])
    >>> tokens.tolist(), heads.tolist()
    ([[b'', b'a', b'dog'], [b'', b'dogs', b'']], [[0, 2, 0], [0, 0, 0]])
    """
    return _filled_up(_pairs(trees))


def trees_in_parts(trees: Sequence[AnyTree], rows: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yields trees in parts, each as `to_trees` gives it, so that one that is long does not widen all others.

    Args:
        trees: n of them, see `encode_tree`.
        rows: of a part at most.

    Raises:
        InvalidArgumentError: as `to_trees`, before the first part.

    Example:

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
        raise invalid_argument("trees", type(trees).__name__, "a list, with one entry for each row")
    return [_pair(tree, number) for number, tree in enumerate(trees)]


def _pair(tree: Any, number: int) -> _Pair:
    if hasattr(tree, "words") and hasattr(tree, "heads"):
        tree = (tree.words, tree.heads)
    if isinstance(tree, str | bytes) or not isinstance(tree, Sequence) or len(tree) != 2:
        raise invalid_argument("trees", tree, _EXPECTED)
    words, heads = tree
    listed = isinstance(words, Sequence | np.ndarray) and not isinstance(words, str | bytes)
    if not listed or not all(isinstance(word, str | bytes) for word in words):
        raise invalid_argument("trees", words, "a list of words, each a string", f"That is tree {number}.")
    try:
        numbers = np.asarray(heads)
    except ValueError:  # Lists of several lengths in a list.
        numbers = np.array(None)
    whole = numbers.ndim == 1 and (numbers.dtype.kind in "iu" or not numbers.size)
    # What no sentence has is not cut off here to a number that one has.
    if not whole or (numbers.size and (numbers.max() >= 2**31 or numbers.min() < -(2**31))):
        raise invalid_argument("trees", heads, "a list of heads, each an integer", f"That is tree {number}.")
    if len(words) != len(numbers):
        received = f"{len(words)} words and {len(numbers)} heads in tree {number}"
        raise invalid_argument("trees", received, "one head for each word")
    encoded = [word.encode(errors="surrogatepass") if isinstance(word, str) else word for word in words]
    return encoded, numbers


class TextParser:
    """Makes trees of texts, with a parser that is opened when it is first needed.

    Args:
        parser: see `vsemb.serving.Client`; None where there is none.

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
        """Parses texts.

        Args:
            texts: in UTF-8; one that is parsed already, see `vsemb.systems.trees.trees`, is read as it
                stands, and one
                with nothing in it has a tree without words. Of others, as much is parsed as models of texts
                read: 4,096 bytes.

        Raises:
            InvalidArgumentError: for a text that has to be parsed where there is no parser.
            MissingExtraError: if the parser is a pipeline and the extra `parse` is not installed.
            DataError: for a parsed text that is broken.
        """
        # A parser takes NUL for a blank.
        decoded = [text.decode(errors="replace").replace("\0", " ") for text in texts]
        raw = [row for row, text in enumerate(decoded) if text.strip() and "\t" not in text]
        parsed = self._parse([_cut(decoded[row]) for row in raw]) if raw else []
        found: list[Any] = list(decoded)
        for row, tree in zip(raw, parsed, strict=True):
            found[row] = tree
        return [_tree(tree) for tree in found]

    def _parse(self, texts: list[str]) -> Sequence[Any]:
        if self._parser is None:
            raise invalid_argument(
                "parser",
                None,
                "a parser, since the model takes dependency trees and no texts",
                "Name one, as in Client(..., parser='en_core_web_sm'), or send trees with encode_tree.",
            )
        with self._lock:
            if self._opened is None:
                # Parsers come with TensorFlow, which a client does without where it can.
                from vsemb.systems.trees.parsers import open_parser

                self._opened = open_parser(self._parser)
        parsed = list(self._opened(texts))
        if len(parsed) != len(texts):
            received = f"{len(parsed)} trees for {len(texts)} texts"
            raise invalid_argument("parser", received, "a parser that gives a tree each")
        return parsed


def _cut(text: str) -> str:
    return text.strip().encode()[:_MAX_BYTES].decode(errors="ignore").strip()


def _tree(tree: Any) -> AnyTree:
    if not isinstance(tree, str):
        return tree
    if not tree.strip():
        return (), ()
    from vsemb.systems.trees.trees import Tree

    return Tree.from_text(tree)
