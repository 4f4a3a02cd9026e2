"""A training that is killed anywhere and started again ends as one that never stopped."""

from __future__ import annotations

import functools
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import h5py
import keras
import numpy as np
import pytest

from tests.models.test_dual_encoder import make_model
from tests.tiny import settings
from vsemb import recipes
from vsemb.cli.__main__ import main
from vsemb.errors import DataError
from vsemb.training import TrainingState

# Everything random that a step can have: both dropouts of words, of pooled states and of features.
SETTINGS = [
    *settings(recipes.get("vsepp", "paper")),
    "batches.size=4",
    "training.epochs=5",
    "training.patience=null",
    "text.encoder.words.word_dropout=0.2",
    "text.encoder.words.dropout=0.1",
    "text.encoder.dropout=0.1",
    "image.dropout=0.1",
    "loss.negatives.warmup_epochs=2",
    "optimizer.learning_rate=0.003",
]
CASES = {
    "adam": (),
    "ema": ("optimizer.ema_momentum=0.9", "batches.negatives=sampled"),
    "chunks": ("chunk_size=3", "loss.block_size=3"),
}


def command(case: str, data: Path, out: Path, *more: str) -> list[str]:
    settings = [f"--set={setting}" for setting in (*SETTINGS, *CASES[case])]
    return ["train", "vsepp", "--variant", "paper", "--data", str(data), "--out", str(out), *settings, *more]


def arrays(path: Path) -> dict[str, np.ndarray]:
    found: dict[str, np.ndarray] = {}
    with h5py.File(path) as file:
        file.visititems(lambda name, item: found.update({name: item[()]}) if hasattr(item, "shape") else None)
    return found


def metrics(out: Path) -> list[dict[str, float]]:
    rows = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    return [{name: value for name, value in row.items() if name != "seconds"} for row in rows]


@pytest.fixture(scope="module")
def uninterrupted(scenes_path: Path, tmp_path_factory) -> Callable[[str], Path]:
    """From a case to its finished run, trained once."""
    folder = tmp_path_factory.mktemp("uninterrupted")

    @functools.cache
    def trained(case: str) -> Path:
        assert main(command(case, scenes_path, folder / case)) == 0
        return folder / case

    return trained


def position(out: Path) -> tuple[int, int]:
    try:
        with np.load(out / "checkpoints" / "state.npz") as file:
            header = json.loads(str(file["header"]))
    except (OSError, ValueError):
        return 0, 0
    return header["epoch"], header["step"]


def check_same_training(out: Path, whole: Path) -> None:
    """Checks that two runs logged the same and have the same selected weights and the same last state."""
    assert metrics(out) == metrics(whole)
    found, expected = (arrays(path / "checkpoints" / "best.weights.h5") for path in (out, whole))
    assert set(found) == set(expected) and len(found) > 4
    for name, value in expected.items():
        np.testing.assert_array_equal(found[name], value, err_msg=name)
    # The best weights may be older than the interruption; the last ones are not.
    with (
        np.load(out / "checkpoints/state.npz") as found_state,
        np.load(whole / "checkpoints/state.npz") as expected_state,
    ):
        for name in expected_state.files:
            np.testing.assert_array_equal(found_state[name], expected_state[name], err_msg=name)


def start_and_stop(arguments: list[str], out: Path, how: signal.Signals) -> subprocess.CompletedProcess[str]:
    """Runs the command in a process of its own and stops it in the middle of an epoch.

    The process is held still while it is looked at, so that what is seen is what is killed.
    """
    environment = os.environ | {"TF_CPP_MIN_LOG_LEVEL": "3"}
    process = subprocess.Popen(
        [sys.executable, "-m", "vsemb.cli", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
    )
    deadline = time.monotonic() + 120
    while process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.02)
        if position(out)[0] >= 1:
            process.send_signal(signal.SIGSTOP)
            if position(out)[1] > 0:
                break
            process.send_signal(signal.SIGCONT)
    process.send_signal(how)
    process.send_signal(signal.SIGCONT)
    printed, complained = process.communicate(timeout=120)
    return subprocess.CompletedProcess(arguments, process.returncode, printed, complained)


