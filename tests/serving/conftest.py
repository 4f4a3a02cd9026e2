"""Tiny SavedModels that need no training, and a server of them."""

from __future__ import annotations

from pathlib import Path

import pytest
import tensorflow as tf

from vsemb.exporting.versions import publishing
from vsemb.serving.server import Server


def _spec(dtype: tf.DType, *shape: int | None, name: str) -> tf.TensorSpec:
    return tf.TensorSpec(shape, dtype, name=name)


class Everything(tf.Module):
    """A signature for each case of the API."""

    @tf.function(autograph=False, input_signature=[_spec(tf.float32, None, name="x")])
    def half_plus_two(self, x):
        return {"y": x / 2 + 2}

    @tf.function(autograph=False, input_signature=[_spec(tf.string, None, name="text")])
    def strings(self, text):
        return {"upper": tf.strings.upper(text), "raw_bytes": text}

    @tf.function(
        autograph=False, input_signature=[_spec(tf.float32, None, 2, name="a"), _spec(tf.int32, None, name="b")]
    )
    def two(self, a, b):
        whole = tf.cast(b, tf.int64)
        return {"sum": tf.reduce_sum(a, 1) + tf.cast(b, tf.float32), "big": whole + 2**53, "odd": b % 2 == 1}

    @tf.function(autograph=False, input_signature=[_spec(tf.float32, None, name="x")])
    def reciprocal(self, x):
        return {"y": 1 / x}

    @tf.function(autograph=False, input_signature=[_spec(tf.float32, None, name="x")])
    def picky(self, x):
        tf.debugging.assert_non_negative(x, "negative input")
        return {"y": tf.sqrt(x)}

    @tf.function(autograph=False, input_signature=[_spec(tf.float32, name="x")])
    def scalar(self, x):
        return {"y": x * 2}

    @tf.function(autograph=False, input_signature=[_spec(tf.int32, None, name="k")])
    def widest(self, k):
        # As wide as the largest k of the batch: a row depends on its neighbours. Bounded, for fuzzed requests.
        return {"row": tf.sequence_mask(tf.minimum(k, 1000), dtype=tf.int32)}


SIGNATURES = ("strings", "two", "reciprocal", "picky", "scalar", "widest")


class Plus(tf.Module):
    """Adds a constant, which tells versions apart."""

    def __init__(self, constant: float) -> None:
        super().__init__()
        self.constant = tf.Variable(float(constant))

    @tf.function(autograph=False, input_signature=[_spec(tf.float32, None, name="x")])
    def __call__(self, x):
        return {"y": x + self.constant}


def publish_plus(base: Path, constant: float, version: int | None = None) -> Path:
    """Writes a version that adds `constant` and returns its directory."""
    with publishing(base, version) as publication:
        module = Plus(constant)
        tf.saved_model.save(module, str(publication.temporary), {"serving_default": module.__call__})
    assert publication.path is not None
    return publication.path


@pytest.fixture(scope="session")
def everything(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model's directory with one version of `Everything`."""
    base = tmp_path_factory.mktemp("models") / "everything"
    module = Everything()
    functions = {name: getattr(module, name) for name in SIGNATURES}
    tf.saved_model.save(module, str(base / "1"), {"serving_default": module.half_plus_two, **functions})
    return base


@pytest.fixture(scope="session")
def server(everything: Path):
    """A server of `everything`, shared by tests that leave it as it is."""
    with Server({"everything": everything}, port=0, rest_port=0, poll=0, labels={"stable": 1}) as server:
        yield server


@pytest.fixture
def plus(tmp_path: Path) -> Path:
    """A model's directory with one version, which adds 100."""
    return publish_plus(tmp_path / "plus", 100).parent
