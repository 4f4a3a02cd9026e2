"""An exported run behind the server: the embeddings are those of the run."""

from __future__ import annotations

import base64
import contextlib
import io
import json
import re
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
import numpy as np
import pytest
import tensorflow as tf
from tensorflow_serving.apis import predict_pb2, prediction_service_pb2_grpc

from tests.serving.asking import ask
from vsemb.serving.server import Server, example_commands

TEXTS = ["a red circle", "", "two blue squares above a green triangle", "no such words here"]


GUIDE = Path(__file__).parents[2] / "docs/guides/export-and-serve.md"


@pytest.fixture(scope="module")
def server(exported: Path):
    with Server({"scenes": exported}, port=0, rest_port=0, poll=0) as server:
        yield server


@pytest.mark.slow
def test_both_protocols_give_what_the_model_gives(server: Server, exported: Path) -> None:
    expected = tf.saved_model.load(str(exported / "1")).signatures["encode_text"](text=tf.constant(TEXTS))
    status, content = ask(server.rest_port, "POST", "/v1/models/scenes:predict", {"inputs": TEXTS})
    assert status == 200
    assert content["outputs"]["valid"] == expected["valid"].numpy().tolist()
    np.testing.assert_array_equal(np.array(content["outputs"]["embedding"], np.float32), expected["embedding"].numpy())
    request = predict_pb2.PredictRequest()
    request.model_spec.name, request.model_spec.signature_name = "scenes", "encode_text"
    request.inputs["text"].CopyFrom(tf.make_tensor_proto(TEXTS))
    with grpc.insecure_channel(f"127.0.0.1:{server.port}") as channel:
        outputs = prediction_service_pb2_grpc.PredictionServiceStub(channel).Predict(request).outputs
    np.testing.assert_array_equal(tf.make_ndarray(outputs["embedding"]), expected["embedding"].numpy())


def test_images_as_base64_and_bad_ones_among_them(server: Server) -> None:
    image = tf.io.encode_png(tf.zeros((40, 40, 3), tf.uint8)).numpy()
    rows = [{"b64": base64.b64encode(data).decode()} for data in (image, b"no image", image)]
    body = {"signature_name": "encode_image", "instances": rows}
    status, content = ask(server.rest_port, "POST", "/v1/models/scenes:predict", body)
    assert status == 200
    assert [row["valid"] for row in content["predictions"]] == [True, False, True]
    assert content["predictions"][0] == content["predictions"][2]


def test_the_printed_commands_work(server: Server, tmp_path: Path) -> None:
    (tmp_path / "photo.jpg").write_bytes(tf.io.encode_jpeg(tf.zeros((40, 40, 3), tf.uint8)).numpy())
    with server.served["scenes"].lease() as (_, model):
        commands = example_commands(model, f"http://127.0.0.1:{server.rest_port}/v1/models/scenes")
    asked = []
    for command in commands:
        # The shell writes the body, and `curl` is replaced by a request of our own.
        shell = f'curl() {{ if [ "$2" = @- ]; then cat; else printf %s "$2"; fi; }}; {command}'
        body = subprocess.run(["sh", "-c", shell], capture_output=True, cwd=tmp_path, check=True).stdout
        assert command.endswith(f"http://127.0.0.1:{server.rest_port}/v1/models/scenes:predict")
        status, content = ask(server.rest_port, "POST", "/v1/models/scenes:predict", json.loads(body))
        assert status == 200 and content["predictions"][0]["valid"], command
        asked.append(json.loads(body)["signature_name"])
    assert asked == ["describe", "encode_image", "encode_text", "label", "search_image", "search_text"]


def test_a_search_without_k_gives_ten(server: Server) -> None:
    body = {"signature_name": "search_text", "instances": ["a red circle", "a blue square"]}
    status, content = ask(server.rest_port, "POST", "/v1/models/scenes:predict", body)
    assert status == 200 and [len(row["ids"]) for row in content["predictions"]] == [10, 10]


def test_merged_requests_give_what_each_gives_alone(server: Server) -> None:
    def embed(text: str) -> np.ndarray:
        status, content = ask(server.rest_port, "POST", "/v1/models/scenes:predict", {"instances": [text]})
        assert status == 200
        return np.array(content["predictions"][0]["embedding"])

    alone = {text: embed(text) for text in TEXTS}
    with ThreadPoolExecutor(8) as pool:
        for text, embedding in zip(TEXTS * 20, pool.map(embed, TEXTS * 20), strict=True):
            # Sums over a batch of another size may round differently.
            np.testing.assert_allclose(embedding, alone[text], atol=1e-5)


def test_the_python_of_the_guide_runs(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    blocks = re.findall(r"```python\n(.*?)```", GUIDE.read_text(encoding="utf-8"), flags=re.DOTALL)
    (code,) = (block for block in blocks if "Client(" in block)
    assert '"grpc://localhost:8500", model="mine"' in code and "# or http://localhost:8501" in code
    (tmp_path / "dog.jpg").write_bytes(tf.io.encode_jpeg(tf.zeros((40, 40, 3), tf.uint8)).numpy())
    monkeypatch.chdir(tmp_path)
    for url in (f"grpc://127.0.0.1:{server.port}", f"http://127.0.0.1:{server.rest_port}"):
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            there = code.replace("grpc://localhost:8500", url).replace('"mine"', '"scenes"')
            exec(compile(there, str(GUIDE), "exec"), {})
        assert -1 <= float(printed.getvalue()) <= 1
