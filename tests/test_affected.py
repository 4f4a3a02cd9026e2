"""Which tests `make check` runs."""

from __future__ import annotations

from tests.affected import affected_by
from tests.test_layering import ROOT


def found(*names: str) -> list[str]:
    return [str(path.relative_to(ROOT / "tests")) for path in affected_by(ROOT / name for name in names)]


def test_the_nearest_come_first() -> None:
    tests = found("vsemb/losses/ranking.py", "tests/test_files.py")
    assert tests[:2] == ["test_files.py", "losses/test_ranking.py"]
    assert "systems/trees/test_tree_twin.py" in tests and "text/test_normalize.py" not in tests


def test_what_nobody_imports_has_its_own_test_alone() -> None:
    assert found("vsemb/cli/index.py") == ["cli/test_index.py"]
    assert found() == []
