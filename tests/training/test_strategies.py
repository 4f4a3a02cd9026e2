"""DistributionContext and workers: what is refused, what a launcher does, and trainings on several against one.

The last run in their own processes: one holds a single strategy, and workers are processes.
"""

from __future__ import annotations

import inspect
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import vsemb
from tests.raising import raises_argument
from tests.tiny import settings
from tests.training.worker_training import fit_uneven
from vsemb import recipes
from vsemb.errors import DataError, WorkerError
from vsemb.parts import Typed
from vsemb.training.cluster import _free_ports, launch, read_task
from vsemb.training.strategies import DistributionContext, open_distribution

SETTINGS = (
    *settings(recipes.get("vsepp", "paper")),
    *("optimizer=sgd", "optimizer.learning_rate=0.05", "optimizer.global_clipnorm=1.0"),
    *("loss.negatives=all", "text.encoder.pooling=mean"),
)


def config(index: int, addresses: list[str], kind: str = "worker") -> str:
    return json.dumps({"cluster": {"worker": addresses}, "task": {"type": kind, "index": index}})


def test_a_worker_knows_its_number(monkeypatch) -> None:
    cluster = {"chief": ["a:1"], "worker": ["b:1", "c:1"]}
    monkeypatch.setenv("TF_CONFIG", json.dumps({"cluster": cluster, "task": {"type": "worker", "index": 1}}))
    assert (read_task().number, read_task().addresses) == (2, ("a:1", "b:1", "c:1"))


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", config(2, ["a:1", "b:1"]), config(0, ["a:1"], "ps"), '{"cluster": {}, "task": 3}'],
    ids=["none", "no-json", "a-list", "no-such-worker", "another-kind", "no-task"],
)
def test_a_bad_tf_config_is_refused(monkeypatch, text: str) -> None:
    monkeypatch.setenv("TF_CONFIG", text)
    with raises_argument("TF_CONFIG"):
        read_task()


def test_what_does_not_fit_together_is_refused() -> None:
    with raises_argument("strategy"):
        open_distribution("miror")
    with raises_argument("devices"):
        open_distribution("none", 2)
    with raises_argument("devices"):
        open_distribution("mirrored", 0)
    tf.zeros(1)
    with raises_argument("devices"):
        open_distribution("mirrored", 3)


def test_a_batch_is_a_multiple_of_the_replicas() -> None:
    devices = DistributionContext()
    devices.replicas = 3
    devices.check_batch_size(129)
    with raises_argument("batches.size"):
        devices.check_batch_size(128)


@pytest.mark.parametrize(
    ("extra", "expected"),
    [
        ([], {}),
        (["--fine-tune"], {"fine_tune": True}),
        (
            ["--fine-tune=ConvNet", "--set", "a=1", "--set=c=-1", "--inputs", "encoder=runs/x", "--quiet"],
            {
                "fine_tune": "ConvNet",
                "values": {"a": "1", "c": "-1"},
                "inputs": {"encoder": "runs/x"},
                "quiet": True,
            },
        ),
        (["--seeds", "2", "--checkpoint-seconds", "0"], {"seeds": 2, "checkpoint_seconds": 0}),
    ],
)
def test_workers_get_the_arguments_of_the_call(
    extra: list[str], expected: dict[str, object], monkeypatch: pytest.MonkeyPatch, capsys
) -> None:
    from vsemb.cli.__main__ import main

    launched = []
    monkeypatch.setattr(
        "vsemb.training.cluster.launch", lambda command, workers: launched.append((command, workers)) or 3
    )
    assert main(["train", "vsepp", "--data", "d a", "--out", "o", *extra, "--workers", "2"]) == 1
    assert "exit status 3" in capsys.readouterr().err
    ((command, workers),) = launched
    assert command[:3] == [sys.executable, "-m", "vsemb.api.worker"] and workers == 2
    given = json.loads(command[3])
    parameters = inspect.signature(vsemb.train).parameters
    assert set(given) == set(parameters) - {"workers", "callbacks"} | {"quiet"}
    changed = {
        name: value
        for name, value in given.items()
        if name not in parameters or value not in (parameters[name].default, {})
    }
    usual = {"recipe": "vsepp", "data": "d a", "out": "o", "strategy": "multiworker", "quiet": False}
    usual["log"] = ["tensorboard"]  # A list, as JSON has no tuples.
    assert changed == usual | expected


