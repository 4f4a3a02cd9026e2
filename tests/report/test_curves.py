"""Lines over epochs: what is read, where it stands, and labels that do not overlap."""

from __future__ import annotations

import json

import pytest

from vsemb.report import curves
from vsemb.report.curves import BOTTOM, HEIGHT, LEFT, RIGHT, TOP, WIDTH, charts, read_metrics


def test_reads_what_is_whole(tmp_path) -> None:
    path = tmp_path / "metrics.jsonl"
    assert read_metrics(path) == {}
    lines = [{"epoch": 0, "loss": 2.0, "name": "x"}, {"epoch": 1, "loss": float("nan"), "val_top1": 5}]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines) + '[1]\n{"epoch": 2, "lo')
    assert read_metrics(path) == {
        "epoch": [(0, 0.0), (1, 1.0)],
        "loss": [(0, 2.0)],
        "val_top1": [(1, 5.0)],
    }


def test_lines_stand_where_their_values_are() -> None:
    (chart,) = charts({"loss": [(0, 4.0), (1, 1.0), (2, 0.0)]}, selected=1)
    middle = (LEFT + WIDTH - RIGHT) / 2
    bottom, height = HEIGHT - BOTTOM, HEIGHT - BOTTOM - TOP
    points = [tuple(map(float, point.split(","))) for point in chart.lines[0].points.split()]
    assert points == [(LEFT, TOP), (middle, bottom - height / 4), (WIDTH - RIGHT, bottom)]
    assert chart.selected == middle and chart.lines[0].end == points[-1]
    assert [label for _, label in chart.y_ticks] == ["0", "1", "2", "3", "4"]
    assert chart.x_ticks == [(LEFT, "1"), (middle, "2"), (WIDTH - RIGHT, "3")]


def test_charts_are_those_that_were_logged() -> None:
    two = [(0, 1.0), (1, 2.0)]
    assert charts({"loss": two[:1], "seconds": two}, None) == []
    found = charts({"loss": two, "val_top1": two, "val_i2t_R@1": two}, selected=7)
    assert [chart.title for chart in found] == [
        "Training loss",
        "Recall on validation, % (i: image, t: text)",
        "Zero-shot on validation, %",
    ]
    assert [chart.selected for chart in found] == [None] * 3


@pytest.mark.parametrize("values", [(3.0, 3.0), (0.0, 0.0), (1e-9, 2e-9), (-5.0, 1e6), (99.9, 100.0)])
def test_ticks_span_the_values(values) -> None:
    ticks = curves._ticks(values)
    assert ticks[0] <= min(values) and max(values) <= ticks[-1] and 2 <= len(ticks) <= 7
    assert sorted(set(ticks)) == ticks


def test_names_of_close_lines_stand_apart() -> None:
    names = ("val_i2t_R@10", "val_t2i_R@10", "val_i2t_R@1", "val_t2i_R@1")
    values = {name: [(0, 80.0), (1, 1.0 + place / 10)] for place, name in enumerate(names)}
    (chart,) = charts(values, None)
    places = sorted(line.label_y for line in chart.lines)
    assert all(b - a >= 12.9 for a, b in zip(places, places[1:], strict=False))
    assert places[-1] <= HEIGHT - BOTTOM + 0.1
