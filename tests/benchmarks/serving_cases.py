"""The requests of the load benchmark, good and malformed, and what is wrong with an answer."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from google.protobuf.message import DecodeError
from tensorflow_serving.apis import predict_pb2

# A batch of another size adds the same numbers in another order; two of the texts differ by 0.03 and more.
TOLERANCE = 1e-4
COLOURS = ("red", "blue", "green", "yellow", "purple", "white")
SHAPES = ("circle", "square", "triangle", "ring", "star")


@dataclass(frozen=True)
class Case:
    """One request, as each protocol sends it, and what must come back.

    Attributes:
        kind: what it is, for the report.
        rest: the body.
        rpc: the serialized message.
        embedding: (rows, dim) float32; None where the request must be refused.
        valid: (rows,) bool; None likewise.
        codes: statuses of gRPC that refuse it; REST answers 400.
    """

    kind: str
    rest: bytes
    rpc: bytes
    embedding: np.ndarray | None
    valid: np.ndarray | None
    codes: tuple[str, ...] = ()


@dataclass
class Answer:
    """What came back for a request: a status, a body, and the seconds it took."""

    protocol: str
    case: Case
    seconds: float
    status: int | str
    body: bytes


def message(signature: str, inputs: dict[str, Any]) -> bytes:
    """Returns a serialized PredictRequest for the model `model`."""
    request = predict_pb2.PredictRequest()
    request.model_spec.name, request.model_spec.signature_name = "model", signature
    for name, values in inputs.items():
        request.inputs[name].CopyFrom(tf.make_tensor_proto(values))
    return request.SerializeToString()


def body(signature: str, inputs: dict[str, Any]) -> bytes:
    """Returns the same as JSON."""
    columns = {
        name: [{"b64": base64.b64encode(v).decode()} if isinstance(v, bytes) else v for v in values]
        for name, values in inputs.items()
    }
    return json.dumps({"signature_name": signature, "inputs": columns}).encode()


def make_cases(path: Path, size: int = 80) -> list[Case]:
    """Returns requests in the order in which they are sent over and over: every tenth is malformed."""
    signatures = tf.saved_model.load(str(path)).signatures
    generator = np.random.default_rng(0)

    def good(kind: str, signature: str, name: str, rows: list[bytes]) -> Case:
        found = signatures[signature](**{name: tf.constant(rows)})
        inputs = {name: rows}
        return Case(
            kind,
            body(signature, inputs),
            message(signature, inputs),
            found["embedding"].numpy(),
            found["valid"].numpy(),
        )

    def text() -> bytes:
        shapes = [f"{generator.choice(COLOURS)} {generator.choice(SHAPES)}" for _ in range(generator.integers(1, 4))]
        return f"a {' beside a '.join(shapes)}".encode()

    def image() -> bytes:
        pixels = generator.integers(0, 256, (8, 8, 3), dtype=np.uint8).repeat(16, 0).repeat(16, 1)
        return tf.io.encode_jpeg(pixels).numpy()

    images = "encode_image" in signatures
    kinds = ["text", "text", "8 texts", "image" if images else "text"]
    makers: dict[str, Callable[[], Case]] = {
        "text": lambda: good("text", "encode_text", "text", [text()]),
        "8 texts": lambda: good("8 texts", "encode_text", "text", [text() for _ in range(8)]),
        "image": lambda: good("image", "encode_image", "image_bytes", [image()]),
    }
    unknown = ("INVALID_ARGUMENT", "NOT_FOUND", "FAILED_PRECONDITION")
    malformed = [
        Case("not a message", b'{"inputs": [', b"\xff" * 9, None, None, unknown[:1]),
        Case("no input", body("encode_text", {}), message("encode_text", {}), None, None, unknown[:1]),
        Case(
            "wrong type",
            body("encode_text", {"text": [1.5]}),
            message("encode_text", {"text": np.float32([1.5])}),
            None,
            None,
            unknown[:1],
        ),
        Case(
            "no signature",
            body("encode", {"text": [b"a"]}),
            message("encode", {"text": [b"a"]}),
            None,
            None,
            unknown,
        ),
    ]
    if images:
        malformed.append(good("no image", "encode_image", "image_bytes", [b"\xff\xd8 no image"]))
        assert malformed[-1].valid is not None and not malformed[-1].valid.any()
    cases = []
    for number in range(size):
        if number % 10 == 9:
            cases.append(malformed[number // 10 % len(malformed)])
        else:
            cases.append(makers[kinds[int(generator.integers(len(kinds)))]]())
    return cases


def wrong(answer: Answer) -> str | None:
    """Says what is wrong with an answer; None where it is as it must be."""
    case = answer.case
    if case.embedding is None:
        right = answer.status in (case.codes if answer.protocol == "gRPC" else (400,))
        return None if right else f"{case.kind}: {answer.protocol} answered {answer.status}"
    if answer.status not in ("OK", 200):
        return f"{case.kind}: {answer.protocol} answered {answer.status}"
    try:
        if answer.protocol == "gRPC":
            outputs = predict_pb2.PredictResponse.FromString(answer.body).outputs
            found = {name: tf.make_ndarray(proto) for name, proto in outputs.items()}
        else:
            found = {name: np.array(value) for name, value in json.loads(answer.body)["outputs"].items()}
        embedding, valid = found["embedding"], found["valid"]
    except (DecodeError, ValueError, KeyError, TypeError) as error:
        return f"{case.kind}: {answer.protocol}'s answer cannot be read: {error!r}"
    if embedding.shape != case.embedding.shape or not np.array_equal(valid, case.valid):
        return f"{case.kind}: {answer.protocol}'s answer has other rows"
    difference = float(np.abs(embedding - case.embedding).max())
    return None if difference <= TOLERANCE else f"{case.kind}: {answer.protocol} is off by {difference:.1e}"
