"""How a training went, as lines over epochs, from what it logged."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from pathlib import Path

from vsemb import registry

#: Size of a chart in its own units, and its margins: left, right, top, bottom.
WIDTH, HEIGHT = 360, 200
LEFT, RIGHT, TOP, BOTTOM = 40, 74, 10, 26

# Title of a chart -> logged name -> name of the line; systems add theirs.
_CHARTS = {
    "Training loss": {"loss": "loss"},
    "Recall on validation, %": {
        "val_i2t_R@10": "i→t R@10",
        "val_t2i_R@10": "t→i R@10",
        "val_i2t_R@1": "i→t R@1",
        "val_t2i_R@1": "t→i R@1",
    },
}
_LABEL = 13


@dataclass(frozen=True)
class Line:
    """One line of a chart.

    Attributes:
        name: what it measures.
        last: the value it ends at.
        points: of an SVG polyline.
        end: x and y of its last point.
        label_y: where its name stands, so that names do not overlap.
    """

    name: str
    last: float
    points: str
    end: tuple[float, float]
    label_y: float = 0.0


@dataclass(frozen=True)
class Chart:
    """Lines over epochs, in SVG's units.

    Attributes:
        title: what is measured.
        lines: at least one.
        y_ticks: (y, label).
        x_ticks: (x, label), epochs from 1.
        selected: x of the selected epoch, None where it is not known.
    """

    title: str
    lines: list[Line]
    y_ticks: list[tuple[float, str]]
    x_ticks: list[tuple[float, str]]
    selected: float | None


def read_metrics(path: Path) -> dict[str, list[tuple[int, float]]]:
    """Reads the lines of a `metrics.jsonl`: name -> (epoch, value), finite values only.

    A file that is missing, and a line that a stopped training left unfinished, have no values.
    """
    values: dict[str, list[tuple[int, float]]] = {}
    text = path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""
    for line in text.splitlines():
        try:
            row = json.loads(line)
            epoch = int(row["epoch"])
        except (ValueError, KeyError, TypeError):
            continue
        for name, value in row.items():
            if isinstance(value, (int, float)) and math.isfinite(value):
                values.setdefault(name, []).append((epoch, float(value)))
    return values


def charts(values: Mapping[str, Sequence[tuple[int, float]]], selected: int | None) -> list[Chart]:
    """Lays out the charts for which there are values of at least two epochs.

    Args:
        values: from `read_metrics`.
        selected: the epoch that was kept, from 0.
    """
    found = []
    for title, names in {**_CHARTS, **registry.entries("charts")}.items():
        series = {shown: values[name] for name, shown in names.items() if len(values.get(name, ())) > 1}
        if series:
            found.append(_chart(title, series, selected))
    return found


def _chart(title: str, series: dict[str, Sequence[tuple[int, float]]], selected: int | None) -> Chart:
    epochs = [epoch for line in series.values() for epoch, _ in line]
    first, last = min(epochs), max(epochs)
    ticks = _ticks([value for line in series.values() for _, value in line])
    low, high = ticks[0], ticks[-1]

    def x(epoch: float) -> float:
        return round(LEFT + (WIDTH - LEFT - RIGHT) * (epoch - first) / max(last - first, 1), 1)

    def y(value: float) -> float:
        return round(HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * (value - low) / (high - low), 1)

    lines = []
    for name, line in series.items():
        points = [(x(epoch), y(value)) for epoch, value in line]
        lines.append(Line(name, line[-1][1], " ".join(f"{x},{y}" for x, y in points), points[-1]))
    step = max(1, -(-(last - first) // 6))
    return Chart(
        title,
        _labelled(lines),
        [(y(tick), f"{tick:g}") for tick in ticks],
        [(x(epoch), str(epoch + 1)) for epoch in range(first, last + 1, step)],
        x(selected) if selected is not None and first <= selected <= last else None,
    )


def _ticks(values: Sequence[float]) -> list[float]:
    """Returns three to six round numbers that span the values.

    Example:

    >>> _ticks([0.3, 7.1])
    [0.0, 2.0, 4.0, 6.0, 8.0]
    """
    low, high = min(values), max(values)
    # Values that hardly differ still need an axis with a length.
    width = max(high - low, 1e-6 * max(abs(high), 1.0))
    raw = width / 4
    size = 10.0 ** math.floor(math.log10(raw))
    step = next(size * factor for factor in (1, 2, 2.5, 5, 10) if size * factor >= raw)
    start, end = math.floor(low / step), math.ceil(high / step)
    return [round(step * place, 12) for place in range(start, max(end, start + 1) + 1)]


def _labelled(lines: list[Line]) -> list[Line]:
    """Moves names apart that would overlap, downwards, and all of them up where the last falls out."""
    ordered = sorted(lines, key=lambda line: line.end[1])
    places = accumulate((line.end[1] for line in ordered), lambda above, own: max(own, above + _LABEL))
    lowered = {line.name: place for line, place in zip(ordered, places, strict=True)}
    above = max(0.0, *lowered.values()) - (HEIGHT - BOTTOM)
    return [replace(line, label_y=round(lowered[line.name] - max(0.0, above), 1)) for line in lines]
