"""Texts that cannot be embedded, and precisions, for every kind of model."""

from __future__ import annotations

import numpy as np
import pytest

from tests.raising import raises_argument
from vsemb.errors import DataError
from vsemb.serving.encoding import EncodingMixin, Rows
from vsemb.similarities import Cosine, Dot, MeanCosine, OrderViolation, Similarity


class Lengths(EncodingMixin):
    """The embedding of a text is its number of bytes."""

    def embed_texts(self, texts: list[str]) -> Rows:
        return np.array([[len(text.encode())] for text in texts], np.float32), np.ones(len(texts), bool)


def test_a_lone_surrogate_names_its_row() -> None:
    texts = ["a red star", "red \ud83d star", "a 😀"]
    with pytest.raises(DataError, match=r"row 1: .*ud83d"):
        Lengths().encode_texts(texts)
    with pytest.raises(DataError, match=r"ud83d"):
        Lengths().encode_texts(texts[1])
    found = Lengths().encode_texts(texts, on_bad="nan", batch_size=1)
    assert found[0] == 10 and np.isnan(found[1]).all() and found[2] == 6


class Directions(EncodingMixin):
    """The embedding of a text of n bytes is the direction of (n, -1, 1, 1, 1, 1, 1, 1); n = 0 is invalid."""

    calls = 0

    def __init__(self, similarity: Similarity | None = None) -> None:
        self.compared_by = similarity

    def embed_texts(self, texts: list[str]) -> Rows:
        self.calls += 1
        rows = np.array([[len(text), -1, 1, 1, 1, 1, 1, 1] for text in texts], np.float32)
        rows /= np.linalg.norm(rows, axis=1, keepdims=True)
        valid = np.array(list(map(bool, texts)))
        return rows * valid[:, None], valid


@pytest.mark.parametrize("similarity", [Cosine(), MeanCosine(4)])
def test_a_precision_is_that_of_each_batch(similarity: Similarity) -> None:
    model, texts = Directions(similarity), ["a", "dog", "on a beach"]
    # 127 / 3 = 42.3; 127 / 10 = 12.7
    wanted = [[127, -127, *[127] * 6], [127, -42, *[42] * 6], [127, -13, *[13] * 6]]
    for batch_size in (1, 2, 256):
        codes = model.encode_texts(texts, precision="int8", batch_size=batch_size)
        assert codes.dtype == np.int8 and codes.tolist() == wanted
        bits = model.encode_texts(texts, precision="ubinary", batch_size=batch_size)
        assert bits.dtype == np.uint8 and bits.tolist() == [[0b10111111]] * 3
    assert model.encode_texts("dog", precision="int8").tolist() == wanted[1]
    np.testing.assert_array_equal(model.encode_texts(texts, precision="float32"), model.encode_texts(texts))
    with pytest.raises(DataError, match="row 1"):
        model.encode_texts(["a", ""], precision="ubinary")


@pytest.mark.parametrize("similarity", [None, Dot(), OrderViolation()])
def test_a_precision_needs_cosines(similarity: Similarity | None) -> None:
    model = Directions(similarity)
    for precision in ("int8", "ubinary"):
        with raises_argument("precision"):
            model.encode_texts(["a"], precision=precision)  # type: ignore[arg-type]
    assert model.calls == 0
    assert model.encode_texts(["a"]).dtype == np.float32


def test_a_precision_without_nan_or_name() -> None:
    model = Directions(Cosine())
    with raises_argument("on_bad"):
        model.encode_texts(["a"], precision="int8", on_bad="nan")
    with raises_argument("precision"):
        model.encode_texts(["a"], precision="binary")  # type: ignore[arg-type]


@pytest.mark.parametrize("rows", [{"a", "b"}, frozenset("ab"), {"a": 1, "b": 2}])
def test_rows_without_an_order_are_refused(rows):
    with raises_argument("texts"):
        Lengths().encode_texts(rows)
    with raises_argument("images"):
        Lengths().encode_images(rows)
