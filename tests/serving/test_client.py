"""The client: the same calls over both protocols, equal answers, and one clear line when a call fails."""

from __future__ import annotations

import io
import shutil
from concurrent import futures

import numpy as np
import pytest
from PIL import Image
from tensorflow_serving.apis import (
    predict_pb2,
    prediction_service_pb2_grpc,
)

from tests.raising import raises_argument
from tests.serving.rpc import rpc_server
from vsemb.errors import DataError, InvalidArgumentError
from vsemb.serving.client import Client
from vsemb.serving.server import Server
from vsemb.serving.transports import ServingError, SignatureInfo, TensorInfo

PROTOCOLS = ("http", "grpc")
ODD = ["a red circle", "", "blue\nsquare\t", b"a \xff\xfe circle", "ÜBER 圆", "x" * 5000]


@pytest.fixture(scope="module")
def run(tiny_pixel_run):
    return tiny_pixel_run


@pytest.fixture(scope="module")
def server(exported, tmp_path_factory):
    """A server of two versions, which are equal; the corpus is the images of the validation split."""
    out = shutil.copytree(exported, tmp_path_factory.mktemp("models") / "scenes")
    shutil.copytree(out / "1", out / "2")
    versions = {"versions": "all", "labels": {"stable": 1, "canary": 2}}
    with Server({"scenes": out}, port=0, rest_port=0, poll=0, **versions) as server:
        yield server


def url_of(server, protocol: str) -> str:
    return f"{protocol}://127.0.0.1:{server.rest_port if protocol == 'http' else server.port}"


@pytest.fixture(params=PROTOCOLS)
def client(request, server):
    with Client(url_of(server, request.param), "scenes", timeout=60) as client:
        yield client


@pytest.fixture
def both(server):
    with (
        Client(url_of(server, "http"), "scenes", timeout=60) as rest,
        Client(url_of(server, "grpc"), "scenes", timeout=60) as rpc,
    ):
        yield rest, rpc


def pictures(scenes, count: int = 3) -> list[bytes]:
    return [scenes.split("test").read_image(row) for row in range(count)]


def test_texts_become_what_the_run_makes_of_them(client, run):
    texts = ["a red circle", "two blue squares", ""]
    found = client.encode_text(texts)
    assert found.embedding.dtype == np.float32 and found.embedding.shape == (3, 16)
    assert found.valid.dtype == bool and found.valid.tolist() == [True, True, False]
    wanted = run.model.encode_texts(run.tokenizer(texts[:2]))
    np.testing.assert_allclose(found.embedding[:2], wanted, atol=1e-5)
    assert not found.embedding[2].any()


def test_images_are_bytes_or_paths(client, scenes, tmp_path):
    images = pictures(scenes)
    (tmp_path / "image.jpg").write_bytes(images[1])
    found = client.encode_image([images[0], tmp_path / "image.jpg", str(tmp_path / "image.jpg"), b"none"])
    assert found.valid.tolist() == [True, True, True, False]
    assert np.array_equal(found.embedding[1], found.embedding[2])
    np.testing.assert_allclose(found.embedding[:2], client.encode_image(images[:2]).embedding, atol=1e-6)


def test_systems_add_methods(client, monkeypatch):
    methods = {"mark": "tests.serving.test_client:mark"}
    monkeypatch.setattr("vsemb.registry.entries", lambda name: methods if name == "client_methods" else {})
    asked = client.mark(3, more=4)
    assert asked == (client, 3, 4) and "mark" in dir(client) and "encode_text" in dir(client)
    with pytest.raises(AttributeError, match="'Client' object has no attribute 'marks'"):
        client.marks  # noqa: B018


def mark(client: Client, value: int, more: int) -> tuple:
    """A method that a system adds."""
    return client, value, more


