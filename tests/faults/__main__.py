"""`python -m tests.faults`: try faults on the commands and files of vsemb, and print what became of them."""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

from tests.faults.commands import CASES, Case
from tests.faults.flips import KINDS
from tests.faults.harness import CRASH, OUTCOMES, SILENT, Bench, Row, import_libraries, work_folder

_QUICK = ("prepare", "index")


def main() -> int:
    """Run the harness; the exit status is 1 where a result differed in silence or a command crashed."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="five tries of each fault on prepare and index")
    parser.add_argument("--only", nargs="+", metavar="NAME", help="rows whose command or file begins so")
    parser.add_argument("--faults", nargs="+", metavar="FAULT", default=["kill", "full", "disk", "read", "rivals"])
    parser.add_argument("--kills", type=int, default=50, metavar="N", help="kills per command (%(default)s)")
    parser.add_argument("--tries", type=int, default=10, metavar="N", help="tries of other faults (%(default)s)")
    parser.add_argument("--flips", type=int, default=50, metavar="N", help="flips per kind of file (%(default)s)")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="of random times and flips (%(default)s)")
    parser.add_argument("--out", type=Path, default=Path("build/faults"), help="writes OUT.md and OUT.json")
    arguments = parser.parse_args()
    if arguments.quick:
        arguments.kills = arguments.tries = arguments.flips = 5
        arguments.only = arguments.only or [*_QUICK, "features: ", "index: "]
    import_libraries()
    rows: list[Row] = []
    with work_folder() as work:
        for row in _rows(work, arguments):
            rows.append(row)
            print(table([row], head=len(rows) == 1), flush=True)
            for note in row.notes:
                print(f"    {note}", flush=True)
            _write(arguments, rows)
    return int(any(row.counts[SILENT] or row.counts[CRASH] for row in rows))


def _rows(work: Path, arguments: argparse.Namespace) -> Iterator[Row]:
    def chosen(name: str) -> bool:
        return arguments.only is None or any(name.startswith(each) for each in arguments.only)

    cases = [case for case in CASES.values() if chosen(case.name)]
    kinds = [kind for kind in KINDS if chosen(kind.name)] if arguments.flips else []
    flipped = ("featured", "run", "index", "savedmodels")
    needed = {name for case in cases for name in case.needs} | {
        name for kind in kinds for name in flipped if kind.files.startswith(name) or name == "featured"
    }
    bench = Bench(work, sorted(needed))
    for case in cases:
        for attempt in _attempts(bench, case, arguments):
            yield _timed(attempt)
    for kind in kinds:
        needs = [name for name in flipped if name in needed and (name == "featured" or kind.files.startswith(name))]
        yield _timed(lambda kind=kind, needs=needs: bench.flips(kind, needs, arguments.flips, arguments.seed))


def _attempts(bench: Bench, case: Case, arguments: argparse.Namespace) -> Iterator[Callable[[], Row]]:
    wanted, whole = bench.wanted(case)
    tries = {
        "kill": lambda: bench.kills(case, wanted, whole, arguments.kills, arguments.seed),
        "full": lambda: bench.full(case, wanted, whole, arguments.tries),
        "disk": lambda: bench.small_disks(case, wanted, arguments.tries),
        "read": lambda: bench.read_only(case, wanted),
        "rivals": lambda: bench.rivals(case, wanted, whole, arguments.tries),
    }
    for fault in arguments.faults:
        yield tries[fault]


def _timed(attempt: Callable[[], Row]) -> Row:
    began = time.monotonic()
    row = attempt()
    row.seconds = round(time.monotonic() - began, 1)
    return row


def table(rows: list[Row], head: bool = True) -> str:
    """Return rows as a Markdown table."""
    names = ("command or file", "fault", "tried", *OUTCOMES)
    lines = [f"| {' | '.join(names)} |", "| --- | --- |" + " ---: |" * (len(names) - 2)] if head else []
    for row in rows:
        counts = (row.counts.total(), *(row.counts[each] for each in OUTCOMES))
        lines.append(f"| {row.subject} | {row.fault} | {' | '.join(map(str, counts))} |")
    return "\n".join(lines)


def _write(arguments: argparse.Namespace, rows: list[Row]) -> None:
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    arguments.out.with_suffix(".md").write_text(table(rows) + "\n", encoding="utf-8")
    content = {"seed": arguments.seed, "rows": [row.to_json() for row in rows]}
    arguments.out.with_suffix(".json").write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    raise SystemExit(main())
