"""Commands that are killed or find no space leave the same bytes after a rerun; the whole table is `make faults`."""

from __future__ import annotations

import signal
from pathlib import Path

import numpy as np
import pytest

from tests.faults.commands import CASES, Case, result
from tests.faults.flips import KINDS
from tests.faults.harness import CLEAR, CRASH, SAME, SILENT, Bench
from tests.faults.injection import Fault, run
from vsemb.errors import DataError
from vsemb.files import replacing_directory, write_json


def overwrite() -> int:
    with replacing_directory("two", overwrite=True) as folder:
        write_json(folder / "three.json", [3])
    return 0


def test_a_kill_at_any_event_is_made_up_for_by_a_rerun(tmp_path: Path) -> None:
    folder, log = tmp_path / "folder", tmp_path / "log"
    folder.mkdir()
    overwritten = (run(overwrite, folder, log), run(overwrite, folder, log))[1]
    wanted = result(folder)
    assert (overwritten.status, overwritten.errors) == (0, "") and overwritten.events > 8 and wanted
    for event in range(overwritten.events):
        assert run(overwrite, folder, log, Fault("kill", event)).status == -signal.SIGKILL
        assert run(overwrite, folder, log).status == 0
        assert result(folder) == wanted, event


def test_outcomes_are_told_apart(tmp_path: Path) -> None:
    bench = Bench(tmp_path, ["source"])

    def fails(error: Exception) -> int:
        raise error

    def says() -> int:
        import sys

        print("vsemb: There is no space.", file=sys.stderr)
        return 1

    judged = {}
    commands = {"same": lambda: 0, "other": overwrite, "says": says, "raises": lambda: fails(OSError(1))}
    for name, command in commands.items():
        bench.fresh([])
        judged[name] = bench.again(Case(name, (), command), {})[0]
    assert judged == {"same": SAME, "other": SILENT, "says": CLEAR, "raises": CRASH}


@pytest.mark.slow
def test_kills_and_full_disks_of_prepare(tmp_path: Path) -> None:
    case = CASES["prepare"]
    bench = Bench(tmp_path, case.needs)
    wanted, whole = bench.wanted(case)
    kills, full = bench.kills(case, wanted, whole, 3, seed=0), bench.full(case, wanted, whole, 2)
    assert kills.counts == {SAME: 3} and full.counts[CLEAR] + full.counts[SAME] == 2, (kills, full)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["index", "features"])
def test_kills_and_rivals(tmp_path: Path, name: str) -> None:
    case = CASES[name]
    bench = Bench(tmp_path, case.needs)
    wanted, whole = bench.wanted(case)
    rows = [bench.kills(case, wanted, whole, 2, seed=0), bench.rivals(case, wanted, whole, 1)]
    assert not any(row.counts[SILENT] or row.counts[CRASH] for row in rows), rows


@pytest.mark.slow
def test_flipped_bits(tmp_path: Path) -> None:
    needed = ["featured", "annotated", "run"]
    bench = Bench(tmp_path, needed)
    for kind in KINDS:
        if kind.files.startswith(tuple(needed)):
            row = bench.flips(kind, needed, 4, seed=0)
            assert not row.counts[SILENT] and not row.counts[CRASH], row


def test_damaged_headers_of_arrays_are_named(tmp_path: Path) -> None:
    from vsemb.data.features.files import load_array

    np.save(tmp_path / "ids.npy", np.arange(3))
    whole = (tmp_path / "ids.npy").read_bytes()
    # A quotation mark in the header, which Python's tokenizer then does not find the end of.
    refused = 0
    for place in range(10, 60):
        (tmp_path / "ids.npy").write_bytes(whole[:place] + b"(" + whole[place + 1 :])
        try:
            load_array(tmp_path / "ids.npy")
        except DataError as error:
            assert "ids.npy" in str(error)
            refused += 1
    # A bracket in the padding behind the header may be harmless.
    assert refused > 20
