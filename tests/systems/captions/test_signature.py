"""Captions in a served model: rows apart from each other, what is written, and what proves it."""

from __future__ import annotations

import dataclasses
import json
from types import SimpleNamespace

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.raising import raises_argument
from tests.systems.captions.caption_model import FACTS, LONGEST, WORDS, caption_parts, pictures
from vsemb.errors import DataError
from vsemb.exporting import ImageInput, export_savedmodel
from vsemb.exporting.card import card_path
from vsemb.exporting.contract import Contract, changes, contract_path
from vsemb.exporting.reference_outputs import compare, golden_images
from vsemb.exporting.servable import PROBES
from vsemb.exporting.verify import verify_model
from vsemb.image.backbones import BackboneConfig
from vsemb.systems.captions.captioner import Captions
from vsemb.systems.captions.signature import TIES, ServedCaptioner, golden_pictures

SIGNATURES = {"serving_default", "caption"}


@pytest.fixture(scope="module")
def served() -> ServedCaptioner:
    return ServedCaptioner(*caption_parts(), FACTS)


def answers(function, images: list[bytes]) -> dict[str, np.ndarray]:
    return {name: value.numpy() for name, value in function(tf.constant(images, tf.string)).items()}


def test_images_have_captions_best_first(served):
    outputs = answers(served.caption, pictures(3))
    assert outputs["captions"].shape == outputs["log_probs"].shape == (3, 3) and outputs["valid"].all()
    assert (np.diff(outputs["log_probs"], axis=1) <= 0).all() and (outputs["log_probs"] < 0).all()
    for row in outputs["captions"].tolist():
        assert len(set(row)) == 3
        assert all(1 <= len(text.replace(b"'s", b" 's").split()) <= LONGEST for text in row)
    assert len({row[0] for row in outputs["captions"].tolist()}) > 1
    images, _ = served.image_input(tf.constant(pictures(3)))
    wanted = served.captioner(images)
    assert outputs["captions"].tolist() == wanted.texts.numpy().tolist()
    np.testing.assert_allclose(outputs["log_probs"], wanted.log_probs, rtol=1e-5)


def test_bad_rows_are_empty_and_disturb_no_other(served):
    first, second = pictures()
    outputs = answers(served.caption, [b"no image", first, first[:60], second, b""])
    assert outputs["valid"].tolist() == [False, True, False, True, False]
    bad = ~outputs["valid"]
    assert (outputs["captions"][bad] == b"").all() and not outputs["log_probs"][bad].any()
    alone = answers(served.caption, [first, second])
    assert compare(alone, {name: values[~bad] for name, values in outputs.items()}, 1e-5)[1] is None


def test_any_number_of_rows(served):
    none = answers(served.caption, [])
    assert none["captions"].shape == none["log_probs"].shape == (0, 3) and none["valid"].shape == (0,)
    whole = answers(served.caption, pictures(7))
    for row, image in enumerate(pictures(7)):
        alone = {name: values[row : row + 1] for name, values in whole.items()}
        assert compare(alone, answers(served.caption, [image]), 1e-5)[1] is None


def test_sets_of_regions_are_refused():
    captioner, _ = caption_parts()
    with raises_argument("image_input"):
        ServedCaptioner(captioner, SimpleNamespace(multi_vector=True))  # type: ignore[arg-type]


@pytest.mark.slow
def test_the_export_passes_in_another_process(exported_captioner):
    # Without Python's TensorFlow, which takes seconds to import; with it the tests of exporting try others.
    name = "TensorFlow's C library"
    verification = verify_model(exported_captioner, probes={name: PROBES[name]})
    assert not verification.failed
    checked = {it.signature: it.rows for it in verification.checks if it.signature}
    assert checked == dict.fromkeys(SIGNATURES, 5)


@pytest.mark.slow
def test_the_file_writes_what_the_model_writes(exported_captioner, served):
    loaded = tf.saved_model.load(str(exported_captioner / "1"))
    assert set(loaded.signatures) == SIGNATURES
    function = loaded.signatures["caption"]
    shapes = {name: value.shape.as_list() for name, value in function.structured_outputs.items()}
    assert shapes == {"captions": [None, 3], "log_probs": [None, 3], "valid": [None]}
    images = [*pictures(5), b"none"]
    wanted = answers(served.caption, images)
    outputs = {name: value.numpy() for name, value in function(image_bytes=tf.constant(images)).items()}
    assert compare(wanted, outputs, 1e-5)[1] is None