def test_searching_finds_the_images_themselves(client, scenes):
    split = scenes.split("val")
    found = client.search_image([split.read_image(0), b"none", split.read_image(7)], k=4)
    assert found.ids.dtype == np.int64 and found.ids.shape == (3, 4)
    assert found.ids[:, 0].tolist() == [split.ids[0], -1, split.ids[7]]
    assert [len(keys) for keys in found.keys] == [4, 0, 4] and found.keys[0][0] == split.keys[0]
    assert found.scores[0, 0] == pytest.approx(1, abs=1e-5) and (np.diff(found.scores[0]) <= 0).all()
    assert client.search_text(["a circle"], k=1000).ids.shape == (1, 12)
    assert client.search_text([], k=3).keys == []


def test_the_share_of_known_words_comes_with_the_answer(both, scenes):
    for client in both:
        found = client.encode_text(["a red circle", "a xylophonic circle", "xylophonic", ""])
        assert found.valid.tolist() == [True, True, False, False]
        np.testing.assert_allclose(found.known, [1, 2 / 3, 0, 0], atol=1e-6)
        assert client.search_text(["a xylophonic circle"]).known == pytest.approx([2 / 3])
        assert client.encode_image(pictures(scenes, 1)).known is None


def test_a_search_without_k_gives_ten(both):
    for client in both:
        found = client.predict("search_text", text=["a red circle", "blue"])
        assert found["ids"].shape == (2, 10) and (found["ids"] >= 0).all()
        assert found["ids"].tolist() == client.search_text(["a red circle", "blue"]).ids.tolist()


def test_webp_and_turned_images_are_converted_before_they_are_sent(client):
    pixels = np.random.default_rng(1).integers(0, 256, (8, 8, 3), dtype=np.uint8)
    image = Image.fromarray(pixels).resize((64, 32))
    encoded = {}
    for name, options in {
        "png": {},
        "webp": {"lossless": True},
        "turned": {"exif": b"Exif\0\0II*\0\x08\0\0\0\x01\0\x12\x01\x03\0\x01\0\0\0\x06\0\0\0\0\0\0\0"},
    }.items():
        buffer = io.BytesIO()
        image.save(buffer, name if name != "turned" else "jpeg", **options)
        encoded[name] = buffer.getvalue()
    found = client.encode_image([encoded["webp"], encoded["png"], encoded["turned"], b"RIFF0000WEBPbroken"])
    assert found.valid.tolist() == [True, True, True, False]
    # WebP becomes a JPEG of quality 95, as in a dataset.
    assert found.embedding[0] @ found.embedding[1] > 0.99
    upright = io.BytesIO()
    Image.open(io.BytesIO(encoded["turned"])).transpose(Image.Transpose.ROTATE_270).save(upright, "png")
    assert found.embedding[2] @ client.encode_image([upright.getvalue()]).embedding[0] > 0.99


def test_rest_and_grpc_give_equal_arrays_of_equal_types(both, scenes):
    images, k = pictures(scenes), np.array([1, 3, 2], np.int32)
    calls = {
        "encode_text": {"text": ODD[:5]},
        "serving_default": {"text": ["one"]},
        "encode_image": {"image_bytes": [*images, b"\x00\xff", b""]},
        "label": {"image_bytes": images},
        "describe": {"fact": ["similarity", "other"]},
        "search_text": {"text": ["a red circle", "", "blue"], "k": k},
        "search_image": {"image_bytes": images, "k": k.tolist()},
    }
    rest, rpc = both
    assert rest.signatures() == rpc.signatures() and sorted(rest.signatures()) == sorted(calls)
    for signature, inputs in calls.items():
        answers = [client.predict(signature, **inputs) for client in both]
        assert answers[0].keys() == answers[1].keys() == rest.signatures()[signature].outputs.keys()
        for name, info in rest.signatures()[signature].outputs.items():
            first, second = (answer[name] for answer in answers)
            assert first.dtype == second.dtype == info.dtype, (signature, name)
            assert first.flags.writeable and second.flags.writeable
            # Bit by bit, and no -1 or empty name taken for another.
            assert first.shape == second.shape and first.tolist() == second.tolist(), (signature, name)


