"""Sets in a served model: rows apart from each other, sizes that are fixed, the best regions, the export."""

from __future__ import annotations

import itertools
import json

import numpy as np
import pytest
import tensorflow as tf

from tests.contract import SAME
from tests.raising import raises_argument
from tests.systems.regions.region_model import COUNT, DIM, LONGEST, TEXTS, candidates, pictures, region_parts
from vsemb.exporting import Corpus, ImageInput, ServedModel, export_savedmodel
from vsemb.exporting.card import card_path
from vsemb.exporting.contract import Contract, contract_path
from vsemb.exporting.reference_outputs import compare
from vsemb.exporting.servable import PROBES, check_servable
from vsemb.exporting.verify import verify_model
from vsemb.systems.regions.signature import golden_alignments

SIGNATURES = {"serving_default", "encode_text", "encode_image", "align", "describe"}


@pytest.fixture(scope="module")
def served() -> ServedModel:
    return ServedModel(*region_parts())


@pytest.fixture(scope="module")
def given() -> ServedModel:
    """A model whose regions are chosen among candidates that the caller gives."""
    return ServedModel(*region_parts(source="selective-search", pooling="map"))


def answers(function, *inputs) -> dict[str, np.ndarray]:
    dtypes = {str: tf.string, bytes: tf.string, float: tf.float32}
    tensors = [
        tf.constant(values, dtypes[type(values[0])] if isinstance(values, list) and values else None)
        for values in inputs
    ]
    return {name: value.numpy() for name, value in function(*tensors).items()}


def nothing(dtype: tf.DType) -> tf.Tensor:
    return tf.zeros([0], dtype)


def test_texts_are_as_many_vectors_as_are_read_at_most(served):
    answer = answers(served.encode_text, [TEXTS[0], "", "zyzzyva", "a " * 20])
    assert answer["embedding"].shape == (4, LONGEST, DIM) and answer["embedding"].dtype == np.float32
    assert answer["valid"].tolist() == [True, False, False, True]
    assert not answer["embedding"][0, 3:].any() and not answer["embedding"][1].any()
    assert answer["embedding"][3].any(axis=1).all()
    wanted = served.model.encode_texts(served.tokenizer([TEXTS[0]]))
    np.testing.assert_allclose(answer["embedding"][:1, :3], wanted, atol=1e-6)
    assert served.encode_text.get_concrete_function().structured_outputs["embedding"].shape[1:] == (
        LONGEST,
        DIM,
    )


def test_images_are_regions_with_boxes(served):
    first, second = pictures()
    answer = answers(served.encode_image, [first, b"no image", second])
    assert answer["embedding"].shape == (3, COUNT, DIM) and answer["boxes"].shape == (3, COUNT, 4)
    assert answer["valid"].tolist() == [True, False, True]
    assert not answer["embedding"][1].any() and not answer["boxes"][1].any()
    assert answer["boxes"][0, 0].tolist() == answer["boxes"][2, 0].tolist() == [0, 0, 1, 1]
    assert np.array_equal(answer["embedding"].any(axis=2), answer["boxes"].any(axis=2))
    alone = answers(served.encode_image, [second])
    np.testing.assert_allclose(answer["embedding"][2:], alone["embedding"], **SAME)
    extracted = served.image_input.extractor(tf.constant([first]))
    np.testing.assert_allclose(answer["boxes"][0], extracted.boxes[0])
    wanted = served.model.encode_images(extracted.features)
    np.testing.assert_allclose(answer["embedding"][:1], wanted, **SAME)


@pytest.mark.parametrize("affinity", [0.0, 0.5, 5.0, 1e30, float("inf")])
def test_every_word_has_the_region_of_the_best_chain(served, affinity):
    images = pictures()[:1] * len(TEXTS)
    answer = answers(served.functions["align"], images, TEXTS, [affinity] * len(TEXTS))
    assert answer["valid"].all()
    regions = answers(served.encode_image, images[:1])["embedding"][0]
    vectors = answers(served.encode_text, TEXTS)["embedding"]
    real = np.flatnonzero(regions.any(axis=1))
    for row, text in enumerate(TEXTS):
        count = len(text.split())
        scores = vectors[row, :count] @ regions.T
        # All ways to choose a region for each word; more than any of them can gain is as good as infinite.
        ways = np.array(list(itertools.product(real, repeat=count)))
        shared = (ways[:, 1:] == ways[:, :-1]).sum(axis=1) * min(affinity, 1e4)
        best = ways[np.argmax(scores[np.arange(count), ways].sum(axis=1) + shared)]
        assert answer["regions"][row].tolist() == [*best, *[-1] * (LONGEST - count)]
        np.testing.assert_allclose(answer["scores"][row, :count], scores[np.arange(count), best], rtol=1e-5)
        assert not answer["scores"][row, count:].any()
        words = text.lower().strip("!").split()
        assert answer["words"][row].tolist() == [word.encode() for word in words] + [b""] * (LONGEST - count)
    if affinity > 5:
        assert all(len({*row} - {-1}) == 1 for row in answer["regions"].tolist())


