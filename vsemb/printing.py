"""Texts of results: tables, names with values, command lines, and lists of what was left out.

Results are texts of standard output. Notices go to standard error with `vsemb.console.say`, and progress bars with
`vsemb.console.progress`, on everything that may take more than two seconds.
"""

from __future__ import annotations

import itertools
import shlex
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from vsemb.console import accented, say
from vsemb.errors import escaped, one_line, printable

_MOST_SKIPPED = 20


def table(header: Sequence[str], rows: Sequence[Sequence[str]], text: Collection[int] = (0,)) -> str:
    """Lay out a table.

    Args:
        header: names of the columns.
        rows: cells, as many per row as the header has.
        text: the columns of text, aligned to the left; the others are numbers, to the right.

    Example:

    >>> print(table(["", "R@1"], [["a", "1.0"], ["bc", "10.0"]]))
         R@1
    a    1.0
    bc  10.0
    """
    # A line feed in a file name must not look like a row.
    lines = [[escaped(cell).replace("\n", "\\u000a") for cell in line] for line in (header, *rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(header))]
    first, *others = (
        "  ".join(
            cell.ljust(width) if column in text else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    )
    return "\n".join([accented(first), *others])


def facts(values: Mapping[str, Any]) -> str:
    """Lay out names and values, one per line.

    Example:

    >>> print(facts({"images": "6,000", "next": "vsemb train"}))
    images       6,000
    next         vsemb train
    """
    return "\n".join(f"{name:<12} {escaped(str(value))}" for name, value in values.items())


def command_line(*words: Any) -> str:
    """Return a command of `vsemb` as it is typed into a shell.

    Example:

    >>> command_line("evaluate", "runs/my run")
    "vsemb evaluate 'runs/my run'"
    """
    return shlex.join(["vsemb", *map(str, words)])


def say_skipped(skipped: Mapping[str, str]) -> None:
    """Print the first 20 of what was left out, with reasons, and the number of the others.

    Args:
        skipped: name -> reason.
    """
    if skipped:
        say(f"{len(skipped):,} left out:")
    for name, reason in itertools.islice(skipped.items(), _MOST_SKIPPED):
        say(f"  {printable(name)}: {one_line(reason, 120)}")
    if len(skipped) > _MOST_SKIPPED:
        say(f"  and {len(skipped) - _MOST_SKIPPED:,} more; --json FILE lists all.")