def test_any_model_gives_equal_arrays_over_both(everything):
    calls = {
        "serving_default": {"x": [1.5, -3]},
        "strings": {"text": ["abc", "\0\u2028圆", ""]},
        "two": {"a": np.float32([[0.1, 0.2], [3, 4]]), "b": [1, -2]},
        "reciprocal": {"x": [0.0, -0.0, float("nan"), 3.0]},
        "scalar": {"x": 21},
        "widest": {"k": [2, 0, 3]},
    }
    with Server({"everything": everything}, port=0, rest_port=0, poll=0) as server:
        for signature, inputs in calls.items():
            answers = []
            for protocol in PROTOCOLS:
                with Client(url_of(server, protocol), "everything") as client:
                    answers.append(client.predict(signature, **inputs))
            for name, first in answers[0].items():
                second = answers[1][name]
                assert first.dtype == second.dtype and first.shape == second.shape, (signature, name)
                np.testing.assert_array_equal(first, second)
        with Client(url_of(server, "http"), "everything") as client:
            assert client.predict("two", a=[[1, 2]], b=[1])["big"].tolist() == [2**53 + 1]
            assert client.predict("strings", text=["\0圆"])["raw_bytes"].tolist() == ["\0圆".encode()]
            assert client.predict("scalar", x=21)["y"] == 42
            assert np.isnan(client.predict("reciprocal", x=[float("nan")])["y"]).all()
            with pytest.raises(ServingError, match="INVALID_ARGUMENT.*negative input"):
                client.predict("picky", x=[-1.0])


def test_every_kind_of_text_passes_as_it_is(both):
    first, second = (client.encode_text(ODD) for client in both)
    assert np.array_equal(first.embedding, second.embedding)
    assert first.valid.tolist() == second.valid.tolist() and not first.valid[1]


def test_a_lone_surrogate_names_its_row(client):
    with pytest.raises(InvalidArgumentError, match=r"`texts\[1\]`.*ud83d"):
        client.encode_text(["a red circle", "red \ud83d star"])
    with pytest.raises(InvalidArgumentError, match=r"`text\[1\]`.*ud83d"):
        client.predict("encode_text", text=["a red circle", "red \ud83d star"])
    with pytest.raises(DataError, match=r"row 1: .*ud83d"):
        client.encode_texts(["a red circle", "red \ud83d star"])


def test_no_rows_need_no_request(client):
    found = client.encode_text([])
    assert found.embedding.shape == (0, 16) and found.embedding.dtype == np.float32
    assert found.valid.shape == (0,) and found.valid.dtype == bool


def test_parts_are_put_together_in_order(server):
    texts = [f"a {colour} {shape}" for colour in ("red", "blue", "green") for shape in ("circle", "square")] * 5
    for protocol in PROTOCOLS:
        with (
            Client(url_of(server, protocol), "scenes", batch_size=7) as small,
            Client(url_of(server, protocol), "scenes", batch_size=100) as large,
        ):
            found = small.encode_text(texts)
            assert found.embedding.shape == (30, 16)
            np.testing.assert_allclose(found.embedding, large.encode_text(texts).embedding, atol=1e-6)
            assert small.search_text(texts, k=2).ids.tolist() == large.search_text(texts, k=2).ids.tolist()
            ragged = np.arange(1, 15) % 5 + 1
            with raises_argument("batch_size"):
                small.predict("search_text", text=["a"] * 14, k=np.where(np.arange(14) < 7, 1, ragged))


def test_versions_and_labels(server):
    for protocol in PROTOCOLS:
        url = url_of(server, protocol)
        with Client(url, "scenes") as client:
            assert [(entry.version, entry.state) for entry in client.status()] == [
                (2, "AVAILABLE"),
                (1, "AVAILABLE"),
            ]
        for options in ({"version": 1}, {"label": "stable"}, {"label": "canary"}):
            with Client(url, "scenes", **options) as client:
                assert client.encode_text(["a circle"]).valid.all()
        with Client(url, "scenes", version=1) as client:
            assert [entry.version for entry in client.status()] == [1]


