"""Tries of faults, judged: same result, clear error, silent difference or crash."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import shutil
import signal
import sys
import tempfile
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

import numpy as np

from tests.faults.commands import Case, make_materials, result
from tests.faults.flips import Kind, flip
from tests.faults.injection import Ended, Fault, Process, run, small_disk

SAME, CLEAR, SILENT, CRASH = OUTCOMES = ("same result", "clear error", "silent difference", "crash")
#: The fault of rows of files.
FLIPPED = "one flipped bit"
#: A share of the kills come at a random time and not at an event.
_RANDOM_TIMES = 5


@dataclass
class Row:
    """A row of the table.

    Attributes:
        subject: command or kind of file.
        fault: the fault.
        counts: outcome -> number of tries.
        notes: of the tries that ended badly, at most five.
        seconds: time that the row took.
    """

    subject: str
    fault: str
    counts: Counter[str] = field(default_factory=Counter)
    notes: list[str] = field(default_factory=list)
    seconds: float = 0.0

    def add(self, outcome: str, note: str) -> None:
        """Count a try."""
        self.counts[outcome] += 1
        if outcome in (SILENT, CRASH) and len(self.notes) < 5:
            self.notes.append(f"{outcome}: {note}")

    def to_json(self) -> dict[str, object]:
        """Return the row as JSON values."""
        return {**asdict(self), "tried": self.counts.total(), "counts": {each: self.counts[each] for each in OUTCOMES}}


class Bench:
    """Folders for tries of faults.

    Args:
        work: an empty folder.
        needed: materials to make.
    """

    def __init__(self, work: Path, needed: Sequence[str]) -> None:
        # Paths are recorded in runs and indexes, so each try happens in the folder in which the materials were made.
        self.folder, self._materials, self._log = work / "folder", work / "materials", work / "stderr"
        self.folder.mkdir()
        made = run(lambda: make_materials(needed), self.folder, self._log)
        if made.status:
            raise RuntimeError(f"no materials: {made.errors}")
        shutil.move(self.folder, self._materials)

    def fresh(self, needed: Sequence[str], folder: Path | None = None) -> None:
        """Fill the folder with materials alone."""
        target = folder or self.folder
        shutil.rmtree(target, ignore_errors=True)
        target.mkdir(exist_ok=True)
        for name in needed:
            source = self._materials / name
            (shutil.copytree if source.is_dir() else shutil.copy2)(source, target / name)

    def wanted(self, case: Case) -> tuple[dict[str, str], Ended]:
        """Run a command twice without a fault; return its result, and how it ended.

        Files that differ between the two, as graphs of TensorFlow do, are compared by their presence alone.
        """
        found: list[dict[str, str]] = []
        for _ in range(2):
            self.fresh(case.needs)
            ended = run(case.run, self.folder, self._log)
            if ended.status:
                raise RuntimeError(f"{case.name} fails without a fault: {ended.errors}")
            found.append(result(self.folder))
        return {name: digest if found[0].get(name) == digest else "*" for name, digest in found[1].items()}, ended

    def again(self, case: Case, wanted: dict[str, str], before: str = "") -> tuple[str, str]:
        """Run a command after a fault and judge what it leaves."""
        return self.judged(run(case.run, self.folder, self._log), wanted, before)

    def judged(self, ended: Ended, wanted: dict[str, str], before: str = "") -> tuple[str, str]:
        """Judge how a command ended and what it left; return outcome and note."""
        if ended.clear:
            return CLEAR, ended.reason
        if ended.status:
            return CRASH, f"{before} exit status {ended.status}: {ended.errors[-600:]}"
        found = result(self.folder)
        differing = [
            name
            for name in sorted({*found, *wanted})
            if wanted.get(name) != (found.get(name) and "*") and wanted.get(name) != found.get(name)
        ]
        return (SILENT, f"{before} {', '.join(differing[:5])}") if differing else (SAME, "")

    def kills(self, case: Case, wanted: dict[str, str], whole: Ended, count: int, seed: int) -> Row:
        """Kill a command at events and at random times, and run it again."""
        row, random = Row(case.name, "kill -9"), np.random.default_rng(seed)
        events = _spread(whole.events, count - (count // _RANDOM_TIMES if count > 1 else 0))
        for event in events:
            self.fresh(case.needs)
            run(case.run, self.folder, self._log, Fault("kill", event))
            row.add(*self.again(case, wanted, f"killed at event {event}:"))
        for moment in random.uniform(0.0, whole.seconds, count - len(events)):
            self.fresh(case.needs)
            process = Process(case.run, self.folder, self._log)
            process.wait(moment)
            process.send(signal.SIGKILL)
            process.end()
            row.add(*self.again(case, wanted, f"killed after {moment:.2f} s:"))
        return row

    def full(self, case: Case, wanted: dict[str, str], whole: Ended, count: int) -> Row:
        """Let the disk be full from an event on; afterwards, with space, run the command again."""
        row = Row(case.name, "no space from an event on")
        for event in _spread(whole.events, count):
            self.fresh(case.needs)
            self._refused(row, case, wanted, Fault("full", event), f"no space at event {event}:")
        return row

    def read_only(self, case: Case, wanted: dict[str, str]) -> Row:
        """Let all writing be refused."""
        row = Row(case.name, "read-only target")
        for code in (errno.EROFS, errno.EACCES):
            self.fresh(case.needs)
            self._refused(row, case, wanted, Fault("full", 0, code), f"{errno.errorcode[code]}:")
        return row

    def _refused(
        self,
        row: Row,
        case: Case,
        wanted: dict[str, str],
        fault: Fault | None,
        note: str,
        relieve: Callable[[], None] = lambda: None,
    ) -> None:
        first = run(case.run, self.folder, self._log, fault)
        outcome, why = self.judged(first, wanted, note)
        relieve()
        if outcome == CLEAR:
            after, told = self.again(case, wanted, f"{note} then, with space,")
            outcome, why = (CLEAR, why) if after == SAME else (CRASH if after == CLEAR else after, told)
        row.add(outcome, why)

    def small_disks(self, case: Case, wanted: dict[str, str], count: int) -> Row:
        """Run a command on a disk of memory that is too small, and again after it has grown."""
        row = Row(case.name, "disk full")
        self.fresh(case.needs)
        start = _kilobytes(self.folder)
        run(case.run, self.folder, self._log)
        end = _kilobytes(self.folder)
        for part in range(count):
            shutil.rmtree(self.folder)
            self.folder.mkdir()
            size = start + 8 + (end - start) * part // count
            with contextlib.suppress(PermissionError), small_disk(self.folder, 1 << 20) as remount:
                for name in case.needs:
                    source = self._materials / name
                    (shutil.copytree if source.is_dir() else shutil.copy2)(source, self.folder / name)
                remount(f"size={size}k")
                self._refused(row, case, wanted, None, f"{size} KiB:", lambda: remount("size=1g"))
        return row

    def rivals(self, case: Case, wanted: dict[str, str], whole: Ended, count: int) -> Row:
        """Stop a command at an event while a second one runs, and let it go on after that one has ended or waits."""
        row = Row(case.name, "two processes")
        for event in _spread(whole.events, count):
            self.fresh(case.needs)
            first = Process(case.run, self.folder, self._log, Fault("stop", event))
            first.wait_until_stopped()
            second = Process(case.run, self.folder, self._log.with_name("stderr-2"))
            second.wait(3.0 * whole.seconds + 2.0)
            first.send(signal.SIGCONT)
            ends = [first.end(), second.end()]
            row.add(*self._judge_rivals(ends, wanted, f"first stopped at event {event}:"))
        return row

    def _judge_rivals(self, ends: list[Ended], wanted: dict[str, str], note: str) -> tuple[str, str]:
        winners = [each for each in ends if not each.status]
        broken = [each for each in ends if each.status and not each.clear]
        if broken or not winners:
            return CRASH, f"{note} {[(each.status, each.errors[-400:]) for each in ends]}"
        outcome, why = self.judged(winners[0], wanted, note)
        return (CLEAR, "") if outcome == SAME and len(winners) == 1 else (outcome, why)

    def flips(self, kind: Kind, needs: Sequence[str], count: int, seed: int) -> Row:
        """Flip bits of files and read them, in one process until one crashes it."""
        row = Row(kind.name, FLIPPED)
        reports = self._log.with_name("flips")
        done = 0
        while done < count:
            self.fresh(needs)
            reports.write_text("", encoding="utf-8")
            ended = run(lambda first=done: _flip_and_read(kind, reports, seed, first, count), self.folder, self._log)
            lines = [json.loads(line) for line in reports.read_text(encoding="utf-8").splitlines()]
            for outcome, note in lines:
                row.add(outcome, note)
            done += len(lines)
            if done < count:
                row.add(CRASH, f"flip {done}: exit status {ended.status}: {ended.errors[-400:]}")
                done += 1
        return row


def _flip_and_read(kind: Kind, reports: Path, seed: int, first: int, count: int) -> int:
    from vsemb.errors import VsembError

    # A test's process has warnings as errors, and the one of a service that has stopped would end the reader.
    warnings.simplefilter("default")
    wanted = kind.read()
    files = sorted(path for path in Path().glob(kind.files) if path.is_file())
    for number in range(first, count):
        random = np.random.default_rng([seed, number])
        path = files[int(random.integers(len(files)))]
        status = path.stat()
        whole = flip(path, random, kind.aged)
        try:
            outcome = (SAME, "") if kind.read() == wanted else (SILENT, f"flip {number} of {path}")
        except VsembError as error:
            named = path.name in str(error) or path.parent.name in str(error)
            outcome = (CLEAR, "") if named else (CRASH, f"flip {number} of {path}, which is not named: {error}")
        except Exception as error:
            outcome = CRASH, f"flip {number} of {path}: {type(error).__name__}: {str(error)[:300]}"
        path.write_bytes(whole)
        os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
        with open(reports, "a", encoding="utf-8") as file:
            file.write(json.dumps(outcome) + "\n")
    return 0


def _spread(events: int, count: int) -> list[int]:
    """Return events from the first to the last, all of them where `count` is enough."""
    return sorted({int(event) for event in np.linspace(0, max(events - 1, 0), min(count, events))})


def _kilobytes(folder: Path) -> int:
    # A disk of memory gives whole pages, to folders none.
    return sum(-(-path.stat().st_size // 4096) * 4 for path in folder.rglob("*") if path.is_file())


@contextlib.contextmanager
def work_folder() -> Iterator[Path]:
    """A temporary folder, in memory where there is a disk of memory."""
    with tempfile.TemporaryDirectory(
        prefix="vsemb-faults-", dir="/dev/shm" if Path("/dev/shm").is_dir() else None
    ) as path:
        yield Path(path)


def import_libraries() -> None:
    """Import what commands import, and start nothing of TensorFlow, whose threads do not survive a fork."""
    import h5py
    import keras
    import pyarrow.compute
    import tensorflow

    import vsemb.data.writing.prepare
    import vsemb.runs.serve
    import vsemb.runs.train

    assert "vsemb" in sys.modules, (h5py, keras, pyarrow.compute, tensorflow, vsemb)
