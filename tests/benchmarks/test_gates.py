"""Gates are judged and failures told; nothing is measured here."""

from __future__ import annotations

import os
import sys
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.benchmarks import __main__ as command
from tests.benchmarks import (
    gates,
    growth,
    hypernymy,
    latency,
    order,
    pipeline,
    retrieval,
    scale,
    search,
    startup,
    timing,
)
from tests.benchmarks.gates import Gate, Part
from tests.benchmarks.reports import rows_of
from vsemb.files import read_json, write_json


def rows(name: str, *ratios: float | None) -> list[dict[str, Any]]:
    return [{"name": name, "size": str(size), "ratio": ratio} for size, ratio in enumerate(ratios)]


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Gate:
    """The only gate there is."""
    only = Gate("order", "a / b", 2.0)
    monkeypatch.setattr(gates, "GATES", (only,))
    return only


@pytest.mark.parametrize(("ratio", "most", "met"), [(2.0, False, True), (1.9, False, False), (1.9, True, True)])
def test_bounds(ratio: float, most: bool, met: bool) -> None:
    assert Gate("order", "a / b", 2.0, most).met(ratio) is met


@pytest.mark.parametrize(("ratios", "met"), [((1.0, 3.0), True), ((3.0, 1.0), False), ((3.0, None), False)])
def test_the_largest_size_is_judged(gate: Gate, ratios: tuple[float | None, ...], met: bool) -> None:
    first, last = gates.judged("order", rows("a / b", *ratios))
    assert "met" not in first and last["met"] is met and last["gate"] == ">= 2"


def test_a_gate_without_its_row_is_not_met(gate: Gate) -> None:
    (found,) = gates.judged("order", [])
    assert found["met"] is False and "not measured" in found["reason"]
    assert gates.judged("search", []) == []


def test_every_gate_belongs_to_a_part_that_exists() -> None:
    assert {gate.part for gate in gates.GATES} <= set(gates.PARTS)
    folder = Path(gates.__file__).parent
    assert all((folder / f"{part}.py").is_file() for part in gates.PARTS)
    names = [(gate.part, gate.row) for gate in gates.GATES]
    assert len(set(names)) == len(names)


def test_every_gate_has_the_name_of_a_row() -> None:
    rows = {
        "growth": {text.format(axis) for text in (growth.TIME, growth.MEMORY) for axis in growth.AXES},
        "retrieval": {retrieval.LOOPS, retrieval.FLOOR, retrieval.MEMORY, retrieval.GROWTH},
        "order": {order.LIMIT, order.MEMORY, order.GROWTH, order.LOSS, order.LOSS_LIMIT},
        "hypernymy": {hypernymy.SPARSE_ADAM, hypernymy.GROWTH},
        "pipeline": {
            getattr(pipeline, name) for name in ("JPEG", "PHONE", "NLTK", "TFRECORD", "DISK", "MEMMAP", "LOADER")
        },
        "latency": {*(latency.NAME.format("tuned", n) for n in (1, 64)), latency.GROWTH.format("tuned")},
        "scale": {
            getattr(scale, name)
            for name in (
                *("OPEN", "RESIDENT", "WORKER_OPEN", "WORKER_RESIDENT", "PLAN", "DISK", "PIXELS", "READ"),
                *("INDEX", "INDEX_BYTES", "EVALUATION", "EVALUATION_MEMORY", "EVALUATION_BOUNDED"),
            )
        },
        "search": {search.EXACT.format(128, 1024), search.GROWTH.format(1024)},
        "startup": {
            *(startup.IMPORT, startup.HELP, startup.RECIPES),
            *(f"{name} / {startup.PEER}" for name in (startup.SEARCH, startup.SERVE)),
        },
    }
    for part, names in rows.items():
        assert names == {gate.row for gate in gates.GATES if gate.part == part}


def test_training_has_the_rows_of_its_gates() -> None:
    ways = {
        "vsemb (default: mixed_bfloat16)": (1.0, 0.5),
        "vsemb float32": (1.6, 0.7),
        "torch eager float32": (2.5, 0.3),
        "torch autocast bfloat16": (1.5, 0.3),
    }
    found = {
        way: {
            "captions_per_second": 100.0,
            "default_is_faster_by": faster,
            "of_float32_floor": share,
            "of_bfloat16_floor": share / 2,
        }
        for way, (faster, share) in ways.items()
    }
    failed = {"torch compiled float32": "no g++"}
    report = {"variants": [{"variant": name, "rows": found, "failed": failed} for name in ("tuned", "paper")]}
    training = [gate.row for gate in gates.GATES if gate.part == "training"]
    ratios = {each["name"]: each["ratio"] for each in rows_of("training", report)}
    assert ratios[training[0]] == 2.5 and ratios[training[1]] == 1.5 and ratios[training[2]] == 0.7
    assert ratios["training tuned, default, share of its GEMM floor"] == 0.25
    assert ratios["training tuned, default / torch compiled float32"] is None


def test_a_report_of_another_form_is_a_row() -> None:
    (found,) = rows_of("trees", {})
    assert found["ratio"] is None and "ratios_to_lstm" in found["reason"]