def test_one_client_serves_many_threads(client):
    texts = [[f"a red circle and {number} squares"] for number in range(24)]
    alone = [client.encode_text(text).embedding for text in texts]
    with futures.ThreadPoolExecutor(8) as pool:
        together = list(pool.map(lambda text: client.encode_text(text).embedding, texts))
    np.testing.assert_allclose(together, alone, atol=1e-6)


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda c: c.predict("labels", image_bytes=[b""]), "'labels'.*Did you mean 'label'"),
        (lambda c: c.predict("encode_text", txt=["a"]), "'txt'.*Did you mean 'text'"),
        (lambda c: c.predict("search_text", k=[1]), "all of k, text.*Give text"),
        (lambda c: c.predict("search_text", text=["a"], k=[1.5]), "`k` must be .*values of type int32"),
        (lambda c: c.predict("search_text", text=["a"], k=[2**40]), "`k` must be .*values of type int32"),
        (lambda c: c.predict("search_text", text=["a"], k=["1"]), "`k` must be .*values of type int32"),
        (lambda c: c.predict("encode_text", text=["a", None]), "`text` must be .*strings or bytes.*; got None"),
        (lambda c: c.predict("encode_text", text=[["a"]]), "1 dimensions"),
        (lambda c: c.predict("encode_text", text="a"), "1 dimensions"),
        (lambda c: c.encode_text("a dog"), "`texts` must be a list.*; got 'str'.*encode_texts also takes one"),
        (lambda c: c.encode_text([3]), "`texts` must be strings.*; got 3"),
        (lambda c: c.encode_image(b"..."), "`images` must be a list.*; got 'bytes'"),
        (lambda c: c.encode_image([3]), "`images` must be .*; got 'int'"),
        (lambda c: c.search_text(["a"], k=0), "`k` must be an integer from 1 to 1000.*; got 0"),
        (lambda c: c.search_text(["a"], k=2.5), "`k` must be an integer from 1 to 1000.*; got 2.5"),
        (lambda c: c.search_text(["a"], k=None), "`k` must be an integer from 1 to 1000.*; got None"),
    ],
)
def test_what_the_model_does_not_take_is_named(call, says, client):
    with pytest.raises(InvalidArgumentError, match=says) as raised:
        call(client)
    assert "\n" not in str(raised.value)


