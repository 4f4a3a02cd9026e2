"""`vsemb.load`: runs, SavedModels and servers give the same embeddings, of every form of input."""

from __future__ import annotations

import io
import json
import shutil
from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

import vsemb
from tests.raising import raises_argument
from vsemb import models, similarities
from vsemb.encoders import LinearSentenceEncoder, WordEmbedding
from vsemb.errors import DataError, InvalidArgumentError
from vsemb.evaluation import Embedder
from vsemb.exporting import ServedModel
from vsemb.serving.server import Server
from vsemb.serving.transports import ServingError
from vsemb.similarities import described

TEXTS = ["a red circle", "two blue squares above a green triangle", "one triangle"]


def check_same(loaded: vsemb.Model | vsemb.Client, model: vsemb.Model, pictures) -> None:
    for method, rows in (("encode_texts", TEXTS), ("encode_images", pictures)):
        wanted = getattr(model, method)(rows)
        assert wanted.dtype == np.float32 and wanted.shape == (len(rows), 16)
        np.testing.assert_allclose(getattr(loaded, method)(rows, batch_size=2), wanted, atol=1e-5)
        np.testing.assert_allclose(getattr(loaded, method)(rows[1]), wanted[1], atol=1e-5)


def test_a_run_gives_what_evaluation_measures(model, tiny_pixel_run, scenes, pictures):
    split = scenes.split("test")
    embedder = Embedder(tiny_pixel_run.model)
    images = embedder.images(tiny_pixel_run.images_of(scenes, split), len(split))
    np.testing.assert_allclose(model.encode_images(pictures), images, atol=1e-5)
    texts = embedder.texts(*tiny_pixel_run.encode(TEXTS))
    np.testing.assert_allclose(model.encode_texts(TEXTS), texts, atol=1e-5)
    wanted = tiny_pixel_run.model.similarity.scores(images, texts)
    np.testing.assert_allclose(model.similarity(images, texts), wanted, atol=1e-5)


def test_a_run_object_and_a_savedmodel_with_and_without_its_version(model, tiny_pixel_run, exported, pictures):
    loaded = [vsemb.load(source) for source in (exported, str(exported / "1"), tiny_pixel_run)]
    check_same(loaded[0], model, pictures)
    scores = loaded[0].similarity(loaded[0].encode_images(pictures), loaded[0].encode_texts(TEXTS))
    assert scores.shape == (12, 3)
    for each in loaded:
        np.testing.assert_allclose(each.encode_texts(TEXTS[0]), model.encode_texts(TEXTS[0]), atol=1e-5)
        assert repr(each).startswith("Model(") and repr(each).endswith("similarity='cosine')")


def test_a_server_and_its_client(model, exported, pictures, tmp_path):
    with Server({"scenes": exported}, port=0, rest_port=0, poll=0) as server:
        rest, rpc = f"http://127.0.0.1:{server.rest_port}", f"grpc://127.0.0.1:{server.port}"
        for url in (f"{rest}/v1/models/scenes", f"{rpc}/models/scenes/versions/1"):
            loaded = vsemb.load(url)
            check_same(loaded, model, pictures)
            assert loaded.similarity(loaded.encode_images(pictures[0]), loaded.encode_texts(TEXTS)).shape == (3,)
        with vsemb.Client(rest, "scenes") as client:
            check_same(client, model, pictures)
            for each in (client, loaded):
                np.testing.assert_array_equal(
                    each.encode_texts(TEXTS, precision="ubinary"), model.encode_texts(TEXTS, precision="ubinary")
                )
                assert each.encode_images(pictures[0], precision="int8").dtype == np.int8
            # Clients send what the server reads: a WebP becomes a JPEG.
            webp = tmp_path / "picture.webp"
            Image.open(pictures[0]).save(webp, lossless=True)
            assert client.encode_images(webp).shape == (16,)
        assert vsemb.load(url, similarity="order").compared_by.kind == "order"
        with pytest.raises(ServingError, match="nothing"):
            vsemb.load(f"{rest}/v1/models/nothing")
        with raises_argument("source"):
            vsemb.load(rest)


def test_a_model_that_tells_no_similarity():
    with raises_argument("similarity"):
        vsemb.Model("there", None).similarity(np.ones((1, 16)), np.ones((1, 16)))
    assert [described(told) for told in (None, {"kind": "of-another-package"})] == [None, None]


def test_every_form_of_an_image(model, pictures):
    picture = Image.open(pictures[0]).convert("RGB")
    pixels = np.asarray(picture)
    wanted = model.encode_images(pictures[0])
    assert wanted.shape == (16,)
    forms = [str(pictures[0]), pictures[0].read_bytes(), picture, pixels, tf.constant(pixels)]
    for form in forms:
        np.testing.assert_allclose(model.encode_images(form), wanted, atol=1e-6)
    several = (forms, tuple(forms), iter(forms), np.stack([pixels] * 5))
    for images in several:
        np.testing.assert_allclose(model.encode_images(images), np.stack([wanted] * 5), atol=1e-6)
    for mode in ("L", "RGBA", "P", "CMYK"):
        assert model.encode_images(picture.convert(mode)).shape == (16,)
    grey = pixels[:, :, 0]
    np.testing.assert_array_equal(model.encode_images(grey), model.encode_images(grey[:, :, None]))


