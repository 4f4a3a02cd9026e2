"""A tiny exported model of dependency trees that several files serve."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import MadeOnce


@pytest.fixture(scope="session")
def tree_export(made_once: MadeOnce) -> Path:
    """The directory `trees` of an exported model of `tree_parts`; treat it as read-only."""
    from tests.systems.trees.tree_model import tree_corpus, tree_parts
    from vsemb.exporting import ServedModel, export_savedmodel

    def make(path: Path) -> None:
        export_savedmodel(ServedModel(*tree_parts(), corpus=tree_corpus()), path / "trees", fingerprint="c0ffee")

    return made_once("tree-models", make) / "trees"
