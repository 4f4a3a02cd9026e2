"""The directory beside an unfinished dataset: what is done is kept, and publishing it is one rename."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from pathlib import Path
from typing import Any

from vsemb.data.manifest import shard_name
from vsemb.files import locked, sync, sync_tree, write_json


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

    def locked(self) -> contextlib.AbstractContextManager[None]:
        """Holds the work area for one process.

        Raises:
            DataError: if another process holds it.
        """
        return locked(self.root, f"Another process is writing {self.out}; wait for it or stop it.")

    def begin(self, plan: dict[str, Any]) -> bool:
        """Makes the work area ready for `plan`; finished shards of the same plan stay.

        Returns:
            Whether there were finished shards of another plan, which are gone.
        """
        file = self.root / "plan.json"
        interrupted = file.exists()
        # Killed between publishing and removing, there is a plan and no dataset: nothing to continue.
        if interrupted and self.dataset.is_dir():
            with contextlib.suppress(ValueError):
                if json.loads(file.read_text(encoding="utf-8")) == plan:
                    self._remove_unfinished()
                    return False
        changed = interrupted and any(self.journal.glob("*.json"))
        self.clear()
        self.dataset.mkdir()
        self.journal.mkdir()
        write_json(file, plan)
        return changed

    def _remove_unfinished(self) -> None:
        for path in [*self.dataset.glob("*.tmp"), *self.journal.glob(".*.tmp")]:
            path.unlink()

    def finished(self) -> dict[str, list[dict[str, Any]]]:
        """Returns the journal of finished shards of an interrupted run, split name -> shards in order.

        A shard counts only if its file has the size in the journal and all shards before it count.
        """
        found: dict[str, list[dict[str, Any]]] = {}
        for path in sorted(self.journal.glob("*.json")):
            shard = json.loads(path.read_text(encoding="utf-8"))
            shards = found.setdefault(shard["split"], [])
            file = self.shard_file(shard["split"], shard["number"])
            if shard["number"] == len(shards) and file is not None and file.stat().st_size == shard["bytes"]:
                shards.append(shard)
        return {split: shards for split, shards in found.items() if shards}

    def shard_file(self, split: str, number: int) -> Path | None:
        """Returns the file of a finished shard, under its working name or its final one."""
        working = self.dataset / shard_name(split, number)
        if working.exists():
            return working
        return next(self.dataset.glob(f"{split}-{number:05d}-of-*.tfrecord"), None)

    def clear(self) -> None:
        """Removes everything in the work area but the lock."""
        # The plan goes last: whatever is interrupted here is cleared again, never taken for finished work.
        for path in (self.dataset, self.journal, self.root / "old"):
            if path.exists():
                shutil.rmtree(path)
        (self.root / "plan.json").unlink(missing_ok=True)

    def publish(self) -> None:
        """Renames the finished dataset to its final path and removes the work area."""
        sync_tree(self.dataset)
        if self.out.exists():
            os.replace(self.out, self.root / "old")
        os.replace(self.dataset, self.out)
        sync(self.out.parent)
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
