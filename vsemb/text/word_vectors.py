"""Initial word vectors: pretrained vectors of a file, or vectors learned from the captions."""

from __future__ import annotations

import contextlib
import itertools
import mmap
import os
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from vsemb.errors import DataError, invalid_argument, one_line
from vsemb.files import open_regular, read_text, reading, require_regular
from vsemb.parts import Count, Positive, require
from vsemb.text.normalize import words_of
from vsemb.text.vocabulary import UNKNOWN_ID, Vocabulary
from vsemb.unicode import composed

_MAX_WORDS = 20_000
# Words of a file that are split at a time.
_BLOCK = 10_000
# Begins the binary models of fastText.
_FASTTEXT = (793712314).to_bytes(4, "little")
# Passes of the subspace iteration. On 3,000 words and 300 dimensions, the singular values are off by 1 % after 8 passes
# and by 10 % after 2.
_PASSES = 8
# Singular values below this share of the first are 0 in float32.
_ROUNDING = 1e-5

# Squares of larger numbers have no sum in float32, and the vectors of unknown words would not be finite.
_LIMIT = 1e15


def read_word_vectors(path: str | os.PathLike[str], vocabulary: Vocabulary, seed: int = 0) -> tuple[np.ndarray, int]:
    """Read the vectors of a vocabulary's words from a file.

    The end of the name tells the format:

    - `.bin`: word2vec in binary form;
    - `.npz`: NumPy, with the arrays `words` and `vectors`;
    - `.npy`: vectors of NumPy, with their words in a file of the same name and `.txt`, one per line;
    - others: text of GloVe, word2vec or fastText (`.vec`), a line `word v1 … vd` per word; a first line `count dim`
      tells how many there are.

    A word is looked up by its exact spelling, then ignoring case. Missing vectors are drawn from the normal
    distribution fitted to each dimension of the others; padding is zero.

    Args:
        path: the file.
        vocabulary: the words to look up.
        seed: seed of the draws.

    Returns:
        vectors: (len(vocabulary), dim) float32.
        count: number of words of the vocabulary in the file.

    Raises:
        DataError: if the file cannot be read or a line is malformed.
        InvalidArgumentError: if the file has none of the words.

    Example:

    >>> import pathlib
    >>> _ = pathlib.Path("/tmp/vsemb-vectors.txt").write_text("dog 1 2\\ncat 3 4\\n")
    >>> vectors, count = read_word_vectors("/tmp/vsemb-vectors.txt", Vocabulary(["a", "cat"]))
    >>> vectors[3].tolist(), count
    ([3.0, 4.0], 1)
    """
    wanted = {word: row for row, word in enumerate(vocabulary.tokens[:2])} | vocabulary.ids
    # Vocabularies of trees keep case ("London"), files often do not ("london").
    uncased = {word.lower(): row for word, row in reversed(wanted.items())}
    rows: dict[int, np.ndarray] = {}
    exact: set[int] = set()
    dim = 0
    with reading(path, "file of word vectors"):
        for place, word, numbers in _entries(Path(path)):
            word = composed(word)
            row = wanted.get(word, uncased.get(word.lower()))
            # In a cased file "Apple" may precede "apple", a different word.
            if row is None or row in exact or (row in rows and word not in wanted):
                continue
            if word in wanted:
                exact.add(row)
            dim = len(numbers)
            try:
                rows[row] = np.array(numbers, np.float32)
            except ValueError as error:
                raise DataError(f"{place}: expected {dim} numbers after {word!r}.") from error
            if not (np.abs(rows[row]) < _LIMIT).all():
                raise DataError(f"{place}: the numbers of {word!r} must be below {_LIMIT:g}.")
    if not rows:
        raise invalid_argument("word_vectors", str(path), "a file with at least one word of the vocabulary")
    known = np.stack(list(rows.values()))
    generator = np.random.default_rng(seed)
    vectors = generator.normal(known.mean(0), known.std(0), (len(vocabulary), dim)).astype(np.float32)
    vectors[list(rows)] = known
    vectors[0] = 0
    return vectors, len(rows.keys() - {0, 1})


