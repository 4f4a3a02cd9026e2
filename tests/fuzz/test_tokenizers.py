"""Any text and any bytes: ids, the same ones eagerly, in a graph and in a SavedModel."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st

from vsemb.text.tokenizers import CharacterTokenizer, Tokenizer, WordTokenizer
from vsemb.text.vocabulary import Vocabulary

TEXTS = st.lists(
    st.one_of(
        st.text(max_size=40).map(lambda text: text.encode("utf-8", "replace")),
        st.binary(max_size=40),
        st.sampled_from(["", " ", "a" * 5000, "dog " * 99, "İ", "ß", "e\u0301", "👩‍👩‍👧", "\u202edog"]).map(str.encode),
    ),
    min_size=1,
    max_size=4,
)


@pytest.fixture(scope="module", params=["words", "characters"])
def forms(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory):
    """A tokenizer, and its signature in a SavedModel."""
    words = request.param == "words"
    tokenizer: Tokenizer = WordTokenizer(Vocabulary(["a", "dog", "é"])) if words else CharacterTokenizer()
    module = tf.Module()
    module.tokenizer = tokenizer
    module.ids = tf.function(tokenizer.__call__, autograph=False, input_signature=[tf.TensorSpec([None], tf.string)])
    path = str(tmp_path_factory.mktemp("saved") / "model")
    tf.saved_model.save(module, path)
    return tokenizer, module, tf.saved_model.load(path)


@pytest.mark.slow
@given(texts=TEXTS)
def test_ids_are_the_same_everywhere(forms, texts: list[bytes]) -> None:
    tokenizer, module, saved = forms
    ids = tokenizer(tf.constant(texts)).numpy()
    assert len(ids) == len(texts) and ids.shape[1] <= tokenizer.max_length and ids.min(initial=0) >= 0
    np.testing.assert_array_equal(ids, module.ids(tf.constant(texts)))
    np.testing.assert_array_equal(ids, saved.ids(tf.constant(texts)))
    for row, text in enumerate(texts):
        alone = tokenizer(tf.constant([text])).numpy()[0]
        np.testing.assert_array_equal(np.trim_zeros(ids[row], "b"), np.trim_zeros(alone, "b"))
