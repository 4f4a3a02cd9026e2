"""Word vectors to start from: pretrained ones of a text file, or ones learned from the captions."""

from __future__ import annotations

import os

import numpy as np

from vsemb.errors import DataError, invalid_argument
from vsemb.files import reading
from vsemb.parts import Count, Positive, require
from vsemb.text.vocabulary import UNKNOWN_ID, Vocabulary

_MAX_WORDS = 20_000
# Passes of the subspace iteration. The spectrum falls slowly: on 3,000 words and 300 dimensions, 8 passes
# leave the singular values off by less than 1 % and 2 by 10 %.
_PASSES = 8
# Singular values, relative to the first, that stand for 0 in float32.
_ROUNDING = 1e-5


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
    with reading(path, "file of word vectors"), open(path, encoding="utf-8-sig", errors="replace") as file:
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
    if not rows or dim is None:
        raise invalid_argument("word_vectors", str(path), "a file with at least one word of the vocabulary")
    known = np.stack(list(rows.values()))
    generator = np.random.default_rng(seed)
    vectors = generator.normal(known.mean(0), known.std(0), (len(vocabulary), dim)).astype(np.float32)
    vectors[list(rows)] = known
    vectors[0] = 0
    return vectors, len(rows.keys() - {0, 1})


def cooccurrence_vectors(
    ids: np.ndarray,
    offsets: np.ndarray,
    vocabulary_size: int,
    dim: int,
    window: int = 5,
    shift: float = 1.0,
) -> np.ndarray:
    """Factorises the positive pointwise mutual information of words and their neighbours.

    Word2vec's skip-gram with `shift` negative samples implicitly factorises PMI - log(shift) (Levy and
    Goldberg 2014, "Neural word embedding as implicit matrix factorization", section 3); this takes that
    matrix, negative entries set to 0, and its truncated singular value decomposition U S V^T: word vectors
    U S^(1/2) (section 4.2), scaled to a mean length of 1. No labels or images are used.

    Args:
        ids: (tokens,) int, all texts one behind the other, as `Tokenizer.encode` returns them.
        offsets: (texts + 1,) int; text i is `ids[offsets[i]:offsets[i + 1]]`. No pair spans two texts.
        vocabulary_size: number of ids, padding (0) and unknown (1) included, at most 20,000.
        dim: size of a vector; where the matrix has a lower rank the last numbers are 0.
        window: words at most so far apart are neighbours.
        shift: number of negative samples, k of the paper.

    Returns:
        (vocabulary_size, dim) float32; zero for ids 0 and 1 and for words without any neighbour. Each
        dimension's sign is fixed, so that the same arguments give the same vectors.

    Raises:
        InvalidArgumentError: for arguments out of range, or if no words are neighbours.

    Example: two captions, "a dog" and "a cat": dog and cat have the same neighbours.

    >>> vectors = cooccurrence_vectors(np.array([2, 3, 2, 4]), np.array([0, 2, 4]), vocabulary_size=5, dim=2)
    >>> bool(np.allclose(vectors[3], vectors[4]))
    True
    """
    for name, value, hint in (("dim", dim, Count), ("window", window, Count), ("shift", shift, Positive)):
        require(name, value, hint)
    if not 2 <= vocabulary_size <= _MAX_WORDS:
        fix = "Keep fewer words in the vocabulary, the most frequent ones."
        raise invalid_argument("vocabulary_size", vocabulary_size, f"2 to {_MAX_WORDS}", fix)
    if len(ids) and not (ids.min() >= 0 and ids.max() < vocabulary_size):
        raise invalid_argument("ids", int(ids.max()), f"ids from 0 to {vocabulary_size - 1}")
    information = _positive_information(_neighbours(ids, offsets, vocabulary_size, window), shift)
    vectors = _factors(information, dim)
    lengths = np.linalg.norm(vectors, axis=1)
    if not lengths.any():
        raise invalid_argument("ids", len(ids), "texts in which known words stand near others")
    return (vectors / lengths[lengths > 0].mean()).astype(np.float32)


def _neighbours(ids: np.ndarray, offsets: np.ndarray, size: int, window: int) -> np.ndarray:
    """Returns (size, size) float32 counts of how often each two words are neighbours."""
    counts = np.zeros(size * size, np.float32)
    ids = ids.astype(np.int64)
    texts = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
    for distance in range(1, min(window, len(ids) - 1) + 1):
        left, right = ids[:-distance], ids[distance:]
        both = (texts[:-distance] == texts[distance:]) & (left > UNKNOWN_ID) & (right > UNKNOWN_ID)
        left, right = left[both], right[both]
        for pairs in (left * size + right, right * size + left):
            cells, times = np.unique(pairs, return_counts=True)
            counts[cells] += times
    return counts.reshape(size, size)


def _positive_information(counts: np.ndarray, shift: float) -> np.ndarray:
    """Returns max(0, log(#(w, c) D / (#(w) #(c))) - log(shift)), overwriting the symmetric `counts`."""
    totals = counts.sum(axis=0, dtype=np.float64)
    total = totals.sum()
    for row, number in zip(counts, totals, strict=True):
        (seen,) = row.nonzero()
        row[seen] = np.maximum(np.log(row[seen] * total / (number * totals[seen] * shift)), 0)
    return counts


def _factors(matrix: np.ndarray, dim: int) -> np.ndarray:
    """Returns U S^(1/2), (size, dim), of a matrix, the largest singular values first.

    By subspace iteration (Halko, Martinsson and Tropp 2011, algorithms 4.4 and 5.1): a full decomposition
    of 20,000 words would take an hour. Exact where twice `dim` reaches the size.
    """
    size = len(matrix)
    draws = np.random.default_rng(0).standard_normal((size, min(2 * dim, size)))
    basis = draws.astype(np.float32)
    for _ in range(_PASSES):
        basis, _ = np.linalg.qr(matrix @ basis)
    small, values, _ = np.linalg.svd(basis.T @ matrix, full_matrices=False)
    small, values = small[:, :dim], values[:dim]
    values[values <= _ROUNDING * values[0]] = 0
    vectors = (basis @ small) * np.sqrt(values)
    vectors[~matrix.any(axis=1)] = 0
    # The sign of a singular vector is arbitrary: the largest entry is made positive.
    largest = vectors[np.abs(vectors).argmax(axis=0), np.arange(len(values))]
    return np.pad(vectors * np.where(largest < 0, -1, 1), [(0, 0), (0, dim - len(values))])
