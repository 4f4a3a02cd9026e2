"""A training that is killed anywhere and started again ends as one that never stopped."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import h5py
import keras
import numpy as np
import pytest

from tests.models.test_dual_encoder import make_model
from tests.tiny import settings
from vsemb import recipes
from vsemb.cli.__main__ import main
from vsemb.errors import DataError
from vsemb.recipes.retrieval import RetrievalJob
from vsemb.training import TrainingState

# Everything random that a step can have: both dropouts of words, that of features, and negatives;
# and what changes its arithmetic.
SETTINGS = [
    *(setting for setting in settings(recipes.get("vsepp", "paper")) if not setting.startswith("text.encoder")),
    "batches.size=4",
    "training.epochs=4",
    "training.patience=null",
    "text.encoder=linear",
    "text.encoder.words.dim=16",
    "text.encoder.words.word_dropout=0.2",
    "text.encoder.words.dropout=0.1",
    "image.dropout=0.1",
    "loss.negatives.warmup_epochs=2",
    "optimizer.learning_rate=0.003",
    "optimizer.ema_momentum=0.9",
    "batches.negatives=sampled",
    "chunk_size=3",
    "loss.block_size=3",
]


def command(data: Path, out: Path, *more: str) -> list[str]:
    settings = [f"--set={setting}" for setting in SETTINGS]
    return ["train", "vsepp", "--variant", "paper", "--data", str(data), "--out", str(out), *settings, *more]


def arrays(path: Path) -> dict[str, np.ndarray]:
    values: dict[str, np.ndarray] = {}
    with h5py.File(path) as file:
        file.visititems(lambda name, item: values.update({name: item[()]}) if hasattr(item, "shape") else None)
    return values


def metrics(out: Path) -> list[dict[str, float]]:
    rows = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    return [{name: value for name, value in row.items() if name != "seconds"} for row in rows]


@pytest.fixture(scope="module")
def uninterrupted(scenes_path: Path, tmp_path_factory) -> Path:
    """A finished run."""
    out = tmp_path_factory.mktemp("uninterrupted") / "run"
    assert main(command(scenes_path, out)) == 0
    return out


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
    resumed, expected = (arrays(path / "checkpoints" / "best.weights.h5") for path in (out, whole))
    assert expected and set(resumed) == set(expected)
    for name, value in expected.items():
        np.testing.assert_array_equal(resumed[name], value, err_msg=name)
    # The best weights may be older than the interruption; the last ones are not.
    with (
        np.load(out / "checkpoints/state.npz") as found_state,
        np.load(whole / "checkpoints/state.npz") as expected_state,
    ):
        for name in expected_state.files:
            np.testing.assert_array_equal(found_state[name], expected_state[name], err_msg=name)


def start_and_kill(arguments: list[str], out: Path) -> int:
    """Runs the command in a process of its own, kills it in the middle of an epoch, and returns its exit status.

    The process is held still while it is looked at, so that what is seen is what is killed.
    """
    environment = os.environ | {"TF_CPP_MIN_LOG_LEVEL": "3"}
    process = subprocess.Popen(
        [sys.executable, "-m", "vsemb.cli", *arguments],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
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
    process.kill()
    return process.wait(timeout=120)


class PressCtrlC(keras.callbacks.Callback):
    """Sends SIGINT to this process in the middle of the fourth epoch."""

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        if int(self.model.optimizer.iterations) == 3 * 60 + 30:
            os.kill(os.getpid(), signal.SIGINT)


@pytest.mark.slow
def test_killed_and_interrupted_equals_uninterrupted(
    uninterrupted: Path, scenes_path: Path, tmp_path: Path, capfd, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "run"
    arguments = command(scenes_path, out, "--checkpoint-seconds", "0.05")
    assert start_and_kill(arguments, out) == -signal.SIGKILL
    epoch, step = position(out)
    assert (epoch, step) < (3, 30) and step > 0, "it was to be killed within an epoch"
    capfd.readouterr()
    with monkeypatch.context() as patch:
        patch.setattr(RetrievalJob, "checks", lambda self, batch_size: [PressCtrlC()])
        assert main(arguments) == 130
    said = capfd.readouterr()
    first, *lines = [line for line in said.err.splitlines() if not line.startswith("epoch ")]
    # One line behind the lines of finished epochs, and no traceback.
    assert first == f"Resuming at epoch {epoch + 1}, step {step} of 60."
    assert len(lines) == 2 and "same command" in lines[0] and lines[1] == "vsemb train: interrupted."
    assert position(out) == (3, 30)
    assert main(arguments) == 0
    assert "Resuming at epoch 4, step 30 of 60" in capfd.readouterr().err
    check_same_training(out, uninterrupted)


@pytest.mark.slow
def test_a_finished_run_is_left_alone(uninterrupted: Path, scenes_path: Path, capfd) -> None:
    before = {path: path.stat().st_mtime_ns for path in uninterrupted.rglob("*") if path.is_file()}
    assert main(command(scenes_path, uninterrupted)) == 0
    assert "finished" in capfd.readouterr().err
    assert {path: path.stat().st_mtime_ns for path in uninterrupted.rglob("*") if path.is_file()} == before


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


def test_nothing_is_stored_between_the_last_step_and_the_measures_of_an_epoch(tmp_path: Path) -> None:
    class Killed(keras.callbacks.Callback):
        """A validation that does not come to its end."""

        def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
            raise BrokenPipeError

    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    state = TrainingState(tmp_path / "state.npz", every_steps=1, steps=3)
    with pytest.raises(BrokenPipeError):
        model.fit(np.ones((3, 1)), np.ones((3, 1)), batch_size=1, verbose=0, callbacks=[Killed(), state])
    state.on_train_end()
    # Not (0, 3): there would be no step left whose loss the epoch could report.
    assert TrainingState(tmp_path / "state.npz").restore(model) == (0, 2)
