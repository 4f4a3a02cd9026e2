"""Words and their n-grams: the graph against Python on odd texts, what counts as known, the recipe's part."""

from __future__ import annotations

import unicodedata
import zlib
from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.raising import raises_argument
from tests.text.test_normalize import random_texts
from vsemb.text import Vocabulary, tokenizers
from vsemb.text.ngrams import MOST, NGramReader, NGrams, NGramTokenizer, characters_of, ngrams_of

ODD = [
    "Cats and dogs, skateboarders!",
    "",
    "?!",
    "a i 犬 ก",
    "हिन्दीवाला लड़का किताब पढ़ रहा है",
    "สุนัขสีแดงวิ่งบนชายหาด",
    "🐶👩‍👩‍👧 ❤️ x\u20e3",
    unicodedata.normalize("NFD", "Tiếng Việt rất đẹp, người chạy"),
    "\u0301stray mark, e\u0301\u0323\u0301",
    "man's don't O'Neill's",
    "ab" * 3000,
    "A\u00adB \ue000 İstanbul ǅ ß",
]
KNOWN = ["cat", "dog", "skateboard", "a", "犬", "हिन्दी", "लड़का", "สุนัขสี", "tiếng", "việt", "'s", "straße", "ababab"]


def tokenizer(**options: int) -> NGramTokenizer:
    return NGramTokenizer(Vocabulary(KNOWN), **options)


def reference(texts: list[str], built: NGramTokenizer) -> list[list[list[int]]]:
    """Tokens by a slow loop: characters with their marks, all n-grams of known words, and their hashes."""

    def grams(word: str) -> list[str]:
        units: list[str] = []
        for character in f"<{word[:100]}>":
            if unicodedata.category(character).startswith("M") and units:
                units[-1] += character
            else:
                units.append(character)
        sizes = range(built.longest, built.shortest - 1, -1)
        return ["".join(units[i : i + n]) for n in sizes for i in range(len(units)) if i + n <= len(units)]

    ids = built.vocabulary.ids
    known = {gram for word in ids for gram in grams(word)}
    tokens = []
    for text in texts:
        row = []
        for word in built.split(text):
            numbers = [1 + zlib.crc32(gram.encode()) % built.buckets for gram in grams(word) if gram in known][:MOST]
            row.append([ids.get(word, 1), *numbers, *[0] * (MOST - len(numbers))])
        tokens.append(row)
    return tokens


@pytest.mark.parametrize("options", [{}, {"shortest": 1, "longest": 2}, {"shortest": 4, "longest": 4, "buckets": 3}])
def test_the_graph_is_the_slow_loop_on_odd_texts(options: dict[str, int]) -> None:
    built = tokenizer(**options)
    assert built.ragged(tf.constant(ODD)).to_list() == reference(ODD, built)


def test_the_graph_is_the_slow_loop_on_random_texts() -> None:
    texts = random_texts()[::10]
    learned = NGrams().learn(texts[:100])
    built = NGramTokenizer(learned)
    assert built.ragged(tf.constant(texts)).to_list() == reference(texts, built)


def test_padding_limits_and_no_texts() -> None:
    built = tokenizer(max_length=2)
    padded = built(tf.constant(ODD))
    assert padded.shape == (len(ODD), 2, 1 + MOST) and padded.dtype == tf.int32
    assert not padded.numpy()[1].any()
    assert built(tf.constant([""])).shape == (1, 1, 1 + MOST)
    assert built(tf.constant([], tf.string)).shape == (0, 1, 1 + MOST)
    ids, offsets = built.encode(ODD)
    assert ids.shape == (offsets[-1], 1 + MOST) and offsets.tolist()[:4] == [0, 2, 2, 2]
    assert built.encode([])[0].shape == (0, 1 + MOST)


def test_a_long_word_keeps_its_longest_n_grams() -> None:
    word = "abcdefghijklmnopqrst"
    built = NGramTokenizer(Vocabulary([word]))
    grams = ngrams_of(word, 3, 6)
    assert len(grams) == 17 + 18 + 19 + 20
    assert built.token(word)[1:] == [built.known_grams[gram] for gram in grams[:MOST]]
    assert built([word]).numpy()[0, 0].tolist() == built.token(word)


def test_canonically_equal_texts_have_the_same_tokens() -> None:
    built = tokenizer()
    texts = ["Tiếng Việt", "लड़का"]
    forms = [[unicodedata.normalize(form, text) for text in texts] for form in ("NFC", "NFD")]
    assert np.array_equal(*(built(form).numpy() for form in forms))
    assert characters_of("लड़का") == ["ल", "ड़", "का"]


def test_whole_composed_and_not_known() -> None:
    built = tokenizer()
    tokens = built(tf.constant(["dog dogs xyzzy", "dog"]))
    assert built.is_known(tokens).numpy().tolist() == [[True, True, False], [True, False, False]]
    assert built.is_whole(tokens).numpy().tolist() == [[True, False, False], [True, False, False]]
    assert np.array_equal(built.is_known(tokens.numpy()), built.is_known(tokens))
    reader = NGramReader(Vocabulary(KNOWN), 3, 6)
    assert [reader.knows(word) for word in ("Dog", "dogs", "xyzzy", unicodedata.normalize("NFD", "việt"))] == [
        *(True, True, False, True)
    ]


def test_every_word_of_one_letter_has_an_n_gram() -> None:
    assert ngrams_of("a", 3, 6) == ["<a>"] and ngrams_of("की", 3, 6) == ["<की>"]


def test_without_tensorflow_tokens_are_those_of_the_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    built = tokenizer(max_length=3)
    expected = built.encode(ODD)
    monkeypatch.setattr(tokenizers, "tf", None)
    for mine, graph in zip(built.encode(ODD), expected, strict=True):
        assert np.array_equal(mine, graph) and mine.dtype == graph.dtype


def test_saved_with_a_model() -> None:
    built = tokenizer(buckets=50, shortest=2, longest=3)
    stored = keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(built))
    assert np.array_equal(stored(ODD).numpy(), built(ODD).numpy())


@pytest.mark.slow
def test_saved_in_a_graph(tmp_path: Path) -> None:
    built = tokenizer(buckets=50, shortest=2, longest=3)
    module = tf.Module()
    module.tokenizer = built
    module.tokens = tf.function(built.__call__, input_signature=[tf.TensorSpec([None], tf.string)])
    tf.saved_model.save(module, str(tmp_path))
    assert np.array_equal(tf.saved_model.load(str(tmp_path)).tokens(tf.constant(ODD)).numpy(), built(ODD).numpy())
    kinds = {operation.type for operation in module.tokens.get_concrete_function().graph.get_operations()}
    # Serving has no operations of other libraries, whose names have a prefix.
    assert not any(">" in kind or "Sentencepiece" in kind for kind in kinds)


def test_the_part_learns_frequent_words_and_checks_its_sizes() -> None:
    part = NGrams(min_count=2, buckets=40, shortest=2, longest=4, max_length=5)
    vocabulary = part.learn(["a dog", "a dogs"])
    assert vocabulary.words == ("a",) and vocabulary.seen == 3
    built = part.build(vocabulary)
    assert (built.buckets, built.shortest, built.longest, built.max_length) == (40, 2, 4, 5)
    assert part.ngram_buckets == 40 and built.grams_of_words().shape == (3, MOST)
    for make in (lambda: NGrams(shortest=4, longest=3), lambda: tokenizer(shortest=4, longest=3)):
        with raises_argument("shortest"):
            make()
