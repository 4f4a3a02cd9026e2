"""Texts that cannot be embedded, for every kind of model."""

from __future__ import annotations

import numpy as np
import pytest

from vsemb.errors import DataError
from vsemb.serving.encoding import EncodingMixin, Rows


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
