"""All parts of the benchmark: one table, one JSON file, and which gates are met.

    python -m tests.benchmarks [--only retrieval order] [--quick] [--out benchmark.json] [--threads 1]
    python -m tests.benchmarks --compare OLD.json [OLDER.json]
    python -m tests.benchmarks --history benchmarks

Each part runs by itself, in a process of its own, one after the other: every number is a ratio to a named
peer or limit of the same run. Of a row measured at several sizes the largest is judged. `growth` rows are
the exponent b of a * size ** b: 1 is linear. A peer that is not installed and a part that fails are rows
that say why. With `--quick` sizes are small and no gate is judged. Parts and gates are in `gates.py`.

Beside the report is a picture of the growth rows, `.svg`. `--history` keeps reports in a folder, one per run, named by
time and commit, and compares with those that the same machine made there with the same settings.

The exit status is 1 where a part fails, a gate is not met or a row is worse than in all earlier reports.
"""

from __future__ import annotations

import argparse
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

from tests.benchmarks.comparison import compared, comparison, history, same_settings
from tests.benchmarks.gates import PARTS, judged
from tests.benchmarks.peers import THREAD_VARIABLES
from tests.benchmarks.picture import picture
from tests.benchmarks.reports import rows_of
from tests.benchmarks.timing import left_out
from vsemb.errors import DataError
from vsemb.files import read_json, write_json, write_text
from vsemb.printing import table

_ROOT = Path(__file__).resolve().parents[2]
_REASON = 100


def run_part(name: str, folder: Path, threads: int, quick: bool, hours: float) -> tuple[Any, str | None]:
    """Runs a part; returns its report and why there is none.

    Args:
        name: of the part.
        folder: where its JSON and what it printed go.
        threads: of our side and of all peers.
        quick: whether sizes are small.
        hours: until it is given up.
    """
    part, out = PARTS[name], folder / f"{name}.json"
    command = [sys.executable, "-m", f"tests.benchmarks.{name}", "--json", str(out)]
    command += part.quick if quick else ()
    environment = dict(os.environ)
    if part.threads:
        command += ["--threads", str(threads)]
        environment |= dict.fromkeys(THREAD_VARIABLES, str(threads))
    log = folder / f"{name}.log"
    with log.open("w") as printed:
        try:
            done = subprocess.run(
                command,
                cwd=_ROOT,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=printed,
                stderr=subprocess.STDOUT,
                timeout=3600 * hours,
            )
        except subprocess.TimeoutExpired:
            return None, f"was not over after {hours:g} hours"
    lines = [line for line in log.read_text(errors="replace").splitlines() if line.strip()]
    if done.returncode:
        return None, f"failed with status {done.returncode}: {lines[-1][:_REASON] if lines else 'no output'}"
    try:
        return read_json(out), None
    except DataError as error:
        return None, str(error).splitlines()[0][:_REASON]


def machine() -> dict[str, Any]:
    """What the ratios were measured on."""
    model = platform.processor() or platform.machine()
    information = Path("/proc/cpuinfo")
    if information.is_file():
        names = [line for line in information.read_text().splitlines() if line.startswith("model name")]
        model = names[0].partition(":")[2].strip() if names else model
    load = round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else None
    return {"processor": model, "cores": os.cpu_count(), "python": platform.python_version(), "load": load}


def commit() -> str | None:
    """The commit of the code, with `-dirty` where files are changed; None outside a repository."""
    command = ["git", "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
    try:
        return subprocess.run(command, cwd=_ROOT, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return None


def summary(rows: Sequence[Mapping[str, Any]]) -> str:
    """Lays out all rows as a table."""
    met = {None: "", True: "yes", False: "NO"}
    cells = []
    for each in rows:
        missing = each["ratio"] is None
        size, ratio = (each["reason"], "") if missing else (each["size"], f"{each['ratio']:.2f}")
        cells.append([each["name"], size, ratio, each.get("gate", ""), met[each.get("met")]])
    return table(["", "size", "ratio", "gate", "met"], cells, text=(0, 1, 4))


def main() -> int:
    """Runs the benchmark; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=list(PARTS), default=list(PARTS), metavar="PART")
    parser.add_argument("--quick", action="store_true", help="small sizes, no gates")
    kept = parser.add_mutually_exclusive_group()
    kept.add_argument("--out", metavar="FILE", type=Path, help="the report as JSON")
    kept.add_argument(
        "--history", metavar="FOLDER", type=Path, help="of reports, to keep this one and compare with them"
    )
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--hours", type=float, default=2.0, help="until a part is given up (%(default)g)")
    parser.add_argument(
        "--compare", nargs="+", metavar="FILE", default=[], help="earlier reports, oldest first, to mark regressions"
    )
    arguments = parser.parse_args()
    report: dict[str, Any] = {
        "commit": commit(),
        "machine": machine(),
        "threads": arguments.threads,
        "quick": arguments.quick,
        "rows": [],
        "parts": {},
    }
    out = arguments.out
    if out is not None and not out.absolute().parent.is_dir():
        parser.error(f"--out: the folder {out.absolute().parent} does not exist")
    try:
        earlier = [read_json(path) for path in arguments.compare]
        if not all(same_settings(report, each) for each in earlier):
            parser.error("--compare: the reports must have the same --quick and --threads")
        if arguments.history is not None:
            arguments.history.mkdir(parents=True, exist_ok=True)
            earlier = history(arguments.history, report) + earlier
            out = arguments.history / f"{time.strftime('%Y%m%dT%H%M%S', time.gmtime())}-{report['commit']}.json"
    except DataError as error:
        parser.error(f"an earlier report: {error}")
    failed = []
    for number, name in enumerate(arguments.only, 1):
        print(f"{number}/{len(arguments.only)} {name}", end=" ", file=sys.stderr, flush=True)
        begun = time.perf_counter()
        with tempfile.TemporaryDirectory() as folder:
            found, reason = run_part(name, Path(folder), arguments.threads, arguments.quick, arguments.hours)
            log = Path(folder, f"{name}.log").read_text(errors="replace")
        print(f"{reason or 'done'}, {time.perf_counter() - begun:.0f} s", file=sys.stderr)
        rows = [] if reason is None else [left_out(name, reason)]
        rows += rows_of(name, found) if reason is None else []
        if reason is not None:
            failed.append(name)
            print(log, file=sys.stderr)
        if not arguments.quick and reason is None:
            rows = judged(name, rows)
        report["rows"] += [{"part": name} | each for each in rows]
        report["parts"][name] = {"seconds": round(time.perf_counter() - begun, 1), "report": found}
        if out is not None:  # After each part: hours of measuring are not lost with the last.
            write_json(out, report)
            write_text(out.with_suffix(".svg"), picture(report["rows"], f"Growth at commit {report['commit']}"))
    missed = [each["name"] for each in report["rows"] if each.get("met") is False]
    print(summary(report["rows"]))
    gates = sum("met" in each for each in report["rows"])
    if gates:
        print(f"{gates - len(missed)} of {gates} gates are met.")
    worse = False
    if earlier:
        measured = [[each for each in old["rows"] if each["part"] in arguments.only] for old in earlier]
        changes = compared(measured, report["rows"])
        worse = any(each["mark"] == "REGRESSION" for each in changes)
        print(f"\nCompared with {', '.join(str(each.get('commit')) for each in earlier)}:\n{comparison(changes)}")
    return 1 if failed or missed or worse else 0


if __name__ == "__main__":
    sys.exit(main())
