"""Memory that requests share: bytes and pixels, counted, and gRPC's and REST's use of them."""

from __future__ import annotations

import asyncio
import io
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
import numpy as np
import pytest
import tensorflow as tf
from PIL import Image
from tensorflow_serving.apis import predict_pb2, prediction_service_pb2_grpc

from tests.serving.asking import ask
from vsemb.image.decode import MAX_PIXELS
from vsemb.serving.batching import Batcher
from vsemb.serving.budget import PNG_MAGIC, ROW_PIXELS, Budget, image_pixels, row_pixels, tensor_bytes
from vsemb.serving.models import LoadedModel, LoadedSignature
from vsemb.serving.server import Server
from vsemb.serving.status import Code, RequestError

STRINGS = tf.TensorSpec((None,), tf.string)
LENGTH = LoadedSignature("length", {"image": STRINGS}, {"y": tf.TensorSpec((None,), tf.float32)}, {})


def encoded(format: str, size: tuple[int, int], **options) -> bytes:
    stream = io.BytesIO()
    Image.new("RGB", size).save(stream, format, **options)
    return stream.getvalue()


def announced(pixels: int) -> bytes:
    """The beginning of a PNG image of so many pixels."""
    return PNG_MAGIC + pixels.to_bytes(4, "big") + (1).to_bytes(4, "big")


@pytest.mark.parametrize("options", [{}, {"progressive": True}, {"exif": b"Exif\0\0" + b"\xff\xc0" * 99}])
def test_the_pixels_of_a_header(options: dict) -> None:
    photo = encoded("JPEG", (31, 7), **options)
    assert image_pixels(photo) == image_pixels(encoded("PNG", (31, 7))) == 217
    # A marker may be filled up.
    assert image_pixels(photo[:2] + b"\xff\xff" + photo[2:]) == 217
    assert image_pixels(encoded("GIF", (31, 7))) == image_pixels(b"") == 0
    assert image_pixels(PNG_MAGIC) == 0


def test_a_header_of_very_many_segments_is_not_read_to_its_end() -> None:
    started = time.process_time()
    for hostile in (
        b"\xff\xd8" + b"\xff\xe0\0\2" * 2**20,
        b"\xff\xd8" + b"\xff" * 2**22,
        b"\xff\xd8\xff" + bytes(2**22),
    ):
        assert image_pixels(hostile) == MAX_PIXELS
    assert time.process_time() - started < 1


def test_pixels_are_counted_by_row() -> None:
    images = np.array([[b"text", announced(3)], [announced(4), announced(5)]], object)
    assert row_pixels({"image": images, "x": np.zeros((2, 9))}) == [3, 9]
    assert row_pixels({"x": np.zeros(3)}) == [0, 0, 0]
    assert row_pixels({"image": np.array(announced(7), object)}) == [7]
    assert row_pixels({"image": np.array([], object)}) == []


def test_a_row_of_an_image_input_counts_even_if_it_is_no_image() -> None:
    large = announced(10 * ROW_PIXELS)
    assert row_pixels({"image_bytes": np.array([b"text", large], object)}) == [ROW_PIXELS, 10 * ROW_PIXELS]


@pytest.mark.parametrize(
    ("values", "shape", "size"),
    [
        (np.zeros((2, 3), np.float32), (2, 3), 24),
        # One value for all elements.
        (np.zeros(1, np.int64), (1000,), 8000),
        (np.array([b"abc"], object), (1000,), 3000),
        (np.array([b"abc", b"d"], object), (2,), 4),
        (np.zeros(0, np.float32), (0,), 0),
    ],
)
def test_the_bytes_of_a_message_are_those_of_its_array(values: np.ndarray, shape: tuple, size: int) -> None:
    proto = tf.make_tensor_proto(values)
    for dim in proto.tensor_shape.dim:
        dim.size = shape[list(proto.tensor_shape.dim).index(dim)]
    assert tensor_bytes(proto) == size


class Counting:
    """Counts the pixels that it works on at once; nothing ends before `gate`, if there is one."""

    name = "counting"

    def __init__(self) -> None:
        self.lock, self.now, self.most = threading.Lock(), 0, 0
        self.gate: threading.Event | None = None
        self.batches: list[int] = []

    def run(self, signature: str, inputs: dict) -> dict:
        pixels = sum(row_pixels(inputs))
        with self.lock:
            self.now += pixels
            self.most = max(self.most, self.now)
            self.batches.append(pixels)
        time.sleep(0.005)
        if pixels and self.gate:
            assert self.gate.wait(60)
        with self.lock:
            self.now -= pixels
        return {"y": np.array([len(value) for value in inputs["image"]], np.float32)}


def images(*values: bytes) -> dict[str, np.ndarray]:
    return {"image": np.array(values, object)}


