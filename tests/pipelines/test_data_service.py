"""A tf.data service as processes of their own: training with it."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from pipelines import data_service
from vsemb.cli.__main__ import main as vsemb

ROOT = Path(__file__).parents[2]


class Servers:
    """Processes of `pipelines.data_service`."""

    def __init__(self) -> None:
        self.started: list[subprocess.Popen[str]] = []

    def start(self, *arguments: str) -> str:
        """Starts one and returns the line that it says."""
        command = [sys.executable, "-m", "pipelines.data_service", *arguments]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT)
        self.started.append(process)
        assert process.stdout is not None
        return process.stdout.readline().strip()

    def stop(self) -> None:
        for process in self.started:
            process.terminate()
        for process in self.started:
            process.wait(timeout=60)
            assert process.stdout is not None
            process.stdout.close()


@pytest.fixture
def servers() -> Iterator[Servers]:
    found = Servers()
    yield found
    found.stop()


@pytest.mark.slow
def test_a_run_with_a_service_is_the_run_without(scenes, tiny_pixel_run, tiny_pixel_recipe, servers, tmp_path) -> None:
    from vsemb.runs.train import train

    address = servers.start("dispatcher", "--port", "0").rpartition(" ")[2]
    for _ in range(2):
        assert servers.start("worker", "--dispatcher", address.removeprefix("grpc://")).startswith("worker of")
    run = train(tiny_pixel_recipe, scenes, tmp_path / "run", data_service=address)
    for one, other in zip(run.model.weights, tiny_pixel_run.model.weights, strict=True):
        np.testing.assert_array_equal(one.numpy(), other.numpy())
    servers.stop()
    assert [process.returncode for process in servers.started] == [0, 0, 0]


@pytest.mark.slow
def test_a_port_that_is_taken(servers, capsys) -> None:
    port = servers.start("dispatcher", "--port", "0").rpartition(":")[2]
    second = subprocess.run(
        [sys.executable, "-m", "pipelines.data_service", "dispatcher", "--port", port],
        capture_output=True, text=True, cwd=ROOT, timeout=300,
    )  # fmt: skip
    assert second.returncode == 1 and "Traceback" not in second.stderr
    assert second.stderr.splitlines()[-1].startswith("data_service: The dispatcher cannot start")
    servers.started[0].send_signal(signal.SIGINT)
    assert servers.started[0].wait(timeout=60) == 0


def test_errors_are_one_line(scenes_path, tmp_path, capsys) -> None:
    assert data_service.main(["worker", "--dispatcher", "localhost:1"]) == 1
    assert "No tf.data service answers" in capsys.readouterr().err
    train = ["train", "vsepp", "--data", str(scenes_path), "--out", str(tmp_path / "run"), "--data-service"]
    for address, more, message in (
        ("grpc://localhost:1", [], "null for a recipe that decodes no images"),
        ("grpc://localhost:1", ["--fine-tune", "SmallConvNet"], "No tf.data service answers"),
        ("localhost:1", ["--fine-tune", "SmallConvNet"], "grpc://HOST:PORT"),
    ):
        assert vsemb([*train, address, *more]) == 1
        lines = capsys.readouterr().err.splitlines()
        assert message in lines[-1] and "Traceback" not in "".join(lines)
    assert vsemb(["train", "multimodal-rnn", *train[2:], "grpc://localhost:1"]) == 1
    assert "null for a recipe that decodes no images" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()
