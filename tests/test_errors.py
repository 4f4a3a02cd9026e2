"""The one form of message, and the types behind it."""

from __future__ import annotations

import numpy as np
import pytest

from vsemb import errors


def test_order_of_an_invalid_argument() -> None:
    error = errors.invalid_argument("margin", -1, "a number >= 0", "Leave it out for 0.2.")
    assert str(error) == "`margin` must be a number >= 0; got -1. Leave it out for 0.2."
    assert isinstance(error, ValueError) and isinstance(error, errors.VsembError)


def test_a_long_value_is_cut_and_an_array_is_one_line() -> None:
    long = str(errors.invalid_argument("texts", ["a dog on a beach"] * 1000, "a string"))
    assert len(long) < 600 and long.startswith("`texts` must be a string; got ['a dog") and long.endswith("….")
    array = str(errors.invalid_argument("rows", np.zeros((2, 2)), "a vector"))
    assert "\n" not in array and "got array([[0., 0.], [0., 0.]])" in array
    # What is short stays as it was written.
    assert "got 'two  blanks'" in str(errors.invalid_argument("path", "two  blanks", "a path"))


@pytest.mark.parametrize(("received", "hint"), [("vsep", " Did you mean 'vsepp'?"), ("zzz", ""), ("", ""), (None, "")])
def test_nearest_name(received, hint: str) -> None:
    message = str(errors.unknown_name("recipe", received, iter(["kiros2014", "vsepp"])))
    assert message == f"`recipe` must be one of kiros2014, vsepp; got {received!r}.{hint}"


def test_missing_extra_is_an_import_error() -> None:
    error = errors.missing_extra("faiss", "index")
    assert isinstance(error, ImportError) and isinstance(error, errors.VsembError)
    assert "pip install 'vsemb[index]'" in str(error)


@pytest.mark.parametrize("kind", [errors.InvalidArgumentError, errors.DataError, errors.MissingExtraError])
def test_one_base(kind) -> None:
    assert issubclass(kind, errors.VsembError)


def test_the_error_of_a_reader_inside_another_library_is_its_own_line() -> None:
    class GraphError(Exception):
        message = (
            "{{node PyFunc}} vsemb.errors.DataError: The shard x is damaged.\nTraceback (most recent call last):\n"
        )

    with pytest.raises(errors.DataError, match=r"^The shard x is damaged\.$"), errors.reader_errors():
        raise GraphError
    with pytest.raises(ValueError, match="other"), errors.reader_errors():
        raise ValueError("other")
