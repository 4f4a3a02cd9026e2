"""transformers and open_clip, asked in a process of their own, in the environment of `make peers`."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from PIL import Image

if TYPE_CHECKING:
    from vsemb.runs.run import Run

_ROOT = Path(__file__).parents[3]
# An environment of its own, because torch needs a newer setuptools than TensorBoard.
_PYTHON = Path(sys.prefix) / "peers/bin/python"
_OPEN_CLIP = [*_PYTHON.parents[1].glob("lib/python*/site-packages/open_clip")]

#: Marks a test that asks transformers, and one that asks open_clip.
asks_library = pytest.mark.skipif(not _PYTHON.exists(), reason="needs the environment of `make peers`")
asks_open_clip = pytest.mark.skipif(not _OPEN_CLIP, reason="needs the environment of `make peers`")


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


def open_clip_outputs(
    models: Mapping[str, Mapping[str, Any]], texts: Sequence[str], images: Sequence[Path], folder: Path
) -> tuple[dict[str, Mapping[str, np.ndarray]], dict[str, Any]]:
    """Makes random models of open_clip, and returns what it computes, and the SigLIPs of timm.

    The checkpoint of a model is the folder of its name.
    """
    settings = {"models": models, "texts": list(texts), "images": list(map(str, images))}
    (folder / "settings.json").write_text(json.dumps(settings))
    command = [_PYTHON, "-m", "tests.systems.presets.open_clip_peers", folder / "settings.json", folder]
    subprocess.run([str(part) for part in command], cwd=_ROOT, check=True)
    computed = {name: np.load(folder / name / "outputs.npz") for name in models}
    return computed, json.loads((folder / "trunks.json").read_text())


def mixed_images(folder: Path, count: int) -> list[Path]:
    """Writes images with sides of 20 to 400 pixels, JPEG and PNG."""
    images = []
    for number in range(count):
        random = np.random.default_rng(number)
        coarse = random.integers(0, 256, (6, 8, 3), dtype=np.uint8)
        sides = tuple(random.integers(20, 400, 2).tolist())
        images.append(folder / f"{number}.{'png' if number % 2 else 'jpg'}")
        Image.fromarray(coarse).resize(sides, Image.Resampling.BICUBIC).save(images[-1])
    return images


def published_ids(run: Run, texts: list[str], width: int) -> np.ndarray:
    """Ids as the network gets them, padded to a width."""
    encoder = run.model.text_encoder
    ids = encoder.published_ids(run.tokenizer(texts)).numpy()
    return np.pad(ids, [(0, 0), (0, width - ids.shape[1])], constant_values=encoder.padding)


def unit(rows: np.ndarray) -> np.ndarray:
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def cosines(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    return np.sum(unit(left) * unit(right), axis=1)
