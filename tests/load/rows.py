"""Memory of a server that is sent requests of very many rows: `python -m tests.load.rows`."""

from __future__ import annotations

import argparse
import http.client
import json
import tempfile
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import tensorflow as tf
from tensorflow_serving.apis import predict_pb2, prediction_service_pb2_grpc

from tests.load.model import publish
from tests.load.process import ServerProcess

KINDS = ("rest", "grpc", "broken images", "repeated value", "too many rows")


def message(signature: str, name: str, values: np.ndarray) -> predict_pb2.PredictRequest:
    """Return a request over gRPC."""
    request = predict_pb2.PredictRequest()
    request.model_spec.name, request.model_spec.signature_name = "sizes", signature
    request.inputs[name].CopyFrom(tf.make_tensor_proto(values))
    return request


def repeated(rows: int, size: int) -> predict_pb2.PredictRequest:
    """Return a request with one text of this size for all rows."""
    request = message("encode_text", "text", np.array([b"x" * size], object))
    request.inputs["text"].tensor_shape.dim[0].size = rows
    return request


def ask(server: ServerProcess, kind: str, rows: int) -> str:
    """Send one request and return the code of its answer."""
    if kind in ("rest", "too many rows"):
        body = json.dumps({"instances": ["x"] * (500_000 if kind == "too many rows" else rows)})
        connection = http.client.HTTPConnection("127.0.0.1", server.rest_port, timeout=600)
        connection.request("POST", "/v1/models/sizes:predict", body)
        response = connection.getresponse()
        response.read()
        connection.close()
        return "OK" if response.status == 200 else f"HTTP {response.status}"
    made = {
        "grpc": lambda: message("encode_text", "text", np.array([b"x"] * rows, object)),
        "broken images": lambda: message("encode_image", "image_bytes", np.array([b"no image"] * rows, object)),
        "repeated value": lambda: repeated(500_000, 2**20),
    }[kind]()
    options = [("grpc.max_receive_message_length", -1)]
    with grpc.insecure_channel(f"127.0.0.1:{server.port}", options) as channel:
        try:
            prediction_service_pb2_grpc.PredictionServiceStub(channel).Predict(made, timeout=600)
            return "OK"
        except grpc.RpcError as error:
            return str(error.code().name)


def measure(rows: int, width: int, clients: int, options: tuple[str, ...] = ()) -> dict[str, Any]:
    """Return, per kind of request, memory in MiB at the peak and afterwards, and the numbers of answers by code.

    Args:
        rows: rows of a request that is answered.
        width: numbers per embedding.
        clients: number of concurrent clients.
        options: further options of `vsemb serve`.
    """
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        publish(Path(folder) / "sizes", width=width)
        for kind in KINDS:
            with ServerProcess(Path(folder) / "sizes", *options) as server:
                before, codes = server.memory(), Counter[str]()

                def client(server: ServerProcess = server, kind: str = kind, codes: Counter[str] = codes) -> None:
                    codes[ask(server, kind, rows)] += 1

                threads = [threading.Thread(target=client) for _ in range(clients)]
                for thread in threads:
                    thread.start()
                for thread in threads:
                    thread.join()
                peak, after = server.memory("VmHWM"), server.memory()
                found[kind] = {"start": before, "peak": peak, "after": after, "answers": dict(codes)}
    return found


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=4096)
    parser.add_argument("--width", type=int, default=1024)
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("options", nargs="*", help="further options of `vsemb serve`, after --")
    given = parser.parse_args()
    print(json.dumps(measure(given.rows, given.width, given.clients, tuple(given.options)), indent=2))
