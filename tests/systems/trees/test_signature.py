"""Trees in a served model: rows that are none, padding, texts that are parsed first, and the whole export."""

from __future__ import annotations

import logging
from dataclasses import replace

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.systems.trees.tree_model import DIM, TEXTS, WORDS, chain, parse, tree_corpus, tree_parts
from vsemb.encoders import ImageEncoder, WordEmbedding
from vsemb.exporting import ServedModel, export_savedmodel
from vsemb.exporting.contract import Contract, contract_path
from vsemb.exporting.reference_outputs import compare, golden_k
from vsemb.exporting.servable import PROBES, check_servable
from vsemb.exporting.verify import verify_model
from vsemb.models import DualEncoder
from vsemb.serving import Client
from vsemb.serving.server import Server
from vsemb.systems.trees.sdt_rnn import SDTRNNEncoder
from vsemb.systems.trees.signature import LabelledTreeInput, from_the_left, golden_trees
from vsemb.systems.trees.tree_tokenizer import LabelledTreeTokenizer, parsed_texts
from vsemb.systems.trees.trees import Tree
from vsemb.text import Vocabulary

SENTENCES = {"encode_tree", "search_tree", "serving_default"}


@pytest.fixture(scope="module")
def served() -> ServedModel:
    return ServedModel(*tree_parts(parse=parse), corpus=tree_corpus())


def rows_of(*trees, steps=None, before=0):
    steps = before + max(len(words) for words, _ in trees) if steps is None else steps
    tokens = [[""] * before + words + [""] * (steps - before - len(words)) for words, _ in trees]
    heads = [[0] * before + heads + [0] * (steps - before - len(heads)) for _, heads in trees]
    shape = (len(trees), steps)
    return tf.constant(tokens, tf.string, shape), tf.constant(heads, tf.int32, shape)


def answers(function, *inputs):
    return {name: value.numpy() for name, value in function(*inputs).items()}


def test_rows_are_moved_to_the_left():
    tokens = tf.constant([["", "", "a", "b"], ["", "", "", ""], ["a", "", "b", ""]])
    heads = tf.constant([[0, 0, 2, 0], [0, 1, 0, 0], [3, 0, 0, 0]])
    moved = from_the_left(tokens, heads)
    assert moved[0].numpy().tolist() == [[b"a", b"b", b"", b""], [b""] * 4, [b"a", b"", b"b", b""]]
    assert moved[1].numpy().tolist() == [[2, 0, 0, 0], [0, 1, 0, 0], [3, 0, 0, 0]]
    none = from_the_left(tf.zeros((2, 0), tf.string), tf.zeros((2, 0), tf.int32))
    assert [values.shape for values in none] == [(2, 1), (2, 1)]


def test_texts_that_need_it_are_parsed_at_once():
    calls = []

    def record(texts):
        calls.append(texts)
        return parse(texts)

    texts = ["the dog", "", "a\t0", " \n\0 ", "runs �", " " * 5000 + "x" * 5000]
    parsed = parsed_texts(texts, record)
    assert parsed == ["the\t2\ndog\t0", "", "a\t0", "", "runs\t2\n�\t0", "x" * 4096 + "\t0"]
    assert calls == [["the dog", "runs �", "x" * 4096]]


@pytest.mark.slow
def test_a_model_of_trees_offers_no_texts(served):
    assert list(served.signatures) == ["serving_default", "encode_tree", "describe", "search_tree"]
    assert served.encode_image is None


def test_rows_that_are_no_tree_are_zeros_and_disturb_no_other(served):
    good = [chain(text) for text in TEXTS] + [(["dog"], [0]), (["ball", "a", "runs", "the"], [3, 4, 0, 3])]
    bad = [
        ([], []),
        (["the", "dog"], [2, 1]),
        (["the", "dog"], [0, 0]),
        (["the", "dog"], [0, 3]),
        (["the", "dog"], [0, -1]),
        (["the", "", "dog"], [3, 0, 0]),
        (["the", "dog", "runs"], [0, 3, 2]),
    ]
    mixed = [good[0], *bad[:3], *good[1:3], *bad[3:], *good[3:]]
    is_good = [tree in good for tree in mixed]
    answer = answers(served.functions["encode_tree"], *rows_of(*mixed))
    assert answer["embedding"].shape == (len(mixed), DIM) and answer["embedding"].dtype == np.float32
    assert answer["valid"].tolist() == is_good
    assert not answer["embedding"][~answer["valid"]].any()
    alone = answers(served.functions["encode_tree"], *rows_of(*good))
    assert alone["valid"].all() and np.ptp(alone["embedding"], axis=0).min() > 1e-4
    # Another number of rows is added in another order: 1e-7 in float32 at this size.
    np.testing.assert_allclose(answer["embedding"][is_good], alone["embedding"], atol=1e-6)


