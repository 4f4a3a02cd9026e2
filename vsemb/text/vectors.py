"""Pretrained word vectors from text files."""

from __future__ import annotations

import os

import numpy as np

from vsemb.errors import DataError, invalid_argument
from vsemb.text.vocabulary import Vocabulary


def read_word_vectors(path: str | os.PathLike[str], vocabulary: Vocabulary, seed: int = 0) -> tuple[np.ndarray, int]:
    """Reads the vectors of a vocabulary's words from a GloVe or word2vec text file.

    Both formats are `word v1 … vd` a line; word2vec's starts with a line `count dim`. A word is
    looked up as it stands and, where the file has no such word, whatever its case. Words without a vector
    are drawn from the normal distribution fitted to each dimension of those found; padding is zero.

    Args:
        path: the file.
        vocabulary: the words wanted.
        seed: of the draws.

    Returns:
        vectors: (len(vocabulary), dim) float32.
        found: how many words of the vocabulary the file has.

    Raises:
        DataError: if the file cannot be read or a line is malformed.
        InvalidArgumentError: if the file has none of the words.

    Example:

    >>> import pathlib
    >>> _ = pathlib.Path("/tmp/vsemb-vectors.txt").write_text("dog 1 2\\ncat 3 4\\n")
    >>> vectors, found = read_word_vectors("/tmp/vsemb-vectors.txt", Vocabulary(["a", "cat"]))
    >>> vectors[3].tolist(), found
    ([3.0, 4.0], 1)
    """
    wanted = {word: row for row, word in enumerate(vocabulary.tokens)}
    # In trees "London" is the word of the vocabulary, and in an uncased file "london" that of the vector.
    uncased = {word.lower(): row for word, row in reversed(wanted.items())}
    rows: dict[int, np.ndarray] = {}
    exact: set[int] = set()
    dim: int | None = None
    try:
        with open(path, encoding="utf-8-sig", errors="replace") as file:
            for number, line in enumerate(file, 1):
                parts = line.rstrip().split(" ")
                if number == 1 and len(parts) == 2 and all(part.isdigit() for part in parts):
                    dim = int(parts[1])
                    continue
                if not line.strip():
                    continue
                if dim is None:
                    dim = len(parts) - 1
                # A few GloVe words contain blanks, so the vector is counted from the right.
                word = " ".join(parts[:-dim]) if dim else ""
                if not word:
                    raise DataError(
                        f"{path}, line {number}: expected a word and its numbers, separated by blanks "
                        "(the text format of GloVe and word2vec)."
                    )
                row = wanted.get(word, uncased.get(word.lower()))
                # In a cased file "Apple" may come before "apple", and is another word.
                if row is None or row in exact or (row in rows and word not in wanted):
                    continue
                if word in wanted:
                    exact.add(row)
                try:
                    rows[row] = np.array(parts[-dim:], np.float32)
                except ValueError as error:
                    raise DataError(f"{path}, line {number}: expected {dim} numbers behind {word!r}.") from error
                if not np.isfinite(rows[row]).all():
                    raise DataError(f"{path}, line {number}: the vector of {word!r} is not finite.")
    except OSError as error:
        raise DataError(f"The word vectors at {path} cannot be read: {error.strerror}.") from error
    if not rows or dim is None:
        raise invalid_argument("word_vectors", str(path), "a file with at least one word of the vocabulary")
    known = np.stack(list(rows.values()))
    generator = np.random.default_rng(seed)
    vectors = generator.normal(known.mean(0), known.std(0), (len(vocabulary), dim)).astype(np.float32)
    vectors[list(rows)] = known
    vectors[0] = 0
    return vectors, len(rows.keys() - {0, 1})
