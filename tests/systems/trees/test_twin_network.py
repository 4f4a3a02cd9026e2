"""A column of the twin network: by hand, in every way a layer is used, and what is seen through it."""

from __future__ import annotations

import functools

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.contract import SAME, check_config, check_layer, check_padding
from tests.encoders.test_image import PIXELS, backbone
from tests.models.test_dual_encoder import DIM, WORDS, loss_of, make_batch
from tests.oracles import TOLERANCE, oracle
from tests.raising import raises_argument
from vsemb.encoders import (
    BagOfWordsEncoder,
    ImageEncoder,
    LinearSentenceEncoder,
    PixelEncoder,
    RecurrentSentenceEncoder,
    SequenceAndBagEncoder,
    WordEmbedding,
)
from vsemb.losses import PairwiseRanking
from vsemb.models import DualEncoder
from vsemb.systems.trees.twin_network import ProjectionMLP

FEATURES = np.random.default_rng(0).normal(size=(3, 6)).astype(np.float32)
IDS = np.array([[2, 3, 3], [5, 0, 0], [4, 1, 0]], np.int32)


def of_features(dtype: str = "float32", **options) -> ProjectionMLP:
    return ProjectionMLP(ImageEncoder(6, projection=False, dtype=dtype), 4, dtype=dtype, **options)


def of_words(dtype: str = "float32") -> ProjectionMLP:
    words = WordEmbedding(6, 3, init_scale=1.0, dtype=dtype)
    return ProjectionMLP(RecurrentSentenceEncoder(words, 5, units=5, dtype=dtype), 4, dtype=dtype)


def of_pixels(dtype: str = "float32") -> ProjectionMLP:
    encoder = PixelEncoder(backbone(dtype), ImageEncoder(4, projection=False, dtype=dtype), dtype=dtype)
    return ProjectionMLP(encoder, 3, dtype=dtype)


@pytest.mark.parametrize("activate_first", [True, False])
def test_contract(activate_first: bool, tmp_path) -> None:
    keras.utils.set_random_seed(0)
    make = functools.partial(of_features, activate_first=activate_first, leak=0.2)
    check_layer(make, [FEATURES], tmp_path)


def test_contract_with_words(tmp_path) -> None:
    keras.utils.set_random_seed(0)
    check_layer(of_words, [IDS], tmp_path, sequence=True)
    check_padding(of_words(), IDS)


def test_contract_with_pixels(tmp_path) -> None:
    keras.utils.set_random_seed(0)
    check_layer(of_pixels, [PIXELS], tmp_path)


def test_oracle() -> None:
    case = oracle("twin_column")
    inputs = {name: np.array(value, np.float32) for name, value in case.inputs.items()}
    column = ProjectionMLP(ImageEncoder(2, projection=False), 2)
    column.build((None, 2))
    # The oracle multiplies columns, W x.
    column.first.set_weights([inputs["W1"].T, inputs["b1"]])
    column.second.set_weights([inputs["W2"].T, inputs["b2"]])
    np.testing.assert_allclose(column(inputs["x"]), case.expected["y"], **TOLERANCE)


def test_without_the_first_nonlinearity_by_hand() -> None:
    column = ProjectionMLP(ImageEncoder(1, projection=False), 1, activate_first=False)
    column.build((None, 1))
    column.first.set_weights([np.array([[2.0]]), np.array([-6.0])])
    column.second.set_weights([np.array([[-3.0]]), np.array([1.0])])
    # 1 -> 2 - 6 = -4 -> 12 + 1 = 13; 4 -> 8 - 6 = 2 -> -6 + 1 = -5, of which 0.01 leaks.
    np.testing.assert_allclose(column(np.array([[1.0], [4.0]])), [[13.0], [-0.05]], rtol=1e-6)
    # With it, -4 becomes -0.04, and 0.12 + 1 = 1.12.
    rebuilt = ProjectionMLP.from_config({**column.get_config(), "activate_first": True})
    rebuilt.build((None, 1))
    rebuilt.set_weights(column.get_weights())
    np.testing.assert_allclose(rebuilt(np.array([[1.0]])), [[1.12]], rtol=1e-6)


