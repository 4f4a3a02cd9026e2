"""The measure of arithmetic, on embeddings in which it is exact."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import tensorflow as tf

from tests.benchmarks.arithmetic import measure, queries_of
from vsemb.similarities import Cosine

WORDS = ["red", "blue", "circle", "star", "ring"]
LABELS = [["red circle"], ["red circle", "blue ring"], ["blue circle"], ["blue star"], ["red ring"], ["blue ring"]]


def embedded(labels: list[str]) -> np.ndarray:
    counts = np.array([[" ".join(each).split().count(word) for word in WORDS] for each in labels], np.float32)
    return counts / np.maximum(np.linalg.norm(counts, axis=1, keepdims=True), 1e-6)


def test_queries_have_an_answer_and_one_object() -> None:
    shown = {0: ("red", "circle"), 2: ("blue", "circle"), 3: ("blue", "star")}
    assert [query[:3] for query in queries_of(shown, 1)] == [(2, "circle", "star"), (3, "star", "circle")]


@pytest.mark.parametrize(("part", "count"), [(0, 4), (1, 8)])
def test_exact_embeddings(part: int, count: int) -> None:
    def encode_texts(texts: list[str]) -> tf.Tensor:
        return tf.constant(embedded([[text] for text in texts]))

    model = SimpleNamespace(similarity=Cosine(), encode_texts=encode_texts)
    run = SimpleNamespace(model=model, tokenizer=lambda texts: [text.decode() for text in texts.numpy()])
    split = SimpleNamespace(objects=[[{"label": label} for label in labels] for labels in LABELS])
    found = measure(run, split, embedded(LABELS), part)
    # Colours: circles 2, rings 2. Shapes: red circle and ring 2; each of three blue ones to two others, 6.
    assert found["queries"] == count
    assert found["right"]["text of the answer"] == [100.0, 100.0]
    assert found["right"]["image alone"][0] < 100.0
    # Exact where the words have unit length and the image has not: image - red + blue is 0.71 of both, less and plus 1.
    assert found["right"]["image - word + word"][1] == 100.0
    assert found["chance"] == pytest.approx(100 / 5)
