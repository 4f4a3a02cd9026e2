"""The directory beside an unfinished dataset: what is done is kept, and publishing it is one rename."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from vsemb.data.writing.shards import read_journal
from vsemb.errors import DataError
from vsemb.files import write_json


class WorkArea:
    """`.NAME.partial` beside the dataset `NAME`.

    It holds `plan.json` (source and options), `journal/` (one file per finished shard) and `dataset/`
    (what becomes `NAME`). A run with the same plan continues; with another one starts afresh.

    Args:
        out: the dataset's final path.
    """

    def __init__(self, out: Path) -> None:
        self.out = out
        self.root = out.parent / f".{out.name}.partial"
        self.dataset = self.root / "dataset"
        self.journal = self.root / "journal"

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Holds the work area for one process; the lock dies with the process, however it ends.

        Raises:
            DataError: if another process holds it.
        """
        self.root.mkdir(parents=True, exist_ok=True)
        with open(self.root / "lock", "wb") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise DataError(f"Another process is writing {self.out}; wait for it or stop it.") from error
            yield

    def begin(self, plan: dict[str, Any]) -> str:
        """Makes the work area ready for `plan`.

        Returns:
            `"fresh"`, `"resumed"` (finished shards of the same plan are there) or `"changed"` (those of
            another plan were, and are gone).
        """
        state = "fresh"
        if (self.root / "plan.json").exists():
            # Killed between publishing and removing, there is a plan and no dataset: nothing to continue.
            if self._plan() == plan and self.dataset.is_dir():
                self._remove_unfinished()
                return "resumed"
            state = "changed" if any(self.journal.glob("*.json")) else "fresh"
        self.clear()
        self.dataset.mkdir()
        self.journal.mkdir()
        write_json(self.root / "plan.json", plan)
        return state

    def _plan(self) -> Any:
        try:
            return json.loads((self.root / "plan.json").read_text(encoding="utf-8"))
        except ValueError:
            return None

    def _remove_unfinished(self) -> None:
        for path in [*self.dataset.glob("*.tmp"), *self.journal.glob(".*.tmp")]:
            path.unlink()

    def finished(self) -> dict[str, list[dict[str, Any]]]:
        """Returns the journal of finished shards, split name -> shards in order."""
        return read_journal(self.journal, self.dataset)

    def complete(self) -> bool:
        """Whether the dataset is whole and only its rename is missing."""
        return (self.root / "complete").exists()

    def mark_complete(self) -> None:
        """Notes that only the rename is missing."""
        write_json(self.root / "complete", True)

    def clear(self) -> None:
        """Removes everything in the work area but the lock."""
        # The plan goes last: whatever is interrupted here is cleared again, never taken for finished work.
        (self.root / "complete").unlink(missing_ok=True)
        for path in (self.dataset, self.journal, self.root / "old"):
            if path.exists():
                shutil.rmtree(path)
        (self.root / "plan.json").unlink(missing_ok=True)

    def publish(self) -> None:
        """Renames the finished dataset to its final path and removes the work area."""
        for folder, _, names in os.walk(self.dataset):
            for name in names:
                with open(os.path.join(folder, name), "rb") as file:
                    os.fsync(file.fileno())
        if self.out.exists():
            os.replace(self.out, self.root / "old")
        os.replace(self.dataset, self.out)
        parent = os.open(self.out.parent, os.O_RDONLY)
        try:
            os.fsync(parent)
        finally:
            os.close(parent)
        self.remove()

    def tidy(self, keep: bool) -> None:
        """After an error: removes what cannot be continued.

        Args:
            keep: whether finished shards stay; if there is none, or not, everything goes.
        """
        self._remove_unfinished()
        if not keep or not self.finished():
            self.remove()

    def remove(self) -> None:
        """Removes the work area."""
        shutil.rmtree(self.root, ignore_errors=True)
