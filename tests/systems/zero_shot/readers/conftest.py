"""Tiny sources, as the base's readers are tried with."""

from tests.data.readers.conftest import pictures  # noqa: F401