def test_all_requests_together_decode_no_more_than_the_limit() -> None:
    async def work() -> tuple[Counting, list]:
        model, batcher = Counting(), Batcher(4, timeout=0, threads=4, max_pixels=100)
        asked = [images(*[announced(10 + i)] * (1 + i % 3)) for i in range(30)]
        found = await asyncio.gather(*[batcher.run(model, LENGTH, one) for one in asked])  # type: ignore[arg-type]
        assert batcher.pixels == 0
        batcher.close()
        return model, found

    model, found = asyncio.run(work())
    assert 60 < model.most <= 100
    assert [answer["y"].tolist() for answer in found] == [[24.0] * (1 + i % 3) for i in range(30)]


def test_one_request_with_more_is_run_in_parts() -> None:
    model, batcher = Counting(), Batcher(4, timeout=0, threads=2, max_pixels=100)
    rows = [announced(60), announced(40), announced(1), b"text", announced(300), announced(2), b"t"]
    found = asyncio.run(batcher.run(model, LENGTH, images(*rows)))  # type: ignore[arg-type]
    assert model.batches == [100, 1, 300, 2]
    assert found["y"].tolist() == [len(row) for row in rows]
    # Where a row may depend on its neighbours, all rows stay together.
    wide = LoadedSignature("wide", LENGTH.inputs, {"y": tf.TensorSpec((None, None), tf.float32)}, {})
    asyncio.run(batcher.run(model, wide, images(*rows)))  # type: ignore[arg-type]
    assert model.batches[4:] == [403]
    batcher.close()


def test_texts_overtake_images_that_wait_and_small_images_do_not() -> None:
    async def work() -> None:
        model, batcher = Counting(), Batcher(1, timeout=0, threads=3, max_pixels=100)
        model.gate = threading.Event()

        def ask(value: bytes) -> asyncio.Task:
            return asyncio.ensure_future(batcher.run(model, LENGTH, images(value)))  # type: ignore[arg-type]

        first, large, small = ask(announced(60)), ask(announced(500)), ask(announced(1))
        assert (await asyncio.wait_for(ask(b"text"), 30))["y"].tolist() == [4]
        assert batcher.waiting == 2 and batcher.pixels == 60
        model.gate.set()
        await asyncio.gather(first, large, small)
        assert model.batches == [60, 0, 500, 1]
        batcher.close()

    asyncio.run(work())


def test_bytes_are_shared_in_the_order_of_arrival(monkeypatch: pytest.MonkeyPatch) -> None:
    async def work() -> None:
        budget, order = Budget(10), []

        async def hold(name: str, size: int, gate: asyncio.Event) -> None:
            async with budget.share(size) as keep:
                order.append(name)
                await gate.wait()
                keep(1)

        gates = [asyncio.Event() for _ in range(4)]
        tasks = [asyncio.ensure_future(hold(n, s, g)) for n, s, g in zip("abcd", (6, 99, 5, 3), gates, strict=True)]
        await asyncio.sleep(0.01)
        assert order == ["a"] and budget.used == 6
        # One that gave up frees the way for those behind it.
        tasks[1].cancel()
        await asyncio.sleep(0.01)
        assert order == ["a", "d"] or order == ["a"]
        gates[0].set()
        await asyncio.sleep(0.01)
        assert order == ["a", "c", "d"] and budget.used == 8
        monkeypatch.setattr("vsemb.serving.budget.ARRIVAL_SECONDS", 0.01)
        with pytest.raises(RequestError, match="holds 10 bytes") as caught:
            async with budget.share(10):
                pass
        assert caught.value.code is Code.RESOURCE_EXHAUSTED and caught.value.http_status == 503
        for gate in gates:
            gate.set()
        await asyncio.gather(*tasks, return_exceptions=True)
        assert budget.used == 0

    asyncio.run(work())


@pytest.fixture(scope="module")
def small(everything: Path):
    """A server that holds at most 1500 bytes of requests."""
    with Server(
        {"everything": everything}, port=0, rest_port=0, poll=0, max_body=1000, max_bytes=1500, concurrency=4
    ) as server:
        yield server


