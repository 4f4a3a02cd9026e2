"""Peak memory of a server that is sent the largest images by many clients: `python -m tests.load.pixels`."""

from __future__ import annotations

import argparse
import io
import json
import tempfile
import threading
from collections import Counter
from pathlib import Path

import grpc
import tensorflow as tf
from PIL import Image
from tensorflow_serving.apis import predict_pb2, prediction_service_pb2_grpc

from tests.load.model import publish
from tests.load.process import ServerProcess


def largest(side: int) -> bytes:
    """A square of transparent pixels, which take the most memory; with 7,000 pixels per side almost the limit."""
    stream = io.BytesIO()
    Image.new("RGBA", (side, side), (255, 0, 0, 9)).save(stream, "PNG")
    return stream.getvalue()


def measure(clients: int, requests: int, images: int, side: int, options: tuple[str, ...] = ()) -> dict[str, object]:
    """Return the peak resident memory in MiB, and the numbers of answers by code.

    Args:
        clients: number of concurrent clients over gRPC.
        requests: number of requests per client.
        images: number of images per request.
        side: height and width of an image.
        options: further options of `vsemb serve`.
    """
    made = predict_pb2.PredictRequest()
    made.model_spec.name, made.model_spec.signature_name = "sizes", "encode_image"
    made.inputs["image_bytes"].CopyFrom(tf.make_tensor_proto([largest(side)] * images))
    codes: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as folder:
        publish(Path(folder) / "sizes")
        with ServerProcess(Path(folder) / "sizes", *options) as server:
            before = server.memory()

            def client() -> None:
                with grpc.insecure_channel(f"127.0.0.1:{server.port}") as channel:
                    predict = prediction_service_pb2_grpc.PredictionServiceStub(channel).Predict
                    for _ in range(requests):
                        try:
                            response = predict(made, timeout=600)
                            valid = all(response.outputs["valid"].bool_val)
                            codes["valid" if valid else "invalid rows"] += 1
                        except grpc.RpcError as error:
                            codes[error.code().name] += 1

            threads = [threading.Thread(target=client) for _ in range(clients)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            return {"start_mib": before, "peak_mib": server.memory("VmHWM"), "answers": dict(codes)}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--requests", type=int, default=1)
    parser.add_argument("--images", type=int, default=4)
    parser.add_argument("--side", type=int, default=7000)
    parser.add_argument("options", nargs="*", help="further options of `vsemb serve`, after --")
    given = parser.parse_args()
    print(json.dumps(measure(given.clients, given.requests, given.images, given.side, tuple(given.options))))
