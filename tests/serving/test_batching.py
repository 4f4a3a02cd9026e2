"""Merging of requests, with a model that waits until it is told to go on."""

from __future__ import annotations

import asyncio
import threading

import numpy as np
import pytest
import tensorflow as tf

from vsemb.serving.batching import Batcher
from vsemb.serving.models import LoadedSignature
from vsemb.serving.status import RequestError, invalid

ROWS = tf.TensorSpec((None,), tf.float32)
DOUBLE = LoadedSignature("double", {"x": ROWS}, {"y": ROWS}, {})


class Gated:
    """Doubles its input. The first batch waits for `gate`, so that others gather behind it."""

    name = "gated"

    def __init__(self) -> None:
        self.gate, self.begun = threading.Event(), threading.Event()
        self.batches: list[list[float]] = []

    def run(self, signature: str, inputs: dict) -> dict:
        self.batches.append(inputs["x"].tolist())
        self.begun.set()
        assert self.gate.wait(60)
        if (inputs["x"] < 0).any():
            raise invalid("negative")
        return {"y": inputs["x"] * 2}


def floats(*values: float) -> dict[str, np.ndarray]:
    return {"x": np.array(values, np.float32)}


async def behind_first(
    requests: list[dict], cancel: tuple[int, ...] = (), signature: LoadedSignature = DOUBLE, batch_size: int = 4
) -> tuple[Gated, list]:
    """Sends requests while a first one occupies the only thread; returns the model and their results."""
    model = Gated()
    batcher = Batcher(batch_size, timeout=0, threads=1)
    first = asyncio.ensure_future(batcher.run(model, signature, floats(0)))  # type: ignore[arg-type]
    await asyncio.to_thread(model.begun.wait, 60)
    tasks = [asyncio.ensure_future(batcher.run(model, signature, one)) for one in requests]  # type: ignore[arg-type]
    await asyncio.sleep(0)
    assert batcher.waiting == len(requests)
    for i in cancel:
        tasks[i].cancel()
    model.gate.set()
    results = await asyncio.gather(*tasks, return_exceptions=True)
    await first
    batcher.close()
    return model, results


def values(results: list) -> list:
    return [result["y"].tolist() if isinstance(result, dict) else result for result in results]


def test_waiting_requests_are_merged_and_split_again() -> None:
    model, results = asyncio.run(behind_first([floats(1), floats(2, 3), floats(4), floats(5)]))
    # Four rows make a batch; the next begins with the request that did not fit.
    assert model.batches == [[0], [1, 2, 3, 4], [5]]
    assert values(results) == [[2], [4, 6], [8], [10]]


def test_a_request_larger_than_a_batch_runs_alone() -> None:
    model, results = asyncio.run(behind_first([floats(1), floats(*range(9)), floats(2)]))
    assert model.batches == [[0], [1], list(range(9)), [2]]
    assert values(results)[1] == [2 * i for i in range(9)]


def test_a_request_of_many_rows_is_run_in_parts() -> None:
    model, results = asyncio.run(behind_first([floats(*range(150))]))
    assert [len(batch) for batch in model.batches] == [1, 64, 64, 22]
    assert values(results) == [[2 * i for i in range(150)]]
    # Where a row may depend on its neighbours, all rows stay together.
    wide = LoadedSignature("wide", {"x": ROWS}, {"y": tf.TensorSpec((None, None), tf.float32)}, {})
    model, _ = asyncio.run(behind_first([floats(*range(150))], signature=wide))
    assert [len(batch) for batch in model.batches] == [1, 150]


def test_work_of_a_client_that_has_gone_ends_after_its_part() -> None:
    async def work() -> list[int]:
        model, batcher = Gated(), Batcher(4, timeout=0, threads=1)
        task = asyncio.ensure_future(batcher.run(model, DOUBLE, floats(*range(150))))  # type: ignore[arg-type]
        await asyncio.to_thread(model.begun.wait, 60)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        model.gate.set()
        # The thread is free again.
        assert values([await batcher.run(model, DOUBLE, floats(1))]) == [[2]]  # type: ignore[arg-type]
        batcher.close()
        return [len(batch) for batch in model.batches]

    assert asyncio.run(work()) == [64, 1]