def test_an_image_is_turned_upright(model, pictures):
    turned, exif = Image.open(pictures[0]).convert("RGB").transpose(Image.Transpose.ROTATE_90), Image.Exif()
    exif[0x0112] = 6
    buffer = io.BytesIO()
    turned.save(buffer, "PNG", exif=exif)
    wanted = model.encode_images(pictures[0])
    np.testing.assert_allclose(model.encode_images(buffer.getvalue()), wanted, atol=1e-6)
    np.testing.assert_allclose(model.encode_images(Image.open(buffer)), wanted, atol=1e-6)


def test_texts_of_any_iterable(model):
    wanted = model.encode_texts(TEXTS)
    for texts in (tuple(TEXTS), np.array(TEXTS), (text for text in TEXTS)):
        np.testing.assert_allclose(model.encode_texts(texts, batch_size=2), wanted, atol=1e-6)


def test_scores_drop_the_axis_of_one(model):
    images, texts = np.eye(16, dtype=np.float32)[:3], np.eye(16, dtype=np.float32)[:2]
    assert model.similarity(images, texts).shape == (3, 2)
    assert model.similarity(images[0], texts).tolist() == [1, 0]
    assert model.similarity(images, texts[1]).tolist() == [0, 1, 0]
    assert model.similarity(images[0], texts[0]) == 1
    with raises_argument("texts"):
        model.similarity(images, texts[:, :8])
    with raises_argument("texts"):
        model.similarity(images, "a dog")


def test_similarity_compares_all_precisions():
    # Bits 11110000 and 10000000 differ in 3 of 8; their signs are + + + + - - - - and + - - - - - - -.
    images, texts = np.array([[0b11110000]], np.uint8), np.array([0b10000000], np.uint8)
    text = np.array([1, 0, 0, 0, 0, 0, 0, 0], np.float32)
    code = np.array([127, 0, 0, 0, 0, 0, 0, 0], np.int8)
    cosine = vsemb.Model("here", similarities.get("cosine"))
    assert cosine.similarity(images, texts) == pytest.approx(1 - 2 * 3 / 8)
    for each in (text, code):
        assert cosine.similarity(images[0], each) == pytest.approx(1 / 8**0.5)
        assert cosine.similarity(each, each) == pytest.approx(1)
    with raises_argument("texts"):
        cosine.similarity(images, np.concatenate([text, text]))
    with raises_argument("images"):
        vsemb.Model("here", similarities.get("order")).similarity(images, texts)
    with raises_argument("texts"):
        vsemb.Model("here", similarities.get("dot")).similarity(text, code)


@pytest.mark.parametrize(
    ("images", "error", "said"),
    [
        ("nowhere.jpg", DataError, "Cannot read the image nowhere.jpg: No such file"),
        (b"no image", DataError, "not an image in a known format"),
        (np.zeros((8, 8, 3)), InvalidArgumentError, r"uint8 \(height, width, 3\); got 'float64 \(8, 8, 3\)'.*astype"),
        (np.zeros((8, 8, 2), np.uint8), InvalidArgumentError, r"\(8, 8, 2\)"),
        ([b"no image", 3], InvalidArgumentError, "a path, the bytes of a file"),
        (b"pets/dog.jpg", DataError, "are the name b'pets/dog.jpg': read the file, in tf.data by tf.io.read_file"),
        ("https://example.org/dog.jpg", InvalidArgumentError, "Download it first"),
        (io.BytesIO(b"an\nopen file"), InvalidArgumentError, r"got 'BytesIO'.*file\.read\(\)"),
        (3, InvalidArgumentError, "one image, or a list of images"),
        ([], InvalidArgumentError, "one or more images"),
    ],
)
def test_images_that_cannot_be_embedded(model, images, error, said):
    with pytest.raises(error, match=said):
        model.encode_images(images)


@pytest.mark.parametrize(
    ("texts", "error", "said"),
    [
        ("", DataError, "at least one word that the model reads; got ''"),
        (["a circle", " "], DataError, "got ' '"),
        ([b"bytes"], InvalidArgumentError, "one string, or a list of strings"),
        (None, InvalidArgumentError, "one string, or a list of strings"),
        ([], InvalidArgumentError, "one or more texts"),
    ],
)
def test_texts_that_cannot_be_embedded(model, texts, error, said):
    with pytest.raises(error, match=said):
        model.encode_texts(texts)


def test_a_missing_text_or_image_is_named_by_its_row():
    model = vsemb.Model("here", similarities.get("cosine"))
    with raises_argument("texts[1]"):
        model.encode_texts(["a dog", None])
    with raises_argument("images[2]"):
        model.encode_images(["dog.jpg", b"", None])


