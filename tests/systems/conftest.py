"""Fixtures of the base's tests that several systems' tests use."""

from tests.data.conftest import tiny  # noqa: F401