def test_words_are_those_that_are_read(served):
    texts = ["The zyzzyva's RED circle", "a \xff b", "a " * 30]
    answer = answers(served.functions["align"], pictures()[:1] * 3, texts, [0.0] * 3)
    assert answer["words"][0].tolist() == [b"the", b"zyzzyva", b"'s", b"red", b"circle", *[b""] * 4]
    assert answer["words"][2].tolist() == [b"a"] * LONGEST and (answer["regions"][2] >= 0).all()


def bad_rows() -> list[tuple[bytes, str, float]]:
    good = pictures()[0]
    return [
        (b"no image", TEXTS[0], 0.0),
        (good[:60], TEXTS[0], 0.0),
        (good, " ?! ", 0.0),
        (good, "", 0.0),
        (good, TEXTS[0], -1.0),
        (good, TEXTS[0], float("nan")),
        (good, TEXTS[0], -float("inf")),
    ]


def test_bad_rows_are_empty_and_disturb_no_other(served):
    good = [(image, text, 0.1) for image in pictures() for text in TEXTS]
    mixed = list(itertools.chain(*itertools.zip_longest(bad_rows(), good)))
    rows = [row for row in mixed if row is not None]
    is_good = np.array([row in good for row in rows])
    answer = answers(served.functions["align"], *map(list, zip(*rows, strict=True)))
    assert answer["valid"].tolist() == is_good.tolist()
    assert (answer["regions"][~is_good] == -1).all() and (answer["words"][~is_good] == b"").all()
    assert not answer["boxes"][~is_good].any() and not answer["scores"][~is_good].any()
    alone = answers(served.functions["align"], *map(list, zip(*good, strict=True)))
    assert compare(alone, {name: values[is_good] for name, values in answer.items()}, 1e-5)[1] is None


@pytest.mark.slow
def test_a_batch_may_be_empty(served, given):
    answer = answers(served.functions["align"], nothing(tf.string), nothing(tf.string), nothing(tf.float32))
    shapes = {name: values.shape for name, values in answer.items()}
    assert shapes == {
        "boxes": (0, COUNT, 4),
        "words": (0, LONGEST),
        "regions": (0, LONGEST),
        "scores": (0, LONGEST),
        "valid": (0,),
    }
    assert answers(served.encode_image, nothing(tf.string))["embedding"].shape == (0, COUNT, DIM)
    assert answers(given.encode_image, nothing(tf.string), tf.zeros((0, 3, 4)))["boxes"].shape == (
        0,
        COUNT,
        4,
    )


def test_inputs_of_different_numbers_of_rows_are_refused(served, given):
    image = pictures()[:1]
    with pytest.raises(tf.errors.InvalidArgumentError):
        served.functions["align"](tf.constant(image * 2), tf.constant(TEXTS[:1]), tf.constant([0.0, 0.0]))
    with pytest.raises(tf.errors.InvalidArgumentError):
        served.functions["align"](tf.constant(image * 2), tf.constant(TEXTS[:2]), tf.constant([0.0]))
    with pytest.raises(tf.errors.InvalidArgumentError):
        given.encode_image(tf.constant(image * 2), tf.constant(candidates(1)))


def test_candidates_are_given_where_none_are_proposed(given):
    images = pictures()
    boxes = candidates(2)
    answer = answers(given.encode_image, images, boxes)
    assert answer["valid"].all() and answer["boxes"][0, 0].tolist() == [0, 0, 1, 1]
    kept = {tuple(box) for box in answer["boxes"][0, 1:].round(4).tolist() if any(box)}
    assert kept and kept <= {tuple(box) for box in boxes[0].round(4).tolist()}
    # None at all leaves the whole image.
    for none in (np.zeros((2, 3, 4), np.float32), np.zeros((2, 0, 4), np.float32)):
        alone = answers(given.encode_image, images, none)
        assert alone["valid"].all() and alone["boxes"].any(axis=2).sum(axis=1).tolist() == [1, 1]


