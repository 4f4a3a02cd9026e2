"""The dual encoder: losses by hand through the whole model, ids, negatives, saving."""

from __future__ import annotations

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.contract import SAME, _without_shapes
from tests.losses.slow import infonce_rows, ranking_rows
from tests.raising import raises_argument
from vsemb.encoders import (
    ImageEncoder,
    LinearSentenceEncoder,
    WordEmbedding,
)
from vsemb.hubs import HubCorrection
from vsemb.losses import InfoNCE, PairwiseRanking
from vsemb.models import DualEncoder, LogitScale

DIM, WORDS = 4, 9

# Labels and mask of four pairs, of which the first and the third share an id.
TWO_OF_ONE = np.eye(4, dtype=int), np.array([[1, 1, 0, 1], [1, 1, 1, 1], [0, 1, 1, 1], [1, 1, 1, 1]], bool)


def every(labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Labels, and the mask that lets all candidates count."""
    return labels, np.ones(labels.shape, bool)


def make_model(loss=None, seed: int = 0, **options) -> DualEncoder:
    """Six features or word ids to four dimensions, compiled with a loss."""
    keras.utils.set_random_seed(seed)
    dtype = options.pop("dtype", "float32")
    model = DualEncoder(
        ImageEncoder(DIM, dtype=dtype, **options.pop("image", {})),
        LinearSentenceEncoder(WordEmbedding(WORDS, DIM, init_scale=1.0, dtype=dtype), dtype=dtype),
        **options,
    )
    model.build({"image": (None, 6), "text": (None, None)})
    model.compile(keras.optimizers.SGD(0.05), loss=loss or PairwiseRanking(0.2))
    return model


def make_batch(ids, seed: int = 0, texts: int | None = None) -> dict[str, np.ndarray]:
    generator = np.random.default_rng(seed)
    ids = np.array(ids, np.int64)
    # Rows with one id are one image.
    pictures = {int(i): generator.normal(size=6).astype(np.float32) for i in np.unique(ids)}
    return {
        "image": np.stack([pictures[int(i)] for i in ids]),
        "text": generator.integers(1, WORDS, (texts or len(ids), 3)).astype(np.int32),
        "image_id": ids,
    }


def loss_of(model: DualEncoder, batch: dict[str, np.ndarray]) -> float:
    tensors = {name: tf.constant(value) for name, value in batch.items()}
    return float(model.compute_loss(x=tensors, y_pred=model(tensors)))


def scores_of(model: DualEncoder, images: np.ndarray, texts: np.ndarray) -> np.ndarray:
    """Cosines in float64, from the encoders' raw outputs."""
    v, w = (np.asarray(x, np.float64) for x in (model.image_encoder(images), model.text_encoder(texts)))
    v, w = (x / np.linalg.norm(x, axis=1, keepdims=True) for x in (v, w))
    return v @ w.T


@pytest.mark.parametrize("weight", [1.0, 0.3])
@pytest.mark.parametrize("negatives", ["all", "hardest"])
def test_loss_of_both_directions(negatives: str, weight: float) -> None:
    model = make_model(PairwiseRanking(0.2, negatives), image_weight=weight)
    batch = make_batch([3, 1, 4, 7, 5])
    scores = scores_of(model, batch["image"], batch["text"])
    given, hardest = every(np.eye(5)), float(negatives == "hardest")
    from_images = ranking_rows(*given, scores, 0.2, hardest).sum()
    from_texts = ranking_rows(*given, scores.T, 0.2, hardest).sum()
    # float32 cosines of four dimensions err by some 1e-7, forty hinges of them by 1e-5.
    np.testing.assert_allclose(loss_of(model, batch), weight * from_images + from_texts, atol=1e-5)


def test_duplicate_images_are_no_negatives_of_each_other() -> None:
    model = make_model(InfoNCE(0.5))
    batch = make_batch([3, 1, 3, 7])
    scores = scores_of(model, batch["image"], batch["text"])
    expected = sum(infonce_rows(*TWO_OF_ONE, rows, 0.5, 0).mean() for rows in (scores, scores.T))
    np.testing.assert_allclose(loss_of(model, batch), expected, rtol=1e-5)


def test_large_ids_stay_distinct() -> None:
    # Through float32 16777217 would become 16777216, and through int32 both pairs would be one.
    model = make_model()
    small = make_batch([0, 1, 2, 3])
    large = {**small, "image_id": np.array([2**24, 2**24 + 1, 5, 2**32 + 5])}
    assert loss_of(model, large) == loss_of(model, small) > 0
    # The same through `fit`, whose adapters could cast.
    losses = []
    for batch in (small, large):
        model = make_model()
        model.run_eagerly = True
        losses.append(model.fit(tf.data.Dataset.from_tensors(batch), verbose=0).history["loss"][0])
    assert losses[0] == losses[1]


@pytest.mark.parametrize("loss", [PairwiseRanking(0.2), PairwiseRanking(0.2, "hardest"), InfoNCE(0.5)])
def test_several_texts_an_image_equal_the_expanded_batch(loss) -> None:
    model = make_model(loss)
    compact = make_batch([30, 10, 40], texts=5)
    compact["text_image_id"] = np.array([40, 30, 30, 10, 40])
    rows = [2, 0, 0, 1, 2]
    expanded = {
        "image": compact["image"][rows],
        "text": compact["text"],
        "image_id": compact["text_image_id"],
    }
    np.testing.assert_allclose(loss_of(model, compact), loss_of(model, expanded), rtol=1e-6)


def with_negatives(batch: dict[str, np.ndarray], image_ids, text_ids) -> dict[str, np.ndarray]:
    more = make_batch(image_ids, seed=5), make_batch(text_ids, seed=6)
    return {
        **batch,
        "negative_image": more[0]["image"],
        "negative_image_id": more[0]["image_id"],
        "negative_text": more[1]["text"],
        "negative_text_id": more[1]["image_id"],
    }


@pytest.mark.parametrize("negatives", ["all", "hardest"])
def test_sampled_negatives_replace_those_of_the_batch(negatives: str) -> None:
    model = make_model(PairwiseRanking(0.2, negatives))
    # Sampled image 1 is the second pair's own, and sampled text 0 shows the third pair's image.
    batch = with_negatives(make_batch([3, 1, 0]), image_ids=[8, 1], text_ids=[0, 7, 9])
    own = np.diag(scores_of(model, batch["image"], batch["text"]))
    texts = scores_of(model, batch["image"], batch["negative_text"])
    images = scores_of(model, batch["negative_image"], batch["text"]).T
    # The own pair in the first column, then those sampled.
    to_texts = np.array([[1, 1, 1, 1], [1, 1, 1, 1], [1, 0, 1, 1]], bool)
    to_images = np.array([[1, 1, 1], [1, 1, 0], [1, 1, 1]], bool)
    hardest, expected = float(negatives == "hardest"), 0.0
    for mask, sampled in ((to_texts, texts), (to_images, images)):
        labels = np.eye(1, mask.shape[1]).repeat(3, axis=0)
        expected += ranking_rows(labels, mask, np.column_stack([own, sampled]), 0.2, hardest).sum()
    np.testing.assert_allclose(loss_of(model, batch), expected, atol=1e-5)


def test_sampled_negatives_of_one_kind_alone() -> None:
    # Each direction on its own: the one without sampled negatives keeps those of the batch.
    model = make_model()
    full = with_negatives(make_batch([3, 1, 0]), image_ids=[8, 1], text_ids=[0, 7, 9])
    scores = scores_of(model, full["image"], full["text"])
    in_batch = [ranking_rows(*every(np.eye(3)), rows, 0.2, 0).sum() for rows in (scores, scores.T)]
    both = loss_of(model, full)
    only_text = {k: v for k, v in full.items() if not k.startswith("negative_image")}
    only_image = {k: v for k, v in full.items() if not k.startswith("negative_text")}
    # sampled(texts) + in_batch(images) + in_batch(texts) + sampled(images) in two ways.
    total = loss_of(model, only_text) + loss_of(model, only_image)
    np.testing.assert_allclose(total, both + sum(in_batch), rtol=1e-5)


def test_regularisers_are_added_once() -> None:
    plain, batch = make_model(), make_batch([3, 1, 4])
    model = make_model()
    model.image_encoder.affine.kernel.regularizer = keras.regularizers.L2(0.5)
    penalty = 0.5 * float(tf.reduce_sum(model.image_encoder.affine.kernel**2))
    assert penalty > 0.1
    np.testing.assert_allclose(loss_of(model, batch), loss_of(plain, batch) + penalty, rtol=1e-5)


def test_learned_temperature_scales_all_scores() -> None:
    batch = with_negatives(make_batch([3, 1, 0]), image_ids=[8, 1], text_ids=[0, 7, 9])
    fixed = make_model(InfoNCE(0.25))
    learned = make_model(InfoNCE(), logit_scale=LogitScale(4.0))
    np.testing.assert_allclose(loss_of(learned, batch), loss_of(fixed, batch), rtol=1e-5)
    assert any("log_scale" in v.path for v in learned.trainable_variables)


@pytest.mark.parametrize(
    ("loss", "options"),
    [
        (PairwiseRanking(0.2, "hardest", warmup_steps=20), lambda: {"dtype": "mixed_bfloat16"}),
        (InfoNCE(), lambda: {"logit_scale": LogitScale(5.0), "similarity": "dot"}),
    ],
)
def test_fit_lowers_the_loss(loss, options) -> None:
    model, batch = make_model(loss, **options()), make_batch(range(6))
    dataset = tf.data.Dataset.from_tensors(batch).repeat(15)
    history = model.fit(dataset, epochs=4, verbose=0).history["loss"]
    assert history[-1] < 0.7 * history[0]
    loss = model.evaluate(dataset.take(1), verbose=0)
    assert loss < history[0]
    # float32 in a graph and eager; in bfloat16, the encoders round apart.
    np.testing.assert_allclose(loss, loss_of(model, batch), rtol=1e-4)


def test_fit_without_building_first() -> None:
    model = DualEncoder(ImageEncoder(DIM), LinearSentenceEncoder(WordEmbedding(WORDS, DIM)))
    model.compile("adam", loss="ranking", run_eagerly=True)
    history = model.fit(tf.data.Dataset.from_tensors(make_batch(range(6))).repeat(3), verbose=0)
    assert np.isfinite(history.history["loss"][0])


def test_the_warm_up_follows_the_optimizer() -> None:
    loss = PairwiseRanking(0.2, "hardest", warmup_steps=4)
    model, batch = make_model(loss), make_batch(range(5))
    frozen = make_model(PairwiseRanking(0.2)), make_model(PairwiseRanking(0.2, "hardest"))
    for step, weight in ((0, 0), (2, 0), (3, 0.5), (4, 1), (9, 1)):
        model.optimizer.iterations.assign(step)
        expected = (1 - weight) * loss_of(frozen[0], batch) + weight * loss_of(frozen[1], batch)
        np.testing.assert_allclose(loss_of(model, batch), expected, rtol=1e-5)


def losses_and_gradients(loss, batch: dict[str, np.ndarray], **options) -> list[np.ndarray]:
    model = make_model(loss, **options)
    tensors = {name: tf.constant(value) for name, value in batch.items()}
    with tf.GradientTape() as tape:
        value = model.compute_loss(x=tensors, y_pred=model(tensors))
    gradients = tape.gradient(value, [variable.value for variable in model.trainable_variables])
    return [value.numpy(), *(tf.convert_to_tensor(gradient).numpy() for gradient in gradients)]


@pytest.mark.parametrize("kind", ["two of one image", "sampled", "blocks"])
def test_a_plain_keras_loss_of_labels_and_scores(kind: str) -> None:
    batch = make_batch([3, 1, 3, 7])
    if kind == "sampled":
        batch = with_negatives(batch, image_ids=[8, 1], text_ids=[0, 7, 9])
    options = {"block_size": 3} if kind == "blocks" else {}
    of_keras = losses_and_gradients(keras.losses.CategoricalCrossentropy(from_logits=True), batch, **options)
    # Cross entropy of the scores as they are is InfoNCE at a temperature of 1.
    for one, other in zip(of_keras, losses_and_gradients(InfoNCE(1.0), batch, **options), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-7)


def test_a_plain_keras_loss_trains_saves_and_reloads(tmp_path) -> None:
    model, batch = make_model(keras.losses.CategoricalHinge()), make_batch(range(6))
    model.run_eagerly = True
    data = tf.data.Dataset.from_tensors(batch).repeat(5)
    history = model.fit(data, epochs=4, verbose=0).history["loss"]
    assert history[-1] < 0.9 * history[0]
    model.save(tmp_path / "model.keras")
    reloaded = keras.saving.load_model(tmp_path / "model.keras")
    np.testing.assert_allclose(loss_of(reloaded, batch), loss_of(model, batch), rtol=1e-6)


@pytest.mark.parametrize("dtype", ["float32", "mixed_bfloat16"])
@pytest.mark.parametrize("similarity", ["cosine", "dot"])
def test_outputs_are_float32_in_the_similaritys_geometry(dtype: str, similarity: str) -> None:
    model, batch = make_model(dtype=dtype, similarity=similarity), make_batch(range(4))
    outputs = model(batch)
    assert set(outputs) == {"image", "text"}
    for value in outputs.values():
        assert value.dtype == tf.float32
        assert np.isfinite(value).all()
        if similarity == "cosine":
            np.testing.assert_allclose(np.linalg.norm(value, axis=1), 1, rtol=1e-5)
    # One tower at a time.
    np.testing.assert_array_equal(model({"text": batch["text"]})["text"], outputs["text"])
    np.testing.assert_array_equal(model({"image": batch["image"]})["image"], outputs["image"])


def test_hubs_are_corrected_except_in_training() -> None:
    hubs, batch = HubCorrection(DIM, size=1, neighbours=1), make_batch(range(4))
    hubs.fill(np.eye(1, DIM), np.eye(1, DIM))
    plain, model = make_model(), make_model(hubs=hubs)
    for side, embeddings in plain(batch).items():
        np.testing.assert_array_equal(model(batch, training=True)[side], embeddings)
        np.testing.assert_allclose(model(batch)[side], hubs(embeddings, side=side), **SAME)


def test_compiled_and_eager_agree() -> None:
    model, batch = make_model(), make_batch(range(4))
    eager, compiled = model(batch), tf.function(model, autograph=False)(batch)
    for name in eager:
        np.testing.assert_allclose(compiled[name], eager[name], **SAME)


@pytest.mark.parametrize("loss", [PairwiseRanking(0.3, "hardest", warmup_steps=7), InfoNCE(0.5, 0.1)])
def test_save_and_reload(loss, tmp_path) -> None:
    model, batch = make_model(loss, logit_scale=LogitScale(3.0), image_weight=0.5), make_batch(range(4))
    model.run_eagerly = True
    model.fit(tf.data.Dataset.from_tensors(batch).repeat(3), verbose=0)
    model.save(tmp_path / "model.keras")
    reloaded = keras.saving.load_model(tmp_path / "model.keras")
    for name, value in model(batch).items():
        np.testing.assert_allclose(reloaded(batch)[name], value, **SAME)
    assert reloaded.loss.get_config() == loss.get_config()
    np.testing.assert_allclose(loss_of(reloaded, batch), loss_of(model, batch), rtol=1e-6)
    # Training goes on as if nothing had happened.
    for each in (model, reloaded):
        each.run_eagerly = True
        each.fit(tf.data.Dataset.from_tensors(batch), verbose=0)
    np.testing.assert_allclose(reloaded(batch)["text"], model(batch)["text"], **SAME)


def test_config_round_trip() -> None:
    model = make_model(logit_scale=LogitScale(3.0), similarity="dot", image_weight=0.5)
    config = model.get_config()
    assert {"image_encoder", "text_encoder", "similarity", "logit_scale", "image_weight"} <= set(config)
    for _ in range(2):
        again = DualEncoder.from_config(config)
        assert _without_shapes(again.get_config()) == _without_shapes(config)


@pytest.mark.parametrize("loss", ["mse", keras.losses.mean_squared_error, None, "rankin"])
def test_what_is_no_loss_is_refused(loss) -> None:
    # A fresh model: Keras keeps the old `loss` when a model is compiled again without one.
    model = DualEncoder.from_config(make_model().get_config())
    model.compile("sgd", loss=loss)
    with raises_argument("loss"):
        loss_of(model, make_batch(range(3)))


def test_similarity_by_wrong_name() -> None:
    with raises_argument("similarity"):
        make_model(similarity="cosin")


def test_gradients_are_clipped_by_their_global_norm() -> None:
    # One norm over all tensors.
    from tests.oracles import oracle

    entry = oracle("gradient_clipping")
    variables = [keras.Variable(np.zeros(2, np.float32)) for _ in range(2)]
    optimizer = keras.optimizers.SGD(1.0, global_clipnorm=entry.inputs["threshold"])
    optimizer.apply([tf.constant(g) for g in entry.inputs["grads"]], variables)
    np.testing.assert_allclose([-v.numpy() for v in variables], entry.expected["global"], rtol=1e-5)


def test_items_of_one_class_are_no_negatives_of_each_other() -> None:
    model = make_model(PairwiseRanking(0.2))
    batch = make_batch([3, 1, 4, 7])
    scores = scores_of(model, batch["image"], batch["text"])
    batch["class_id"] = np.array([1, 2, 1, 3], np.int64)
    expected = sum(ranking_rows(*TWO_OF_ONE, rows, 0.2, 0.0).sum() for rows in (scores, scores.T))
    np.testing.assert_allclose(loss_of(model, batch), expected, atol=1e-5)


def test_what_does_not_go_with_classes_is_refused() -> None:
    batch = make_batch([3, 1, 4])
    negatives = {"negative_text": batch["text"], "negative_text_id": batch["image_id"] + 9}
    with raises_argument("x"):
        loss_of(make_model(), {**batch, **negatives, "class_id": batch["image_id"]})
    with raises_argument("image_weight, text_weight"):
        make_model(image_weight=0.0, text_weight=0.0)


def test_l2_by_hand() -> None:
    plain, batch = make_model(), make_batch([3, 1, 4])
    model = make_model(l2=0.5)
    # The image map is the one trained matrix; its bias and the word vectors are left out.
    penalty = 0.25 * float(tf.reduce_sum(model.image_encoder.affine.kernel**2))
    assert penalty > 0.1
    np.testing.assert_allclose(loss_of(model, batch), loss_of(plain, batch) + penalty, rtol=1e-5)
    gradients = []
    for each in (plain, model):
        tensors = {name: tf.constant(value) for name, value in batch.items()}
        with tf.GradientTape() as tape:
            loss = each.compute_loss(x=tensors, y_pred=each(tensors))
        variables = [v.value for v in each.trainable_variables]
        gradients.append([tf.convert_to_tensor(g).numpy() for g in tape.gradient(loss, variables)])
    for variable, before, after in zip(model.trainable_variables, *gradients, strict=True):
        added = 0.5 * variable.numpy() if variable.path.endswith("affine/kernel") else 0.0
        np.testing.assert_allclose(after, before + added, rtol=1e-5, atol=1e-6)


def test_l2_is_kept_and_checked() -> None:
    model = make_model(l2=1e-4)
    assert DualEncoder.from_config(model.get_config()).l2 == 1e-4
    for value in (-1.0, float("nan"), float("inf")):
        with raises_argument("l2"):
            make_model(l2=value)


def test_equation_1_of_the_imgcap_report() -> None:
    model = make_model(PairwiseRanking(1.0), similarity="dot")
    batch = make_batch([3, 1, 4, 7])
    x, y = (np.asarray(part, np.float64) for part in model(batch).values())
    # J_i = sum over j != i of max(0, 1 - x_i y_i + x_i y_j) + max(0, 1 - x_i y_i + x_j y_i), over all i.
    expected = 0.0
    for i in range(4):
        for j in range(4):
            if i != j:
                expected += max(0, 1 - x[i] @ y[i] + x[i] @ y[j]) + max(0, 1 - x[i] @ y[i] + x[j] @ y[i])
    assert expected > 1
    np.testing.assert_allclose(loss_of(model, batch), expected, rtol=1e-5)
