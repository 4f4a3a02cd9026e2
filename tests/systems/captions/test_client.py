"""A captioner behind the server: what the client is told, and requests that are merged."""

from __future__ import annotations

import asyncio
import base64
import subprocess
import sys
import textwrap
import threading

import numpy as np
import pytest
import tensorflow as tf

from tests.raising import raises_argument
from tests.serving.asking import ask
from tests.systems.captions.caption_model import caption_parts, pictures
from vsemb.serving.batching import Batcher
from vsemb.serving.client import Client
from vsemb.serving.models import LoadedModel
from vsemb.serving.server import Server
from vsemb.systems.captions.client import Caption, ImageCaptions, captions_of
from vsemb.systems.captions.signature import ServedCaptioner


@pytest.fixture(scope="module")
def server(exported_captioner):
    with Server({"captions": exported_captioner}, port=0, rest_port=0, poll=0) as server:
        yield server


def url_of(server, protocol: str) -> str:
    return f"{protocol}://127.0.0.1:{server.rest_port if protocol == 'http' else server.port}"


@pytest.fixture(params=["http", "grpc"])
def url(request, server) -> str:
    return url_of(server, request.param)


@pytest.fixture(scope="module")
def wanted() -> list[ImageCaptions]:
    """What the model itself writes of three pictures."""
    answer = ServedCaptioner(*caption_parts()).caption(tf.constant(pictures(3)))
    return captions_of({name: values.numpy() for name, values in answer.items()}, None)


def same(images: list[ImageCaptions], wanted: list[ImageCaptions]) -> None:
    for one, other in zip(images, wanted, strict=True):
        assert one.valid == other.valid
        assert [caption.text for caption in one.captions] == [caption.text for caption in other.captions]
        for here, there in zip(one.captions, other.captions, strict=True):
            assert here.log_prob == pytest.approx(there.log_prob, rel=1e-5)


@pytest.mark.slow
def test_images_are_captioned(url, wanted, tmp_path):
    first, second, third = pictures(3)
    (tmp_path / "two.png").write_bytes(second)
    nothing = ImageCaptions([], False)
    # Sent in parts of two rows.
    with Client(url, "captions", timeout=60, batch_size=2) as client:
        captions = client.caption([first, b"no image", tmp_path / "two.png", str(tmp_path / "two.png"), b"", third])
        same(captions, [wanted[0], nothing, wanted[1], wanted[1], nothing, wanted[2]])
        assert len(captions[0].captions) == 3 and isinstance(captions[0].captions[0], Caption)
        same(client.caption([first], n=1), [ImageCaptions(wanted[0].captions[:1], True)])
        assert client.caption([]) == []


@pytest.mark.slow
@pytest.mark.parametrize("n", [0, 4, -1, 1.0, True, "2"])
def test_other_numbers_of_captions_are_refused(n, server):
    with (
        Client(url_of(server, "http"), "captions", timeout=60) as client,
        raises_argument("n"),
    ):
        client.caption(pictures(), n=n)


@pytest.mark.slow
def test_a_model_of_embeddings_writes_none(server):
    with Client(url_of(server, "http"), "captions", timeout=60) as client:
        with raises_argument("signature"):
            client.encode_image(pictures())
        with raises_argument("images"):
            client.caption(pictures()[0])
        others = {"encode_text": client.signatures()["caption"]}
        client.signatures = lambda refresh=False: others  # type: ignore[method-assign]
        with raises_argument("signature"):
            client.caption(pictures())


@pytest.mark.slow
def test_rest_and_grpc_give_equal_arrays(server):
    answers = []
    for protocol in ("http", "grpc"):
        with Client(url_of(server, protocol), "captions", timeout=60) as client:
            answers.append(client.predict("caption", image_bytes=[*pictures(), b"none"]))
            shapes = {name: it.shape for name, it in client.signatures()["caption"].outputs.items()}
            assert shapes == {"captions": (None, 3), "log_probs": (None, 3), "valid": (None,)}
    assert answers[0].keys() == answers[1].keys()
    for name, values in answers[0].items():
        assert values.dtype == answers[1][name].dtype and np.array_equal(values, answers[1][name])
    assert answers[0]["captions"].shape == (3, 3)


