"""A model of regions and words behind the server: what the client aligns, and requests that are merged."""

from __future__ import annotations

import asyncio
import base64
import re
import subprocess
import sys
import textwrap
import threading

import numpy as np
import pytest
import tensorflow as tf

from tests.raising import raises_argument
from tests.serving.asking import ask
from tests.systems.regions.region_model import COUNT, DIM, LONGEST, TEXTS, candidates, pictures, region_parts
from vsemb.exporting import ServedModel
from vsemb.serving import Client
from vsemb.serving.batching import Batcher
from vsemb.serving.models import LoadedModel
from vsemb.serving.server import Server
from vsemb.serving.transports import ServingError
from vsemb.systems.regions.client import Alignment, alignments_of, to_affinities, to_boxes

PREDICT = "/v1/models/sets:predict"


@pytest.fixture(scope="module")
def server(region_models):
    models = {name: region_models / name for name in ("sets", "given")}
    with Server(models, port=0, rest_port=0, poll=0) as server:
        yield server


def url_of(server, protocol: str) -> str:
    return f"{protocol}://127.0.0.1:{server.rest_port if protocol == 'http' else server.port}"


@pytest.fixture(params=["http", "grpc"])
def url(request, server) -> str:
    return url_of(server, request.param)


@pytest.fixture(scope="module")
def wanted() -> dict[str, np.ndarray]:
    """What the model itself makes of the texts, each with the first picture."""
    align = next(signature for signature in ServedModel(*region_parts()).offered if signature.name == "align")
    images, affinity = tf.constant(pictures()[:1] * 3), tf.constant([0.5] * 3)
    outputs = align.rows(image_bytes=images, text=tf.constant(TEXTS), affinity=affinity)
    return {name: values.numpy() for name, values in outputs.items()}


@pytest.mark.slow
def test_words_have_their_regions(url, wanted, tmp_path):
    (tmp_path / "one.png").write_bytes(pictures()[0])
    images = [pictures()[0], tmp_path / "one.png", str(tmp_path / "one.png"), b"no image", pictures()[0]]
    with Client(url, "sets", timeout=60) as client:
        alignments = client.align(images, [*TEXTS, TEXTS[0], " "], affinity=0.5)
    assert [it.valid for it in alignments] == [True, True, True, False, False]
    for row, one in enumerate(alignments[:3]):
        count = len(TEXTS[row].split())
        assert one.words == TEXTS[row].lower().strip("!").split()
        assert one.regions.tolist() == wanted["regions"][row, :count].tolist()
        np.testing.assert_allclose(one.scores, wanted["scores"][row, :count], rtol=1e-5)
        assert one.boxes[0].tolist() == [0, 0, 1, 1] and one.boxes.any(axis=1).all()
        said = [word for phrase in one.phrases for word in phrase.words]
        assert said == one.words
        assert all(phrase.box == tuple(one.boxes[phrase.region].tolist()) for phrase in one.phrases)
    for one in alignments[3:]:
        assert one.words == one.phrases == [] and one.boxes.shape == (0, 4) and len(one.scores) == 0


@pytest.mark.slow
def test_an_affinity_for_each_row(url):
    with Client(url, "sets", timeout=60) as client:
        apart, together = client.align(pictures()[:1] * 2, TEXTS[1:2] * 2, affinity=[0, 1e6])
        assert client.align([], []) == []
    assert len(together.phrases) == 1 and together.phrases[0].text == TEXTS[1]
    assert len(apart.phrases) > 1 and apart.scores.sum() >= together.scores.sum()


@pytest.mark.slow
def test_sets_are_embedded(url):
    with Client(url, "sets", timeout=60) as client:
        texts, images = client.encode_text([TEXTS[0], ""]), client.encode_regions([pictures()[0], b""])
    assert texts.embedding.shape == (2, LONGEST, DIM)
    assert images.embedding.shape == (2, COUNT, DIM) and images.boxes.shape == (2, COUNT, 4)
    assert texts.valid.tolist() == images.valid.tolist() == [True, False]
    assert images.boxes[0, 0].tolist() == [0, 0, 1, 1] and not images.boxes[1].any()


@pytest.mark.slow
def test_candidates_are_sent_with_the_images(url):
    boxes = [candidates(1)[0, :3], [], [[0.2, 0.2, 0.5, 0.5]]]
    with Client(url, "given", timeout=60) as client:
        alignments = client.align(pictures()[:1] * 3, TEXTS, boxes=boxes)
        assert [it.valid for it in alignments] == [True] * 3
        assert [len(it.boxes) for it in alignments][1:] == [1, 2]
        np.testing.assert_allclose(alignments[2].boxes[1], [0.2, 0.2, 0.5, 0.5], atol=1e-6)
        embedded = client.encode_regions(pictures()[:1] * 3, boxes=boxes)
        assert embedded.boxes.any(axis=2).sum(axis=1).tolist() == [len(it.boxes) for it in alignments]
        with raises_argument("inputs"):
            client.align(pictures()[:1], TEXTS[:1])
    with (
        Client(url, "sets", timeout=60) as client,
        raises_argument("input"),
    ):
        client.align(pictures()[:1], TEXTS[:1], boxes=[[]])


