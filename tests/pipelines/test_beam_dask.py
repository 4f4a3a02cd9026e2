"""Beam jobs on Dask, another engine than Beam's own: a worker is killed, and the same bytes come out."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

pytest.importorskip("apache_beam", reason="the extra beam is not installed")
pytest.importorskip("distributed", reason="the extra dask is not installed")

import distributed

from pipelines import beam_embed, beam_prepare

pytestmark = pytest.mark.slow
#: Many partitions, so that both workers have some of them when one is killed.
OPTIONS = ["--runner", "apache_beam.runners.dask.dask_runner.DaskRunner", "--dask_partition_size", "1"]


@pytest.fixture(scope="module")
def cluster() -> Iterator[distributed.LocalCluster]:
    """Two processes of Dask, one thread each."""
    with distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as running:
        yield running


def kill_a_worker(cluster: distributed.LocalCluster, job: subprocess.Popen[bytes]) -> None:
    """Kill a worker that holds results and is busy, so that tasks are repeated."""
    while job.poll() is None:
        for worker in cluster.workers.values():
            state = cluster.scheduler.workers.get(worker.worker_address)
            if state is not None and state.has_what and state.processing:
                os.kill(worker.pid, signal.SIGKILL)
                return
        time.sleep(0.001)
    raise AssertionError("the job ended before a worker was killed")


def run_with_a_kill(module: str, cluster: distributed.LocalCluster, *arguments: object) -> None:
    """Run a job on the cluster in another process, and kill a worker in the middle."""
    flags = [*OPTIONS, "--dask_client_address", cluster.scheduler_address]
    command = [sys.executable, "-m", module, *map(str, arguments), *flags]
    with subprocess.Popen(command) as job:
        try:
            kill_a_worker(cluster, job)
            assert job.wait(300) == 0
        finally:
            job.kill()


def assert_same(one: Path, other: Path) -> None:
    names = sorted(path.name for path in one.iterdir())
    assert names == sorted(path.name for path in other.iterdir())
    for name in names:
        assert (one / name).read_bytes() == (other / name).read_bytes(), name


def test_options_of_dask_are_known(tmp_path: Path, capsys) -> None:
    with pytest.raises(SystemExit):
        beam_prepare.main(["table.csv", "--out", str(tmp_path / "o"), *OPTIONS, "--dask_npartition", "2"])
    assert capsys.readouterr().err.rstrip().endswith("--dask_npartition 2")


def test_vectors_after_a_kill(exported: Path, cluster, tmp_path: Path) -> None:
    # Units of 1,024 lines each.
    lines = "".join(f"a red circle and {number} green rings\n" for number in range(8_000))
    (tmp_path / "texts.txt").write_text(lines)
    command = [exported, "--texts", tmp_path / "texts.txt", "--rows-per-file", 2000]
    assert beam_embed.main([*map(str, command), "--out", str(tmp_path / "beam")]) == 0
    run_with_a_kill("pipelines.beam_embed", cluster, *command, "--out", tmp_path / "dask")
    assert_same(tmp_path / "beam", tmp_path / "dask")


def test_a_dataset_after_a_kill(cluster, tmp_path: Path) -> None:
    generator = np.random.default_rng(0)
    rows = ["file,caption"]
    for number in range(60):
        pixels = generator.integers(0, 256, (400, 300, 3), np.uint8)
        Image.fromarray(pixels).save(tmp_path / f"{number}.png", compress_level=0)
        rows.append(f"{number}.png,photo {number}")
    (tmp_path / "7.png").write_bytes(b"no image")
    (tmp_path / "table.csv").write_text("\n".join(rows) + "\n")
    command = [tmp_path / "table.csv", "--format", "table", "--name", "photos", "--block", 2, "--images-per-shard", 7]
    assert beam_prepare.main([*map(str, command), "--out", str(tmp_path / "beam")]) == 0
    run_with_a_kill("pipelines.beam_prepare", cluster, *command, "--out", tmp_path / "dask")
    assert_same(tmp_path / "beam", tmp_path / "dask")
    letters = [(tmp_path / f"{name}-dead-letters.jsonl").read_text() for name in ("beam", "dask")]
    assert letters[0] == letters[1] and "7.png" in letters[0]
