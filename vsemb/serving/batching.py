"""Merging of concurrent requests into batches, and the threads that run them.

Everything except TensorFlow runs on one event loop. Requests wait only here, so a request is dropped if its client
disconnects before it runs. A request also waits here if its images would exceed the pixels that are decoded at once.
"""

from __future__ import annotations

import asyncio
import functools
import itertools
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from vsemb.image.decode import MAX_PIXELS
from vsemb.serving.budget import count_rows, row_pixels
from vsemb.serving.models import Arrays, LoadedModel, LoadedSignature
from vsemb.serving.status import Code, RequestError

# Requests with more values than this are searched for images in a thread.
_LARGE = 4096

# A request with more rows than this, and than a batch, runs in parts.
_PART_ROWS = 64


@dataclass
class _Item:
    """One waiting request."""

    inputs: Arrays
    rows: int
    row_pixels: list[int]
    arrived: float
    future: asyncio.Future[Arrays]

    @functools.cached_property
    def pixels(self) -> int:
        return sum(self.row_pixels)


@dataclass
class _Group:
    """Requests that can be merged, oldest first."""

    model: LoadedModel
    signature: LoadedSignature
    merge: bool
    items: deque[_Item] = field(default_factory=deque)

    @property
    def rows(self) -> int:
        return sum(item.rows for item in self.items)


