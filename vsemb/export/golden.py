"""Golden rows: inputs that a SavedModel is tried with, what it gives for them, and how two answers compare.

Good rows and bad ones, since that a bad row costs its neighbours nothing is part of what is promised.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

#: Values by the name of an input or output, each with the batch as 0th dimension; strings are bytes.
Arrays = dict[str, np.ndarray]

# Results of a search, which two computations may order otherwise where scores are as good as equal.
_RANKED = ("ids", "keys")
# A text of more bytes is a row of many vectors where words have one each.
_LONG = 200


def golden_texts(tokenizer: Any) -> list[bytes]:
    """Returns texts to try an export with: of the vocabulary's words where there is one, and odd ones."""
    words = getattr(getattr(tokenizer, "vocabulary", None), "words", ())
    # Single ones too, since a word may be the name of a class, which is a text of its own.
    known = [words[0], " ".join(words[:7]), words[-1]] if words else []
    odd = ["a dog running on a beach", "zyzzyva", "", " .!? ", "ÜBER " * 300]
    return [text.encode() for text in (*known, *odd)] + [b"a \xff\xfe dog"]


def golden_sets(tokenizer: Any) -> list[bytes]:
    """Returns those of the golden texts that are short, for embeddings of a vector a word."""
    return [text for text in golden_texts(tokenizer) if len(text) <= _LONG]


def golden_trees(tokenizer: Any) -> Arrays:
    """Returns trees to try an export with, and rows that are none: `tokens` and `heads`, padded alike.

    Args:
        tokenizer: a `vsemb.systems.trees.tree_tokenizer.TreeTokenizer`.
    """
    # A vocabulary may be of one word.
    words = (tokenizer.vocabulary.words or ("dog",)) * 6
    longest = tokenizer.max_length + 6
    rows: list[tuple[list[str | bytes], list[int]]] = [
        ([words[0]], [0]),
        ([*words[:6]], [0, 1, 2, 3, 4, 5]),
        ([*words[:5]], [3, 3, 0, 3, 3]),
        ([*words[1:5]], [3, 4, 0, 3]),  # Not projective: the arcs 1-3 and 2-4 cross.
        ([words[2].upper(), words[2].title(), words[2].lower()], [2, 0, 2]),
        (["zyzzyva", b"\xff\xfe"], [2, 0]),
        (["", words[0], words[1]], [0, 2, 0]),  # Padding may come first.
        ([words[number % 6] for number in range(longest)], [*range(longest)]),
        ([], []),
        ([*words[:2]], [2, 1]),
        ([*words[:3]], [0, 3, 2]),
        ([*words[:2]], [0, 0]),
        ([*words[:2]], [0, 3]),
        ([*words[:2]], [0, -1]),
        ([words[0], "", words[1]], [0, 1, 1]),
    ]
    tokens = np.full((len(rows), longest), b"", object)
    heads = np.zeros((len(rows), longest), np.int32)
    for row, (sentence, numbers) in enumerate(rows):
        tokens[row, : len(sentence)] = [word.encode() if isinstance(word, str) else word for word in sentence]
        heads[row, : len(numbers)] = numbers
    return {"tokens": tokens, "heads": heads}