@pytest.mark.slow
def test_rows_and_columns_over_rest(server, wanted):
    image = {"b64": base64.b64encode(pictures()[0]).decode()}
    path = "/v1/models/captions:predict"
    status, rows = ask(server.rest_port, "POST", path, {"instances": [image, {"b64": ""}]})
    assert status == 200
    first, second = rows["predictions"]
    assert first["captions"] == [caption.text for caption in wanted[0].captions] and first["valid"] is True
    assert second == {"captions": [""] * 3, "log_probs": [0.0] * 3, "valid": False}
    status, columns = ask(server.rest_port, "POST", path, {"inputs": [image]})
    assert status == 200 and columns["outputs"]["captions"] == [first["captions"]]


class Held:
    """A loaded model whose first batch waits until others have gathered behind it."""

    def __init__(self, model: LoadedModel) -> None:
        self.model, self.name = model, model.name
        self.gate, self.begun = threading.Event(), threading.Event()
        self.rows: list[int] = []

    def run(self, signature: str, inputs: dict) -> dict:
        self.rows.append(len(inputs["image_bytes"]))
        self.begun.set()
        assert self.gate.wait(60)
        return self.model.run(signature, inputs)


@pytest.mark.slow
def test_merged_requests_give_what_each_gives_alone(exported_captioner):
    model = LoadedModel(exported_captioner / "1")
    caption = model.signature("caption")
    assert caption.mergeable and model.warm_up() == 4
    images = [[image] for image in (*pictures(4), b"no image")] + [pictures(2)]
    requests = [{"image_bytes": np.array(rows, object)} for rows in images]

    async def merged() -> tuple[list[int], list[dict]]:
        held, batcher = Held(model), Batcher(8, timeout=0, threads=1)
        tasks = [asyncio.ensure_future(batcher.run(held, caption, requests[0]))]  # type: ignore[arg-type]
        await asyncio.to_thread(held.begun.wait, 60)
        tasks += [asyncio.ensure_future(batcher.run(held, caption, one)) for one in requests]  # type: ignore[arg-type]
        await asyncio.sleep(0)
        held.gate.set()
        results = await asyncio.gather(*tasks)
        batcher.close()
        return held.rows, results[1:]

    rows, answers = asyncio.run(merged())
    assert rows == [1, 7]
    for one, inputs in zip(answers, requests, strict=True):
        alone = model.run("caption", inputs)
        assert np.array_equal(one["captions"], alone["captions"])
        assert np.array_equal(one["valid"], alone["valid"])
        # Sums over a batch of another size may round differently.
        np.testing.assert_allclose(one["log_probs"], alone["log_probs"], rtol=1e-5)


@pytest.mark.slow
def test_captions_over_rest_need_no_tensorflow(server, tmp_path):
    (tmp_path / "one.png").write_bytes(pictures()[0])
    code = """
        import sys
        from vsemb.serving.client import Client

        with Client(sys.argv[1], "captions", timeout=60) as client:
            (image,) = client.caption([sys.argv[2]])
        assert image.valid and image.captions[0].text and image.captions[0].log_prob < 0, image
        assert not {"tensorflow", "keras", "grpc"} & set(sys.modules)
    """
    command = [sys.executable, "-c", textwrap.dedent(code), url_of(server, "http"), str(tmp_path / "one.png")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr


def test_what_is_read_of_an_answer():
    answer = {
        "captions": np.array([[b"a dog", b"\xff", b""], [b"", b"", b""]], object),
        "log_probs": np.float32([[-1, -2, 0], [0, 0, 0]]),
        "valid": np.array([True, True]),
    }
    first, second = captions_of(answer, None)
    assert first.captions == [Caption("a dog", -1.0), Caption("�", -2.0)]
    assert second == ImageCaptions([], True) and captions_of(answer, 1)[0].captions == first.captions[:1]