def test_the_encoder_trains_and_drops_out_with_its_column() -> None:
    column = ProjectionMLP(ImageEncoder(6, projection=False, dropout=0.5), 4)
    np.testing.assert_array_equal(column(FEATURES), column(FEATURES))
    assert (np.asarray(column(FEATURES, training=True)) != np.asarray(column(FEATURES))).any()
    words = of_words()
    words(IDS)
    # Word vectors, the GRU's kernel, recurrent kernel and bias, and two layers of two.
    assert len(words.trainable_variables) == 1 + 3 + 4


def test_the_wrong_size_of_features_is_refused() -> None:
    with raises_argument("dim"):
        of_features().build((None, 7))


@pytest.mark.parametrize("leak", [-0.1, 1.0, float("nan")])
def test_bad_leak(leak: float) -> None:
    with raises_argument("leak"):
        of_features(leak=leak)


def test_the_scaling_of_features_is_that_of_the_encoder() -> None:
    encoder = ImageEncoder(6, projection=False, standardize=True)
    assert ProjectionMLP(encoder, 4).scaling is encoder.scaling is not None
    assert of_features().scaling is None and of_words().scaling is None


def test_a_rebuilt_column_embeds_alike() -> None:
    column = of_words()
    expected = np.asarray(column(IDS))
    again = check_config(column)
    again.build((None, None))
    again.set_weights(column.get_weights())
    np.testing.assert_allclose(again(IDS), expected, **SAME)


def test_the_bag_beside_a_tree_encoder_sees_word_ids() -> None:
    @keras.saving.register_keras_serializable("vsemb-tests")
    class FirstWord(keras.layers.Layer):
        """Of trees (batch, steps, 2): the vector of the first word, plus its head."""

        def __init__(self, words: WordEmbedding) -> None:
            super().__init__()
            self.words = words

        def build(self, input_shape) -> None:
            assert len(input_shape) == 3
            self.words.build(input_shape[:2])

        def call(self, tokens, training: bool = False):
            assert len(tokens.shape) == 3
            return self.words(tokens[:, :1, 0])[:, 0] + keras.ops.cast(tokens[:, :1, 1], "float32")

        def compute_output_shape(self, input_shape):
            return input_shape[0], self.words.dim

    keras.utils.set_random_seed(0)
    heads = np.array([[2, 0, 1], [0, 0, 0], [0, 1, 0]], np.int32)
    bag = BagOfWordsEncoder(WordEmbedding(6, 4, init_scale=1.0))
    hybrid = SequenceAndBagEncoder(FirstWord(WordEmbedding(6, 4, init_scale=1.0)), bag)
    hybrid.build((None, None, 2))
    flat = LinearSentenceEncoder(WordEmbedding(6, 4), "mean")
    beside_words = SequenceAndBagEncoder(flat, bag)
    one, other = np.asarray(hybrid(np.stack([IDS, heads], -1))), np.asarray(beside_words(IDS))
    bags = np.asarray(bag(IDS))
    unit = bags / np.linalg.norm(bags, axis=1, keepdims=True)
    # What is left without the bag has unit length in both.
    for rows in (one, other):
        np.testing.assert_allclose(np.linalg.norm(rows - unit, axis=1), 1, rtol=1e-5)


def test_l2_of_every_matrix_and_of_nothing_else() -> None:
    words = WordEmbedding(WORDS, 3)
    sequence = RecurrentSentenceEncoder(words, DIM, units=5)
    bag = BagOfWordsEncoder(WordEmbedding(WORDS, DIM))
    column = ProjectionMLP(ImageEncoder(6, projection=False, standardize=True), DIM)
    model = DualEncoder(column, SequenceAndBagEncoder(sequence, bag), l2=2.0)
    model.build({"image": (None, 6), "text": (None, None)})
    model.compile("sgd", loss=PairwiseRanking(0.2))
    cell = sequence.recurrent.cell
    # The GRU's bias has two rows and is none.
    matrices = [column.first.kernel, column.second.kernel, cell.kernel, cell.recurrent_kernel]
    matrices.append(sequence.projection.kernel)
    batch = make_batch([3, 1, 4])
    with_l2 = loss_of(model, batch)
    model.l2 = 0.0
    expected = sum(float(tf.reduce_sum(matrix**2)) for matrix in matrices)
    np.testing.assert_allclose(with_l2 - loss_of(model, batch), expected, rtol=1e-5)
