"""Tables of retrieval metrics as text."""

from __future__ import annotations

from vsemb.commands import table
from vsemb.evaluation.retrieval import RetrievalMetrics

_RANKS = {"median_rank": "median", "mean_rank": "mean"}


def retrieval_table(metrics: RetrievalMetrics) -> str:
    """Lays out retrieval metrics, with their intervals, and below those of pairs where they were measured."""
    rows = _rows(metrics, f"{metrics.images} images, {metrics.texts} texts")
    if metrics.pairs is not None:
        rows.append([""] * len(rows[0]))
        rows += _rows(metrics.pairs, f"{metrics.pairs.images} pairs, one text per image")
    return table(rows[0], rows[1:])


def _rows(metrics: RetrievalMetrics, title: str) -> list[list[str]]:
    columns = list(metrics.image_to_text)
    rows = [[title, *(_RANKS.get(column, column) for column in columns)]]
    for name in ("image_to_text", "text_to_image"):
        values = getattr(metrics, name)
        rows.append([name.replace("_to_", " → "), *(f"{values[key]:.1f}" for key in columns)])
        if metrics.intervals is not None:
            bounds = metrics.intervals[name]
            rows.append(["  95 %", *(f"{bounds[key][0]:.1f}–{bounds[key][1]:.1f}" for key in columns)])
    return rows
