"""Recipes train under JAX without TensorFlow, and their runs open with TensorFlow."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.training.test_strategies import assert_same
from vsemb.cli.__main__ import main
from vsemb.data.store import StoredDataset
from vsemb.runs.features import features
from vsemb.runs.measure import evaluate_run
from vsemb.runs.run import Run

ROOT = Path(__file__).parents[2]
DATA = {
    "vsepp tuned hub_bank=20": "scenes_path",
    "contrastive": "scenes_path",
    "best top image.layer=block2_relu image.size=32": "maps_of_scenes",
    "dvsa": "region_scenes",
    "ds-sje-word-cnn": "flowers_path",
    "multimodal-rnn": "scenes_path",
}

# Compiling takes most of the time; the trainings of a test are compiled once.
QUICK = {
    "JAX_PLATFORMS": "cpu",
    "XLA_FLAGS": "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true",
    "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
}

pytestmark = pytest.mark.slow


@pytest.fixture
def maps_of_scenes(scenes_copy: StoredDataset) -> StoredDataset:
    shutil.rmtree(scenes_copy.path / "features")
    features(scenes_copy, "SmallConvNet", "random", size=32, layer="block2_relu")
    return scenes_copy


@pytest.mark.parametrize("name", DATA)
def test_jax_resumes_exactly_and_shares_a_batch_among_devices(name: str, request, tmp_path: Path) -> None:
    pytest.importorskip("jax", reason="the extra jax is not installed")
    data = request.getfixturevalue(DATA[name])
    environment = {**os.environ, **QUICK, "KERAS_BACKEND": "jax", "JAX_COMPILATION_CACHE_DIR": str(tmp_path / "cache")}
    command = [sys.executable, "-m", "tests.runs.jax_trainings", str(getattr(data, "path", data)), str(tmp_path), name]
    done = subprocess.run(command, capture_output=True, text=True, timeout=900, cwd=ROOT, env=environment)
    assert done.returncode == 0, done.stderr[-3000:]
    assert_same(tmp_path / "whole", tmp_path / "parts", rtol=0, atol=0)
    # float32: the halves of a batch are summed in another order.
    assert_same(tmp_path / "whole", tmp_path / "two", rtol=1e-3, atol=1e-4)
    run = Run.open(tmp_path / "whole")
    assert run.info["versions"].keys() == {"vsemb", "jax", "keras", "numpy"}
    if "best_recall_sum" in run.info:
        # TensorFlow measures the weights that JAX trained and measured.
        np.testing.assert_allclose(
            evaluate_run(run, StoredDataset.open(data) if isinstance(data, Path) else data).recall_sum,
            run.info["best_recall_sum"],
            atol=0.5,
        )


def test_a_run_of_jax_is_exported(scenes_path: Path, tmp_path: Path) -> None:
    pytest.importorskip("jax", reason="the extra jax is not installed")
    run = tmp_path / "run"
    command = [sys.executable, "-m", "vsemb.cli", "train", "vsepp", "--backend", "jax", "--epochs", "1"]
    command += ["--data", str(scenes_path), "--out", str(run), "--set", "embedding_dim=16"]
    environment = {**os.environ, **QUICK}
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, cwd=ROOT, env=environment)
    assert done.returncode == 0, done.stderr[-3000:]
    assert json.loads((run / "run.json").read_text())["status"] == "finished"
    assert main(["export", str(run), str(tmp_path / "model")]) == 0