@dataclass(eq=False)
class Batcher:
    """Run requests in threads, merged if merging does not change their results.

    Requests for the same signature and version, with rows of the same shapes, are concatenated along the 0th dimension,
    run once and split. A request starts at once if no batch is running. Otherwise a batch starts when a thread is free
    and the batch is full or its oldest request has waited `timeout`.

    Batches with images start while the pixels of all running batches are within `max_pixels`. A request with more
    pixels runs while no other batch has images.

    A request with more rows or pixels runs in parts if its rows do not depend on each other. If its client
    disconnects, it ends after the current part.

    Args:
        batch_size: maximum rows of a merged batch; 1 disables merging. A larger request runs alone, in parts of this
            size or of 64 rows.
        timeout: maximum seconds that a request waits for others while a thread is free.
        threads: number of batches that run at once.
        max_pixels: maximum pixels of JPEG and PNG images in running batches.
        on_batch: called in a thread with the names of model and signature and the rows of each batch.
    """

    batch_size: int
    timeout: float
    threads: int
    max_pixels: int = 2 * MAX_PIXELS
    on_batch: Callable[[str, str, int], None] = lambda model, signature, rows: None

    def __post_init__(self) -> None:
        self._executor = ThreadPoolExecutor(self.threads, thread_name_prefix="vsemb-serving")
        self._groups: dict[tuple[Any, ...], _Group] = {}
        self._running = 0
        #: Pixels of the running batches.
        self.pixels = 0
        self._timer: asyncio.TimerHandle | None = None

    @property
    def waiting(self) -> int:
        """Number of requests that are not running yet."""
        return sum(len(group.items) for group in self._groups.values())

    async def run(self, model: LoadedModel, signature: LoadedSignature, inputs: Arrays) -> Arrays:
        """Compute one request's outputs, merged with others if possible.

        Args:
            model: the version.
            signature: one of its signatures.
            inputs: checked inputs.

        Raises:
            RequestError: as `LoadedModel.run`, for this request only.
        """
        rows = count_rows(inputs)
        same = all(array.ndim and len(array) == rows for array in inputs.values())
        merge = self.batch_size > 1 and signature.mergeable and same and rows > 0
        future = asyncio.get_running_loop().create_future()
        large = sum(array.size for array in inputs.values()) > _LARGE
        pixels = await asyncio.to_thread(row_pixels, inputs) if large else row_pixels(inputs)
        item = _Item(inputs, rows, pixels, time.monotonic(), future)
        shapes = tuple(sorted((name, array.shape[1:]) for name, array in inputs.items()))
        # An unmerged request is its own group.
        key = (model, signature.name, shapes) if merge else (id(item),)
        self._groups.setdefault(key, _Group(model, signature, merge)).items.append(item)
        self._pump()
        return await future

    def _pump(self) -> None:
        """Start the batches that are due, and set a timer for the next one."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for group in self._groups.values():
            group.items = deque(item for item in group.items if not item.future.done())
        self._groups = {key: group for key, group in self._groups.items() if group.items}
        while self._running < self.threads and (due := self._next()):
            key, group = due
            if (wait := self._due(group) - time.monotonic()) > 0:
                self._timer = asyncio.get_running_loop().call_later(wait, self._pump)
                return
            items = self._take(group)
            if not group.items:
                del self._groups[key]
            pixels = min(sum(item.pixels for item in items), self.max_pixels)
            self._running += 1
            self.pixels += pixels
            batch = asyncio.get_running_loop().run_in_executor(self._executor, self._compute, group, items)
            batch.add_done_callback(functools.partial(self._answer, items, pixels))

    def _next(self) -> tuple[tuple[Any, ...], _Group] | None:
        """Return the group that is due first; of groups with images, only the first, if its pixels are free."""
        first_with_images = True
        for key, group in sorted(self._groups.items(), key=lambda entry: self._due(entry[1])):
            pixels = min(group.items[0].pixels, self.max_pixels)
            if not pixels or (first_with_images and self.pixels + pixels <= self.max_pixels):
                return key, group
            # Otherwise smaller images could delay a large one forever.
            first_with_images = False
        return None

    def _due(self, group: _Group) -> float:
        oldest = group.items[0].arrived
        gathering = group.merge and self._running and group.rows < self.batch_size
        return oldest + self.timeout if gathering else oldest

    def _take(self, group: _Group) -> list[_Item]:
        items = [group.items.popleft()]
        rows, pixels = items[0].rows, self.pixels + items[0].pixels
        while group.items and rows + group.items[0].rows <= self.batch_size:
            rows, pixels = rows + group.items[0].rows, pixels + group.items[0].pixels
            if pixels > self.max_pixels:
                break
            items.append(group.items.popleft())
        return items

    def _answer(self, items: list[_Item], pixels: int, batch: asyncio.Future[list[Arrays | Exception]]) -> None:
        self._running -= 1
        self.pixels -= pixels
        for item, result in zip(items, batch.result(), strict=True):
            if item.future.done():
                continue
            if isinstance(result, Exception):
                item.future.set_exception(result)
            else:
                item.future.set_result(result)
        self._pump()

    def _compute(self, group: _Group, items: list[_Item]) -> list[Arrays | Exception]:
        """Return each item's outputs or its error; runs in a thread."""
        if len(items) > 1:
            total = sum(item.rows for item in items)
            try:
                merged = {name: np.concatenate([item.inputs[name] for item in items]) for name in items[0].inputs}
                outputs = group.model.run(group.signature.name, merged)
            except Exception:
                # One request caused the error. Run each alone, so that only this one fails.
                outputs = {}
            if outputs and all(array.shape[0] == total for array in outputs.values()):
                self.on_batch(group.model.name, group.signature.name, total)
                ends = np.cumsum([item.rows for item in items])[:-1]
                parts = {name: np.split(array, ends) for name, array in outputs.items()}
                return [{name: parts[name][i] for name in parts} for i in range(len(items))]
        results: list[Arrays | Exception] = []
        for item in items:
            try:
                results.append(self._run_in_parts(group, item))
                self.on_batch(group.model.name, group.signature.name, item.rows)
            except Exception as error:
                results.append(error)
        return results

    def _run_in_parts(self, group: _Group, item: _Item) -> Arrays:
        """Run one request in parts, within the rows of a part and `max_pixels`."""
        parts = self._parts(item) if group.signature.mergeable else []
        if len(parts) > 1:
            answers = []
            for part in parts:
                if item.future.done():
                    raise RequestError(Code.CANCELLED, "The client closed the connection.")
                # A default of one row belongs to all parts.
                inputs = {
                    name: array[part] if len(array) == item.rows else array for name, array in item.inputs.items()
                }
                answers.append(group.model.run(group.signature.name, inputs))
            outputs = {name: np.concatenate([answer[name] for answer in answers]) for name in answers[0]}
            if all(len(array) == item.rows for array in outputs.values()):
                return outputs
        return group.model.run(group.signature.name, item.inputs)

    def _parts(self, item: _Item) -> list[slice]:
        most = max(self.batch_size, _PART_ROWS)
        if item.rows <= most and item.pixels <= self.max_pixels:
            return [slice(0, item.rows)]
        starts, pixels = [0], 0
        for row, more in enumerate(item.row_pixels):
            pixels += more
            if row > starts[-1] and (pixels > self.max_pixels or row - starts[-1] >= most):
                starts.append(row)
                pixels = more
        return [slice(*ends) for ends in itertools.pairwise([*starts, item.rows])]

    def close(self) -> None:
        """End the threads after their current batches."""
        self._executor.shutdown(wait=True)
