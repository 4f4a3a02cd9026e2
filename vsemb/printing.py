"""Output of commands: tables, names with values, JSON, and notices about images and caches.

- Results are printed to standard output, tables with `table`. Notices go to standard error with `vsemb.console.say`,
  and progress bars with `vsemb.console.progress`, on everything that may take more than two seconds.
- Each command has `--quiet`, which silences notices and bars. A command that prints a table adds `--json` with
  `add_json`, and ends with `save_json`. With `--json -` only JSON is printed to standard output. The command does
  nothing for either: `vsemb.cli` surrounds it with `console_of`.
- TensorFlow's start-up messages are silenced by `vsemb.cli` before it is imported.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import os
import shlex
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TextIO, cast

from vsemb.console import SafeStream, accented, quieted, say
from vsemb.errors import DataError, escaped, one_line, printable
from vsemb.files import write_json


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
    lines = [[escaped(cell) for cell in line] for line in (header, *rows)]
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

    >>> command_line("evaluate", Path("runs/my run"))
    "vsemb evaluate 'runs/my run'"
    """
    return shlex.join(["vsemb", *map(str, words)])


def add_json(parser: argparse._ActionsContainer) -> None:
    """Add `--json` to a command that ends with `save_json`."""
    parser.add_argument("--json", metavar="FILE", help="also write the results as JSON to FILE; - prints only JSON")


def save_json(arguments: argparse.Namespace, values: Any) -> None:
    """Write the results of a command to where `--json` says; without it, do nothing.

    Args:
        arguments: the command's.
        values: the results, JSON-able.
    """
    if arguments.json is None:
        return
    if (stream := getattr(arguments, "json_stream", None)) is None:
        write_json(arguments.json, values)
    else:
        print(json.dumps(values, indent=2, ensure_ascii=False, allow_nan=False), file=stream)


@contextlib.contextmanager
def console_of(arguments: argparse.Namespace) -> Iterator[None]:
    """Set up the console for a command: escaped results, no notices with `--quiet`, only JSON with `--json -`."""
    with contextlib.ExitStack() as stack:
        stack.enter_context(contextlib.redirect_stdout(cast(TextIO, SafeStream(sys.stdout))))
        stack.enter_context(quieted(arguments.quiet))
        if str(getattr(arguments, "json", None)) == "-":
            arguments.json_stream = sys.stdout
            stack.enter_context(contextlib.redirect_stdout(stack.enter_context(open(os.devnull, "w"))))
        yield


def say_skipped(skipped: Mapping[str, str], most: int = 20) -> None:
    """Print what was left out, with reasons.

    Args:
        skipped: name -> reason.
        most: lines printed; of the others, the number.
    """
    if skipped:
        say(f"{len(skipped):,} left out:")
    for name, reason in itertools.islice(skipped.items(), most):
        say(f"  {printable(name)}: {one_line(reason, 120)}")
    if len(skipped) > most:
        say(f"  and {len(skipped) - most:,} more; --json FILE lists all.")


def say_store(store: Any, **more: str) -> dict[str, Any]:
    """Print what was cached of a dataset, such as its features; return it as values of JSON.

    Args:
        store: with `fingerprint`, `shape`, `directory`, `images_computed` and `seconds`.
        **more: name -> further lines.
    """
    speed = round(store.images_computed / store.seconds, 1) if store.images_computed else None
    lines = {
        "fingerprint": store.fingerprint,
        "shape": " x ".join(map(str, store.shape)),
        "images/s": str(speed or "nothing left to compute"),
        "where": str(store.directory),
        **more,
    }
    print(facts(lines))
    return {**_store_values(store), "images_computed": store.images_computed, "images_per_second": speed}


def _store_values(store: Any) -> dict[str, Any]:
    return {"fingerprint": store.fingerprint, "shape": list(store.shape), "directory": str(store.directory)}


def say_verified(stores: Sequence[Any], kind: str, data: Path) -> dict[str, Any]:
    """Print which caches of a dataset have been read in full; return it as values of JSON.

    Args:
        stores: what was opened, each with `fingerprint`, `shape` and `directory`.
        kind: what they are and the command that makes them, `features` or `regions`.
        data: the dataset.

    Raises:
        DataError: if the dataset has none.
    """
    if not stores:
        raise DataError(f"{data} has no {kind} that could be verified. Make them first: vsemb {kind} {data}")
    found = [_store_values(store) for store in stores]
    rows = [[each["fingerprint"], " x ".join(map(str, each["shape"])), each["directory"]] for each in found]
    print(table(["as written", "shape", "where"], rows, text=(0, 1, 2)))
    return {"verified": found}
