"""TensorFlow, or a stand-in where it is not installed: recipes on image features train under JAX without it.

Import it from here in modules that such a training imports:

    from vsemb.ops.tensorflow import tf
"""

from __future__ import annotations

import contextlib
from types import SimpleNamespace
from typing import Any

import keras

from vsemb.errors import VsembError

__all__ = ["tf"]


class _Missing:
    """Stands in for TensorFlow: modules that name its types and decorators can be imported; a use is an error."""

    Module = Tensor = object
    string = int32 = float32 = None
    autograph = SimpleNamespace(experimental=SimpleNamespace(do_not_convert=lambda function: function))

    @staticmethod
    def function(**_: Any) -> Any:
        return lambda function: function

    @staticmethod
    def TensorSpec(*_: Any, **__: Any) -> None:
        return None

    def __bool__(self) -> bool:
        return False

    def __getattr__(self, name: str) -> Any:
        raise VsembError(
            f"TensorFlow must be installed for this (tf.{name}); it is not. Run `pip install tensorflow`, or continue "
            "on a machine that has it. Under JAX alone, recipes train on image features and words or characters."
        )


try:
    import tensorflow as tf
except ModuleNotFoundError:
    tf: Any = _Missing()  # type: ignore[no-redef]
else:
    if keras.backend.backend() != "tensorflow":
        # It reads strings and files here; the memory of GPUs is the backend's.
        with contextlib.suppress(RuntimeError):  # It runs already, with the GPUs it was given.
            tf.config.set_visible_devices([], "GPU")
