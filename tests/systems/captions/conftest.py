"""What several files about captions need, once for all of them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import MadeOnce
from tests.systems.captions.caption_model import FACTS, caption_parts
from vsemb import Run


@pytest.fixture(scope="session")
def exported_captioner(made_once: MadeOnce) -> Path:
    """The directory of `caption_parts` as a served model, with one version; treat it as read-only."""
    from vsemb.exporting import ModelFacts, export_savedmodel
    from vsemb.systems.captions.signature import ServedCaptioner

    facts = ModelFacts(recipe="multimodal-rnn", selection="the best cider on the split val")
    served = ServedCaptioner(*caption_parts(), FACTS)
    return made_once("captioner", lambda out: export_savedmodel(served, out, fingerprint="c0ffee", card=facts))


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> Callable[[Run], None]:
    """`opened(run)` makes commands take this run, whose graphs are traced, in place of opening it again."""
    return lambda run: monkeypatch.setattr(Run, "open", lambda path, task=None: run)