def run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, script: str, *options: str) -> tuple[int, Any]:
    """Runs the command on a single part that is this script; {out} in it stands for its JSON file."""
    monkeypatch.setattr(command, "PARTS", {"order": Part(quick=(), threads=False)})
    python = tmp_path / "python"
    python.write_text(f"#!/bin/sh\nout=$4\n{script}\n")
    python.chmod(0o755)
    monkeypatch.setattr(command.sys, "executable", str(python))
    out = tmp_path / "out.json"
    kept = [] if "--history" in options else ["--out", str(out)]
    monkeypatch.setattr(sys, "argv", ["benchmarks", "--only", "order", *kept, *options])
    status = command.main()
    return status, read_json(out) if kept else None


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ("echo no luck >&2; exit 3", "failed with status 3: no luck"),
        ("exit 0", "No JSON file"),
        ("echo '{' > $out", "order.json"),
        ("exec sleep 20", "not over"),
    ],
    ids=["status", "no-report", "damaged-report", "endless"],
)
def test_a_part_that_fails_is_a_row(
    script: str, reason: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: Any
) -> None:
    status, report = run(monkeypatch, tmp_path, script, "--hours", "0.0005")
    assert status == 1 and reason in report["rows"][0]["reason"]
    assert reason in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.parametrize("name", ["trees", "captioning"])
def test_parts_come_to_their_end(name: str, tmp_path: Path) -> None:
    report, reason = command.run_part(name, tmp_path, threads=1, quick=True, hours=0.1)
    assert reason is None and rows_of(name, report)


def test_gates_decide_the_status(gate: Gate, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    part = tmp_path / "part.json"
    for ratio, expected in ((3.0, 0), (1.0, 1)):
        write_json(part, {"rows": rows("a / b", ratio)})
        assert run(monkeypatch, tmp_path, f"cp {part} $out")[0] == expected
        assert run(monkeypatch, tmp_path, f"cp {part} $out", "--quick")[0] == 0


def test_a_regression_decides_the_status(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: Any) -> None:
    part, old = tmp_path / "part.json", tmp_path / "old.json"
    write_json(part, {"rows": rows("a / b", 1.0)})
    for before, expected in ((1.0, 0), (2.0, 1)):
        write_json(
            old, {"commit": "abc", "quick": True, "threads": 1, "rows": [{"part": "order"} | rows("a / b", before)[0]]}
        )
        status, report = run(monkeypatch, tmp_path, f"cp {part} $out", "--quick", "--compare", str(old))
        assert status == expected and report["commit"] == command.commit()
        assert ("REGRESSION" in capsys.readouterr().out) is bool(expected)
    with pytest.raises(SystemExit):
        run(monkeypatch, tmp_path, f"cp {part} $out", "--compare", str(old))
    assert "must have the same --quick" in capsys.readouterr().err


def test_history_is_kept_and_compared(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: Any) -> None:
    part, folder = tmp_path / "part.json", tmp_path / "history"
    times = iter(["20260101T000000", "20260102T000000"])
    monkeypatch.setattr(command.time, "strftime", lambda *_: next(times))
    for ratio, expected in ((2.0, 0), (1.0, 1)):
        write_json(part, {"rows": rows("a / b", ratio)})
        assert run(monkeypatch, tmp_path, f"cp {part} $out", "--quick", "--history", str(folder))[0] == expected
    assert "REGRESSION" in capsys.readouterr().out
    first, second = sorted(folder.glob("*.json"))
    assert read_json(first)["commit"] in first.name and second.with_suffix(".svg").is_file()


def test_a_folder_that_does_not_exist_is_refused_at_once(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: Any
) -> None:
    monkeypatch.setattr(sys, "argv", ["benchmarks", "--out", str(tmp_path / "no" / "out.json")])
    with pytest.raises(SystemExit):
        command.main()
    assert "does not exist" in capsys.readouterr().err


def test_turns_and_medians() -> None:
    turns: list[str] = []
    values = {"a": iter([9.0, 1.0, 3.0, 2.0]), "b": iter([9.0, 5.0, 5.0, 8.0])}

    def measure(name: str) -> float:
        turns.append(name)
        return next(values[name])

    found = timing.interleaved({name: partial(measure, name) for name in values}, 3)
    assert found == {"a": 2.0, "b": 5.0} and turns == ["a", "b"] * 4


def test_the_environment_is_as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setenv("MKL_NUM_THREADS", "5")
    with timing.own_process(3) as pool:
        assert "OMP_NUM_THREADS" not in os.environ and os.environ["MKL_NUM_THREADS"] == "5"
        assert pool.submit(os.getenv, "OMP_NUM_THREADS").result() == "3"


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="Linux alone tells")
def test_memory_is_that_of_the_call() -> None:
    np.ones(1 << 26, np.uint8)  # more than the call needs, before it
    found = timing.bytes_beyond(lambda: np.ones(1 << 25, np.uint8))
    assert found is not None and 0.9 * (1 << 25) < found < 1.5 * (1 << 25)
