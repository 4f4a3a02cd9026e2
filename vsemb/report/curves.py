"""Training curves: logged metrics over epochs, laid out as SVG."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from pathlib import Path

from vsemb import registry
from vsemb.files import read_text

#: Size of a chart in SVG units, and its margins.
WIDTH, HEIGHT = 360, 200
LEFT, RIGHT, TOP, BOTTOM = 40, 74, 10, 26

# Title of a chart -> logged name -> name of the line; systems add their own.
_CHARTS = {
    "Training loss": {"loss": "loss"},
    "Recall on validation, % (i: image, t: text)": {
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
        name: name of the metric.
        last: last value.
        points: points of an SVG polyline.
        end: x and y of the last point.
        label_y: y of the label, shifted so that labels do not overlap.
    """

    name: str
    last: float
    points: str
    end: tuple[float, float]
    label_y: float = 0.0


@dataclass(frozen=True)
class Chart:
    """One chart, in SVG units.

    Attributes:
        title: title with the unit.
        lines: one or more lines.
        y_ticks: pairs of y and label.
        x_ticks: pairs of x and label; epochs count from 1.
        selected: x of the selected epoch; None if unknown.
    """

    title: str
    lines: list[Line]
    y_ticks: list[tuple[float, str]]
    x_ticks: list[tuple[float, str]]
    selected: float | None


def read_metrics(path: Path) -> dict[str, list[tuple[int, float]]]:
    """Read a `metrics.jsonl`: name -> pairs of epoch and value, finite values only.

    A missing file and an incomplete last line, left by an interrupted training, are allowed.

    Args:
        path: the file.
    """
    values: dict[str, list[tuple[int, float]]] = {}
    text = read_text(path, errors="replace") if path.exists() else ""
    for line in text.split("\n"):
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
    """Lay out charts of all metrics with at least two epochs.

    Args:
        values: result of `read_metrics`.
        selected: the selected epoch, from 0; None if unknown.
    """
    charts = []
    for title, names in {**_CHARTS, **registry.entries("charts")}.items():
        series = {shown: values[name] for name, shown in names.items() if len(values.get(name, ())) > 1}
        if series:
            charts.append(_chart(title, series, selected))
    return charts


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
    """Return three to six round numbers that span the values.

    Example:

    >>> _ticks([0.3, 7.1])
    [0.0, 2.0, 4.0, 6.0, 8.0]
    """
    low, high = min(values), max(values)
    # Nearly equal values still need an axis of positive length.
    width = max(high - low, 1e-6 * max(abs(high), 1.0))
    raw = width / 4
    size = 10.0 ** math.floor(math.log10(raw))
    step = next(size * factor for factor in (1, 2, 2.5, 5, 10) if size * factor >= raw)
    start, end = math.floor(low / step), math.ceil(high / step)
    return [round(step * place, 12) for place in range(start, max(end, start + 1) + 1)]


def _labelled(lines: list[Line]) -> list[Line]:
    """Move overlapping labels down, and then all labels up if the last one is below the chart."""
    ordered = sorted(lines, key=lambda line: line.end[1])
    places = accumulate((line.end[1] for line in ordered), lambda above, own: max(own, above + _LABEL))
    lowered = {line.name: place for line, place in zip(ordered, places, strict=True)}
    above = max(0.0, *lowered.values()) - (HEIGHT - BOTTOM)
    return [replace(line, label_y=round(lowered[line.name] - max(0.0, above), 1)) for line in lines]
