"""How long commands take to start, beside `import tensorflow`.

    python -m tests.benchmarks.startup [--rounds 5]

Each measurement is a process of its own, in turns, in wall seconds; files are in the cache of the system after
a first round, which is not measured. `python -c "import tensorflow"` and commands that end are measured to their
end, `vsemb search` to its first result and `vsemb serve` to the first answer that its model is available. A process
with TensorFlow takes most of a second to end, so both have another row, beside the time until it is imported. The
run is a small one, trained before; the first round embeds its dataset.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from tests.benchmarks.processes import answers, free_port
from tests.benchmarks.timing import interleaved, print_rows, row
from vsemb.files import write_json

_ROOT = Path(__file__).resolve().parents[2]
_VSEMB = ("-m", "vsemb.cli")

PEER, IMPORTED = "import tensorflow", "import tensorflow, without its end"
IMPORT, HELP, RECIPES = "import vsemb, seconds", "vsemb --help, seconds", "vsemb recipes, seconds"
SEARCH, SERVE = "vsemb search, first result", "vsemb serve, ready"

Ready = Callable[["subprocess.Popen[str]"], bool]


def ended(process: subprocess.Popen[str]) -> bool:
    """Waits for the end; whether it is without an error."""
    process.communicate()
    return process.returncode == 0


def has_result(process: subprocess.Popen[str]) -> bool:
    """Waits for a line that begins with 1, the best result; False where the process ends without one."""
    assert process.stdout is not None
    return any(line.split()[:1] == ["1"] for line in process.stdout)


def started(arguments: tuple[str, ...], ready: Ready = ended) -> float:
    """Seconds from the start of a Python process until it is ready.

    Args:
        arguments: of Python.
        ready: waits, and returns whether the process did what it must.

    Raises:
        RuntimeError: if it did not; the message has the last line that it wrote.
    """
    # Lines are read as they are printed, as in a terminal.
    environment = os.environ | {"PYTHONUNBUFFERED": "1"}
    with tempfile.TemporaryFile("w+") as said:
        begun = time.perf_counter()
        process = subprocess.Popen(
            [sys.executable, *arguments],
            cwd=_ROOT,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=said,
            text=True,
        )
        with process:
            try:
                done = ready(process)
                seconds = time.perf_counter() - begun
            finally:
                process.kill()
        if not done:
            said.seek(0)
            raise RuntimeError(f"python {' '.join(arguments)} failed: {(said.read().splitlines() or [''])[-1]}")
    return seconds


def serving(model: Path) -> float:
    """Seconds until `vsemb serve` is ready."""
    port = free_port()
    options = ("--model", f"model={model}", "--port", "0", "--rest-port", str(port))
    return started((*_VSEMB, "serve", *options), partial(answers, port))


def measure(model: Path, run: Path, rounds: int) -> list[dict[str, Any]]:
    """The rows of the benchmark.

    Args:
        model: directory of the SavedModel.
        run: that it was exported from.
        rounds: that are measured.
    """
    started(("-c", "import sys, vsemb; 'tensorflow' in sys.modules and sys.exit('import vsemb loads TensorFlow')"))
    seconds = interleaved(
        {
            PEER: partial(started, ("-c", PEER)),
            IMPORTED: partial(started, ("-c", f"{PEER}; print(1)"), has_result),
            IMPORT: partial(started, ("-c", "import vsemb")),
            HELP: partial(started, (*_VSEMB, "--help")),
            RECIPES: partial(started, (*_VSEMB, "recipes")),
            SEARCH: partial(started, (*_VSEMB, "search", str(run), "a red circle"), has_result),
            SERVE: partial(serving, model),
        },
        rounds,
    )
    size, peer, imported = f"{rounds} rounds", seconds[PEER], seconds[IMPORTED]
    rows = [row(name, size, seconds[name], peer=peer) for name in (IMPORT, HELP, RECIPES)]
    for name in (SEARCH, SERVE):
        rows.append(row(f"{name} / {PEER}", size, seconds[name] / peer, ours=seconds[name], peer=peer))
        rows.append(row(f"{name} / {IMPORTED}", size, seconds[name] / imported, ours=seconds[name], peer=imported))
    return rows


def main() -> None:
    """Runs the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", metavar="FILE")
    arguments = parser.parse_args()
    from tests.benchmarks.serving import small_run

    with tempfile.TemporaryDirectory() as folder:
        rows = measure(*small_run(Path(folder)), arguments.rounds)
    print_rows(rows)
    if arguments.json:
        write_json(arguments.json, {"rows": rows})


if __name__ == "__main__":
    main()
