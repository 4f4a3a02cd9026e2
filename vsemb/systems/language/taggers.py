"""Parts of speech: NLTK's tagger, files that any tagger wrote, and how their tokens become our words."""

from __future__ import annotations

import gzip
import io
import itertools
import os
import unicodedata
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from vsemb.errors import DataError, needs_extra, one_line
from vsemb.files import reading
from vsemb.text.normalize import readable_part

#: The model of NLTK's perceptron tagger for English.
MODEL = "averaged_perceptron_tagger_eng"

_GZIP = b"\x1f\x8b"
# Taggers write brackets in the Penn Treebank's spelling, of which no letter stands in the text.
_BRACKETS = {"-LRB-", "-RRB-", "-LSB-", "-RSB-", "-LCB-", "-RCB-"}

Token = tuple[str, str]


class TaggedText(NamedTuple):
    """A line of a file of tags.

    Args:
        id: what the file calls the text.
        tokens: words and punctuation, each with its tag.
        line: its number in the file, from 1.
    """

    id: str
    tokens: list[Token]
    line: int


class Tagger:
    """NLTK's averaged perceptron, on the tokens that NLTK makes of raw text; `open_tagger` makes one.

    Args:
        tokenizer: of NLTK.
        tagger: of NLTK.
        name: which tagger it is, with versions.

    Attributes:
        name: as given.
    """

    def __init__(self, tokenizer: Any, tagger: Any, name: str) -> None:
        self.name = name
        self._tokenizer = tokenizer
        self._tagger = tagger

    def __call__(self, text: str) -> list[Token]:
        """Tags a text.

        Args:
            text: raw; what goes beyond `vsemb.text.normalize.MAX_BYTES` is left out.

        Returns:
            Its words and punctuation, each with its Penn tag.

        Example:

        ```python
        print(open_tagger()("A dog runs."))
        ```
        """
        return self._tagger.tag(self._tokenizer.tokenize(readable_part(text)))


def open_tagger() -> Tagger:
    """Opens NLTK's perceptron tagger for English, which gives Penn tags. Nothing is downloaded.

    Raises:
        MissingExtraError: without NLTK.
        DataError: if NLTK does not find the tagger's model.

    Example:

    ```python
    tagger = open_tagger()
    print(tagger.name, tagger("Two dogs run after a ball."))
    ```
    """
    with needs_extra("nltk", "captions"):
        import nltk
        from nltk.tag.perceptron import PerceptronTagger
        from nltk.tokenize import NLTKWordTokenizer
    try:
        tagger = PerceptronTagger(lang="eng")
    except LookupError as error:
        raise DataError(
            f"NLTK does not find the model {MODEL} of its tagger. Fetch it with `python -m nltk.downloader "
            f"{MODEL}`, or set NLTK_DATA to the folder that holds taggers/{MODEL}."
        ) from error
    except (OSError, ValueError) as error:
        raise DataError(f"NLTK cannot read the model {MODEL} of its tagger: {one_line(error)}") from error
    return Tagger(NLTKWordTokenizer(), tagger, f"NLTK {nltk.__version__} {MODEL}")


def align_tags(tokens: Sequence[Token], words: Sequence[str]) -> list[str] | None:
    """Gives the words of a text the tags of the tokens that some tagger has cut the same text into.

    Both are compared by their letters and digits alone, in lower case. A word takes the tag of the token in
    which its first character lies, so `don't`, cut into `do` and `n't`, has that of `do` as our `dont`.
    Punctuation has no letters and falls away.

    Args:
        tokens: pairs of a token and its tag, in order.
        words: of the same text, as `vsemb.text.normalize.split_words` splits it.

    Returns:
        A tag for each word; None where tokens and words are not of one text.

    Example:

    >>> align_tags([("The", "DT"), ("man", "NN"), ("'s", "POS"), ("dog", "NN"), (".", ".")],
    ...            ["the", "man", "'s", "dog"])
    ['DT', 'NN', 'POS', 'NN']
    """
    found, tags = "", []
    for token, tag in tokens:
        characters = "" if token in _BRACKETS else _characters(token)
        found += characters
        tags += [tag] * len(characters)
    expected = [_characters(word) for word in words]
    # Without letters and digits nothing tells that the texts are the same.
    if "".join(expected) != found or bool(tags) != bool(words):
        return None
    starts = itertools.accumulate(map(len, expected), initial=0)
    # A word without letters or digits, of which there are next to none, may stand behind the last token.
    return [tags[min(start, len(tags) - 1)] for start, _ in zip(starts, words, strict=False)]


def _characters(text: str) -> str:
    return "".join(c for c in text.casefold() if unicodedata.category(c)[0] in "LMN")


def read_tags(path: str | os.PathLike[str]) -> Iterator[TaggedText]:
    r"""Reads a file of tags: a text a line, `ID<TAB>word/TAG word/TAG ...`.

    Args:
        path: the file, plain or compressed with gzip, whatever its name; UTF-8.

    Yields:
        The texts in order; empty lines are left out.

    Raises:
        DataError: naming file and line, if the file cannot be read or a line is none of these.

    Example:

    >>> from pathlib import Path
    >>> _ = Path("tags.txt").write_text("7\tA/DT dog/NN 1\\/2/CD\n")
    >>> [text] = read_tags("tags.txt")
    >>> text.id, text.tokens
    ('7', [('A', 'DT'), ('dog', 'NN'), ('1\\/2', 'CD')])
    """
    with reading(path, "file of tags"), open(path, "rb") as file:
        packed = file.read(len(_GZIP)) == _GZIP
        file.seek(0)
        content = gzip.GzipFile(fileobj=file) if packed else file
        lines = io.TextIOWrapper(content, encoding="utf-8-sig", newline="\n")
        for number, line in enumerate(lines, 1):
            if line.strip():
                yield _tagged(f"{path}, line {number}", line, number)


def _tagged(where: str, line: str, number: int) -> TaggedText:
    name, tab, text = line.partition("\t")
    if not tab:
        raise DataError(f"{where}: {one_line(line, 80)!r} has no tab. Expected: ID<TAB>word/TAG word/TAG ...")
    tokens = []
    for token in text.split():
        word, slash, tag = token.rpartition("/")
        if not (word and slash and tag):
            raise DataError(f"{where}: {one_line(token, 80)!r} is no word with its tag. Expected: word/TAG")
        tokens.append((word, tag))
    return TaggedText(name.strip(), tokens, number)