@pytest.mark.slow
def test_rest_and_grpc_give_equal_arrays(server):
    calls = {
        "align": {
            "image_bytes": [*pictures(), b"none"],
            "text": TEXTS,
            "affinity": np.float32([0, 0.1, 2]),
        },
        "encode_text": {"text": [*TEXTS, b"\xff", ""]},
        "encode_image": {"image_bytes": [*pictures(), b""]},
    }
    with (
        Client(url_of(server, "http"), "sets", timeout=60) as rest,
        Client(url_of(server, "grpc"), "sets", timeout=60) as rpc,
    ):
        for signature, inputs in calls.items():
            found = [client.predict(signature, **inputs) for client in (rest, rpc)]
            assert found[0].keys() == found[1].keys()
            for name, values in found[0].items():
                assert values.dtype == found[1][name].dtype and np.array_equal(values, found[1][name]), name


@pytest.mark.slow
def test_rows_over_rest(server, wanted):
    image = {"b64": base64.b64encode(pictures()[0]).decode()}
    row = {"image_bytes": image, "text": TEXTS[0], "affinity": 0.5}
    body = {"signature_name": "align", "instances": [row, {**row, "affinity": -1}]}
    status, content = ask(server.rest_port, "POST", PREDICT, body)
    assert status == 200
    first, second = content["predictions"]
    assert first["regions"] == wanted["regions"][0].tolist() and first["words"][:3] == TEXTS[0].split()
    assert first["words"][3:] == [""] * (LONGEST - 3) and first["valid"] is True
    assert second["valid"] is False and second["regions"] == [-1] * LONGEST


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "changed", "says"),
    [
        ("sets", {"affinity": "much"}, "affinity.*not of expected type: float"),
        ("sets", {"affinity": [0.1]}, "has shape"),
        ("sets", {"boxes": [[0, 0, 1, 1]]}, "does not have named input: boxes"),
        ("given", {}, "keys must be equal to: affinity,boxes,image_bytes,text"),
        ("given", {"boxes": [[0, 0, 1]]}, "has shape"),
        ("given", {"boxes": [0, 0, 1, 1]}, "has shape"),
    ],
    ids=["text", "list", "boxes", "no boxes", "three numbers", "one box"],
)
def test_what_is_no_request(model, changed, says, server):
    row = {"image_bytes": {"b64": ""}, "text": TEXTS[0], "affinity": 0.0, **changed}
    body = {"signature_name": "align", "instances": [row]}
    status, content = ask(server.rest_port, "POST", f"/v1/models/{model}:predict", body)
    assert status == 400 and re.search(says, content["error"]), content


class Held:
    """A loaded model whose first batch waits until others have gathered behind it."""

    def __init__(self, model: LoadedModel) -> None:
        self.model, self.name = model, model.name
        self.gate, self.begun = threading.Event(), threading.Event()
        self.rows: list[int] = []

    def run(self, signature: str, inputs: dict) -> dict:
        self.rows.append(len(inputs["text"]))
        self.begun.set()
        assert self.gate.wait(60)
        return self.model.run(signature, inputs)


@pytest.mark.slow
def test_merged_requests_give_what_each_gives_alone(server):
    with server.served["sets"].lease() as (_, model):
        check_merged_requests(model)


def check_merged_requests(model: LoadedModel) -> None:
    align = model.signature("align")
    assert align.mergeable and model.signature("encode_text").mergeable

    def request(text: str | bytes, affinity: float, image: bytes) -> dict[str, np.ndarray]:
        strings = {"image_bytes": np.array([image], object), "text": np.empty(1, object)}
        strings["text"][0] = text.encode() if isinstance(text, str) else text
        return {**strings, "affinity": np.float32([affinity])}

    first, second = pictures()
    requests = [
        request(TEXTS[0], 0, first),
        request("", 0, first),
        request(TEXTS[1], 0.1, second),
        request("a " * 50, float("nan"), b"no image"),
        request(TEXTS[2], 1e6, first),
        request(b"\xff zyzzyva", -1, second),
    ]

    async def merged() -> tuple[list[int], list[dict]]:
        held, batcher = Held(model), Batcher(8, timeout=0, threads=1)
        tasks = [asyncio.ensure_future(batcher.run(held, align, requests[0]))]  # type: ignore[arg-type]
        await asyncio.to_thread(held.begun.wait, 60)
        tasks += [asyncio.ensure_future(batcher.run(held, align, one)) for one in requests]  # type: ignore[arg-type]
        await asyncio.sleep(0)
        held.gate.set()
        results = await asyncio.gather(*tasks)
        batcher.close()
        return held.rows, results[1:]

    rows, found = asyncio.run(merged())
    assert rows == [1, len(requests)]
    for one, inputs in zip(found, requests, strict=True):
        alone = model.run("align", inputs)
        for name, values in alone.items():
            if values.dtype == np.float32:
                # Sums over a batch of another size may round differently.
                np.testing.assert_allclose(one[name], values, rtol=1e-5, atol=1e-5)
            else:
                assert np.array_equal(one[name], values)
    assert [bool(one["valid"][0]) for one in found] == [True, False, True, False, True, False]


