"""Dependency trees as values, as text, and in CoNLL-U files.

CoNLL-U is the format of Universal Dependencies (https://universaldependencies.org/format.html), written by Stanza,
UDPipe, CoreNLP and spaCy's converters.
"""

from __future__ import annotations

import codecs
import gzip
import io
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import BinaryIO

from vsemb.errors import DataError
from vsemb.files import open_regular, reading, replacing

# A head in text. Longer numbers are impossible as heads and exceed int32.
_HEAD = re.compile(r"[0-9]{1,9}")
# A word, tag or relation, without separators and lone surrogates, which UTF-8 cannot encode.
_TOKEN = re.compile("[^\t\n\r\0\ud800-\udfff]+")
_LINE = r"[^\t\n\r\0]+\t[0-9]{1,9}(?:\t[^\t\n\r\0]+)?"
_PARSED = re.compile(rf"{_LINE}(?:\n{_LINE})*")

_COMMENT = re.compile(r"#\s*(sent_id|text)\s*= ?(.*)")
_ID = re.compile(r"\S|\S[^\r\n]*\S")
# Multiword tokens (3-4) and empty nodes (8.1), which are not words of the tree.
_BESIDE = re.compile(r"[0-9]+[-.][0-9]+")
_COLUMNS = 10
_MAX_LINE = 1 << 20
_GZIP = b"\x1f\x8b"


@dataclass(frozen=True)
class Tree:
    r"""The dependency tree of a sentence.

    Args:
        words: the words in sentence order.
        heads: 1-based number of each word's head; 0 for the only root.
        tags: part of speech of each word, or ().
        relations: relation of each word to its head, or ().

    Example:

    >>> tree = Tree(("A", "dog", "runs"), (2, 3, 0))
    >>> tree.check("sentence 1")
    >>> tree.text
    'A\t2\ndog\t3\nruns\t0'
    >>> Tree.from_text(tree.text) == tree
    True
    """

    words: tuple[str, ...]
    heads: tuple[int, ...]
    tags: tuple[str, ...] = ()
    relations: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.words)

    @property
    def text(self) -> str:
        """The parsed text: one line per word, with the word, a tab and its head, without tags and relations."""
        return "\n".join(f"{word}\t{head}" for word, head in zip(self.words, self.heads, strict=True))

    @property
    def labelled_text(self) -> str:
        r"""The parsed text with a third column, the relation of each word to its head.

        Without relations, it is the same as `text`.

        Example:

        >>> Tree(("A", "dog"), (2, 0), relations=("det", "root")).labelled_text
        'A\t2\tdet\ndog\t0\troot'
        """
        if not self.relations:
            return self.text
        lines = zip(self.text.split("\n"), self.relations, strict=True)
        return "\n".join(f"{line}\t{relation}" for line, relation in lines)

    @classmethod
    def from_text(cls, text: str) -> Tree:
        """Read a parsed text, see `text` and `labelled_text`.

        Raises:
            DataError: if the text is not a parsed text, or not a tree.
        """
        words, heads, relations = [], [], []
        for number, line in enumerate(text.split("\n"), 1):
            word, *columns = line.split("\t", 2)
            if not columns or not _HEAD.fullmatch(columns[0]):
                raise DataError(
                    f"Line {number} of a parsed text must be a word, a tab and the number of its head; got "
                    f"{line[:80]!r}."
                )
            words.append(word)
            heads.append(int(columns[0]))
            relations += columns[1:]
        tree = cls(tuple(words), tuple(heads), relations=tuple(relations))
        tree.check("A parsed text")
        return tree

    def check(self, where: str) -> None:
        """Check that words and heads are a tree: one root that reaches every word. It may be non-projective.

        Args:
            where: name of the sentence in messages.

        Raises:
            DataError: with the sentence and the word, if it is not a tree.
        """
        size = len(self.words)
        if not size:
            raise DataError(f"{where}: a tree must have at least one word; got 0.")
        if len(self.heads) != size:
            raise DataError(f"{where}: {size} words must have {size} heads; got {len(self.heads)}.")
        _check_strings(where, "word", self.words)
        for name, values in (("tag", self.tags), ("relation", self.relations)):
            if values and len(values) != size:
                raise DataError(f"{where}: {size} words must have {size} {name}s; got {len(values)}.")
            _check_strings(where, name, values)
        for place, head in enumerate(self.heads, 1):
            if type(head) is not int or not 0 <= head <= size:
                raise DataError(f"{where}: the head of {self._name(place)} must be 0 to {size}; got {head!r}.")
        roots = [self._name(place) for place, head in enumerate(self.heads, 1) if not head]
        if not roots:
            raise DataError(f"{where}: one word must be the root, with head 0; got 0 roots.")
        if len(roots) > 1:
            raise DataError(
                f"{where}: one word must be the root; got {len(roots)} roots, such as {roots[0]} and {roots[1]}."
            )
        place = self._cycle()
        if place:
            cycle = "is its own head" if self.heads[place - 1] == place else "is on a cycle of heads"
            raise DataError(f"{where}: every word must reach the root; {self._name(place)} {cycle}.")

    def _cycle(self) -> int:
        """Return the 1-based number of a word on a cycle, or 0. Visits every word once."""
        visited_from = [-1, *[0] * len(self.heads)]
        for start in range(1, len(self.heads) + 1):
            place = start
            while not visited_from[place]:
                visited_from[place] = start
                place = self.heads[place - 1]
            if visited_from[place] == start:
                return place
        return 0

    def _name(self, place: int) -> str:
        return f"word {place} ({self.words[place - 1][:40]!r})"