def test_a_default_of_one_row_belongs_to_all_parts() -> None:
    class Scaled(Gated):
        def run(self, signature: str, inputs: dict) -> dict:
            return {"y": super().run(signature, inputs)["y"] * inputs["scale"]}

    async def work() -> list:
        model, batcher = Scaled(), Batcher(4, timeout=0, threads=1)
        model.gate.set()
        signature = LoadedSignature("scaled", {"x": ROWS, "scale": ROWS}, {"y": ROWS}, {})
        requests = [{**floats(*range(rows)), "scale": np.array([10], np.float32)} for rows in (100, 3, 2)]
        return await asyncio.gather(*[batcher.run(model, signature, one) for one in requests])  # type: ignore[arg-type]

    assert values(asyncio.run(work())) == [[20 * i for i in range(rows)] for rows in (100, 3, 2)]


def test_a_bad_request_fails_alone() -> None:
    model, results = asyncio.run(behind_first([floats(1), floats(-1), floats(2)]))
    assert model.batches == [[0], [1, -1, 2], [1], [-1], [2]]
    assert [values(results)[0], values(results)[2]] == [[2], [4]]
    assert isinstance(results[1], RequestError) and results[1].message == "negative"


def test_a_request_whose_client_has_gone_is_never_run() -> None:
    model, results = asyncio.run(behind_first([floats(1), floats(2), floats(3)], cancel=(1,)))
    assert model.batches == [[0], [1, 3]]
    assert isinstance(results[1], asyncio.CancelledError)


@pytest.mark.parametrize(
    "signature",
    [
        LoadedSignature("wide", {"x": ROWS}, {"y": tf.TensorSpec((None, None), tf.float32)}, {}),
        LoadedSignature("fixed", {"x": ROWS}, {"y": tf.TensorSpec((1,), tf.float32)}, {}),
        LoadedSignature("scalar", {"x": ROWS}, {"y": tf.TensorSpec((), tf.float32)}, {}),
        LoadedSignature("unknown", {"x": tf.TensorSpec(None, tf.float32)}, {"y": ROWS}, {}),
    ],
)
def test_where_a_row_could_depend_on_its_neighbours_nothing_is_merged(signature: LoadedSignature) -> None:
    model, _ = asyncio.run(behind_first([floats(1), floats(2)], signature=signature))
    assert model.batches == [[0], [1], [2]]


def test_rows_of_other_shapes_are_other_batches() -> None:
    square = LoadedSignature("s", {"x": tf.TensorSpec((None, None), tf.float32)}, {"y": ROWS}, {})
    requests = [{"x": np.ones((1, n), np.float32)} for n in (2, 3, 2)]
    model, _ = asyncio.run(behind_first(requests, signature=square))
    assert model.batches == [[0], [[1, 1], [1, 1]], [[1, 1, 1]]]


def test_merging_can_be_turned_off() -> None:
    model, _ = asyncio.run(behind_first([floats(1), floats(2)], batch_size=1))
    assert model.batches == [[0], [1], [2]]


def test_outputs_that_are_no_rows_are_computed_one_by_one() -> None:
    class Sums(Gated):
        def run(self, signature: str, inputs: dict) -> dict:
            super().run(signature, inputs)
            return {"y": inputs["x"].sum(keepdims=True)}

    async def work() -> list:
        model, batcher = Sums(), Batcher(8, timeout=0, threads=1)
        tasks = [asyncio.ensure_future(batcher.run(model, DOUBLE, floats(n, n))) for n in range(3)]  # type: ignore[arg-type]
        model.gate.set()
        return await asyncio.gather(*tasks)

    # A model that breaks the promise of its signature still gives each request its own answer.
    assert values(asyncio.run(work())) == [[0], [2], [4]]
