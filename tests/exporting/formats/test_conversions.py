"""Towers in ONNX Runtime and LiteRT: what the model computes, or nothing is written."""

from __future__ import annotations

from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.raising import raises_argument
from tests.tiny import tiny
from vsemb import recipes
from vsemb.errors import DataError
from vsemb.exporting import ImageInput, ServedModel
from vsemb.exporting.formats import encode
from vsemb.exporting.formats.towers import Tower
from vsemb.exporting.formats.writing import Conversion, export_towers
from vsemb.exporting.signatures import Exportable
from vsemb.image.backbones import BackboneConfig, build_backbone
from vsemb.registry import find_part
from vsemb.text import Vocabulary, WordTokenizer

pytest.importorskip("tf2onnx", reason="the extra onnx is not installed")
pytest.importorskip("onnxruntime", reason="the extra onnx is not installed")
pytest.importorskip("ai_edge_litert", reason="the extra litert is not installed")

FORMATS = ("onnx", "litert")
#: Text encoders, as settings of a recipe.
ENCODERS = {
    "gru": ("text.encoder.pooling=mean",),
    "last": (),
    "both": ("text.encoder.directions=concat", "text.encoder.cell=lstm", "text.encoder.pooling=max"),
    "reset-before": ("text.encoder.cell=gru-reset-before",),
    "peephole": ("text.encoder.cell=peephole-lstm",),
    "linear": ("text.encoder=linear", "text.encoder.projection=true"),
    "n-grams": ("text.tokenizer=ngrams",),
    "transformer": ("text.encoder=transformer",),
    "sequence-and-bag": ("text.encoder=sequence-and-bag",),
    "ensemble": ("text.encoder=ensemble", "text.encoder.members=2"),
    "order": ("similarity=order",),
    "hubs": ("hub_bank=12",),
}
QUICK = ("gru",)
WORDS = ["a", "dog", "cat", "runs", "on", "the", "beach", "red", "ball"]


def conversion(kind: str) -> Conversion:
    return find_part("export format", kind, "format")().conversion


def served_with(*settings: str) -> ServedModel:
    recipe = tiny(recipes.get("vsepp", "paper"), "text.tokenizer.max_length=9", *settings)
    vocabulary = Vocabulary(WORDS)
    model = tiny(recipe).build(len(vocabulary), {"feature_dim": 16, "train_images": 12}, "float32")
    if model.hubs is not None:
        bank = np.random.default_rng(0).normal(size=(2, 12, 16)).astype(np.float32)
        for variable, values in zip([w for w in model.hubs.weights if w.shape == (12, 16)], bank, strict=False):
            variable.assign(values)
    return ServedModel(model, recipe.text.tokenizer.build(vocabulary))


@pytest.mark.parametrize(
    ("encoder", "kind"),
    [
        pytest.param(encoder, kind, marks=() if encoder in QUICK else pytest.mark.slow)
        for encoder in ENCODERS
        for kind in FORMATS
    ],
)
def test_a_text_tower_computes_what_the_model_does(encoder, kind, tmp_path):
    served = served_with(*ENCODERS[encoder])
    facts = export_towers(served, tmp_path / "out", conversion(kind))
    opened = encode.Encoder(tmp_path / "out")
    texts = ["a dog runs on the beach", "cat", "a a a a a red ball dog cat the on the", "zyzzyva", ""]
    wanted = served.encode_text(tf.constant(texts))
    ids = opened.token_ids(texts)
    np.testing.assert_array_equal(ids, served.text_input.ids(tf.constant(texts)))
    outputs = opened.tower("text")(ids)
    assert sorted(outputs) == ["embedding", "known", "valid"]
    for name, values in outputs.items():
        np.testing.assert_allclose(values, wanted[name], atol=1e-5)
    np.testing.assert_array_equal(opened.encode_texts(texts), outputs["embedding"])
    # Ids outside of the table are refused, also those that could count from its end.
    for outside in (-1, 1_000_000):
        with pytest.raises(Exception, match="(?i)gather|bounds|index"):
            opened.tower("text")(np.where(ids == ids.max(), outside, ids))
    assert facts["towers"]["text"]["difference"] < 1e-5 and facts["absent"] == {
        "image": "the model holds no image network"
    }