def test_a_worker_trains_with_the_arguments(monkeypatch: pytest.MonkeyPatch, scenes, tiny_recipe, capsys) -> None:
    from vsemb.api import worker

    launched: list[str] = []
    monkeypatch.setattr("vsemb.training.cluster.launch", lambda command, workers: launched.append(command[3]) or 1)
    with pytest.raises(WorkerError):
        vsemb.train(tiny_recipe, scenes, "out", workers=2, units=7, text_encoder="linear")
    trained: dict[str, Any] = {}
    monkeypatch.setattr(worker, "train", lambda **given: trained.update(given))
    assert worker.main(launched[0]) == 0
    assert trained["recipe"] == tiny_recipe and trained["data"] == str(scenes.path)
    assert (trained["units"], trained["text_encoder"]) == (Typed("7"), Typed('"linear"'))

    def fail(**_: object) -> None:
        raise DataError("no data")

    monkeypatch.setattr(worker, "train", fail)
    assert worker.main(launched[0]) == 1 and capsys.readouterr().err == "vsemb train: no data\n"


def test_a_launcher_tells_workers_who_they_are(capfd) -> None:
    code = "import json, os; c = json.loads(os.environ['TF_CONFIG']); print(c['task'], len(c['cluster']"
    code += "['worker']))"
    assert launch([sys.executable, "-c", code], 2) == 0
    assert capfd.readouterr().out == "{'type': 'worker', 'index': 0} 2\n"


