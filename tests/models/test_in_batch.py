"""The loss from blocks of queries equals that from all scores at once, forward and gradient."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from vsemb import losses, registry
from vsemb.losses import CombinedLoss, InBatchLoss, InfoNCE, KerasLoss, PairwiseRanking, SigmoidLoss
from vsemb.models.in_batch import InBatchObjective, LogitScale
from vsemb.similarities import get as get_similarity

ROWS, DIM = 7, 4

#: What makes the loss, similarity, kind of batch.
Case = tuple[Callable[[], InBatchLoss], str, str]

CASES: dict[str, Case] = {
    "ranking": (lambda: PairwiseRanking(0.3), "cosine", ""),
    "ranking-sum": (lambda: PairwiseRanking(0.3, reduction="sum_over_batch_size"), "order-reversed", "sampled"),
    "hardest": (lambda: PairwiseRanking(0.3, "hardest"), "order", "texts"),
    "infonce": (lambda: InfoNCE(0.5, 0.1), "cosine", ""),
    "infonce-sampled": (lambda: InfoNCE(), "dot", "sampled"),
    "combined": (lambda: CombinedLoss([PairwiseRanking(), InfoNCE(0.3)], [1.0, 0.5]), "cosine", "classes"),
    "keras": (lambda: KerasLoss(keras.losses.CategoricalHinge()), "cosine", "texts"),
    "sigmoid": (lambda: SigmoidLoss(), "cosine", ""),
    "sigmoid-sum": (lambda: SigmoidLoss(0.3, -2.0, reduction="sum"), "dot", "texts"),
    "sigmoid-sampled": (lambda: SigmoidLoss(), "order", "sampled"),
}


def make(case: Case, block_size: int | None, **changes: Any) -> InBatchObjective:
    loss, similarity, _ = case
    scale = LogitScale(5.0, bias=-1.0)
    scale.build()
    options = {"image_weight": 0.6, "text_weight": 1.0, **changes}
    return InBatchObjective(loss(), get_similarity(similarity), scale, block_size=block_size, **options)


def make_batch(case: Case) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Inputs and outputs of a model: two rows show one image."""
    _, similarity, kind = case
    generator = np.random.default_rng(0)

    def some(rows: int, items: int) -> np.ndarray:
        several = get_similarity(similarity).multi_vector
        values = generator.normal(size=(rows, items, DIM) if several else (rows, DIM)).astype(np.float32)
        return np.array(get_similarity(similarity).normalize(values))

    ids = np.arange(ROWS) % (ROWS - 1) + 2**24
    x, y = {"image_id": ids}, {"image": some(ROWS, 3), "text": some(ROWS, 5)}
    if kind == "sampled":
        y |= {"negative_image": some(5, 2), "negative_text": some(4, 3)}
        x |= {"negative_image_id": np.arange(5) + 2**24, "negative_text_id": np.arange(4) + 2**24 + 2}
    if kind == "texts":
        x |= {"image_id": np.arange(ROWS), "text_image_id": np.repeat(np.arange(ROWS)[::-1], 2)}
        y["text"] = some(2 * ROWS, 5)
    if kind == "classes":
        x["class_id"] = np.array([0, 1, 0, 2, 3, 2, 0])
    return x, y


def value_and_gradients(loss: InBatchObjective, case: Case, graph: bool = False) -> list[np.ndarray]:
    """The loss and its gradients for all embeddings, the factor and the bias; in a graph, of unknown rows."""
    x, y = make_batch(case)

    def step(x: Any, y: Any) -> Any:
        scale = loss.logit_scale
        with tf.GradientTape() as tape:
            tape.watch(y)
            value = loss(x, y)
        sources = [*y.values(), scale.log_scale.value, scale.learned_bias.value]
        return value, [tf.convert_to_tensor(each) for each in tape.gradient(value, sources)]

    def unknown(arrays: dict[str, np.ndarray]) -> dict[str, tf.TensorSpec]:
        return {name: tf.TensorSpec((None, *each.shape[1:]), each.dtype) for name, each in arrays.items()}

    run = tf.function(step, input_signature=[unknown(x), unknown(y)], autograph=False) if graph else step
    tensors = [{name: tf.constant(each) for name, each in arrays.items()} for arrays in (x, y)]
    value, gradients = run(*tensors)
    return [value.numpy(), *(gradient.numpy() for gradient in gradients)]


