"""Objects configured by their constructor: ranges, what bases take, nested objects, layers built once."""

from __future__ import annotations

import keras
import pytest

from tests.contract import check_config
from vsemb.configured import Configured, build_layers, uniform
from vsemb.errors import InvalidArgumentError
from vsemb.parts import Count, Share


@keras.saving.register_keras_serializable("tests")
class Base(Configured, keras.layers.Layer):
    def __init__(self, size: Count, share: Share = 0.5, **kwargs) -> None:
        super().__init__(**kwargs)
        self.keep_arguments(locals())


@keras.saving.register_keras_serializable("tests")
class Outer(Base):
    def __init__(self, inner: list[Base] | None = None, most: Count | None = None, **kwargs) -> None:
        super().__init__(3, **kwargs)
        self.keep_arguments(locals())


def test_config_has_what_a_base_takes_by_default_and_nested_objects() -> None:
    outer = Outer([Base(2), Base(4)], share=0.25)
    assert {"inner", "most", "share"} <= set(outer.get_config()) and "size" not in outer.get_config()
    rebuilt = check_config(outer)
    assert [each.size for each in rebuilt.inner] == [2, 4]
    assert (rebuilt.size, rebuilt.share, rebuilt.most) == (3, 0.25, None)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"most": 0}, "most.*an integer >= 1 or null"),
        ({"most": True}, "most.*an integer >= 1"),
        ({"most": 2.5}, "most.*an integer >= 1"),
        ({"share": 1.0}, r"share.*a number in \[0, 1\)"),
    ],
)
def test_arguments_outside_their_range(arguments: dict, message: str) -> None:
    with pytest.raises(InvalidArgumentError, match=message):
        Outer(**arguments)


def test_layers_are_built_once_and_in_order() -> None:
    built = keras.layers.Dense(2)
    built.build((None, 3))
    kernel, other = built.kernel, keras.layers.Dense(1)
    build_layers((None, (1, 1)), (built, (None, 9)), (other, (None, 2)))
    assert built.kernel is kernel and other.kernel.shape == (2, 1)


def test_uniform_or_otherwise() -> None:
    assert uniform(None, "orthogonal") == "orthogonal"
    assert uniform(0.5, "orthogonal").minval == -0.5
