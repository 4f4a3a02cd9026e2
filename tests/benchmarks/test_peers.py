"""A peer that cannot be measured is a row with the reason, and the rest goes on; functions of this file stand in."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.benchmarks import peers
from tests.benchmarks.peers import Peer, PeerError
from tests.benchmarks.timing import beside, interleaved

PYTHON = "stand-in"


def double(values: np.ndarray, words: np.ndarray, name: str) -> Callable[..., dict[str, Any]]:
    calls = []

    def call(times: int) -> dict[str, Any]:
        print("This is no answer.")
        calls.append(times)
        return {"seconds": 0.5, "values": times * values, "calls": len(calls), "words": words, "name": name}

    return call


def killed(after: int) -> Callable[[], dict[str, Any]]:
    left = iter(range(after))

    def call() -> dict[str, Any]:
        if next(left, None) is None:
            print("LLVM ERROR: inconsistency", flush=True)
            os.kill(os.getpid(), signal.SIGABRT)
        return {"seconds": 2.0}

    return call


def without_a_package() -> Callable[[], dict[str, Any]]:
    raise ModuleNotFoundError("No module named 'torch'")


def endless() -> Callable[[], dict[str, Any]]:
    time.sleep(60)
    return dict


@pytest.fixture(autouse=True)
def environments(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """This environment, in the place of all peers'."""
    monkeypatch.setattr(peers, "ENVIRONMENTS", tmp_path)
    for name in (PYTHON, "nltk"):
        python = tmp_path / name / "bin" / "python"
        python.parent.mkdir(parents=True)
        python.write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
        python.chmod(0o755)


def stand_in(function: str, **options: Any) -> Peer:
    return Peer(PYTHON, f"{__name__}:{function}", **options)


def test_arrays_and_texts_go_both_ways() -> None:
    with stand_in("double", values=np.float32([1, 2]), words=["a", "é"], name="x") as peer:
        peer(times=1)
        found = peer(times=3)
    np.testing.assert_array_equal(found.pop("values"), np.float32([3, 6]), strict=True)
    assert found.pop("words").tolist() == ["a", "é"]
    assert found == {"seconds": 0.5, "calls": 2, "name": "x"}


@pytest.mark.parametrize(
    ("function", "options", "reason"),
    [
        pytest.param("killed", {"after": 0}, "was ended by SIGABRT: LLVM ERROR: inconsistency", marks=pytest.mark.slow),
        ("killed", {"after": 2}, "was ended by SIGABRT: LLVM ERROR: inconsistency"),
        ("without_a_package", {}, "ended with status 1: ModuleNotFoundError: No module named 'torch'"),
        ("endless", {"seconds": 0.2}, "was not over after 0.2 seconds"),
    ],
)
def test_a_peer_that_ends_is_a_row_and_the_others_are_there(
    function: str, options: dict[str, Any], reason: str
) -> None:
    with stand_in(function, **options) as lost, stand_in("killed", after=9) as kept:
        ways = {"ours": lambda: 1.0, "lost": lambda: lost()["seconds"], "kept": lambda: kept()["seconds"]}
        seconds = interleaved(ways, rounds=3)
        with pytest.raises(PeerError, match="SIGABRT|status 1|not over"):
            lost()
    rows = [beside(lost, "a / lost", "1", seconds, "lost"), beside(kept, "a / kept", "1", seconds, "kept")]
    assert [(each["ratio"], each.get("reason")) for each in rows] == [(None, reason), (2.0, None)]


def test_an_environment_that_is_not_there_is_a_reason() -> None:
    peer = Peer("nowhere", f"{__name__}:double")
    assert peer.reason == "nowhere is not installed: make build/peers/nowhere/installed"
    with pytest.raises(PeerError, match="make"):
        peer()


def test_a_part_goes_on_without_its_peer(monkeypatch: pytest.MonkeyPatch) -> None:
    from tests.benchmarks import pipeline  # Peers import this file, and need no TensorFlow.

    for name, missing in (("nltk", "ended with status 1"), ("nowhere", "not installed")):
        if name == "nowhere":
            (peers.ENVIRONMENTS / "nltk" / "bin" / "python").unlink()
        else:  # This Python with a module that cannot be imported.
            monkeypatch.setenv("PYTHONPATH", str(broken_nltk(peers.ENVIRONMENTS)))
        lost, kept = pipeline.tokenizing(20, 1)
        assert lost["name"] == pipeline.NLTK and missing in lost["reason"]
        assert kept["name"] == pipeline.PYTHON and kept["ratio"] > 0


def broken_nltk(folder: Path) -> Path:
    (folder / "nltk.py").write_text("raise ImportError('no NLTK')\n")
    return folder