@pytest.mark.parametrize(
    ("case", "how"),
    [
        ("adam", signal.SIGKILL),
        ("ema", signal.SIGKILL),
        ("ema", signal.SIGINT),
        ("chunks", signal.SIGKILL),
    ],
)
def test_interrupted_equals_uninterrupted(
    uninterrupted, case: str, how: signal.Signals, scenes_path: Path, tmp_path: Path, capfd
) -> None:
    whole = uninterrupted(case)
    out = tmp_path / "run"
    arguments = command(case, scenes_path, out, "--checkpoint-seconds", "0.05")
    stopped = start_and_stop(arguments, out, how)
    epoch, step = position(out)
    assert step > 0, "it was to be stopped within an epoch"
    if how == signal.SIGINT:
        assert stopped.returncode == 130
        # One line behind the lines of finished epochs, and no traceback.
        lines = [line for line in stopped.stderr.splitlines() if not line.startswith("epoch ")]
        assert lines == ["vsemb train: interrupted."]
        assert "same command" in stopped.stdout
    else:
        assert stopped.returncode == -signal.SIGKILL
    assert main(arguments) == 0
    assert f"Resuming at epoch {epoch + 1}, step {step} of 60" in capfd.readouterr().err
    check_same_training(out, whole)


def test_a_finished_run_is_left_alone(uninterrupted, scenes_path: Path, capfd) -> None:
    case, out = "adam", uninterrupted("adam")
    before = {path: path.stat().st_mtime_ns for path in out.rglob("*") if path.is_file()}
    assert main(command(case, scenes_path, out)) == 0
    assert "finished" in capfd.readouterr().err
    assert {path: path.stat().st_mtime_ns for path in out.rglob("*") if path.is_file()} == before


def damaged(content: bytes) -> dict[str, bytes]:
    middle = len(content) // 2
    flipped = bytes(byte ^ 0xFF for byte in content[middle : middle + 1])
    return {
        "empty": b"",
        "text": b"hello",
        "truncated": content[:middle],
        "head only": content[:10],
        "flipped": content[:middle] + flipped + content[middle + 1 :],
    }


def stored_state(path: Path) -> keras.Model:
    model = make_model()
    state = TrainingState(path)
    state.set_model(model)
    model.optimizer.build(model.trainable_variables)
    state.store()
    return model


@pytest.mark.parametrize("kind", list(damaged(b"")))
def test_a_damaged_state_is_an_error(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "state.npz"
    stored_state(path)
    path.write_bytes(damaged(path.read_bytes())[kind])
    with pytest.raises(DataError, match="state.npz"):
        TrainingState(path).restore(make_model(seed=1))


def test_a_state_of_another_kind_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "state.npz"
    np.savez(path, header=np.array("[]"))
    with pytest.raises(DataError, match="state.npz"):
        TrainingState(path).restore(make_model())
    np.savez(path, header=np.array([{}], dtype=object))  # a pickle is never opened
    with pytest.raises(DataError, match="state.npz"):
        TrainingState(path).restore(make_model())


def test_a_state_of_another_model_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "state.npz"
    stored_state(path)
    other = make_model()
    other.compile("adam", loss="ranking")
    with pytest.raises(DataError, match="another model"):
        TrainingState(path).restore(other)


def test_state_round_trip(tmp_path: Path) -> None:
    path = tmp_path / "state.npz"
    model = stored_state(path)
    other = make_model(seed=1)
    assert TrainingState(path).restore(other) == (0, 0)
    for a, b in zip(other.get_weights(), model.get_weights(), strict=True):
        np.testing.assert_array_equal(a, b)
    assert TrainingState(tmp_path / "none.npz").restore(other) == (0, 0)


def test_signals_are_given_back(tmp_path: Path) -> None:
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    state = TrainingState(tmp_path / "state.npz")
    state.on_train_begin()
    assert signal.getsignal(signal.SIGINT) != before[0]
    state.on_train_end()
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before