def test_bad_items_are_all_named_or_rows_of_nan(model, pictures, capsys):
    torn = [*pictures[:2], b"no image", "nowhere.jpg", *pictures[2:5], b""]
    with pytest.raises(
        DataError, match="3 of 8 images .*row 2: .*row 3: .*nowhere.jpg.*row 7: .*empty. .*on_bad='nan'"
    ):
        model.encode_images(torn, batch_size=2)
    images, good = model.encode_images(torn, batch_size=2, on_bad="nan"), [0, 1, 4, 5, 6]
    assert "3 of 8 images are rows of NaN: row 2: " in capsys.readouterr().err
    np.testing.assert_allclose(images[good], model.encode_images(pictures[:5]), atol=1e-6)
    assert np.isnan(np.delete(images, good, axis=0)).all()
    assert {hit.index for hit in vsemb.search(model, TEXTS[0], images, k=8)} == set(good)
    texts = model.encode_texts([TEXTS[0], " "], on_bad="nan")
    assert np.isnan(texts).all(axis=1).tolist() == [False, True]
    with pytest.raises(DataError, match="2 of 2 images .*row 0: .*row 1: [^.]*\\.$"):
        model.encode_images([b"", b""], on_bad="nan")
    with raises_argument("on_bad"):
        model.encode_texts(TEXTS, on_bad="skip")


def test_a_run_on_precomputed_features_embeds_texts_alone(tiny_run, pictures):
    loaded = vsemb.load(tiny_run)
    assert loaded.encode_texts(TEXTS).shape == (3, 16)
    with pytest.raises(DataError, match="image network.*backbone='MobileNetV2'"):
        loaded.encode_images(pictures)


@pytest.mark.slow
def test_sets_of_vectors(region_run, pictures):
    loaded = vsemb.load(region_run)
    images, texts = loaded.encode_images(pictures, batch_size=5), loaded.encode_texts(TEXTS)
    assert images.ndim == texts.ndim == 3
    with raises_argument("precision"):
        loaded.encode_texts(TEXTS, precision="int8")
    # Parameters of the similarity are told, too.
    served = ServedModel(region_run.model, region_run.tokenizer)
    (told,) = served.functions["describe"](fact=tf.constant(["similarity"]))["value"].numpy()
    assert described(json.loads(told)) == region_run.recipe.similarity
    assert loaded.similarity(images, texts).shape == (12, 3)
    assert loaded.similarity(images[0], texts).shape == (3,)
    assert vsemb.search(loaded, TEXTS[0], images, k=2)[0].score == pytest.approx(
        loaded.similarity(images, texts[0]).max(), abs=1e-4
    )


@pytest.mark.parametrize(
    "file", ["saved_model.pb", "variables/variables.data-00000-of-00001", "variables/variables.index"]
)
def test_a_damaged_savedmodel_is_refused_by_file(exported, tmp_path, file):
    version = shutil.copytree(exported / "1", tmp_path / "1")
    whole = (version / file).read_bytes()
    (version / file).write_bytes(whole[:100] + bytes([whole[100] ^ 1]) + whole[101:])
    with pytest.raises(DataError, match=f"{file} must be the file that was exported; it is not"):
        vsemb.load(version)


def test_what_cannot_be_loaded(tmp_path, caption_run, exported):
    with pytest.raises(DataError, match="it has neither recipe.json nor saved_model.pb"):
        vsemb.load(tmp_path)
    with raises_argument("source"):
        vsemb.load(keras.Model())
    with pytest.raises(DataError, match="there is no such directory"):
        vsemb.load(tmp_path / "typo")
    with pytest.raises(DataError, match="must be a run that embeds texts; its recipe 'multimodal-rnn' is for captions"):
        vsemb.load(caption_run)
    broken = shutil.copytree(exported, tmp_path / "broken")
    (broken / "1" / "saved_model.pb").write_bytes(b"nothing")
    with pytest.raises(DataError, match="saved_model.pb must be the file that was exported"):
        vsemb.load(broken)
    (broken / "1" / "assets.extra" / "contract.json").unlink()
    with pytest.raises(DataError, match=r"a file for keras\.saving\.load_model, whose model\.export"):
        vsemb.load("mine.keras")
    with pytest.raises(DataError, match="cannot be loaded as a SavedModel"):
        vsemb.load(broken)


def test_a_model_of_token_ids_needs_a_tokenizer_for_texts(tmp_path: Path) -> None:
    model = models.DualEncoder(keras.layers.Dense(4), LinearSentenceEncoder(WordEmbedding(5, 4)))
    model.build({"image": (None, 3), "text": (None, None)})
    model.export(tmp_path / "1")
    with pytest.raises(DataError, match=r"must have a tokenizer to embed texts.*tokenizer=…"):
        vsemb.load(tmp_path).encode_texts("a dog")
