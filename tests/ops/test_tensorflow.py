"""The stand-in for TensorFlow."""

from __future__ import annotations

import pytest
import tensorflow

from vsemb.errors import VsembError
from vsemb.ops.tensorflow import _Missing, tf


def test_tensorflow_is_itself_where_it_is_installed() -> None:
    assert tf is tensorflow


def test_a_use_of_the_stand_in_is_an_error_in_one_line() -> None:
    missing = _Missing()
    assert not missing
    # As modules use it while they are imported.
    assert missing.function(autograph=False)(len) is len
    assert missing.autograph.experimental.do_not_convert(len) is len
    assert missing.TensorSpec([None], missing.string) is None
    with pytest.raises(VsembError, match="tf.strings"):
        missing.strings.lower("A")