def test_padding_changes_nothing_on_either_side(served):
    trees = [chain(text) for text in TEXTS]
    wanted = answers(served.functions["encode_tree"], *rows_of(*trees))
    for options in ({"steps": 20}, {"before": 1}, {"before": 3, "steps": 11}):
        answer = answers(served.functions["encode_tree"], *rows_of(*trees, **options))
        assert answer["valid"].all()
        np.testing.assert_allclose(answer["embedding"], wanted["embedding"], atol=1e-6)


@pytest.mark.parametrize("shape", [(0, 0), (0, 5), (2, 0)], ids=str)
def test_nothing_is_no_tree(served, shape):
    answer = answers(served.functions["encode_tree"], tf.zeros(shape, tf.string), tf.zeros(shape, tf.int32))
    assert answer["embedding"].shape == (shape[0], DIM) and not answer["embedding"].any()
    assert answer["valid"].tolist() == [False] * shape[0]


def test_tokens_and_heads_of_different_shapes_are_refused(served):
    with pytest.raises(tf.errors.InvalidArgumentError):
        served.functions["encode_tree"](tf.constant([["the", "dog"]]), tf.constant([[0]]))


def test_texts_are_parsed_in_python(served):
    texts = [TEXTS[0], "", TEXTS[1], parse([TEXTS[2]])[0], " "]
    answer = answers(served.encode_text, tf.constant(texts))
    assert answer["valid"].tolist() == [True, False, True, True, False]
    wanted = answers(served.functions["encode_tree"], *rows_of(*(chain(text) for text in TEXTS)))
    np.testing.assert_allclose(answer["embedding"][answer["valid"]], wanted["embedding"], atol=1e-6)
    assert answers(served.encode_text, np.array([], object))["embedding"].shape == (0, DIM)


def test_the_embeddings_are_those_of_the_model(served):
    model, tokenizer = served.model, served.tokenizer
    wanted = model.encode_texts(tokenizer(tf.constant(parse(TEXTS))))
    answer = answers(served.functions["encode_tree"], *rows_of(*(chain(text) for text in TEXTS)))
    np.testing.assert_allclose(answer["embedding"], wanted, atol=1e-6)


def first_element_padding(values: np.ndarray, steps: int) -> np.ndarray:
    """What TensorFlow Serving's batching does with `pad_variable_length_inputs`."""
    padded = np.full((len(values), steps), values.flat[0], values.dtype)
    padded[:, : values.shape[1]] = values
    return padded


def test_requests_of_different_lengths_may_be_joined_where_they_begin_with_padding(served):
    requests = [rows_of(chain(text), before=1) for text in TEXTS]
    steps = max(tokens.shape[1] for tokens, _ in requests)
    padded = [[first_element_padding(side.numpy(), steps) for side in request] for request in requests]
    joined = [np.concatenate(sides) for sides in zip(*padded, strict=True)]
    answer = answers(served.functions["encode_tree"], tf.constant(joined[0]), tf.constant(joined[1]))
    for row, request in enumerate(requests):
        alone = answers(served.functions["encode_tree"], *request)
        assert answer["valid"][row] and alone["valid"][0]
        np.testing.assert_allclose(answer["embedding"][row], alone["embedding"][0], atol=1e-6)


def test_searching_by_trees(served):
    tokens, heads = rows_of(chain(TEXTS[0]), ([], []), chain(TEXTS[1]))
    answer = answers(served.functions["search_tree"], tokens, heads, tf.constant([3, 3, 1]))
    embedded = answers(served.functions["encode_tree"], tokens, heads)["embedding"]
    best = np.argsort(-embedded @ served.corpus.embeddings.T, axis=1)
    assert answer["ids"][0].tolist() == (served.corpus.ids[best[0, :3]]).tolist()
    assert answer["ids"][1].tolist() == [-1] * 3 and answer["valid"].tolist() == [True, False, True]
    assert answer["ids"][2].tolist() == [served.corpus.ids[best[2, 0]], -1, -1]