def further_words(path: str | os.PathLike[str], vocabulary: Vocabulary, most: int) -> list[str]:
    """Return the first words of a file of word vectors that a vocabulary lacks.

    Files usually begin with the most frequent words. Words are lower-cased; a word that a tokenizer would split is left
    out.

    Args:
        path: the file, see `read_word_vectors`.
        vocabulary: the vocabulary.
        most: maximum number of words.

    Raises:
        DataError: if the file cannot be read.

    Example:

    >>> import pathlib
    >>> _ = pathlib.Path("/tmp/vsemb-vectors.txt").write_text("dog 1 2\\nCat 3 4\\nnew_york 1 1\\n")
    >>> further_words("/tmp/vsemb-vectors.txt", Vocabulary(["dog"]), 10)
    ['cat']
    """
    added: dict[str, None] = {}
    with reading(path, "file of word vectors"):
        entries = _entries(Path(path))
        while len(added) < most and (block := list(itertools.islice(entries, _BLOCK))):
            for (_, word, _), split in zip(block, words_of([word for _, word, _ in block]), strict=True):
                if split == [composed(word).lower()] and split[0] not in vocabulary:
                    added[split[0]] = None
    return list(added)[:most]


def _entries(path: Path) -> Iterator[tuple[str, str, Any]]:
    """Yield the place of each word in a file for errors, the word, and its vector as numbers or strings."""
    return _FORMATS.get(path.suffix, _text_entries)(path)


def _text_entries(path: Path) -> Iterator[tuple[str, str, list[str]]]:
    dim: int | None = None
    count = words = 0
    with open_regular(path, "r", encoding="utf-8-sig", errors="replace", newline="\n") as file:
        for number, line in enumerate(file, 1):
            parts = line.rstrip().split(" ")
            if number == 1 and len(parts) == 2 and all(part.isdecimal() and len(part) < 16 for part in parts):
                count, dim = map(int, parts)
                continue
            if not line.strip():
                continue
            if dim is None:
                dim = len(parts) - 1
            # A few GloVe words contain spaces, so the vector is counted from the right.
            word = " ".join(parts[:-dim]) if dim else ""
            if not word:
                raise DataError(
                    f"{path}, line {number}, must be a word and its numbers, separated by spaces "
                    "(the text format of GloVe and word2vec)."
                )
            words += 1
            yield f"{path}, line {number}", word, parts[-dim:]
    if words < count:
        raise DataError(f"{path} must have {count} words, as its first line says; got {words}. The file is truncated.")


def _binary_entries(path: Path) -> Iterator[tuple[str, str, np.ndarray]]:
    with open_regular(path) as file:
        header = file.readline(100)
        sizes = header.split()
        if header.startswith(_FASTTEXT):
            raise DataError(
                f"{path} must be in the binary format of word2vec; got a model of fastText. Pass its .vec file."
            )
        if len(sizes) != 2 or not all(size.isdigit() and len(size) < 16 for size in sizes):
            raise DataError(f"{path} must be in the binary format of word2vec, with a first line `count dim`.")
        count, dim = (int(size) for size in sizes)
        place = len(header)
        with contextlib.closing(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)) as content:
            for number in range(1, count + 1):
                space = content.find(b" ", place)
                vector = content[space + 1 : space + 1 + 4 * dim]
                if space < 0 or len(vector) < 4 * dim or not dim:
                    raise DataError(
                        f"{path}, word {number} of {count}, must have {dim} numbers. The file is truncated."
                    )
                # Some programs write a line feed behind each vector.
                word = content[place:space].lstrip(b"\n").decode(errors="replace")
                yield f"{path}, word {number}", word, np.frombuffer(vector, "<f4")
                place = space + 1 + 4 * dim


def _archive_entries(path: Path) -> Iterator[tuple[str, str, np.ndarray]]:
    with _numpy_errors(path), np.load(require_regular(path), allow_pickle=False) as arrays:
        missing = {"words", "vectors"} - set(arrays)
        if missing:
            raise DataError(
                f"{path} must have the arrays `words` and `vectors`; it lacks {', '.join(sorted(missing))}."
            )
        words, vectors = arrays["words"], arrays["vectors"]
    yield from _paired(path, list(map(str, words.ravel())), vectors)


def _array_entries(path: Path) -> Iterator[tuple[str, str, np.ndarray]]:
    with _numpy_errors(path):
        vectors = np.load(require_regular(path), mmap_mode="r", allow_pickle=False)
    yield from _paired(path, read_text(path.with_suffix(".txt"), "utf-8-sig").removesuffix("\n").split("\n"), vectors)