@pytest.mark.parametrize(
    "box",
    [[0.1, 0.1, 0.0, 0.5], [0.1, 0.1, 0.5, -0.5], [np.nan, 0, 1, 1], [0, 0, np.inf, 1]],
    ids=["flat", "negative", "nan", "infinite"],
)
def test_what_is_no_box_makes_its_row_invalid_alone(given, box):
    images, boxes = pictures(2) * 2, candidates(4)
    good = answers(given.functions["align"], images, [TEXTS[0]] * 4, [0.1] * 4, boxes)
    boxes[1, 2] = box
    answer = answers(given.functions["align"], images, [TEXTS[0]] * 4, [0.1] * 4, boxes)
    assert good["valid"].all() and answer["valid"].tolist() == [True, False, True, True]
    assert not answer["boxes"][1].any() and (answer["regions"][1] == -1).all()
    rows = [0, 2, 3]
    wanted = {name: values[rows] for name, values in good.items()}
    assert compare(wanted, {name: values[rows] for name, values in answer.items()}, 1e-5)[1] is None


def test_requests_of_different_numbers_of_candidates_may_be_joined_where_they_begin_with_padding(given):
    def padded(boxes: np.ndarray, count: int) -> np.ndarray:
        """What TensorFlow Serving's batching does with `pad_variable_length_inputs`."""
        filled = np.full((len(boxes), count, 4), boxes.flat[0], np.float32)
        filled[:, : boxes.shape[1]] = boxes
        return filled

    images = pictures()
    few, many = (np.pad(candidates(1)[:, :count], [(0, 0), (1, 0), (0, 0)]) for count in (2, 3))
    joined = answers(given.encode_image, images, np.concatenate([padded(few, 6), padded(many, 6)]))
    for row, boxes in enumerate((few, many)):
        alone = answers(given.encode_image, images[row : row + 1], boxes)
        assert compare(alone, {name: values[row : row + 1] for name, values in joined.items()}, 1e-5)[1] is None


def test_requests_may_be_joined_and_padded_to_a_batch(served, given):
    for model in (served, given):
        inputs = golden_alignments(model.tokenizer, boxes=model is given)
        function = model.signatures["align"]

        def call(rows, function=function, inputs=inputs):
            tensors = {name: tf.constant(rows(values)) for name, values in inputs.items()}
            return {name: value.numpy() for name, value in function(**tensors).items()}

        whole = call(lambda values: values)
        assert whole["valid"].any() and not whole["valid"].all()
        repeated = call(lambda values: np.concatenate([values, *[values[:1]] * 5]))
        first = {name: values[: len(whole["valid"])] for name, values in repeated.items()}
        assert compare(whole, first, 1e-5)[1] is None
        for rows in (slice(0, 1), slice(1, 5), slice(5, None)):
            part = {name: values[rows] for name, values in whole.items()}
            assert compare(part, call(lambda values, rows=rows: values[rows]), 1e-5)[1] is None


def test_inputs_have_the_names_and_shapes_that_clients_see(served, given):
    for model, more in ((served, []), (given, ["boxes"])):
        for name, first in (
            ("encode_image", ["image_bytes"]),
            ("align", ["image_bytes", "text", "affinity"]),
        ):
            specs, _ = model.signatures[name].structured_input_signature
            assert [spec.name for spec in specs] == [*first, *more]
            assert {spec.shape[0] for spec in specs} == {None}
    named = {
        "image_bytes": tf.constant(pictures()[:1]),
        "text": tf.constant(TEXTS[:1]),
        "affinity": tf.constant([0.0]),
    }
    assert served.functions["align"](**named)["valid"].numpy().all()
    assert given.functions["align"](**named, boxes=tf.constant(candidates(1)))["valid"].numpy().all()


def test_what_a_model_of_sets_offers(served):
    model, tokenizer, image_input = region_parts()
    assert set(served.signatures) == SIGNATURES and list(served.signatures)[0] == "serving_default"
    # Without a network for new images there is nothing to align.
    assert set(ServedModel(model, tokenizer).signatures) == {"serving_default", "encode_text", "describe"}
    assert ServedModel(model, tokenizer).encode_image is None
    corpus = Corpus(np.zeros((2, DIM), np.float32), np.arange(2), ["a", "b"])
    with raises_argument("index"):
        ServedModel(model, tokenizer, image_input, corpus=corpus)
    with raises_argument("image_input"):
        ServedModel(model, tokenizer, ImageInput(image_input.config, image_input.backbone))
    with raises_argument("tokenizer"):
        ServedModel(model, lambda texts: tokenizer(texts), image_input)


