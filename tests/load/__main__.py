"""A server under load and faults, checked while it runs: `python -m tests.load --minutes 30 --clients 16`.

One request in ten is malformed. Some clients are slow, close half of their connection or vanish. Versions of the model
appear whole, corrupt and half copied, and vanish. In the middle the server is told to stop and another is started.

Afterwards, servers of their own get requests of very many rows, very many connections, and very many versions.
"""

from __future__ import annotations

import argparse
import http.client
import json
import random
import shutil
import signal
import socket
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path

import grpc
import numpy as np
import tensorflow as tf
from tensorflow_serving.apis import predict_pb2, prediction_service_pb2_grpc

from tests.load import connections, rows, swaps
from tests.load.model import publish
from tests.load.process import ServerProcess

PATH = "/v1/models/sizes:predict"
#: Constants of the versions; an answer must belong to one of them.
CONSTANTS = (0.0, 1000.0, 2000.0, 3000.0)
BROKEN = (
    b"{",
    b'{"instances": [1]}',
    b'{"instances": [["a"], "b"]}',
    b'{"inputs": {"text": null}}',
    b"\xff\xfe",
    b'{"signature_name": "none", "instances": ["a"]}',
    b"[" * 5000,
    json.dumps({"instances": ["x"] * 500_000}).encode(),
)


def broken_protos() -> list[bytes]:
    """Return messages of gRPC that must be refused."""
    requests = [predict_pb2.PredictRequest() for _ in range(3)]
    for request, name in zip(requests, ("sizes", "sizes", "other"), strict=True):
        request.model_spec.name = name
        request.inputs["text"].CopyFrom(tf.make_tensor_proto([1.0] if request is requests[0] else ["a"]))
    requests[1].inputs["more"].CopyFrom(tf.make_tensor_proto(["a"]))
    requests.append(rows.repeated(500_000, 2**20))
    return [b"\xff\xfe", b"", *(request.SerializeToString() for request in requests)]


BROKEN_PROTOS = broken_protos()
REFUSED = {"INVALID_ARGUMENT", "NOT_FOUND", "RESOURCE_EXHAUSTED"}


