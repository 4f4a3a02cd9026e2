"""A language model that sees no image, trained once for all files."""

from __future__ import annotations

import pytest

from tests.conftest import TINY_LANGUAGE
from tests.tiny import tiny


@pytest.fixture(scope="session")
def bilinear_run(scenes, trained):
    """A `Run` of `log-bilinear` of two epochs; treat it as read-only."""
    from vsemb import recipes

    return trained("bilinear", tiny(recipes.get("log-bilinear"), *TINY_LANGUAGE), scenes)
