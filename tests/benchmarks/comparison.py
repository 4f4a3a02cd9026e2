"""A report of the benchmark beside earlier ones: the change of each row, and regressions beyond noise."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from vsemb.files import read_json
from vsemb.printing import table

Rows = Sequence[Mapping[str, Any]]

#: The share by which a ratio may be worse than the worst of the earlier reports; of an exponent, the difference.
NOISE = 0.1
#: Settings and parts of the machine that must be equal for a comparison.
_SETTINGS, _MACHINE = ("quick", "threads"), ("processor", "cores")


def same_settings(report: Mapping[str, Any], earlier: Mapping[str, Any]) -> bool:
    """Whether two reports have the same sizes and threads."""
    return all(report[each] == earlier[each] for each in _SETTINGS)


def history(folder: Path, report: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The reports of a folder, oldest first, that were made on the machine of a report with its settings.

    Args:
        folder: of reports whose file names begin with their time.
        report: the new one.

    Raises:
        DataError: for a file that is no JSON.
    """
    found = [read_json(path) for path in sorted(folder.glob("*.json"))]
    machine = report["machine"]
    return [
        each
        for each in found
        if same_settings(report, each) and all(machine[part] == each["machine"][part] for part in _MACHINE)
    ]


def _keyed(rows: Rows) -> Iterator[tuple[tuple[str, str, int], float | None]]:
    """Ratios by part, name and place among the rows of that name; sizes may be rates, which vary."""
    counts: dict[tuple[str, str], int] = {}
    for each in rows:
        name = each["part"], each["name"]
        counts[name] = counts.get(name, 0) + 1
        yield (*name, counts[name]), each["ratio"]


def compared(earlier: Sequence[Rows], rows: Rows) -> list[dict[str, Any]]:
    """Compares the rows of a report with those of earlier reports.

    More is better for the ratio of a peer to vsemb and for a share of a limit; less is better for the rest.

    Args:
        earlier: rows of each earlier report, oldest first.
        rows: of the new report.

    Returns:
        A dict for each row of any report: `part`, `name`, `old` (the last earlier ratio), `new`, `change`
        (new / old - 1, or None) and `mark`: `"REGRESSION"`, `"better"`, `"lost"`, `"new"` or `""`.

    Example:

    >>> row = {"part": "order", "name": "order loss / VSE++", "ratio": 60.0}
    >>> compared([[row]], [row | {"ratio": 45.0}])[0]["mark"]
    'REGRESSION'
    """
    before: dict[tuple[str, str, int], list[float]] = {}
    for report in earlier:
        for key, ratio in _keyed(report):
            before.setdefault(key, []).extend([] if ratio is None else [ratio])
    after = dict(_keyed(rows))
    found = []
    for key in before | after:
        part, name, _ = key
        old, new = before.get(key, []), after.get(key)
        more = " / " in name or "share of" in name
        # Exponents can be near zero, where every change is a large share.
        below, above = (
            (NOISE, NOISE) if "growth" in name else (NOISE * min(old, default=0), NOISE * max(old, default=0))
        )
        if not old or new is None:
            mark = "lost" if old else "new" if new is not None else ""
        elif new < min(old) - below:
            mark = "REGRESSION" if more else "better"
        elif new > max(old) + above:
            mark = "better" if more else "REGRESSION"
        else:
            mark = ""
        last = old[-1] if old else None
        change = None if last is None or new is None else new / last - 1
        found.append({"part": part, "name": name, "old": last, "new": new, "change": change, "mark": mark})
    return found


def comparison(changes: Sequence[Mapping[str, Any]]) -> str:
    """Lays out what `compared` returns as a table."""
    cells = [
        [
            each["name"],
            *("" if each[which] is None else f"{each[which]:.2f}" for which in ("old", "new")),
            "" if each["change"] is None else f"{each['change']:+.0%}",
            each["mark"],
        ]
        for each in changes
    ]
    return table(["", "old", "new", "change", ""], cells, text=(0, 4))
