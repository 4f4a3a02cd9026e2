"""Tokenizers as files of the library tokenizers: the ids of the graph, on odd texts too."""

from __future__ import annotations

import json
import unicodedata

import numpy as np
import pytest
import tensorflow as tf

from tests.text.test_ngrams import ODD
from tests.text.test_tokenizers import odd_texts
from vsemb.text import CharacterTokenizer, Vocabulary, WordTokenizer
from vsemb.text.ngrams import NGramTokenizer
from vsemb.text.subwords import BPE, BPETokenizer, SentencePiece, UnigramTokenizer, WordPiece, WordPieceTokenizer
from vsemb.text.tokenizers import Tokenizer

tokenizers = pytest.importorskip("tokenizers", reason="the extra onnx is not installed")

CAPTIONS = [
    "A man's dog doesn't run; it's the men’s ball.",
    "n'n'n O'Neill rock'n'roll dogs' 'quoted' a's's",
    "ΟΔΥΣΣΕΥΣ, ΑΣ' ΑΣ1 Σ aΣ İstanbul ǅ ß ẞ",
    "I ❤️ 3️⃣ red\u00adbrown cafe\u0301 ＡＢＣ Ⅷ \u2019s",
    "walking talking walks talks walked a cat and a dog on the beach",
    *ODD,
]
MADE = {
    "words": WordTokenizer(Vocabulary.from_captions(CAPTIONS), max_length=12),
    "n-grams": NGramTokenizer(Vocabulary.from_captions(CAPTIONS), max_length=12),
    "characters": CharacterTokenizer(max_length=50),
    "wordpiece": WordPieceTokenizer(WordPiece(vocabulary_size=300).learn(CAPTIONS), max_length=30),
    "unigram": UnigramTokenizer(SentencePiece(vocabulary_size=200).learn(CAPTIONS), max_length=30),
    "bpe": BPETokenizer(BPE(vocabulary_size=200).learn(CAPTIONS), max_length=30),
}


def is_old(text: str) -> bool:
    """Whether Python's version of Unicode has all characters; of newer ones, the libraries know different ones."""
    return not any(unicodedata.category(character) == "Cn" for character in text)


@pytest.mark.parametrize("made", MADE.values(), ids=MADE)
def test_the_library_gives_the_ids_of_the_graph(made: Tokenizer) -> None:
    opened = tokenizers.Tokenizer.from_str(json.dumps(made.to_tokenizer_json()))
    texts = [*CAPTIONS, *(data.decode(errors="replace") for data in odd_texts(300))]
    # Longer words and texts are in the module's list of differences.
    texts = [
        text for text in texts if is_old(text) and len(text) < 1000 and max(map(len, text.split()), default=0) <= 100
    ]
    assert len(texts) > 100
    wanted = made.word_ids(made(tf.constant(texts)).numpy())
    found = np.zeros_like(wanted)
    for row, encoding in zip(found, opened.encode_batch(texts), strict=True):
        ids = encoding.ids
        assert not any(ids[row.size :])
        row[: len(ids)] = ids[: row.size]
    np.testing.assert_array_equal(found, wanted)