def test_an_image_that_cannot_be_read(client, tmp_path):
    with pytest.raises(DataError, match=r"Cannot read the image .*none\.jpg: No such file"):
        client.encode_image([tmp_path / "none.jpg"])


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_the_server_says_what_it_does_not_know(protocol, server):
    for name, options in (("nope", {}), ("scenes", {"version": 9})):
        with Client(url_of(server, protocol), name, **options) as client:
            for call in (client.status, client.signatures, lambda c=client: c.encode_text(["a"])):
                with pytest.raises(ServingError, match="answered .*NOT_FOUND") as raised:
                    call()
                assert raised.value.code == "NOT_FOUND" and "\n" not in str(raised.value)
                assert raised.value.http_status == (404 if protocol == "http" else None)
                assert raised.value.detail
    with Client(url_of(server, protocol), "scenes") as client, pytest.raises(ServingError) as raised:
        client.predict("search_text", text=["a", "b", "c"], k=[1, 2])
    assert raised.value.code in ("INVALID_ARGUMENT", "INTERNAL")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"url": "localhost:8501"}, "`url` must be http://HOST:PORT.*; got 'localhost:8501'"),
        ({"url": "ftp://host"}, "`url` must be .*; got "),
        ({"url": "http://host:99999"}, "`url` must be .*; got "),
        ({"url": "http://"}, "`url` must be .*; got "),
        ({"url": "http://host:8501/v1/models/scenes"}, "Pass the model as `model`"),
        ({"url": "grpc://host:8500/path"}, "Omit the path for gRPC"),
        ({"url": "http://name:word@host"}, "`url` must be .*; got "),
        ({"url": 3}, "`url` must be .*; got 3"),
        ({"model": "a/b"}, "`model` must be .*; got 'a/b'"),
        ({"model": ""}, "`model` must be .*; got "),
        ({"version": 1, "label": "stable"}, "`label` must be .*; got 'stable'"),
        ({"version": -1}, "`version` must be .*; got -1"),
        ({"label": "a:b"}, "`label` must be .*; got "),
        ({"timeout": 0}, "`timeout` must be .*; got 0"),
        ({"timeout": float("nan")}, "`timeout` must be .*; got nan"),
        ({"timeout": "3"}, "`timeout` must be .*; got '3'"),
        ({"retries": -1}, "`retries` must be .*; got -1"),
        ({"retries": None}, "`retries` must be .*; got None"),
        ({"batch_size": 2.5}, "`batch_size` must be .*; got 2.5"),
        ({"version": "1"}, "`version` must be .*; got '1'"),
        ({"version": 2**63}, "below 2"),
        ({"label": 3}, "`label` must be .*; got 3"),
        ({"batch_size": 0}, "`batch_size` must be .*; got 0"),
        ({"batch_bytes": 0}, "`batch_bytes` must be .*; got 0"),
    ],
)
def test_arguments_that_are_not_allowed(arguments, says):
    with pytest.raises(InvalidArgumentError, match=says):
        Client(**{"url": "http://host:8501", "model": "scenes", **arguments})


def test_a_request_holds_neither_too_many_rows_nor_too_many_bytes():
    class Recorder:
        requests: list[list[bytes]] = []

        def signatures(self, timeout):
            text = TensorInfo(np.dtype(object), (None,))
            return {"encode_text": SignatureInfo({"text": text}, {"length": TensorInfo(np.dtype(int), (None,))})}

        def predict(self, signature, inputs, outputs, timeout):
            self.requests.append(inputs["text"].tolist())
            return {"length": np.array([len(text) for text in inputs["text"]])}

    client = Client("http://host", "scenes", batch_size=3, batch_bytes=10)
    client._transport = Recorder()
    texts = [b"a" * size for size in (4, 4, 4, 1, 1, 1, 25, 0, 10, 0)]
    assert client.predict("encode_text", text=texts)["length"].tolist() == [len(text) for text in texts]
    # 4 + 4 bytes and no third of 4; three rows; one alone that is larger than the limit; 0 + 10 + 0 bytes.
    sizes = [[len(text) for text in request] for request in Recorder.requests]
    assert sizes == [[4, 4], [4, 1, 1], [1], [25], [0, 10, 0]]


def test_grpc_sends_and_takes_more_than_four_megabytes(server):
    with Client(url_of(server, "grpc"), "scenes", timeout=60) as client:
        assert client.encode_image([b"\x89PNG" + bytes(6 * 2**20)]).valid.tolist() == [False]

    class Large(prediction_service_pb2_grpc.PredictionServiceServicer):
        def Predict(self, request, context):
            answer = predict_pb2.PredictResponse()
            answer.outputs["y"].dtype = 7
            answer.outputs["y"].tensor_shape.dim.add(size=1)
            answer.outputs["y"].string_val.append(bytes(6 * 2**20))
            return answer

    large, url = rpc_server((prediction_service_pb2_grpc.add_PredictionServiceServicer_to_server, Large()))
    try:
        with Client(url, "scenes") as client:
            strings = TensorInfo(np.dtype(object), (None,))
            client._signatures = {"big": SignatureInfo({"x": strings}, {"y": strings})}
            assert len(client.predict("big", x=[b""])["y"][0]) == 6 * 2**20
    finally:
        large.stop(None)
