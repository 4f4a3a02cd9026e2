"""The picture of photographs that a run finds."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from pipelines import photographs


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stand-ins for scikit-image's files, each of one colour."""
    folder = tmp_path / "skimage" / "data"
    folder.mkdir(parents=True)
    (folder.parent / "__init__.py").touch()
    for number, name in enumerate(photographs.FILES):
        Image.new("RGB", (40, 30), (20 * number, 0, 0)).save(folder / name)
    monkeypatch.delitem(sys.modules, "skimage", raising=False)
    monkeypatch.syspath_prepend(str(tmp_path))


def test_the_best_photographs_of_each_query_are_drawn(
    tiny_pixel_run: Any, package: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = photographs.lines_of(tiny_pixel_run.path)
    assert [line.label for line in lines] == list(photographs.QUERIES)
    assert all(len(line.best) == photographs.BEST for line in lines)
    monkeypatch.setattr(
        sys, "argv", ["photographs", str(tiny_pixel_run.path), "--out", str(tmp_path / "a" / "out.png")]
    )
    assert photographs.main() == 0
    with Image.open(tmp_path / "a" / "out.png") as picture:
        assert len(picture.getcolors(1 << 20)) > photographs.BEST


def test_a_missing_package_is_one_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(photographs.util, "find_spec", lambda name: None)
    monkeypatch.setattr(sys, "argv", ["photographs", "run"])
    assert photographs.main() == 1
    assert "pip install scikit-image" in capsys.readouterr().err
