"""The one form of message, and the types behind it."""

from __future__ import annotations

import pytest

from vsemb import errors


def test_order_of_an_invalid_argument() -> None:
    error = errors.invalid_argument("margin", -1, "a number >= 0", "Leave it out for 0.2.")
    # Argument, received, allowed, fix.
    assert str(error) == (
        "Invalid value for argument `margin`. Received: margin=-1. Expected: a number >= 0. "
        "Leave it out for 0.2."
    )
    assert isinstance(error, ValueError) and isinstance(error, errors.VsembError)


@pytest.mark.parametrize(
    ("received", "hint"), [("vsep", " Did you mean 'vsepp'?"), ("zzz", ""), ("", ""), (None, "")]
)
def test_nearest_name(received, hint: str) -> None:
    message = str(errors.unknown_name("recipe", received, iter(["kiros2014", "vsepp"])))
    assert message.endswith("Expected: one of kiros2014, vsepp." + hint)
    assert repr(received) in message


def test_missing_extra_is_an_import_error() -> None:
    error = errors.missing_extra("faiss", "index")
    assert isinstance(error, ImportError) and isinstance(error, errors.VsembError)
    assert "pip install 'vsemb[index]'" in str(error)


@pytest.mark.parametrize("kind", [errors.InvalidArgumentError, errors.DataError, errors.MissingExtraError])
def test_one_base(kind) -> None:
    assert issubclass(kind, errors.VsembError)