@pytest.mark.slow
@pytest.mark.parametrize("probe", ["TensorFlow's C library", "TensorFlow without Keras"])
def test_the_export_passes_in_another_process(tree_export, probe):
    check_servable(tree_export / "1")
    verified = verify_model(tree_export, probes={probe: PROBES[probe]})
    assert not verified.failed
    checked = {
        (it.check, it.signature): it.rows for it in verified.checks if it.signature not in (None, "", "describe")
    }
    assert {name for _, name in checked} == SENTENCES and len(checked) == 3 and set(checked.values()) == {15}


@pytest.mark.slow
def test_another_encoder_of_trees_and_nothing_said_of_gradients(tmp_path, caplog):
    logging.getLogger("absl").addHandler(caplog.handler)
    try:
        # It compares the SavedModel with the Keras model before it publishes.
        parts = tree_parts("cosine", children="sum", dtype="mixed_bfloat16")
        path = export_savedmodel(ServedModel(*parts), tmp_path / "trees")
    finally:
        logging.getLogger("absl").removeHandler(caplog.handler)
    assert path == tmp_path / "trees" / "1"
    assert not [record.getMessage() for record in caplog.records if "gradient" in record.getMessage()]


@pytest.mark.slow
def test_the_contract_says_what_goes_in(tree_export):
    contract = Contract.read(contract_path(tree_export))
    assert set(contract.signatures) == {*SENTENCES, "describe"}
    assert contract.signatures["serving_default"] == contract.signatures["encode_tree"]
    assert contract.signatures["encode_tree"]["inputs"] == {
        "heads": {"dtype": "int32", "shape": [None, None]},
        "tokens": {"dtype": "string", "shape": [None, None]},
    }
    assert (contract.dim, contract.max_text_bytes, contract.max_tokens) == (DIM, None, 9)
    rows = contract.golden["encode_tree"]
    assert rows.outputs["valid"].tolist() == [True] * 5 + [False] + [True] * 2 + [False] * 7
    # The last good tree is longer than what is read.
    assert (rows.inputs["tokens"][7] != b"").sum() == 15
    # A row of words is a line, as one of heads is.
    assert len(contract_path(tree_export).read_text().splitlines()) < 320


@pytest.mark.slow
def test_every_warm_up_request_is_a_tree(tree_export):
    logs = pytest.importorskip("tensorflow_serving.apis.prediction_log_pb2", reason="the extra serving")
    records = tf.data.TFRecordDataset(str(tree_export / "1" / "assets.extra" / "tf_serving_warmup_requests"))
    requests = [logs.PredictionLog.FromString(it.numpy()).predict_log.request for it in records]
    requests = [request for request in requests if request.model_spec.signature_name != "describe"]
    assert {request.model_spec.signature_name for request in requests} == SENTENCES
    loaded = tf.saved_model.load(str(tree_export / "1")).signatures
    for request in requests:
        inputs = {name: tf.constant(tf.make_ndarray(value)) for name, value in request.inputs.items()}
        assert inputs["tokens"].shape == inputs["heads"].shape == (1, 15)
        assert loaded[request.model_spec.signature_name](**inputs)["valid"].numpy().tolist() == [True]


def test_requests_may_be_joined_and_padded_to_a_batch(served):
    inputs = golden_trees(served.tokenizer)
    inputs["k"] = golden_k(len(inputs["heads"]))
    for name in SENTENCES:
        function = served.signatures[name]
        given = {key: values for key, values in inputs.items() if key != "k" or name == "search_tree"}

        def call(rows, function=function, given=given):
            tensors = {key: tf.constant(rows(values)) for key, values in given.items()}
            return {key: value.numpy() for key, value in function(**tensors).items()}

        ties = next((it.ties for it in served.offered if it.name == name), None)
        whole = call(lambda values: values)
        repeated = call(lambda values: np.concatenate([values, *[values[:1]] * 5]))
        first = {key: values[: len(inputs["k"])] for key, values in repeated.items()}
        assert compare(whole, first, 1e-5, ties=ties)[1] is None
        for rows in (slice(0, 3), slice(3, 11), slice(11, None)):
            part = {key: values[rows] for key, values in whole.items()}
            assert compare(part, call(lambda values, rows=rows: values[rows]), 1e-5, ties=ties)[1] is None