def is_parsed(text: str) -> bool:
    r"""Return whether a text is a parsed text, with or without relations; it need not be a tree.

    In a raw text, a tab is white space.

    Example:

    >>> is_parsed("A dog"), is_parsed("A\tdog"), is_parsed("A\t2\ndog\t0")
    (False, False, True)
    """
    return "\t" in text and _PARSED.fullmatch(text) is not None


def _check_strings(where: str, name: str, values: Sequence[str]) -> None:
    for place, value in enumerate(values, 1):
        if not isinstance(value, str) or not _TOKEN.fullmatch(value):
            raise DataError(
                f"{where}: {name} {place} must be text, not empty, without tabs, line breaks and NUL; got "
                f"{str(value)[:80]!r}."
            )


@dataclass(frozen=True)
class Sentence:
    """A sentence of a CoNLL-U file.

    Args:
        id: value of `sent_id`, or None.
        text: the raw sentence (`text`), or None.
        tree: the tree.
        line: line number of its first word; 0 without a file. Ignored in comparisons.
    """

    id: str | None
    text: str | None
    tree: Tree
    line: int = field(default=0, compare=False)


def read_conllu(path: str | os.PathLike[str]) -> Iterator[Sentence]:
    """Read and check the sentences of a CoNLL-U file, one by one.

    Tags are read from column XPOS, or from UPOS if XPOS is empty. Tags and relations are () if all are `_`. Multiword
    tokens, empty nodes and the other columns are ignored.

    Args:
        path: the file, UTF-8, plain or gzip, independent of its name.

    Raises:
        DataError: with file, line and sentence, if the file cannot be read, is not CoNLL-U, or contains a sentence that
            is not a tree.

    Example:

    >>> tree = Tree(("A", "dog"), (2, 0), relations=("det", "root"))
    >>> write_conllu([Sentence("7", "A dog", tree)], "parses.conllu.gz")
    >>> for sentence in read_conllu("parses.conllu.gz"):
    ...     print(sentence.id, sentence.tree.words, sentence.line)
    7 ('A', 'dog') 3
    """
    with reading(path, "CoNLL-U file"), open_regular(path) as file:
        content = file
        if file.peek(2)[:2] == _GZIP:
            content = io.BufferedReader(gzip.GzipFile(fileobj=file), _MAX_LINE)
        for first, lines in _blocks(path, content):
            sentence = _sentence(path, first, lines)
            if sentence is not None:
                yield sentence


def write_conllu(sentences: Iterable[Sentence], path: str | os.PathLike[str]) -> None:
    """Write sentences as a CoNLL-U file for `read_conllu`, atomically.

    Tags become column XPOS. Line breaks in `Sentence.text` become spaces.

    Args:
        sentences: read once.
        path: the file; compressed if its name ends in `.gz`. The same sentences give the same bytes.

    Raises:
        DataError: if a sentence is not a tree, an id has line breaks or white space around it, or writing fails.
    """
    with replacing(path) as temporary, open(temporary, "wb") as file:
        if not os.fspath(path).endswith(".gz"):
            _write(sentences, file)
            return
        compressed = gzip.GzipFile(filename="", mode="wb", compresslevel=6, fileobj=file, mtime=0)
        with compressed, io.BufferedWriter(compressed, _MAX_LINE) as buffer:
            _write(sentences, buffer)