def golden_images() -> list[bytes]:
    """Returns images to try an export with: a JPEG, a PNG with alpha, a truncated one and no image."""
    random = np.random.default_rng(0)
    jpeg = tf.io.encode_jpeg(random.integers(0, 256, (37, 53, 3), dtype=np.uint8)).numpy()
    png = tf.io.encode_png(random.integers(0, 256, (64, 64, 4), dtype=np.uint8)).numpy()
    return [jpeg, b"not an image", png, png[: len(png) // 2], b""]


def golden_pictures(count: int) -> Iterator[bytes]:
    """Yields good images to try an export with, the first two those of `golden_images`.

    Args:
        count: so many; JPEG and PNG in turn, all different.
    """
    jpeg, _, png, *_ = golden_images()
    yield from (jpeg, png)[:count]
    for number in range(2, count):
        random = np.random.default_rng(number)
        # Few large areas of colour, other than noise, which networks tell apart badly.
        pixels = random.integers(0, 256, (4, 5, 3)).astype(np.uint8).repeat(12, axis=0).repeat(12, axis=1)
        yield (tf.io.encode_png if number % 2 else tf.io.encode_jpeg)(pixels).numpy()


def golden_regions() -> Arrays:
    """Returns images and candidate boxes to try an export with, padding and what is no box among them."""
    images = golden_images()
    return {"image_bytes": np.array([*images, images[0]], object), "boxes": _boxes(len(images) + 1)}


def golden_alignments(tokenizer: Any, boxes: bool) -> Arrays:
    """Returns images, texts and affinities to try `align` with, and rows in which one of them is none.

    Args:
        tokenizer: of the model.
        boxes: whether candidate boxes come with the images.
    """
    # One that is known, and the odd ones.
    texts, (jpeg, no_image, png, *_) = golden_texts(tokenizer)[1:], golden_images()
    images = [(jpeg, png)[row % 2] for row in range(len(texts))]
    affinities = np.resize(np.array([0, 0.25, 2, 1e6], np.float32), len(texts) + 3)
    affinities[-2] = -1
    rows = {
        "image_bytes": np.array([*images, no_image, png, jpeg], object),
        "text": np.array([*texts, *texts[:1] * 3], object),
        "affinity": affinities,
    }
    return {**rows, "boxes": _boxes(len(affinities))} if boxes else rows


def _boxes(rows: int) -> np.ndarray:
    """Returns (rows, 5, 4) float32; the last row has one without a height."""
    good = np.array([[0.1, 0.2, 0.5, 0.5], [0.5, 0.4, 0.75, 0.5], [0.3, 0, 0.25, 1]], np.float32)
    none = np.zeros((2, 4), np.float32)
    # Padding may come first, since TensorFlow Serving fills a request up with its own first element.
    kinds = np.stack([np.concatenate([none, good]), np.concatenate([good, none]), np.zeros((5, 4), np.float32)])
    boxes = np.resize(kinds, (rows, 5, 4))
    boxes[-1] = kinds[0]
    boxes[-1, -1, 3] = -0.25
    return boxes


def golden_k(rows: int) -> np.ndarray:
    """Returns how many results each golden row asks a search for: (rows,) int32, zero among them.

    Example:

    >>> golden_k(5).tolist()
    [3, 1, 2, 0, 3]
    """
    return np.resize(np.array([3, 1, 2, 0], np.int32), rows)


def to_json(values: np.ndarray) -> list[Any]:
    """Returns values as TensorFlow Serving's REST API has them: bytes that are no text as {"b64": ...}.

    In sets of vectors, which are mostly padding, a vector of zeros is [].

    Example:

    >>> to_json(np.array([b"dog", bytes([255])], object)), to_json(np.float32([[0.1]]))
    (['dog', {'b64': '/w=='}], [[0.1]])
    """
    if values.ndim > 2 and values.dtype == np.float32:
        shown = [[vector if vector.any() else vector[:0] for vector in row] for row in values]
        return [[to_json(vector) for vector in row] for row in shown]
    if values.ndim > 1:
        return [to_json(row) for row in values]
    if values.dtype == np.float32:
        return [float(str(value)) for value in values]  # The fewest digits that are this float32.
    return [_string(value) if isinstance(value, bytes) else value.item() for value in values]


def _string(value: bytes) -> str | dict[str, str]:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return {"b64": base64.b64encode(value).decode()}


def from_json(values: Any, dtype: str, shape: Sequence[int | None] = ()) -> np.ndarray:
    """Turns `to_json`'s result back.

    Args:
        values: nested lists.
        dtype: a name such as `float32` or `string`.
        shape: sizes, None for those that are open; where there are more than two, the last is known.

    Raises:
        ValueError: for what is no list of such values.
    """
    if not isinstance(values, list):
        raise ValueError("not a list")
    if dtype != "string":
        if len(shape) > 2:
            values = [[vector or [0] * (shape[-1] or 0) for vector in row] for row in values]
        return np.array(values, dtype)
    found = np.array([None] * len(values), object)
    for place, value in enumerate(values):
        if isinstance(value, list):
            rows = [from_json(row, dtype) for row in values]
            return np.stack(rows) if rows else found
        is_text = isinstance(value, str)
        found[place] = value.encode() if is_text else base64.b64decode(value["b64"], validate=True)
    return found


def part(rows: Arrays, row: int) -> Arrays:
    """Returns one row of a batch, as a batch of one."""
    return {name: values[row : row + 1] for name, values in rows.items()}


def compare(wanted: Arrays, got: Arrays, tolerance: float, scale: float = 1.0) -> tuple[float, str | None]:
    """Compares two answers of a signature.

    A row that was asked for alone may have fewer columns than in a batch, where another row wants more
    results of a search: what the narrower one has is compared, and the rest must be empty.

    Args:
        wanted: outputs by name.
        got: outputs by name.
        tolerance: the largest difference allowed, relative to the largest entry.
        scale: the least that differences are relative to.

    Returns:
        The largest relative difference of floats, and what is wrong: a phrase, or None.

    Example:

    >>> one, other = {"embedding": np.float32([[1, 0]])}, {"embedding": np.float32([[1, 0.5]])}
    >>> compare(one, other, 0.1)
    (0.5, 'differs by 5.0e-01 > 1e-01')
    """
    if sorted(wanted) != sorted(got):
        return 0.0, f"gives {', '.join(sorted(got))}, not {', '.join(sorted(wanted))}"
    wanted, got, problem = _same_width(wanted, got)
    if problem:
        return 0.0, problem
    largest = 0.0
    # `valid` last in the alphabet is first here: rows that are valid and should not be differ in all else.
    for name in sorted(wanted, key=lambda name: (name != "valid", name)):
        here, there = wanted[name], got[name]
        if here.dtype == np.float32:
            if not np.isfinite(here).all() or not np.isfinite(there).all():
                # Named as the reader knows them: embeddings, scores.
                return np.inf, f"gives {name.rstrip('s')}s that are not finite"
            if here.size:
                least = 1.0 if name == "boxes" else scale
                difference = float(np.abs(here - there).max()) / max(least, _largest(here))
                largest = max(largest, difference)
            continue
        differs = here != there
        if name in _RANKED and "scores" in wanted:
            nothing = -1 if name == "ids" else b""
            tied = _tied(wanted["scores"], tolerance * scale) | _last(wanted["ids"] >= 0)
            differs &= ~tied | ((here == nothing) != (there == nothing))
        if name == "captions":
            # Two that are as good as equally likely may change places.
            tied = _tied(wanted["log_probs"], tolerance * max(scale, _largest(wanted["log_probs"])))
            same = [sorted(row) == sorted(other) for row, other in zip(here, there, strict=True)]
            differs &= ~(tied & np.array(same, bool)[:, None])
        if name == "regions":
            # Of two regions that fit a word equally well, the scores tell no difference.
            near = np.abs(wanted["scores"] - got["scores"]) <= tolerance * scale
            differs &= ~near | ((here < 0) != (there < 0))
        if np.any(differs):
            if name == "valid":
                return largest, f"finds other rows valid: {there.tolist()}, not {here.tolist()}"
            return largest, f"gives other {name}"
    if largest > tolerance:
        return largest, f"differs by {largest:.1e} > {tolerance:.0e}"
    return largest, None


def _same_width(wanted: Arrays, got: Arrays) -> tuple[Arrays, Arrays, str | None]:
    narrow: tuple[Arrays, Arrays] = ({}, {})
    for name in wanted:
        pair = (wanted[name], got[name])
        shapes = [values.shape for values in pair]
        if pair[0].dtype != pair[1].dtype:
            return wanted, got, f"gives {name} as {pair[1].dtype}, not {pair[0].dtype}"
        if len(shapes[0]) != len(shapes[1]) or shapes[0][:1] != shapes[1][:1]:
            return wanted, got, f"gives {name} of shape {shapes[1]}, not {shapes[0]}"
        if shapes[0] != shapes[1] and ("ids" not in wanted or len(shapes[0]) != 2):
            return wanted, got, f"gives {name} of shape {shapes[1]}, not {shapes[0]}"
        width = min(shape[1] for shape in shapes) if len(shapes[0]) > 1 else None
        for side, values in zip(narrow, pair, strict=True):
            side[name] = values if width is None else values[:, :width]
            if width is not None and name == "ids" and (values[:, width:] >= 0).any():
                return wanted, got, "gives another number of results"
    return *narrow, None


def _largest(values: np.ndarray) -> float:
    return float(np.abs(values).max(initial=0.0))


def _tied(scores: np.ndarray, tolerance: float) -> np.ndarray:
    """Returns where a score is within rounding of its neighbour's: (rows, k) bool."""
    tied = np.zeros(scores.shape, bool)
    if scores.size:
        near = np.abs(np.diff(scores, axis=1)) <= 2 * tolerance
        tied[:, :-1] |= near
        tied[:, 1:] |= near
    return tied


def _last(filled: np.ndarray) -> np.ndarray:
    """Returns where the last result of each row is: (rows, k) bool.

    It may be tied with one that is not shown; its score is compared all the same.
    """
    after = np.zeros_like(filled)
    after[:, :-1] = filled[:, 1:]
    return filled & ~after