class Load:
    """Clients of one server after another, and what they were answered.

    Args:
        folder: directory with the model `sizes`.
        seed: seed of all choices.
    """

    def __init__(self, folder: Path, seed: int) -> None:
        self.base, self.seed = folder / "sizes", seed
        self.lock = threading.Lock()
        self.counts: Counter[str] = Counter()
        self.problems: list[str] = []
        self.seconds: list[float] = []
        self.stop, self.server_stops = threading.Event(), threading.Event()
        self.server: ServerProcess | None = None
        self.memory: list[tuple[float, int]] = []

    def count(self, name: str, problem: str = "") -> None:
        """Count an outcome; a problem is kept with its reason."""
        with self.lock:
            self.counts[name] += 1
            if problem and len(self.problems) < 20:
                self.problems.append(problem)

    def client(self, number: int) -> None:
        """Send requests until the end: one in ten malformed, one in twenty by a bad connection."""
        choice = random.Random(self.seed * 1000 + number)
        while not self.stop.is_set():
            server = self.server
            if server is None:
                time.sleep(0.05)
                continue
            kind = choice.random()
            try:
                if kind < 0.1:
                    self.malformed(server, choice)
                elif kind < 0.15:
                    self.bad_connection(server, choice)
                else:
                    self.good(server, choice)
            except (OSError, http.client.HTTPException, grpc.RpcError) as error:
                # A server that was told to stop refuses new requests.
                if self.server is server and not self.server_stops.is_set():
                    self.count("lost", f"lost: {error!r}"[:300])
                else:
                    self.count("refused while stopping")
                    time.sleep(0.05)

    def good(self, server: ServerProcess, choice: random.Random) -> None:
        """Send texts and compare the answer with their lengths."""
        texts = ["x" * choice.randrange(1, 200) for _ in range(choice.choice((1, 1, 1, 8, 64)))]
        started = time.monotonic()
        if choice.random() < 0.5:
            status, answer = rest(server.rest_port, json.dumps({"inputs": texts}).encode())
            if status == 503:
                # By the protocol, the client sends it again.
                self.count("busy")
                return
            found = np.array(answer["outputs"]["embedding"])[:, 0] if status == 200 else None
        else:
            with grpc.insecure_channel(f"127.0.0.1:{server.port}") as channel:
                request = predict_pb2.PredictRequest()
                request.model_spec.name = "sizes"
                request.inputs["text"].CopyFrom(tf.make_tensor_proto(texts))
                response = prediction_service_pb2_grpc.PredictionServiceStub(channel).Predict(request, timeout=60)
                found = tf.make_ndarray(response.outputs["embedding"])[:, 0]
        took = time.monotonic() - started
        lengths = np.array([len(text) for text in texts])
        right = found is not None and any(np.array_equal(found, lengths + constant) for constant in CONSTANTS)
        self.count("right" if right else "wrong", "" if right else f"wrong: {texts[:2]} gave {found}"[:300])
        with self.lock:
            self.seconds.append(took)

    def malformed(self, server: ServerProcess, choice: random.Random) -> None:
        """Send a body or message that must be refused."""
        if choice.random() < 0.5:
            status, _ = rest(server.rest_port, choice.choice(BROKEN))
            refused = status in (400, 503)
        else:
            status, refused = "OK", False
            with grpc.insecure_channel(f"127.0.0.1:{server.port}") as channel:
                try:
                    channel.unary_unary("/tensorflow.serving.PredictionService/Predict")(
                        choice.choice(BROKEN_PROTOS), timeout=60
                    )
                except grpc.RpcError as error:
                    if error.code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED):
                        # Right while the server stops.
                        raise
                    status = error.code().name
                    refused = status in REFUSED
        self.count(
            "malformed refused" if refused else "malformed, other status", "" if refused else f"malformed: {status}"
        )

    def bad_connection(self, server: ServerProcess, choice: random.Random) -> None:
        """Send slowly, close the sending half, or vanish."""
        body = b'{"instances": ["abc"]}'
        head = f"POST {PATH} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n".encode()
        kind = choice.choice(("slow", "half-closed", "vanished", "silent"))
        with socket.create_connection(("127.0.0.1", server.rest_port), timeout=60) as connection:
            if kind == "slow":
                for part in (head[:20], head[20:], body[:5], body[5:]):
                    connection.sendall(part)
                    time.sleep(0.3)
                connection.recv(4096)
            elif kind == "half-closed":
                connection.sendall(head + body[:5])
                connection.shutdown(socket.SHUT_WR)
                connection.recv(4096)
            elif kind == "vanished":
                connection.sendall(head + body[:5])
            else:
                time.sleep(0.5)
        self.count(f"connection {kind}")

    def versions(self) -> None:
        """Publish, damage and remove versions; version 1 stays."""
        choice = random.Random(self.seed)
        whole = self.base / "1"
        number = 1
        while not self.stop.wait(2):
            number += 1
            kind = choice.choice(("whole", "corrupt", "half copied"))
            path = self.base / str(number)
            if kind == "whole":
                publish(self.base, choice.choice(CONSTANTS), number)
            else:
                shutil.copytree(whole, path)
                graph = path / "saved_model.pb"
                content = graph.read_bytes()
                half = content[: len(content) // 2]
                graph.write_bytes(half if kind == "half copied" else b"\xff" * 100 + content[100:])
                time.sleep(2)
                if kind == "half copied":
                    graph.write_bytes(content)
            self.count(f"version {kind}")
            self.stop.wait(3)
            shutil.rmtree(path)

    def watch(self, started: float) -> None:
        """Note the server's memory every second."""
        while not self.stop.wait(1):
            if (server := self.server) is not None:
                try:
                    self.memory.append((time.monotonic() - started, server.memory()))
                except (OSError, AssertionError):
                    continue

    def serve(self) -> None:
        """Start a server, after the one before has ended by itself."""
        if self.server is not None:
            before = self.server
            self.server_stops.set()
            status = before.stop(signal.SIGTERM)
            self.count("stopped with status 0" if status == 0 else "bad exit", "" if status == 0 else f"exit {status}")
            self.memory.clear()
        self.server = ServerProcess(self.base, "--poll", "0.5")
        self.server_stops.clear()


def rest(port: int, body: bytes) -> tuple[int, dict]:
    """Send one request over REST and return status and answer."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        connection.request("POST", PATH, body)
        response = connection.getresponse()
        return response.status, json.loads(response.read())
    finally:
        connection.close()


def bounds(number: int, weights: int) -> dict:
    """Measure servers at their limits and return the figures; `problems` is empty if all is well.

    Args:
        number: number of versions that replace each other.
        weights: MiB of each version.
    """
    problems = []
    found_rows = rows.measure(4096, 1024, clients=4)
    for kind, found in found_rows.items():
        # Answers take the bytes of their budget several times, and some of them stay with the allocator.
        if found["peak"] > found["start"] + 800:
            problems.append(f"{kind} took {found['peak']} MiB")
    found_connections = connections.measure(2000, seconds=10)
    for name in ("/health", "/metrics", "predict after"):
        if set(found_connections["answers"][name]) != {"200"}:
            problems.append(f"with very many connections, {name} was answered {found_connections['answers'][name]}")
    if found_connections["log_bytes"] > 10_000:
        problems.append(f"very many connections wrote {found_connections['log_bytes']} bytes of log")
    found_swaps = swaps.measure(number, weights)
    first, last = found_swaps["memory_mib"].values()
    if last > 1.05 * first:
        problems.append(f"memory grew with versions from {first:.0f} to {last:.0f} MiB")
    return {"rows": found_rows, "connections": found_connections, "swaps": found_swaps, "problems": problems}


def soak(minutes: float, clients: int, seed: int) -> dict:
    """Run the load and return the figures; `problems` is empty if all is well."""
    with tempfile.TemporaryDirectory() as folder:
        load = Load(Path(folder), seed)
        publish(load.base, CONSTANTS[0], 1)
        load.serve()
        started = time.monotonic()
        work = [threading.Thread(target=load.client, args=(number,)) for number in range(clients)]
        work += [threading.Thread(target=load.versions), threading.Thread(target=load.watch, args=(started,))]
        for thread in work:
            thread.start()
        try:
            time.sleep(minutes * 15)
            load.serve()
            second = time.monotonic() - started
            time.sleep(max(0.0, minutes * 60 - second))
        finally:
            load.stop.set()
            for thread in work:
                thread.join()
            assert load.server is not None
            final = load.server.stop()
    # A quarter of the rest of the time, at most a minute, is the warm-up.
    warm = second + min(60.0, (minutes * 60 - second) / 4)
    settled = [memory for when, memory in load.memory if when > warm]
    first, last = (float(np.median(part)) for part in np.array_split(np.array(settled), 5)[::4])
    if last > 1.05 * first:
        load.problems.append(f"memory grew from {first:.0f} to {last:.0f} MiB")
    if final != 0:
        load.problems.append(f"the server ended with status {final}")
    return {
        "minutes": minutes,
        "clients": clients,
        "requests_per_second": round(len(load.seconds) / (minutes * 60), 1),
        "p50_ms": round(1000 * float(np.percentile(load.seconds, 50)), 1),
        "p99_ms": round(1000 * float(np.percentile(load.seconds, 99)), 1),
        "memory_mib": {"after warm-up": first, "at the end": last},
        "counts": dict(sorted(load.counts.items())),
        "problems": load.problems,
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--clients", type=int, default=16)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--swaps", type=int, default=200, help="versions that replace each other")
    parser.add_argument("--weights", type=int, default=100, help="MiB of each of these versions")
    given = parser.parse_args()
    found = soak(given.minutes, given.clients, given.seed)
    print(json.dumps(found, indent=2), flush=True)
    found_bounds = bounds(given.swaps, given.weights)
    print(json.dumps(found_bounds, indent=2))
    sys.exit(bool(found["problems"] or found_bounds["problems"]))