@pytest.mark.slow
def test_parts_are_put_together_in_order(server):
    with Client(url_of(server, "http"), "given", timeout=60, batch_size=2) as client:
        boxes = [candidates(1)[0, :count] for count in (0, 1, 2, 3, 0)]
        alignments = client.align(pictures()[:1] * 5, [TEXTS[row % 3] for row in range(5)], boxes=boxes)
    assert [len(it.words) for it in alignments] == [3, 7, 1, 3, 7]
    assert [len(it.boxes) for it in alignments] == sorted(len(it.boxes) for it in alignments[:4]) + [1]


@pytest.mark.parametrize(
    "arguments",
    [
        {"texts": TEXTS[:1]},
        {"texts": "a dog"},
        {"images": b"a picture"},
        {"affinity": -0.5},
        {"affinity": float("nan")},
        {"affinity": float("inf")},
        {"affinity": 1e39},
        {"affinity": "0.5"},
        {"affinity": True},
        {"affinity": None},
        {"affinity": [0.5]},
        {"affinity": [0.5, -1]},
        {"affinity": [[0], [1, 2]]},
        {"boxes": [[]]},
        {"boxes": 3},
        {"boxes": [[], [[0, 0, 1]]]},
        {"boxes": [[0, 0, 1, 1], []]},
        {"boxes": [[["a", 0, 1, 1]], []]},
        {"boxes": [[], [[0, 0, 0, 1]]]},
        {"boxes": [[[0, 0, float("nan"), 1]], []]},
        {"boxes": [[[0, 0], [1]], []]},
        {"boxes": [[[0, 0, 1e300, 1]], []]},
    ],
    ids=[
        *("fewer texts", "one text", "one image", "negative", "nan", "infinite", "too large", "digits"),
        *("bool", "none", "fewer affinities", "one negative", "ragged affinities", "fewer boxes"),
        *("a number", "three numbers", "one box", "letters", "flat", "nan in a box", "ragged boxes"),
        "box too large",
    ],
)
def test_what_cannot_be_aligned(arguments):
    (name,) = arguments
    with Client("http://host", "sets") as client, raises_argument(name):
        client.align(**{"images": pictures(), "texts": TEXTS[:2], **arguments})


def test_what_is_sent():
    assert to_affinities(np.float64(0.5), 2).dtype == np.float32 and to_affinities([], 0).shape == (0,)
    boxes = to_boxes([np.float64([[0, 0, 0.5, 1]]), []], 2)
    # The first place is padding, which TensorFlow Serving fills requests up with.
    assert boxes.dtype == np.float32 and boxes.shape == (2, 2, 4) and not boxes[:, 0].any()
    assert to_boxes([], 0).shape == (0, 1, 4)


def test_an_answer_that_cannot_be_read_is_an_error():
    answer = {
        "boxes": np.float32([[[0, 0, 1, 1], [0, 0, 0, 0]]]),
        "words": np.array([[b"\xffa", b""]], object),
        "regions": np.array([[0, -1]]),
        "scores": np.float32([[1, 0]]),
        "valid": np.array([True]),
    }
    (alignments,) = alignments_of(answer)
    assert isinstance(alignments, Alignment) and alignments.words == ["�a"] and len(alignments.boxes) == 1
    with pytest.raises(ServingError, match="row 0"):
        alignments_of({**answer, "regions": np.array([[1, -1]])})


@pytest.mark.slow
def test_a_model_of_single_vectors_aligns_nothing(server):
    with Client(url_of(server, "http"), "sets", timeout=60) as client:
        signatures = {name: info for name, info in client.signatures().items() if name != "align"}
        client._signatures = signatures
        client.signatures = lambda refresh=False: signatures  # type: ignore[method-assign]
        with raises_argument("signature"):
            client.align(pictures(), TEXTS[:2])


@pytest.mark.slow
def test_aligning_over_rest_needs_no_tensorflow(server, tmp_path):
    (tmp_path / "one.png").write_bytes(pictures()[0])
    code = """
        import sys
        from vsemb.serving.client import Client

        with Client(sys.argv[1], "sets", timeout=60) as client:
            (found,) = client.align([sys.argv[2]], ["a red circle"])
        assert found.words == ["a", "red", "circle"] and found.phrases, found
        assert not {"tensorflow", "keras", "grpc"} & set(sys.modules)
    """
    command = [sys.executable, "-c", textwrap.dedent(code), url_of(server, "http"), str(tmp_path / "one.png")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
