"""A tiny model of dependency trees, not trained, shared by the tests of what is exported and served."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import keras
import numpy as np

DIM = 6
WORDS = ["the", "dog", "runs", "Paris", "a", "red", "ball"]
#: Raw texts and the trees that `parse` makes of them.
TEXTS = ["The dog runs", "a red ball", "the dog runs in Paris"]


def chain(text: str) -> tuple[list[str], list[int]]:
    """Returns a text's words, each hanging on the next; the last is the root."""
    words = text.split()
    return words, [*range(2, len(words) + 1), 0]


def parse(texts: Sequence[str]) -> list[str]:
    """Parses by `chain`."""
    return ["\n".join(f"{word}\t{head}" for word, head in zip(*chain(text), strict=True)) for text in texts]


def tree_parts(similarity: str = "dot", parse: Any = None, **options: Any):
    """Returns a model and its text input; options are those of the encoder."""
    from vsemb.encoders import ImageEncoder, WordEmbedding
    from vsemb.models import DualEncoder
    from vsemb.systems.trees.signature import TreeInput
    from vsemb.systems.trees.tree_lstm import TreeLSTMEncoder
    from vsemb.systems.trees.tree_tokenizer import TreeTokenizer
    from vsemb.text import Vocabulary

    keras.utils.set_random_seed(6)
    tokenizer = TreeTokenizer(Vocabulary(WORDS), max_length=9)
    words = WordEmbedding(len(tokenizer.vocabulary), 5, dtype=options.get("dtype"))
    text = TreeLSTMEncoder(words, DIM, units=4, **options)
    model = DualEncoder(ImageEncoder(DIM), text, similarity)
    model.build({"image": (None, 8), "text": (None, None, 2)})
    return model, TreeInput(tokenizer, parse)


def tree_corpus(items: int = 5):
    """Returns items to search among."""
    from vsemb.exporting import Corpus

    vectors = np.random.default_rng(1).normal(size=(items, DIM)).astype(np.float32)
    return Corpus(vectors, np.arange(items) + 100, [f"image {number}" for number in range(items)])
