"""Tiny sources: pictures and JSON files under a temporary folder."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from PIL import Image


@pytest.fixture
def pictures() -> Callable[..., None]:
    """Writes one-colour JPEGs: `pictures(folder, "a.jpg", "sub/b.jpg")`."""

    def write(folder: Path, *names: str) -> None:
        for number, name in enumerate(names):
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.new("RGB", (6, 4), (number, 100, 200)).save(path, "JPEG")

    return write


@pytest.fixture
def json_file() -> Callable[[Path, Any], Path]:
    """Writes a JSON file and returns its path."""

    def write(path: Path, value: Any) -> Path:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(value), encoding="utf-8")
        return path

    return write