def _blocks(path: str | os.PathLike[str], file: io.BufferedReader) -> Iterator[tuple[int, list[bytes]]]:
    """Yield blocks of lines between blank lines, with the number of the first line."""
    number, lines = 0, []
    while line := file.readline(_MAX_LINE):
        number += 1
        if len(line) == _MAX_LINE:
            raise DataError(
                f"{path}, line {number}: a line of CoNLL-U must have at most {_MAX_LINE} bytes. Check the format."
            )
        if number == 1:
            line = line.removeprefix(codecs.BOM_UTF8)
        line = line.rstrip(b"\r\n")
        if line.strip(b" "):
            lines.append(line)
        elif lines:
            yield number - len(lines), lines
            lines = []
    if lines:
        yield number + 1 - len(lines), lines


def _sentence(path: str | os.PathLike[str], first: int, block: list[bytes]) -> Sentence | None:
    """Read the lines of a sentence; None for a block of comments."""
    lines = _decoded(path, first, block)
    comments: dict[str, str] = {}
    for count, line in enumerate(lines):
        if not line.startswith("#"):
            first, lines = first + count, lines[count:]
            break
        match = _COMMENT.fullmatch(line)
        if match is not None:
            comments[match[1]] = match[2]
    else:
        return None
    rows: list[list[str]] = []
    for number, line in enumerate(lines, first):
        row = line.split("\t")
        if len(row) == _COLUMNS and row[0] == str(len(rows) + 1):
            rows.append(row)
        elif len(row) != _COLUMNS or not _BESIDE.fullmatch(row[0]):
            received = f"{len(row)} columns" if len(row) != _COLUMNS else f"word {row[0][:40]!r}"
            raise DataError(
                f"{_where(path, number, comments)}: the line must be word {len(rows) + 1} in {_COLUMNS} columns with "
                f"tabs between them; got {received}. A blank line ends a sentence."
            )
    if not rows:
        raise DataError(f"{_where(path, first, comments)}: a sentence must have at least one word; got 0.")
    _, words, _, upos, xpos, _, heads, relations, _, _ = zip(*rows, strict=True)
    for number, (word, head) in enumerate(zip(words, heads, strict=True), 1):
        if not _HEAD.fullmatch(head):
            raise DataError(
                f"{_where(path, first, comments)}: the head of word {number} ({word[:40]!r}) must be a number; "
                f"got {head[:40]!r}."
            )
    tree = Tree(words, tuple(map(int, heads)), _filled(xpos) or _filled(upos), _filled(relations))
    tree.check(_where(path, first, comments))
    return Sentence(_identifier(comments), comments.get("text"), tree, first)


def _decoded(path: str | os.PathLike[str], first: int, lines: list[bytes]) -> list[str]:
    try:
        return b"\n".join(lines).decode().split("\n")
    except UnicodeDecodeError as error:
        number = first + error.object.count(b"\n", 0, error.start)
        raise DataError(f"{path}, line {number}: the line must be UTF-8; got {error.reason}.") from error


def _identifier(comments: dict[str, str]) -> str | None:
    return comments.get("sent_id", "").strip() or None


def _where(path: str | os.PathLike[str], line: int, comments: dict[str, str]) -> str:
    name = _identifier(comments)
    sentence = f"sentence {name[:80]!r}" if name else "a sentence without id"
    return f"{path}, line {line}, {sentence}"


def _filled(column: tuple[str, ...]) -> tuple[str, ...]:
    """Return a column, or () if it is empty."""
    if set(column) <= {"", "_"}:
        return ()
    return tuple(value or "_" for value in column)


def _write(sentences: Iterable[Sentence], file: BinaryIO) -> None:
    for number, sentence in enumerate(sentences, 1):
        tree, name = sentence.tree, sentence.id
        where = f"Sentence {number}" if name is None else f"Sentence {number} ({name[:80]!r})"
        tree.check(where)
        if name is not None and not _ID.fullmatch(name):
            raise DataError(
                f"{where}: an id must not be empty or have line breaks or white space around it; got {name[:80]!r}."
            )
        comments = [] if name is None else [f"# sent_id = {name}"]
        if sentence.text is not None:
            comments.append("# text = " + re.sub(r"\r\n|[\r\n]", " ", sentence.text))
        columns = zip(
            tree.words,
            tree.tags or ("_",) * len(tree),
            tree.heads,
            tree.relations or ("_",) * len(tree),
            strict=True,
        )
        lines = [
            f"{place}\t{word}\t_\t_\t{tag}\t_\t{head}\t{relation}\t_\t_"
            for place, (word, tag, head, relation) in enumerate(columns, 1)
        ]
        try:
            file.write(("\n".join([*comments, *lines]) + "\n\n").encode())
        except UnicodeEncodeError as error:
            raise DataError(f"{where}: id and text must be valid UTF-8; got {error.reason}.") from error
