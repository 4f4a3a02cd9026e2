"""The transformers library, asked in a process of its own, in the environment of `make peers`."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest

_ROOT = Path(__file__).parents[3]
# An environment of its own, because torch needs a newer setuptools than TensorBoard.
_PYTHON = Path(sys.prefix) / "peers/bin/python"

#: Marks a test that asks the library.
asks_library = pytest.mark.skipif(not _PYTHON.exists(), reason="needs the environment of `make peers`")


def outputs_of(
    checkpoint: Path, texts: Sequence[str], folder: Path, images: Sequence[Path] = ()
) -> tuple[Path, Mapping[str, np.ndarray]]:
    """Returns the checkpoint as the library saves it, and what the library computes of texts and images."""
    listed, saved, out = folder / "texts.json", folder / "saved", folder / "outputs.npz"
    listed.write_text(json.dumps(list(texts)))
    options = ["--texts", listed, *(["--images", *images] if images else []), "--out", out, "--saved", saved]
    command = [_PYTHON, "-m", "tests.systems.presets.peers", checkpoint, *options]
    subprocess.run([str(part) for part in command], cwd=_ROOT, check=True)
    return saved, np.load(out)