@pytest.fixture(params=["sets", "given"])
def exported(request, region_models):
    return region_models / request.param


@pytest.mark.slow
@pytest.mark.parametrize("name", ["sets", "given"])
def test_the_export_passes_in_other_processes(name, region_models):
    check_servable(region_models / name / "1")
    verified = verify_model(region_models / name)
    assert not verified.failed
    checked = {(it.check, it.signature) for it in verified.checks if it.signature}
    assert checked == {(probe, signature) for probe in PROBES for signature in SIGNATURES}


@pytest.mark.slow
def test_the_contract_says_that_embeddings_are_sets(exported):
    contract = Contract.read(contract_path(exported))
    assert contract.dim == DIM and contract.geometry == "sets of vectors; a row of zeros is padding"
    takes_boxes = exported.name == "given"
    assert contract.similarity["kind"] == ("cross-attention" if takes_boxes else "max-sim")
    assert contract.max_tokens == LONGEST
    specs = contract.signatures["align"]
    shapes = {name: (spec["dtype"], spec["shape"]) for name, spec in specs["outputs"].items()}
    assert shapes == {
        "boxes": ("float32", [None, COUNT, 4]),
        "words": ("string", [None, LONGEST]),
        "regions": ("int64", [None, LONGEST]),
        "scores": ("float32", [None, LONGEST]),
        "valid": ("bool", [None]),
    }
    assert takes_boxes == ("boxes" in specs["inputs"])
    assert takes_boxes == ("boxes" in contract.signatures["encode_image"]["inputs"])
    if takes_boxes:
        assert specs["inputs"]["boxes"] == {"dtype": "float32", "shape": [None, None, 4]}
    # Of the last rows the third has no image, the second no affinity, and the last one a box without height.
    rows = contract.golden["align"].outputs
    assert rows["valid"][:1].all() and rows["valid"][-3:].tolist() == [False, False, not takes_boxes]
    assert (rows["regions"][rows["valid"]][:, 0] >= 0).all()
    # Cosines in bfloat16, of a model that was compared with its SavedModel before it was published.
    assert rows["scores"].any() and (not takes_boxes or np.abs(rows["scores"]).max() <= 1 + 1e-5)


@pytest.mark.slow
def test_the_contract_comes_back_from_its_file(exported):
    contract = Contract.read(contract_path(exported))
    again = Contract.from_json(json.loads(json.dumps(contract.to_json())))
    for name, rows in contract.golden.items():
        for side in ("inputs", "outputs"):
            for key, values in getattr(rows, side).items():
                found = getattr(again.golden[name], side)[key]
                assert found.dtype == values.dtype and found.shape == values.shape
                assert np.array_equal(found, values)
    # Vectors of zeros, most of a set, take two letters each.
    assert contract_path(exported).stat().st_size < 400_000


@pytest.mark.slow
def test_every_signature_is_warmed_up(exported):
    logs = pytest.importorskip("tensorflow_serving.apis.prediction_log_pb2", reason="the extra serving")
    records = tf.data.TFRecordDataset(str(exported / "1" / "assets.extra" / "tf_serving_warmup_requests"))
    requests = [logs.PredictionLog.FromString(it.numpy()).predict_log.request for it in records]
    # The server of tests/systems/regions/test_client.py answers them all, or it would not start.
    assert {request.model_spec.signature_name for request in requests} == SIGNATURES
    takes_boxes = [("boxes" in it.inputs, it.model_spec.signature_name) for it in requests]
    images = {"encode_image", "align"} if exported.name == "given" else set()
    assert {name for given, name in takes_boxes if given} == images


@pytest.mark.slow
def test_the_card_tells_of_sets(exported):
    card = card_path(exported).read_text()
    assert f"as sets of vectors of {DIM} numbers each, one per word or region, which" in card
    assert f"An image has {COUNT} regions at most" in card
    assert ("It proposes no regions: send candidate boxes" in card) == (exported.name == "given")
    assert "vsemb search RUN" in card


@pytest.mark.slow
def test_a_model_without_images_says_so(tmp_path):
    model, tokenizer, _ = region_parts()
    export_savedmodel(ServedModel(model, tokenizer), tmp_path / "sets")
    card = (tmp_path / "contracts" / "sets.md").read_text()
    assert "Embedding images: " in card and "one per word, which" in card
