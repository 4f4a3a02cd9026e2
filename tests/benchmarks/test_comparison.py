"""Reports are compared by hand-made rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.benchmarks.comparison import compared, comparison, history
from vsemb.files import write_json


def rows(**ratios: list[float | None]) -> list[dict[str, Any]]:
    return [
        {"part": "order", "name": name, "size": f"{ratio} captions/s", "ratio": ratio}
        for name, values in ratios.items()
        for ratio in values
    ]


@pytest.mark.parametrize(
    ("name", "old", "new", "mark"),
    [
        ("loss / VSE++", [60], 45, "REGRESSION"),
        ("loss / VSE++", [60], 55, ""),
        ("loss / VSE++", [60], 70, "better"),
        ("loss / VSE++", [60, 45], 42, ""),  # Within a tenth of the worst earlier one.
        ("loss / VSE++", [60], None, "lost"),
        ("loss / VSE++", [None], 60, "new"),
        ("ranks, GB", [1.0], 1.2, "REGRESSION"),
        ("ranks, GB", [1.0], 0.8, "better"),
        ("float32, share of its GEMM floor", [0.6], 0.5, "REGRESSION"),
        ("scores, growth with pairs", [1.0], 1.05, ""),
        ("scores, growth with pairs", [1.0], 1.15, "REGRESSION"),
        ("memory, growth with images", [0.02], 0.06, ""),
        ("memory, growth with images", [-0.02], -0.01, ""),
    ],
)
def test_marks(name: str, old: list[float | None], new: float | None, mark: str) -> None:
    (found,) = compared([rows(**{name: [ratio]}) for ratio in old], rows(**{name: [new]}))
    assert found["mark"] == mark


def test_rows_of_one_name_are_compared_in_order() -> None:
    changes = compared([rows(a=[1.0, 2.0], b=[3.0])], rows(a=[1.0, 4.0]))
    assert [(each["old"], each["new"], each["change"]) for each in changes] == [
        (1.0, 1.0, 0.0),
        (2.0, 4.0, 1.0),
        (3.0, None, None),
    ]
    printed = comparison(changes).splitlines()
    assert "+100%" in printed[-2] and "REGRESSION" in printed[-2] and "lost" in printed[-1]


def test_history_has_the_reports_of_the_same_machine_and_settings(tmp_path: Path) -> None:
    machine = {"processor": "EPYC", "cores": 2, "load": 0.5}
    report = {"commit": "new", "machine": machine, "quick": False, "threads": 1}
    others = {
        "20260103T000000-last": {"machine": machine | {"load": 3.0}},
        "20260101T000000-first": {},
        "20260102T000000-processor": {"machine": machine | {"processor": "Xeon"}},
        "20260102T000001-cores": {"machine": machine | {"cores": 4}},
        "20260102T000002-quick": {"quick": True},
        "20260102T000003-threads": {"threads": 2},
    }
    for name, other in others.items():
        write_json(tmp_path / f"{name}.json", report | other | {"commit": name.partition("-")[2]})
    assert [each["commit"] for each in history(tmp_path, report)] == ["first", "last"]