@pytest.fixture(scope="module")
def pixels() -> ServedModel:
    keras.utils.set_random_seed(4)
    recipe = tiny(recipes.get("vsepp", "paper"), "text.encoder=linear", "text.encoder.projection=true")
    config = BackboneConfig("SmallConvNet", size=32, crops=10)
    backbone, tokenizer = build_backbone(config), WordTokenizer(Vocabulary(WORDS))
    model = recipe.build(len(WORDS) + 2, {"feature_dim": 256}, "float32")
    return ServedModel(model, tokenizer, ImageInput(config, backbone))


@pytest.mark.parametrize("kind", FORMATS)
def test_an_image_tower_reads_all_crops(kind, pixels, tmp_path):
    facts = export_towers(pixels, tmp_path / "out", conversion(kind), only="image")
    assert facts["towers"]["image"]["input"]["shape"][1:] == [10, 32, 32, 3] and facts["image"]["crops"] == 10
    crops = np.random.default_rng(1).integers(0, 256, (3, 10, 32, 32, 3)).astype(np.float32)
    features = [pixels.image_input.backbone(each).numpy().mean(axis=0) for each in crops]
    wanted = pixels.model.encode_images(np.stack(features)).numpy()
    found = encode.Encoder(tmp_path / "out").tower("image")(crops)["embedding"]
    np.testing.assert_allclose(found, wanted, atol=1e-5)
    assert sorted(path.stem for path in (tmp_path / "out").iterdir()) == ["README", "encode", "image", "model"]


def test_int8_is_smaller_and_near(pixels, tmp_path):
    sizes = {}
    for kind in ("litert", "litert-int8"):
        tower = export_towers(pixels, tmp_path / kind, conversion(kind), only="image")["towers"]["image"]
        sizes[kind] = tower["bytes"]
    assert sizes["litert-int8"] < 0.4 * sizes["litert"]
    assert 1e-5 < tower["difference"] < 0.1


class Unconvertible:
    """A model whose text tower uses an operation that neither format has."""

    promises = {"dim": 4}

    def __init__(self) -> None:
        def rows(token_ids: tf.Tensor) -> dict[str, tf.Tensor]:
            x = tf.cast(token_ids, tf.float32) / 10
            return {"embedding": tf.math.betainc(x, x, x), "valid": token_ids[:, 0] > 0}

        spec = tf.TensorSpec((None, 4), tf.int32, name="token_ids")
        text = Tower("text", spec, rows, lambda: np.ones((2, 4), np.int32))
        self.towers = {"image": "it sees none", "text": text}


@pytest.mark.parametrize("kind", FORMATS)
def test_an_operation_without_counterpart_is_named_and_nothing_is_written(kind, tmp_path):
    with pytest.raises(DataError, match=r"text tower.*Betainc.*tower=image"):
        export_towers(Unconvertible(), tmp_path / "out", conversion(kind))
    assert not list(tmp_path.iterdir())


def test_a_file_with_other_outputs_is_not_written(pixels, tmp_path):
    def convert(tower: Tower, path: Path) -> None:
        wrong = Tower(
            "image", tower.spec, lambda pixels: {"embedding": -tower.rows(pixels)["embedding"]}, tower.examples
        )
        conversion("onnx").convert(wrong, path)

    with pytest.raises(DataError, match=r"image tower must give the same in ONNX .* differs by"):
        export_towers(pixels, tmp_path / "out", Conversion("ONNX", ".onnx", convert), only="image")
    assert not list(tmp_path.iterdir())


def test_a_tower_that_does_not_exist_is_refused(tmp_path):
    with raises_argument("tower"):
        export_towers(served_with(), tmp_path / "out", conversion("onnx"), only="image")
    assert not list(tmp_path.iterdir())


def test_a_model_without_a_tower_is_refused(tmp_path):
    served = Unconvertible()
    served.towers = {"image": "it sees none", "text": "it reads none"}
    with pytest.raises(DataError, match="it sees none.*it reads none"):
        export_towers(served, tmp_path / "out", conversion("onnx"))
    assert not list(tmp_path.iterdir())


def test_a_model_without_embeddings_has_no_towers(tmp_path):
    with raises_argument("format"):
        export_towers(Exportable(), tmp_path / "out", conversion("onnx"))
    assert not list(tmp_path.iterdir())
