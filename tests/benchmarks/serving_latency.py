"""`encode_text` of a SavedModel beside the Keras model that it was made of; a part of `serving.py`."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tests.benchmarks.serving_cases import COLOURS, SHAPES, TOLERANCE
from vsemb.runs.run import Run


def measure_latency(path: Path, run: Run, rounds: int = 15) -> dict[str, Any]:
    """Measures `encode_text` in this process, from strings to a NumPy array, all ways in turns."""
    function = tf.saved_model.load(str(path)).signatures["encode_text"]
    model, tokenizer = run.model, run.tokenizer
    compiled = run.encoders(images=False).encode_text
    graph = tf.Graph()
    with graph.as_default():
        session = tf.compat.v1.Session(graph=graph)
        definition = tf.compat.v1.saved_model.load(session, ["serve"], str(path)).signature_def["encode_text"]
        # What TensorFlow's C library runs, and so TensorFlow Serving: fed and fetched by name.
        plain = session.make_callable(
            [definition.outputs["embedding"].name], feed_list=[definition.inputs["text"].name]
        )
    ways: dict[str, Callable[[list[bytes]], np.ndarray]] = {
        "SavedModel, signature": lambda texts: function(text=tf.constant(texts))["embedding"].numpy(),
        "SavedModel, session": lambda texts: plain(np.array(texts, object))[0],
        "Keras, called": lambda texts: keras.ops.convert_to_numpy(model.encode_texts(tokenizer(tf.constant(texts)))),
        "Keras, predict": lambda texts: model.predict({"text": tokenizer(tf.constant(texts))}, verbose=0)["text"],
        # The very functions that were exported, before they were.
        "Keras, one tf.function": lambda texts: compiled(tf.constant(texts))["embedding"].numpy(),
    }
    generator = np.random.default_rng(1)
    report: dict[str, Any] = {}
    for batch, calls in ((1, 20), (64, 5)):
        texts = [
            f"a {generator.choice(COLOURS)} ring beside a {generator.choice(SHAPES)}".encode() for _ in range(batch)
        ]
        reference = ways["SavedModel, signature"](texts)
        times: dict[str, list[float]] = {name: [] for name in ways}
        for way in ways.values():
            np.testing.assert_allclose(way(texts), reference, atol=TOLERANCE)
        for _ in range(rounds):
            for name, way in ways.items():
                begun = time.perf_counter()
                for _ in range(calls):
                    way(texts)
                times[name].append((time.perf_counter() - begun) / calls)
        report[str(batch)] = {}
        for name, seconds in times.items():
            ratios = np.array(seconds) / times["SavedModel, signature"]
            report[str(batch)][name] = {
                "milliseconds": round(1e3 * float(np.median(seconds)), 3),
                "ratio": round(float(np.median(ratios)), 2),
                "ratio_quartiles": [round(float(q), 2) for q in np.percentile(ratios, (25, 75))],
            }
    session.close()
    return report
