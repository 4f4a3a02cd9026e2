"""Stop words: those that say little by themselves, such as "a" and "on"."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import tensorflow as tf

from vsemb.errors import DataError, missing_extra, one_line
from vsemb.text.normalize import split_words

#: The name of NLTK's English list, in place of a path.
NLTK = "nltk"


def read_stopwords(name: str) -> tuple[str, ...]:
    """Reads a list of stop words.

    Args:
        name: `nltk` for the English list of NLTK's corpus, or the path of a text file with one word a line.

    Returns:
        The words, sorted, as `vsemb.text.normalize.split_words` splits and writes them: `don't` as `dont`,
        and `it's` as the two words that it is.

    Raises:
        MissingExtraError: without NLTK.
        DataError: if NLTK does not find its corpus, or the file cannot be read or has no word.

    Example:

    >>> _ = Path("stopwords.txt").write_text("The\\ndon't\\nit's\\n")
    >>> read_stopwords("stopwords.txt")
    ("'s", 'dont', 'it', 'the')
    """
    lines = _of_nltk() if name == NLTK else _of_file(Path(name))
    words = split_words(tf.constant(list(lines), tf.string)).flat_values.numpy().tolist()
    if not words:
        raise DataError(f"{name} holds no stop word; write one a line.")
    return tuple(sorted({word.decode() for word in words}))


def _of_nltk() -> Iterable[str]:
    try:
        from nltk.corpus import stopwords
    except ImportError as error:
        raise missing_extra("nltk", "captions") from error
    try:
        found: list[str] = stopwords.words("english")
    except LookupError as error:
        raise DataError(
            "NLTK does not find its corpus stopwords. Fetch it with `python -m nltk.downloader stopwords`, "
            "set NLTK_DATA to the folder that holds corpora/stopwords.zip, or name a file of your own: "
            "--set model.writing.stopwords=FILE"
        ) from error
    except (OSError, ValueError) as error:
        raise DataError(f"NLTK cannot read its corpus stopwords: {one_line(error)}") from error
    return found


def _of_file(path: Path) -> Iterable[str]:
    try:
        return path.read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(
            f"The stop words {path} cannot be read: {one_line(error)}. Name a file with one word a line, or "
            "nltk for those of NLTK."
        ) from error