@pytest.mark.slow
def test_the_card_tells_that_it_cannot_parse(tree_export):
    card = (tree_export.parent / "contracts" / "trees.md").read_text()
    assert card == (tree_export / "1" / "assets.extra" / "MODEL_CARD.md").read_text()
    assert "A SavedModel cannot parse: send tokens and heads (`encode_tree`)" in card
    assert "The parser used for training was not recorded." in card
    assert "A tree is read up to 9 tokens." in card and "bytes is not read" not in card


@pytest.fixture(scope="module")
def served_labelled() -> ServedModel:
    keras.utils.set_random_seed(6)
    tokenizer = LabelledTreeTokenizer(Vocabulary(WORDS), max_length=9)
    text = SDTRNNEncoder(WordEmbedding(len(tokenizer.vocabulary), 5), DIM, units=4)
    model = DualEncoder(ImageEncoder(DIM), text, "dot")
    model.build({"image": (None, 8), "text": (None, None, 3)})
    return ServedModel(model, LabelledTreeInput(tokenizer, lambda texts: [f"{text}\t0\troot" for text in texts]))


class TestLabelledTrees:
    """A model that reads relations takes parsed texts."""

    GOOD = ("the\t2\tdet\ndog\t3\tnsubj\nruns\t0\troot", "ball\t0\troot")
    BAD = ("the dog runs", "the\t2\tdet\ndog\t1\tdet", "", "the\t0\t")

    def test_rows(self, served_labelled: ServedModel) -> None:
        answer = answers(served_labelled.functions["encode_labelled_tree"], tf.constant([*self.GOOD, *self.BAD]))
        assert answer["valid"].tolist() == [True] * 2 + [False] * 4
        wanted = served_labelled.model.encode_texts(served_labelled.tokenizer(tf.constant(self.GOOD)))
        np.testing.assert_allclose(answer["embedding"][:2], wanted, atol=1e-6)
        assert not answer["embedding"][2:].any()

    def test_python_parses_first(self, served_labelled: ServedModel) -> None:
        answer = answers(served_labelled.encode_text, np.array(["ball", self.GOOD[0]], object))
        wanted = served_labelled.model.encode_texts(
            served_labelled.tokenizer(tf.constant([self.GOOD[1], self.GOOD[0]]))
        )
        np.testing.assert_allclose(answer["embedding"], wanted, atol=1e-6)

    @pytest.mark.slow
    def test_the_export(self, served_labelled: ServedModel, tmp_path) -> None:
        path = export_savedmodel(served_labelled, tmp_path / "trees", fingerprint="c0ffee")
        assert not verify_model(path.parent).failed
        loaded = tf.saved_model.load(str(path)).signatures["encode_labelled_tree"]
        answer = {name: value.numpy() for name, value in loaded(text=tf.constant([*self.GOOD, *self.BAD])).items()}
        assert answer["valid"].tolist() == [True] * 2 + [False] * 4

    @pytest.mark.slow
    def test_the_client_parses_first(self, served_labelled: ServedModel, tmp_path) -> None:
        path = export_savedmodel(served_labelled, tmp_path / "trees", fingerprint="c0ffee")
        tree = Tree.from_text(self.GOOD[0])
        with Server({"trees": path.parent}, port=0, rest_port=0, poll=0) as server:
            url = f"http://127.0.0.1:{server.rest_port}"
            with Client(url, "trees", timeout=60, parser=lambda texts: [tree for _ in texts]) as client:
                parsed = client.encode_text(["the dog runs", "", self.GOOD[1]])
                sent = client.encode_labelled_tree([tree, replace(tree, relations=())])
        assert parsed.valid.tolist() == [True, False, True] and sent.valid.all()
        rows = tf.constant([*self.GOOD, tree.text])
        wanted = served_labelled.model.encode_texts(served_labelled.tokenizer(rows)).numpy()
        np.testing.assert_allclose(parsed.embedding[parsed.valid], wanted[:2], atol=1e-6)
        np.testing.assert_allclose(sent.embedding, wanted[[0, 2]], atol=1e-6)
