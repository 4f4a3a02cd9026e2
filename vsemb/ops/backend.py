"""Features of the backend and the hardware: XLA for pure functions, graphs, GPUs, products of bfloat16."""

from __future__ import annotations

import contextlib
import functools
import os
import re
from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import keras
import numpy as np

from vsemb.errors import InvalidArgumentError

# Flags by which Linux names processors that multiply bfloat16 in hardware: x86-64 (two kinds) and ARM.
_MULTIPLIES_BFLOAT16 = {"avx512_bf16", "amx_bf16", "bf16"}


def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile a pure function of tensors with XLA, once per input shape.

    This is faster for loops of many small elementwise steps, whose results XLA does not write to memory one by one. It
    is not faster for functions that consist mainly of matrix products.

    Args:
        function: from tensors to tensors, written with `keras.ops`, without state.

    Returns:
        A function of the same arguments; `function` itself on a backend without XLA.

    Example:

    >>> from keras import ops
    >>> float(compiled(lambda x: ops.sum(x * x))(ops.ones(3)))
    3.0
    """

    @functools.wraps(function)
    def call(*arguments: Any) -> Any:
        return _compile(function)(*arguments)

    return call


def compiled_with(function: Callable[..., Any], variables: Sequence[keras.Variable]) -> Callable[..., Any]:
    """Compile a function of tensors that reads Keras variables, for backends whose compiled functions are pure.

    Args:
        function: reads the variables and changes none.
        variables: the variables; later changes of their values are used.

    Returns:
        A function of the same arguments.

    Example:

    >>> factor = keras.Variable(2.0)
    >>> double = compiled_with(lambda x: x * factor, [factor])
    >>> float(double(keras.ops.ones(())))
    2.0
    """

    def pure(values: list[Any], *arguments: Any) -> Any:
        with keras.StatelessScope(zip(variables, values, strict=True)):
            return function(*arguments)

    run = compiled(pure)
    return lambda *arguments: run([variable.value for variable in variables], *arguments)


def in_graph() -> bool:
    """Return whether TensorFlow is tracing a graph, which is compiled once and run often.

    Example:

    >>> in_graph()
    False
    """
    if keras.backend.backend() != "tensorflow":
        return False
    import tensorflow as tf

    return not tf.executing_eagerly()


def outside_graphs() -> contextlib.AbstractContextManager[None]:
    """Return a context outside of the graph that TensorFlow is tracing, if any.

    Weights that are loaded while a graph is traced would not be in the model, which would keep its random ones.

    Example:

    >>> with outside_graphs():
    ...     in_graph()
    False
    """
    if not in_graph():
        return contextlib.nullcontext()
    import tensorflow as tf

    return tf.init_scope()


_PORTABLE = ContextVar("portable", default=False)


@contextlib.contextmanager
def portable_graphs() -> Iterator[None]:
    """Trace graphs of plain operations in this context, for converters to ONNX and LiteRT.

    Functions with faster operations of TensorFlow, such as loops over packed rows, then use Keras' operations.
    Results are equal up to rounding.

    Example:

    >>> with portable_graphs():
    ...     is_portable()
    True
    """
    token = _PORTABLE.set(True)
    try:
        yield
    finally:
        _PORTABLE.reset(token)


def is_portable() -> bool:
    """Return whether operations must be plain ones, see `portable_graphs`."""
    return _PORTABLE.get()


def require_rows(x: Any, right: Any, rule: str, values: Any) -> Any:
    """Return a tensor, or fail in the graph if what a step was given is wrong.

    Args:
        x: the tensor, which the rest of the step needs. It becomes NaN in a step that XLA compiles, which cannot fail.
        right: bool (n,), or a scalar.
        rule: the argument and what it must be.
        values: whole numbers that were given, as many as `right`.

    Raises:
        InvalidArgumentError: outside of graphs. In them, TensorFlow's error of that name, with the rule and values.

    Example:

    >>> require_rows(keras.ops.ones(2), keras.ops.array([True]), "`text` must be known", keras.ops.array([3])).shape
    TensorShape([2])
    """
    right, values = keras.ops.reshape(right, (-1,)), keras.ops.reshape(values, (-1,))
    if in_graph():
        import tensorflow as tf

        # The largest of the wrong ones, as a replica may have no rows to pick one from.
        wrong = tf.reduce_max(tf.where(right, values.dtype.min, values))
        with tf.control_dependencies([tf.debugging.Assert(tf.reduce_all(right), [f"{rule}; got", wrong])]):
            # XLA leaves checks out.
            return tf.where(tf.reduce_all(right), x, tf.constant(float("nan"), x.dtype))
    try:
        right, values = keras.ops.convert_to_numpy(right), keras.ops.convert_to_numpy(values)
    except Exception:  # JAX has a class of its own for values that are not known yet.
        return keras.ops.where(keras.ops.all(right), x, float("nan"))
    if not right.all():
        raise InvalidArgumentError(f"{rule}; got {values[~right].max()}.")
    return x


def holds_strings(values: Any) -> bool:
    """Tells whether a tensor, its specification, an array or a list holds strings or bytes.

    Example:

    >>> holds_strings(["a dog"]), holds_strings([[2, 3]])
    (True, False)
    """
    dtype = getattr(values, "dtype", None)
    dtype = np.asarray(values).dtype if dtype is None else dtype
    return getattr(dtype, "kind", "") in set("USO") or getattr(dtype, "name", dtype) == "string"


@functools.cache
def _compile(function: Callable[..., Any]) -> Callable[..., Any]:
    backend = keras.backend.backend()
    if backend == "tensorflow":
        import tensorflow as tf

        _say_it_once(tf)
        # Shapes that change make one graph of unknown shape, which XLA compiles for each it meets.
        return tf.function(function, jit_compile=True, autograph=False, reduce_retracing=True)
    if backend == "jax":
        import jax

        return jax.jit(function)
    return function


@functools.cache
def _say_it_once(tf: Any) -> None:
    """Lets TensorFlow log that it uses XLA, which it does once and at no level that can be set, unseen."""
    with tf.init_scope(), open(os.devnull, "wb") as nowhere:
        kept = os.dup(2)
        os.dup2(nowhere.fileno(), 2)
        try:
            tf.function(lambda: tf.zeros([]), jit_compile=True)()
        finally:
            os.dup2(kept, 2)
            os.close(kept)


def has_gpu() -> bool:
    """Tells whether the TensorFlow backend computes on a GPU."""
    import tensorflow as tf

    return bool(tf.config.list_logical_devices("GPU"))


@functools.cache
def multiplies_bfloat16() -> bool:
    """Tells whether what the backend computes on multiplies bfloat16 faster than float32.

    GPUs do from compute capability 8.0 on; processors by their flags (read on Linux only).
    """
    if keras.backend.backend() == "jax":
        import jax

        device = jax.devices()[0]
        if device.platform != "cpu":
            return float(getattr(device, "compute_capability", 8)) >= 8
    else:
        import tensorflow as tf

        gpus = tf.config.list_physical_devices("GPU")
        if gpus:
            capabilities = (tf.config.experimental.get_device_details(gpu) for gpu in gpus)
            return all(details.get("compute_capability", (0, 0)) >= (8, 0) for details in capabilities)
    return bool(_MULTIPLIES_BFLOAT16 & processor_flags())


def processor_flags(path: Path = Path("/proc/cpuinfo")) -> set[str]:
    """Returns the flags that Linux lists for the first processor; nothing on other systems.

    Args:
        path: the file with the list.
    """
    try:
        flags = re.search(r"^(?:flags|Features)\s*:(.*)$", path.read_text(encoding="utf-8"), re.MULTILINE)
    except OSError:
        return set()
    return set(flags[1].split()) if flags else set()
