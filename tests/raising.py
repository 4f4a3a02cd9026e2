"""Checks of errors by their type and argument, whatever their words are."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest

from vsemb.errors import InvalidArgumentError


@contextlib.contextmanager
def raises_argument(name: str) -> Iterator[None]:
    """Expect an `InvalidArgumentError` about an argument.

    Args:
        name: name of the argument, or the end of a field's path.
    """
    with pytest.raises(InvalidArgumentError) as raised:
        yield
    found = raised.value.argument
    assert found is not None and (found == name or found.endswith(f".{name}")), f"{found}, not {name}: {raised.value}"
