"""The picture of a report: how time and memory grow, one panel per growth row, as SVG."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

#: Size of a panel and of the plot inside it, in SVG units, and panels side by side.
_WIDTH, _HEIGHT, _LEFT, _RIGHT, _TOP, _BOTTOM, _COLUMNS = 290, 220, 30, 40, 74, 34, 4
_HEAD = 60
_STYLE = (
    "text{font:11px sans-serif;fill:#1c2b2d}.head{font-size:15px;font-weight:600}.name{font-size:12px;font-weight:600}"
    ".size{text-anchor:middle}.axis{stroke:#8fa3a6}.linear{stroke:#8fa3a6;stroke-dasharray:4 4}"
    ".fit{stroke:#1f7a72;stroke-width:2}.point{fill:#a0640f}"
    # Numbers stay readable on lines.
    ".size{paint-order:stroke;stroke:#ffffff;stroke-width:3px}"
)


def shortened(value: float) -> str:
    """Three digits of a number.

    Example:

    >>> [shortened(value) for value in (0.01234, 1250, 25_000, 7_812_500)]
    ['0.0123', '1250', '25k', '7.81M']
    """
    for least, unit, letter in ((1e9, 1e9, "G"), (1e6, 1e6, "M"), (1e4, 1e3, "k")):
        if value >= least:
            return f"{value / unit:.3g}{letter}"
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


def _panel(row: Mapping[str, Any], left: float, top: float) -> list[str]:
    """One growth row. Where the exponent is at most 1, the dashed line of linear growth is the diagonal."""
    sizes, values = zip(*((math.log10(size), math.log10(value)) for size, value in row["points"]), strict=True)
    slope, low = row["ratio"], min(values)
    middle = sum(values) / len(values) - slope * sum(sizes) / len(sizes)
    wide = sizes[-1] - sizes[0]
    high = max(wide, max(values) - low)
    plot_width, plot_height = _WIDTH - _LEFT - _RIGHT, _HEIGHT - _TOP - _BOTTOM

    def place(size: float, value: float) -> tuple[float, float]:
        return (
            round(left + _LEFT + plot_width * (size - sizes[0]) / wide, 1),
            round(top + _TOP + plot_height * (1 - (value - low) / high), 1),
        )

    def line(style: str, *ends: tuple[float, float]) -> str:
        (x1, y1), (x2, y2) = (place(*end) for end in ends)
        return f'<line class="{style}" x1="{x1}" y1="{y1}" x2="{x2}" y2="{y2}"/>'

    what, _, rest = row["name"].partition(", growth")
    shapes = [
        f'<text class="name" x="{left + _LEFT}" y="{top + 16}">{escape(what)}</text>',
        f'<text x="{left + _LEFT}" y="{top + 32}">growth{escape(rest)}</text>',
        f'<text x="{left + _LEFT}" y="{top + 48}">exponent {slope:z.2f}, values in {escape(row["unit"])}</text>',
        line("axis", (sizes[0], low), (sizes[-1], low)),
        line("linear", (sizes[0], low), (sizes[-1], low + wide)),
        line("fit", *((size, middle + slope * size) for size in (sizes[0], sizes[-1]))),
    ]
    for (size, value), at in zip(row["points"], zip(sizes, values, strict=True), strict=True):
        x, y = place(*at)
        shapes += [
            f'<circle class="point" cx="{x}" cy="{y}" r="3.5"/>',
            f'<text class="size" x="{x}" y="{y - 8:.1f}">{shortened(value)}</text>',
            f'<text class="size" x="{x}" y="{top + _HEIGHT - _BOTTOM + 18}">{shortened(size)}</text>',
        ]
    return shapes


def picture(rows: Sequence[Mapping[str, Any]], title: str) -> str:
    """Draws rows that have points, on logarithmic axes: measured values, the fitted line, and linear growth, dashed.

    Args:
        rows: of a report; `growth_rows` gives points.
        title: of the picture.

    Returns:
        SVG.
    """
    grown = [each for each in rows if "points" in each]
    places = [(_WIDTH * (number % _COLUMNS), _HEAD + _HEIGHT * (number // _COLUMNS)) for number in range(len(grown))]
    width, height = _WIDTH * _COLUMNS, _HEAD + _HEIGHT * -(-len(grown) // _COLUMNS)
    about = "Logarithmic axes. Points are measured, the line is fitted, and the dashed line is linear growth."
    shapes = [shape for row, place in zip(grown, places, strict=True) for shape in _panel(row, *place)]
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img">',
            f"<title>{escape(title)}</title>",
            f"<style>{_STYLE}</style>",
            f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
            f'<text class="head" x="{_LEFT}" y="26">{escape(title)}</text>',
            f'<text x="{_LEFT}" y="44">{about}</text>',
            *shapes,
            "</svg>\n",
        ]
    )