@pytest.mark.slow
def test_the_contract_tells_how_captions_are_written(exported_captioner):
    content = json.loads(contract_path(exported_captioner).read_text())
    assert content["settings"] == {"n_best": 3, **FACTS}
    assert content["dim"] is content["similarity"] is content["geometry"] is content["max_text_bytes"] is None
    contract = Contract.from_json(content)
    assert contract.settings == content["settings"] and contract.max_pixels == 50_000_000
    golden = contract.golden["caption"]
    assert golden.outputs["valid"].tolist() == [True, False, True, False, False]
    assert golden.outputs["captions"].dtype == object and golden.outputs["captions"].shape == (5, 3)
    again = Contract.from_json(json.loads(json.dumps(contract.to_json())))
    assert np.array_equal(again.golden["caption"].outputs["captions"], golden.outputs["captions"])


@pytest.mark.slow
def test_the_card_tells_what_it_writes_and_what_not(exported_captioner):
    card = card_path(exported_captioner).read_text()
    for said in (
        "Writes up to 3 captions per image, the best first, with a vocabulary of 8 words",
        "a beam of 4",
        "natural logarithms",
        f"A caption has at most {LONGEST} words",
        'captions that are ""',
        "recipe | multimodal-rnn",
        "the best cider on the split val",
        "does not embed or compare images",
        "The captions may reproduce bias",
    ):
        assert said in card, said
    assert "Two embeddings" not in card and "makes no captions" not in card


@pytest.mark.parametrize(
    ("facts", "said"),
    [
        ({"beam": 1}, "the most probable word at each step"),
        ({"beam": 3, "length_penalty": 0.5}, "words ** 0.5"),
        ({"candidates": 1000}, "The best of 1,000 candidates by the model's score"),
        ({}, "natural logarithms"),
    ],
)
def test_the_card_of_other_captioners(facts, said, served):
    captioner = SimpleNamespace(n_best=1)
    about = ServedCaptioner(captioner, served.image_input, facts).about
    assert said in about.reading and "Writes a caption per image." in about.what


@pytest.mark.slow
def test_a_captioner_may_follow_a_model_of_embeddings(exported_captioner):
    contract = Contract.read(contract_path(exported_captioner))
    text = {"inputs": {"text": {"dtype": "string", "shape": [None]}}, "outputs": {}}
    before = dataclasses.replace(contract, signatures={"encode_text": text}, dim=16, similarity={"name": "cosine"})
    assert changes(before, contract) == ["the signature encode_text was removed"]


class Looking(tf.Module):
    """A captioner without Keras: which words a variable has for an image's brightest channel."""

    n_best = 2

    def __init__(self) -> None:
        super().__init__()
        self.chosen = tf.Variable([[0, 1], [1, 2], [2, 0]], trainable=False)
        self.names = tf.lookup.StaticHashTable(
            tf.lookup.KeyValueTensorInitializer(tf.constant([0, 1, 2]), tf.constant(["red", "green", "blue"])),
            "",
        )

    def __call__(self, images: tf.Tensor) -> Captions:
        def one(image: tf.Tensor) -> tf.Tensor:
            return tf.gather(self.chosen, tf.argmax(tf.reduce_mean(image, axis=[0, 1])))

        ids = tf.map_fn(one, images, fn_output_signature=tf.TensorSpec([2], tf.int32))
        return Captions(self.names.lookup(ids), tf.fill(tf.shape(ids), -1.5))


def test_variables_and_tables_that_are_not_keras_are_written(tmp_path):
    image_input = ImageInput(BackboneConfig("SmallConvNet", size=32))
    path = export_savedmodel(ServedCaptioner(Looking(), image_input), tmp_path / "looking")
    loaded = tf.saved_model.load(str(path))
    blue = tf.io.encode_png(np.full((8, 8, 3), (0, 0, 255), np.uint8)).numpy()
    outputs = answers(lambda images: loaded.signatures["caption"](image_bytes=images), [blue, b""])
    assert outputs["captions"].tolist() == [[b"blue", b"red"], [b"", b""]]
    assert [tuple(variable.shape) for variable in loaded.weights] == [(3, 2)]


class Drawing(Looking):
    """Draws its words by chance."""

    def __call__(self, images: tf.Tensor) -> Captions:
        ids = tf.random.uniform([tf.shape(images)[0], 2], 0, 3, tf.int32)
        return Captions(self.names.lookup(ids), tf.random.uniform(tf.shape(ids)))


def test_captions_drawn_by_chance_are_not_published(tmp_path):
    image_input = ImageInput(BackboneConfig("SmallConvNet", size=32))
    with pytest.raises(DataError, match="caption"):
        export_savedmodel(ServedCaptioner(Drawing(), image_input), tmp_path / "drawing")
    assert list(tmp_path.iterdir()) == []