@pytest.mark.parametrize(("end", "status"), [("sys.exit(3)", 3), ("os.kill(os.getpid(), 9)", 137)])
def test_a_launcher_does_not_wait_for_the_others_of_a_failed_worker(end: str, status: int) -> None:
    code = f"import os, sys, time\nif '\"index\": 1' in os.environ['TF_CONFIG']: {end}\ntime.sleep(60)"
    before = time.monotonic()
    assert launch([sys.executable, "-c", code], 2, patience=0.5) == status
    assert time.monotonic() - before < 30
    with raises_argument("workers"):
        launch(["true"], 1)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_launcher_ends_as_it_was_asked_to(number: signal.Signals) -> None:
    code = (
        "import sys\nfrom vsemb.training.cluster import launch\n"
        "worker = 'import signal, time\\nprint(1, flush=True)\\ntime.sleep(60)'\n"
        "try: launch([sys.executable, '-c', worker], 2)\n"
        "except KeyboardInterrupt: print('interrupted')\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    assert process.stdout is not None and process.stdout.readline() == "1\n"
    process.send_signal(number)
    out, _ = process.communicate(timeout=60)
    if number == signal.SIGINT:
        assert (process.returncode, out) == (0, "interrupted\n")
    else:
        assert process.returncode == -signal.SIGTERM


def command(data: Path, out: Path, *options: str) -> list[str]:
    settings = [word for setting in SETTINGS for word in ("--set", setting)]
    # Without dropout, of which each replica draws its own.
    train = [sys.executable, "-m", "vsemb.cli", "train", "vsepp", "--variant", "paper"]
    train += ["--data", str(data), "--out", str(out)]
    return [*train, *settings, "--checkpoint-seconds", "0", *options]


def train(data: Path, out: Path, *options: str) -> Path:
    done = subprocess.run(command(data, out, *options), capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr[-3000:]
    return out


def losses(run: Path) -> list[float]:
    return [json.loads(line)["loss"] for line in (run / "metrics.jsonl").read_text().splitlines()]


def state(run: Path) -> dict[str, np.ndarray]:
    with np.load(run / "checkpoints" / "state.npz") as file:
        return {name: file[name] for name in file.files if name.startswith("v")}


def assert_same(one: Path, other: Path, **tolerance: float) -> None:
    """Compares weights and optimizers; a loss that went through a stored state is rounded once more."""
    np.testing.assert_allclose(losses(other), losses(one), rtol=max(tolerance["rtol"], 1e-6))
    expected, values = state(one), state(other)
    assert set(expected) == set(values)
    for name, value in expected.items():
        np.testing.assert_allclose(values[name], value, err_msg=name, **tolerance)


# The sums of sixty steps run in another order; float32.
CLOSE = {"rtol": 1e-3, "atol": 1e-4}


@pytest.fixture(scope="module")
def one(scenes_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return train(scenes_path, tmp_path_factory.mktemp("one") / "run")


@pytest.fixture(scope="module")
def two(scenes_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("two") / "run"
    assert (
        launch([sys.executable, "-m", "tests.training.worker_training", str(scenes_path), str(out), *SETTINGS], 2) == 0
    )
    return out


@pytest.mark.slow
def test_two_logical_devices_train_as_one(scenes_path: Path, one: Path, tmp_path: Path) -> None:
    assert_same(one, train(scenes_path, tmp_path / "run", "--strategy", "mirrored", "--devices", "2"), **CLOSE)


@pytest.mark.slow
def test_groups_of_captions_are_divided_by_images(scenes_path: Path, tmp_path: Path) -> None:
    groups = ["--set", "batches=groups", "--set", "batches.size=8", "--set", "batches.group_size=3"]
    one = train(scenes_path, tmp_path / "one", *groups)
    for name, options in {
        "devices": ("--strategy", "mirrored", "--devices", "2"),
        "workers": ("--workers", "2"),
    }.items():
        assert_same(one, train(scenes_path, tmp_path / name, *groups, *options), **CLOSE)


@pytest.mark.slow
def test_two_workers_train_as_one(one: Path, two: Path) -> None:
    assert_same(one, two, **CLOSE)
    assert {path.name for path in two.iterdir()} == {path.name for path in one.iterdir()}
    best = [json.loads((run / "run.json").read_text())["best_epoch"] for run in (one, two)]
    assert best[0] == best[1]
    # Of a batch of three rows, one worker gets two, and of a batch of one the other gets none.
    expected = fit_uneven(None)
    with np.load(two.with_name("uneven.npz")) as arrays:
        assert set(arrays) == set(expected) >= {"weights", "loss", "accuracy", "val_loss", "val_accuracy"}
        for name, values in expected.items():
            np.testing.assert_allclose(arrays[name], values, rtol=1e-5, atol=1e-6, err_msg=name)


@pytest.mark.slow
def test_a_killed_worker_ends_the_others_and_both_go_on(
    scenes_path: Path, one: Path, two: Path, tmp_path: Path
) -> None:
    out, addresses = tmp_path / "run", [f"127.0.0.1:{port}" for port in _free_ports(2)]
    processes = [
        subprocess.Popen(
            command(scenes_path, out, "--strategy", "multiworker"),
            env={**os.environ, "TF_CONFIG": config(index, addresses)},
            stderr=subprocess.PIPE,
            text=True,
        )
        for index in (0, 1)
    ]
    deadline = time.monotonic() + 600
    # Some steps into the first epoch.
    while not (out / "checkpoints" / "state.npz").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    time.sleep(0.5)
    processes[1].send_signal(signal.SIGKILL)
    killed = time.monotonic()
    _, said = processes[0].communicate(timeout=120)
    assert processes[0].returncode == 1 and time.monotonic() - killed < 60
    assert said.splitlines()[-1].startswith("vsemb train: Worker 0 of 2: another worker is gone")
    assert "Traceback" not in said
    processes[1].communicate()
    alone = shutil.copytree(out, tmp_path / "alone")
    # On as many workers to the last bit, on one device as close as that is to two.
    assert_same(two, train(scenes_path, out, "--workers", "2"), rtol=0, atol=0)
    assert_same(one, train(scenes_path, alone), **CLOSE)
