"""`python -m tests.faults`: try faults on the commands and files of vsemb, and print what became of them."""

from __future__ import annotations

import argparse
import json
import os
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from dataclasses import fields
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

from tests.faults.commands import CASES, Case
from tests.faults.flips import KINDS
from tests.faults.harness import CRASH, FLIPPED, OUTCOMES, SILENT, Bench, Row, import_libraries, work_folder

_QUICK = ("prepare", "index")
_FAULTS = {
    "kill": "kill -9",
    "full": "no space from an event on",
    "disk": "disk full",
    "read": "read-only target",
    "rivals": "two processes",
}


def main() -> int:
    """Run the harness; the exit status is 1 where a result differed in silence or a command crashed."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="five tries of each fault on prepare, index and datasets")
    parser.add_argument("--only", nargs="+", metavar="NAME", help="rows whose command or file begins so")
    parser.add_argument("--faults", nargs="+", metavar="FAULT", default=list(_FAULTS))
    parser.add_argument("--kills", type=int, default=50, metavar="N", help="kills per command (%(default)s)")
    parser.add_argument("--tries", type=int, default=10, metavar="N", help="tries of other faults (%(default)s)")
    parser.add_argument("--flips", type=int, default=50, metavar="N", help="flips per kind of file (%(default)s)")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="of random times and flips (%(default)s)")
    parser.add_argument("--resume", action="store_true", help="keep the rows of OUT.json that have no defects")
    parser.add_argument("--out", type=Path, default=Path("build/faults"), help="writes OUT.md and OUT.json")
    arguments = parser.parse_args()
    if arguments.quick:
        arguments.kills = arguments.tries = arguments.flips = 5
        arguments.only = arguments.only or [*_QUICK, "dataset: ", "features: ", "regions: ", "annotations: ", "index: "]
    import_libraries()
    kept = _kept(arguments.out.with_suffix(".json")) if arguments.resume else {}
    rows = dict(kept)
    with work_folder() as work:
        for row in _rows(work, arguments, kept):
            print(table([row], head=len(rows) == len(kept)), flush=True)
            rows[row.subject, row.fault] = row
            for note in row.notes:
                print(f"    {note}", flush=True)
            _write(arguments, list(rows.values()))
    return int(any(row.counts[SILENT] or row.counts[CRASH] for row in rows.values()))


def _kept(path: Path) -> dict[tuple[str, str], Row]:
    names = [each.name for each in fields(Row)]
    read = json.loads(path.read_text(encoding="utf-8"))["rows"] if path.exists() else []
    rows = [Row(**{name: each[name] for name in names} | {"counts": Counter(each["counts"])}) for each in read]
    return {(row.subject, row.fault): row for row in rows if not row.counts[SILENT] and not row.counts[CRASH]}


def _rows(work: Path, arguments: argparse.Namespace, kept: Collection[tuple[str, str]]) -> Iterator[Row]:
    def chosen(name: str) -> bool:
        return arguments.only is None or any(name.startswith(each) for each in arguments.only)

    left = {case: [each for each in arguments.faults if (case, _FAULTS[each]) not in kept] for case in CASES}
    cases = [case for case in CASES.values() if chosen(case.name) and left[case.name]]
    kinds = (
        [kind for kind in KINDS if chosen(kind.name) and (kind.name, FLIPPED) not in kept] if arguments.flips else []
    )
    flipped = ("featured", "annotated", "run", "index", "savedmodels")
    needed = {name for case in cases for name in case.needs} | {
        name for kind in kinds for name in flipped if kind.files.startswith(name) or name == "featured"
    }
    bench = Bench(work, sorted(needed))
    for case in cases:
        for attempt in _attempts(bench, case, left[case.name], arguments):
            yield _timed(attempt)
    for kind in kinds:
        needs = [name for name in flipped if name in needed and (name == "featured" or kind.files.startswith(name))]
        yield _timed(lambda kind=kind, needs=needs: bench.flips(kind, needs, arguments.flips, arguments.seed))


def _attempts(
    bench: Bench, case: Case, faults: list[str], arguments: argparse.Namespace
) -> Iterator[Callable[[], Row]]:
    wanted, whole = bench.wanted(case)
    tries = {
        "kill": lambda: bench.kills(case, wanted, whole, arguments.kills, arguments.seed),
        "full": lambda: bench.full(case, wanted, whole, arguments.tries),
        "disk": lambda: bench.small_disks(case, wanted, arguments.tries),
        "read": lambda: bench.read_only(case, wanted),
        "rivals": lambda: bench.rivals(case, wanted, whole, arguments.tries),
    }
    for fault in faults:
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
    # Rows that were measured again come last.
    subjects, faults = [*CASES, *(kind.name for kind in KINDS)], [*_FAULTS.values(), FLIPPED]
    rows = sorted(rows, key=lambda row: (subjects.index(row.subject), faults.index(row.fault)))
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    arguments.out.with_suffix(".md").write_text(table(rows) + "\n", encoding="utf-8")
    content = {"seed": arguments.seed, "rows": [row.to_json() for row in rows]}
    arguments.out.with_suffix(".json").write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    raise SystemExit(main())