class Silent(Looking):
    """Writes nothing."""

    def __call__(self, images: tf.Tensor) -> Captions:
        none = tf.zeros([tf.shape(images)[0], 2])
        return Captions(tf.fill(tf.shape(none), ""), none)


def test_what_writes_no_caption_is_not_published(tmp_path):
    image_input = ImageInput(BackboneConfig("SmallConvNet", size=32))
    with pytest.raises(DataError, match="no caption"):
        export_savedmodel(ServedCaptioner(Silent(), image_input), tmp_path / "silent")
    assert list(tmp_path.iterdir()) == []


class Wavering:
    """Writes of dark images another number for the slightest change of them."""

    n_best = 1

    def __init__(self, threshold: float) -> None:
        self.threshold = threshold

    def __call__(self, images: tf.Tensor) -> Captions:
        dark = tf.reduce_mean(images, axis=[1, 2, 3]) < self.threshold
        exact = tf.strings.as_string(tf.reduce_sum(images[:, 0], axis=[1, 2]), precision=9)
        return Captions(tf.where(dark, exact, "bright")[:, None], tf.fill([tf.shape(images)[0], 1], -1.0))


def test_golden_pictures_are_those_whose_captions_rounding_does_not_change():
    image_input = ImageInput(BackboneConfig("SmallConvNet", size=32))
    looked_at = list(golden_pictures(12))
    brightness = [float(tf.reduce_mean(image_input(tf.constant([picture]))[0])) for picture in looked_at]
    # All but the three brightest waver.
    captioner = Wavering(float(np.mean(sorted(brightness)[-4:-2])))
    bright = [picture for picture, it in zip(looked_at, brightness, strict=True) if it > captioner.threshold]
    inputs = ServedCaptioner(captioner, image_input).examples()
    assert inputs["image_bytes"].tolist()[0:3:2] == bright[:2]
    # Where all waver there are still images to be tried.
    captioner.threshold = np.inf
    inputs = ServedCaptioner(captioner, image_input).examples()
    assert inputs["image_bytes"].tolist() == golden_images()


def test_golden_pictures_are_images_and_all_different():
    golden = list(golden_pictures(6))
    assert len(set(golden)) == 6 and golden[:2] == golden_images()[0:3:2]
    _, valid = ImageInput(BackboneConfig("SmallConvNet"))(tf.constant(golden))
    assert valid.numpy().all() and len(list(golden_pictures(1))) == 1


def test_cudnn_stays_out_and_is_put_back():
    captioner, image_input = caption_parts()
    layer = keras.layers.GRU(3)
    captioner.extra, layer.use_cudnn = layer, True
    seen = []

    def watched(images: tf.Tensor) -> Captions:
        seen.append(layer.use_cudnn)
        return Captions(tf.fill([tf.shape(images)[0], 1], "a"), tf.zeros([tf.shape(images)[0], 1]))

    holder = SimpleNamespace(n_best=1, extra=layer)
    kind = type("Watched", (), {"__call__": lambda self, images: watched(images)})
    watching = kind()
    vars(watching).update(vars(holder))
    ServedCaptioner(watching, image_input).signatures  # noqa: B018
    assert seen == [False] and layer.use_cudnn is True


def test_bfloat16_is_allowed_more(served):
    low = ServedCaptioner(*caption_parts(dtype="mixed_bfloat16"))
    assert (served.tolerance, low.tolerance) == (1e-5, 5e-3)
    outputs = answers(low.caption_rows, pictures(1))
    assert (
        outputs["log_probs"].dtype == np.float32
        and np.isfinite(outputs["log_probs"]).all()
        and outputs["captions"].all()
    )
    assert len(WORDS) == FACTS["words"]


def answer(captions, log_probs):
    return {
        "captions": np.array(captions, object),
        "log_probs": np.float32(log_probs),
        "valid": np.ones(len(captions), bool),
    }


def test_captions_compare_exactly_but_for_ties():
    wanted = answer([[b"a", b"b", b"c"]], [[-10, -12, -12]])
    for captions, problem in (
        ([[b"a", b"b", b"c"]], None),
        ([[b"a", b"c", b"b"]], None),
        ([[b"b", b"a", b"c"]], "gives other captions"),
        ([[b"a", b"c", b"d"]], "gives other captions"),
        ([[b"a", b"b", b"d"]], "gives other captions"),
    ):
        assert compare(wanted, answer(captions, wanted["log_probs"]), 1e-4, ties=TIES)[1] == problem
    assert compare(wanted, answer(wanted["captions"], [[-10, -12, -12.1]]), 1e-4, ties=TIES)[1].startswith("differs by")