def check_same(results: list[np.ndarray], expected: list[np.ndarray]) -> None:
    # The same terms, added up in another order. A ranking's gradient for the bias is nothing but rounding.
    largest = max(np.abs(each).max() for each in expected)
    for one, other in zip(results, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=2e-6 * max(1.0, largest))


def check_blocks(case: Case, graph: bool = False) -> None:
    """Checks that blocks of three give what all scores at once do."""
    expected = value_and_gradients(make(case, None), case)
    check_same(value_and_gradients(make(case, 3), case, graph), expected)
    assert np.abs(expected[0]) > 0.1


def test_every_loss_has_a_case() -> None:
    parts = registry.BASE.parts["loss"]
    assert {type(loss()) for loss, _, _ in CASES.values()} == {*(type(losses.get(kind)) for kind in parts), KerasLoss}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_blocks_equal_all_scores_at_once(case: Case) -> None:
    check_blocks(case)


@pytest.mark.parametrize("name", ["infonce-sampled", "sigmoid-sum", "combined"])
def test_in_a_graph_blocks_equal_all_scores_at_once(name: str) -> None:
    check_blocks(CASES[name], graph=True)


@pytest.mark.parametrize("size", [1, ROWS, 50])
def test_any_block_size(size: int) -> None:
    case = CASES["sigmoid"]
    expected = value_and_gradients(make(case, None), case)
    check_same(value_and_gradients(make(case, size), case), expected)


@pytest.mark.parametrize("weights", [(1.0, 0.0), (0.0, 0.5)])
@pytest.mark.parametrize("name", ["infonce", "sigmoid"])
def test_one_direction(name: str, weights: tuple[float, float]) -> None:
    case = CASES[name]
    options = dict(zip(("image_weight", "text_weight"), weights, strict=True))
    expected = value_and_gradients(make(case, None, **options), case)
    check_same(value_and_gradients(make(case, 3, **options), case), expected)


@pytest.mark.parametrize("name", ["hardest", "sigmoid-sampled"])
def test_evaluation(name: str) -> None:
    case = CASES[name]
    x, y = ({k: tf.constant(v) for k, v in arrays.items()} for arrays in make_batch(case))
    values = [float(make(case, size)(x, y, training=False)) for size in (None, 3)]
    np.testing.assert_allclose(values[1], values[0], rtol=1e-5)


def test_the_sigmoid_losses_directions_are_one_sum() -> None:
    case = CASES["sigmoid"]
    one, other = (
        value_and_gradients(make(case, 3, image_weight=i, text_weight=t), case) for i, t in ((1.0, 0.0), (0.25, 0.75))
    )
    check_same(other, one)


def test_no_matrix_of_all_scores_is_held() -> None:
    case = CASES["infonce"]
    x, y = make_batch(case)
    x = {"image_id": np.arange(60)}
    y = {name: np.repeat(each, 9, axis=0)[:60] for name, each in y.items()}

    def shapes(block_size: int | None) -> set[tuple[int, ...]]:
        loss = make(case, block_size, text_weight=0.0)

        @tf.function(autograph=False)
        def step(x: Any, y: Any) -> Any:
            with tf.GradientTape() as tape:
                tape.watch(y)
                value = loss(x, y)
            return tape.gradient(value, list(y.values()))

        graph = step.get_concrete_function(*({k: tf.constant(v) for k, v in a.items()} for a in (x, y))).graph
        tensors = re.findall(
            r"dim \{\s+size: (-?\d+)\s+\}\s+dim \{\s+size: (-?\d+)\s+\}",
            str(graph.as_graph_def(add_shapes=True)),
        )
        return {tuple(map(int, pair)) for pair in tensors}

    assert (60, 60) in shapes(None)
    in_blocks = shapes(6)
    assert (60, 60) not in in_blocks and (6, 60) in in_blocks
