"""Merging of concurrent requests into batches, and the threads that run them.

All of it lives on one event loop; only TensorFlow's work is done in threads. Requests wait here and
nowhere else, so a request whose client has gone is dropped before it costs anything.
"""

from __future__ import annotations

import asyncio
import functools
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from vsemb.serving.models import Arrays, LoadedModel, Signature


@dataclass
class _Item:
    """One waiting request."""

    inputs: Arrays
    rows: int
    arrived: float
    future: asyncio.Future[Arrays]


@dataclass
class _Group:
    """Requests that may be merged with each other, oldest first."""

    model: LoadedModel
    signature: Signature
    merge: bool
    items: deque[_Item] = field(default_factory=deque)

    @property
    def rows(self) -> int:
        return sum(item.rows for item in self.items)


@dataclass(eq=False)
class Batcher:
    """Runs requests in a few threads, merged where that changes no result.

    Requests for the same signature of the same version, whose rows have the same shapes, are put together
    along the 0th dimension, run once and split again. A request that finds nothing running starts at once.
    While a batch runs, the next one gathers: it starts when a thread is free and it is full or its oldest
    request has waited `timeout`.

    Args:
        batch_size: rows of a merged batch at most; 1 turns merging off. A larger request runs alone.
        timeout: seconds that a request waits at most for others while a thread is free and another works.
        threads: batches that run at a time.
        on_batch: called, in a thread, with the model's name, the signature's and the rows of each batch.
    """

    batch_size: int
    timeout: float
    threads: int
    on_batch: Callable[[str, str, int], None] = lambda model, signature, rows: None

    def __post_init__(self) -> None:
        self._executor = ThreadPoolExecutor(self.threads, thread_name_prefix="vsemb-serving")
        self._groups: dict[tuple[Any, ...], _Group] = {}
        self._running = 0
        self._timer: asyncio.TimerHandle | None = None

    @property
    def waiting(self) -> int:
        """The number of requests that no thread has begun yet."""
        return sum(len(group.items) for group in self._groups.values())

    async def run(self, model: LoadedModel, signature: Signature, inputs: Arrays) -> Arrays:
        """Computes one request's outputs, together with others.

        Args:
            model: the version.
            signature: one of its signatures.
            inputs: checked inputs.

        Raises:
            RequestError: as `LoadedModel.run`; the error of this request alone.
        """
        rows = next((array.shape[0] for array in inputs.values() if array.ndim), 1)
        merge = self.batch_size > 1 and signature.mergeable and rows > 0
        future = asyncio.get_running_loop().create_future()
        item = _Item(inputs, rows, time.monotonic(), future)
        shapes = tuple(sorted((name, array.shape[1:]) for name, array in inputs.items()))
        # A request that is not merged is a group of its own.
        key = (model, signature.name, shapes) if merge else (id(item),)
        self._groups.setdefault(key, _Group(model, signature, merge)).items.append(item)
        self._pump()
        return await future

    def _pump(self) -> None:
        """Starts what can start now, and sets the clock for what can start later."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for group in self._groups.values():
            group.items = deque(item for item in group.items if not item.future.done())
        self._groups = {key: group for key, group in self._groups.items() if group.items}
        while self._running < self.threads and self._groups:
            now = time.monotonic()
            key, group = min(self._groups.items(), key=lambda entry: self._due(entry[1]))
            if (wait := self._due(group) - now) > 0:
                self._timer = asyncio.get_running_loop().call_later(wait, self._pump)
                return
            items = self._take(group)
            if not group.items:
                del self._groups[key]
            self._running += 1
            batch = asyncio.get_running_loop().run_in_executor(self._executor, self._compute, group, items)
            batch.add_done_callback(functools.partial(self._answer, items))

    def _due(self, group: _Group) -> float:
        oldest = group.items[0].arrived
        gathering = group.merge and self._running and group.rows < self.batch_size
        return oldest + self.timeout if gathering else oldest

    def _take(self, group: _Group) -> list[_Item]:
        items = [group.items.popleft()]
        rows = items[0].rows
        while group.items and rows + group.items[0].rows <= self.batch_size:
            items.append(group.items.popleft())
            rows += items[-1].rows
        return items

    def _answer(self, items: list[_Item], batch: asyncio.Future[list[Arrays | Exception]]) -> None:
        self._running -= 1
        for item, result in zip(items, batch.result(), strict=True):
            if item.future.done():
                continue
            if isinstance(result, Exception):
                item.future.set_exception(result)
            else:
                item.future.set_result(result)
        self._pump()

    def _compute(self, group: _Group, items: list[_Item]) -> list[Arrays | Exception]:
        """Returns each item's outputs or its error; runs in a thread."""
        if len(items) > 1:
            total = sum(item.rows for item in items)
            try:
                merged = {name: np.concatenate([item.inputs[name] for item in items]) for name in items[0].inputs}
                outputs = group.model.run(group.signature.name, merged)
            except Exception:
                # One of them is to blame; alone, each gets its own answer.
                outputs = {}
            if outputs and all(array.shape[0] == total for array in outputs.values()):
                self.on_batch(group.model.name, group.signature.name, total)
                ends = np.cumsum([item.rows for item in items])[:-1]
                parts = {name: np.split(array, ends) for name, array in outputs.items()}
                return [{name: parts[name][i] for name in parts} for i in range(len(items))]
        results: list[Arrays | Exception] = []
        for item in items:
            try:
                results.append(group.model.run(group.signature.name, item.inputs))
                self.on_batch(group.model.name, group.signature.name, item.rows)
            except Exception as error:
                results.append(error)
        return results

    def close(self) -> None:
        """Ends the threads once they have finished what they run."""
        self._executor.shutdown(wait=True)