def test_a_request_of_too_many_rows_is_refused(everything: Path) -> None:
    path = "/v1/models/everything:predict"
    options = {"port": 0, "rest_port": 0, "poll": 0, "max_rows": 3, "max_body": 1000}
    with Server({"everything": everything}, **options) as server:
        for body, rows in (({"instances": [1] * 4}, 4), ({"inputs": {"x": [1] * 4}}, 4)):
            status, answer = ask(server.rest_port, "POST", path, body)
            assert status == 400 and f"at most 3 rows; got {rows}" in answer["error"]
        assert ask(server.rest_port, "POST", path, {"instances": [1] * 3})[0] == 200
        with grpc.insecure_channel(f"127.0.0.1:{server.port}") as channel:
            predict = prediction_service_pb2_grpc.PredictionServiceStub(channel).Predict
            # One value for all rows, within and above the bytes of a request.
            for rows, message in (
                (3, None),
                (4, "at most 3 rows; got 4"),
                (500_000, "at most 1000 bytes; got 2000000"),
            ):
                made = predict_pb2.PredictRequest()
                made.model_spec.name = "everything"
                made.inputs["x"].CopyFrom(tf.make_tensor_proto(np.ones(1, np.float32)))
                made.inputs["x"].tensor_shape.dim[0].size = rows
                if message is None:
                    assert list(predict(made, timeout=60).outputs["y"].float_val) == [2.5] * 3
                    continue
                with pytest.raises(grpc.RpcError, match=message) as caught:
                    predict(made, timeout=60)
                assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert server.predictor.bytes.used == server.predictor.answers.used == 0


def test_an_answer_over_grpc_counts_until_the_call_has_ended(small: Server) -> None:
    made = predict_pb2.PredictRequest()
    made.model_spec.name = "everything"
    made.inputs["x"].CopyFrom(tf.make_tensor_proto(np.ones(9, np.float32)))
    with grpc.insecure_channel(f"127.0.0.1:{small.port}") as channel:
        predict = prediction_service_pb2_grpc.PredictionServiceStub(channel).Predict
        calls = [predict.future(made, timeout=60) for _ in range(20)]
        for place, call in enumerate(calls):
            # Some clients do not wait for their answer.
            if place % 3 == 0:
                call.cancel()
        for call in calls:
            if not call.cancelled():
                # Beyond the requests in flight, the server is busy.
                assert call.exception() is None or call.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    deadline = time.monotonic() + 60
    while small.predictor.bytes.used or small.predictor.answers.used:
        assert time.monotonic() < deadline
        time.sleep(0.005)


def test_answers_above_the_bytes_of_all_wait(everything: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gate, begun = threading.Event(), threading.Semaphore(0)
    real = LoadedModel.run

    def run(model: LoadedModel, signature: str, inputs: dict) -> dict:
        begun.release()
        assert gate.wait(60)
        return real(model, signature, inputs)

    monkeypatch.setattr(LoadedModel, "run", run)
    path = "/v1/models/everything:predict"
    with (
        # 20 rows of four bytes, with copies, and not twice.
        Server({"everything": everything}, port=0, rest_port=0, poll=0, max_bytes=1000, threads=2) as server,
        ThreadPoolExecutor(2) as pool,
    ):
        answers = [pool.submit(ask, server.rest_port, "POST", path, {"instances": [1] * 20}) for _ in range(2)]
        assert begun.acquire(timeout=60)
        while not server.predictor.answers._waiting:
            time.sleep(0.005)
        assert not begun.acquire(blocking=False) and 80 < server.predictor.answers.used <= 1000
        gate.set()
        assert [answer.result(60)[0] for answer in answers] == [200, 200]
        assert server.predictor.answers.used == 0


def test_a_call_over_grpc_that_sends_nothing_is_ended(small: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("grpc_api", "budget"):
        monkeypatch.setattr(f"vsemb.serving.{module}.ARRIVAL_SECONDS", 0.3)
    never = threading.Event()
    with grpc.insecure_channel(f"127.0.0.1:{small.port}") as channel:
        for method in ("PredictionService/Predict", "ModelService/GetModelStatus"):
            call = channel.stream_unary(f"/tensorflow.serving.{method}")
            with pytest.raises(grpc.RpcError, match="must arrive within 0.3 seconds") as caught:
                call(iter(lambda: never.wait(30), True), timeout=30)
            assert caught.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
            with pytest.raises(grpc.RpcError, match="must have a message") as caught:
                call(iter([]), timeout=30)
            assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
        never.set()
    assert small.predictor.bytes.used == 0


def test_requests_above_the_bytes_of_all_wait(small: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    path, head = "/v1/models/everything:predict", "POST /v1/models/everything:predict HTTP/1.1\r\nHost: localhost\r\n"
    with ThreadPoolExecutor(1) as pool:
        with socket.create_connection(("127.0.0.1", small.rest_port), timeout=60) as slow:
            slow.sendall(f"{head}Content-Length: 900\r\n\r\n{{".encode())
            while small.predictor.bytes.used < 900:
                time.sleep(0.005)
            # What fits is answered at once.
            assert ask(small.rest_port, "POST", path, {"instances": [1]})[0] == 200
            waits = pool.submit(ask, small.rest_port, "POST", path, b'{"instances": [1]}' + b" " * 700)
            while len(small.predictor.bytes._waiting) != 1:
                time.sleep(0.005)
        # The slow one has gone.
        assert waits.result(60) == (200, {"predictions": [2.5]})
    assert small.predictor.bytes.used == 0