@contextlib.contextmanager
def _numpy_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except (ValueError, zipfile.BadZipFile) as error:
        raise DataError(f"{path} must be a file of NumPy without objects ({one_line(error, 120)}).") from error


def _paired(path: Path, words: list[str], vectors: np.ndarray) -> Iterator[tuple[str, str, np.ndarray]]:
    if vectors.ndim != 2 or len(vectors) != len(words) or vectors.dtype.kind not in "fiu":
        found = f"shape {vectors.shape} of {vectors.dtype}"
        raise DataError(f"{path} must have a row of numbers for each of {len(words)} words; got {found}.")
    for number, (word, vector) in enumerate(zip(words, vectors, strict=True), 1):
        yield f"{path}, row {number}", word, vector


# End of a file's name -> reader; other files are text.
_FORMATS: dict[str, Callable[[Path], Iterator[tuple[str, str, Any]]]] = {
    ".bin": _binary_entries,
    ".npz": _archive_entries,
    ".npy": _array_entries,
}


def cooccurrence_vectors(
    ids: np.ndarray,
    offsets: np.ndarray,
    vocabulary_size: int,
    dim: int,
    window: int = 5,
    shift: float = 1.0,
) -> np.ndarray:
    """Factorize the positive pointwise mutual information of words and their neighbours.

    Word2vec's skip-gram with `shift` negative samples implicitly factorizes PMI - log(shift). This function clips that
    matrix at 0 and computes its truncated singular value decomposition U S V^T. The word vectors are U S^(1/2), scaled
    to a mean length of 1. No labels or images are used.

    Args:
        ids: (tokens,) int, the concatenated texts, as returned by `Tokenizer.encode`.
        offsets: (texts + 1,) int; text i is `ids[offsets[i]:offsets[i + 1]]`. Neighbours are in the same text.
        vocabulary_size: number of ids, including padding (0) and unknown (1), at most 20,000.
        dim: size of a vector; entries beyond the rank of the matrix are 0.
        window: maximum distance of neighbours, in words.
        shift: number of negative samples, k of the paper.

    Returns:
        (vocabulary_size, dim) float32; zero for ids 0 and 1 and for words without neighbours. The sign of each
        dimension is fixed, so results are reproducible.

    Raises:
        InvalidArgumentError: for arguments out of range, or if no words are neighbours.

    References:
        Levy, Goldberg. Neural Word Embedding as Implicit Matrix Factorization. NIPS 2014, sections 3 and 4.2.

    Example: in "a dog" and "a cat", dog and cat have the same neighbours.

    >>> vectors = cooccurrence_vectors(np.array([2, 3, 2, 4]), np.array([0, 2, 4]), vocabulary_size=5, dim=2)
    >>> bool(np.allclose(vectors[3], vectors[4]))
    True
    """
    require("dim", dim, Count)
    require("window", window, Count)
    require("shift", shift, Positive)
    if not 2 <= vocabulary_size <= _MAX_WORDS:
        fix = "Keep fewer words in the vocabulary, the most frequent ones."
        raise invalid_argument("vocabulary_size", vocabulary_size, f"2 to {_MAX_WORDS}", fix)
    if len(ids) and not (ids.min() >= 0 and ids.max() < vocabulary_size):
        raise invalid_argument("ids", int(ids.max()), f"ids from 0 to {vocabulary_size - 1}")
    information = _positive_information(_neighbours(ids, offsets, vocabulary_size, window), shift)
    vectors = _factors(information, dim)
    lengths = np.linalg.norm(vectors, axis=1)
    if not lengths.any():
        raise invalid_argument("ids", len(ids), "texts with two known words within the window")
    return (vectors / lengths[lengths > 0].mean()).astype(np.float32)


def _neighbours(ids: np.ndarray, offsets: np.ndarray, size: int, window: int) -> np.ndarray:
    """Return (size, size) float32 counts of how often each two words are neighbours."""
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
    """Return max(0, log(#(w, c) D / (#(w) #(c))) - log(shift)), overwriting the symmetric `counts`."""
    totals = counts.sum(axis=0, dtype=np.float64)
    total = totals.sum()
    for row, number in zip(counts, totals, strict=True):
        (seen,) = row.nonzero()
        row[seen] = np.maximum(np.log(row[seen] * total / (number * totals[seen] * shift)), 0)
    return counts


def _factors(matrix: np.ndarray, dim: int) -> np.ndarray:
    """Return U S^(1/2), (size, dim), of a matrix, the largest singular values first.

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
