"""Reports are compared by hand-made rows."""

from __future__ import annotations

from typing import Any

import pytest

from tests.benchmarks.comparison import compared, comparison


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
