"""Compiled functions compute what the plain ones do, quietly, once a shape; checks of rows; flags of the processor."""

from __future__ import annotations

import os

import numpy as np
import pytest
import tensorflow as tf
from keras import ops

from vsemb.errors import InvalidArgumentError
from vsemb.ops import backend
from vsemb.ops.backend import compiled, require_rows

X86 = "processor\t: 0\nflags\t\t: fpu avx2 {flag}\n\nprocessor\t: 1\nflags\t\t: fpu\n"


# First, since TensorFlow says once a process that it compiles.
def test_nothing_is_printed_and_standard_error_still_works(capfd: pytest.CaptureFixture[str]) -> None:
    assert float(compiled(lambda x: ops.sum(x))(np.ones(3, np.float32))) == 3.0
    os.write(2, b"still here")
    assert capfd.readouterr() == ("", "still here")


def test_it_computes_the_same_for_every_shape() -> None:
    @compiled
    def function(x):
        return ops.sum(ops.square(x), axis=0)

    for rows in (1, 2, 7):
        x = np.random.default_rng(rows).normal(size=(rows, 3)).astype(np.float32)
        np.testing.assert_allclose(function(x), (x * x).sum(0), rtol=1e-6)


def test_it_is_traced_a_few_times_and_not_for_each_call() -> None:
    calls = []

    @compiled
    def function(x):
        calls.append(x.shape)
        return x + 1

    for rows in (1, 1, 2, 3, 4, 5, 6, 7, 8):
        function(np.zeros((rows, 2), np.float32))
    assert len(calls) <= 3


@pytest.mark.parametrize("graph", [False, True])
def test_the_largest_wrong_value_is_named(graph: bool) -> None:
    def check(right, values):
        return require_rows(ops.ones(2), right, "`ids` must be known", values)

    error: type[Exception] = InvalidArgumentError
    if graph:
        check, error = tf.function(check, autograph=False), tf.errors.InvalidArgumentError
    assert check(tf.constant([True, True, True]), tf.constant([9, 4, 7])).numpy().tolist() == [1, 1]
    assert check(tf.constant(True), tf.constant(9)).numpy().tolist() == [1, 1]
    for right, values in (([True, False, False], [9, 4, 7]), (False, 7)):
        with pytest.raises(error, match=r"ids.*\b7\b"):
            check(tf.constant(right), tf.constant(values))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (X86.format(flag="avx512_bf16"), {"fpu", "avx2", "avx512_bf16"}),
        ("processor\t: 0\nFeatures\t: fp asimd bf16\n", {"fp", "asimd", "bf16"}),
        ("model name: none\n", set()),
        (None, set()),
    ],
    ids=["x86", "arm", "no-flags", "no-file"],
)
def test_processor_flags(text: str | None, expected: set[str], tmp_path) -> None:
    path = tmp_path / "cpuinfo"
    if text is not None:
        path.write_text(text)
    assert backend.processor_flags(path) == expected


@pytest.mark.parametrize("flag", ["avx512_bf16", "amx_bf16", "bf16", "avx2"])
def test_what_multiplies_bfloat16(flag: str, monkeypatch) -> None:
    monkeypatch.setattr(backend, "processor_flags", lambda: {"fpu", flag})
    assert backend.multiplies_bfloat16.__wrapped__() == (flag != "avx2")
