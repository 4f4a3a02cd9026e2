"""The dual encoder over sets: loss 9 by hand, ids and negatives, padding, saving, a task that it learns."""

from __future__ import annotations

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.contract import SAME, _without_shapes
from tests.losses.slow import ranking_rows, structured_rows
from tests.models.test_dual_encoder import loss_of
from tests.oracles import TOLERANCE, oracle
from vsemb.encoders import WordEmbedding
from vsemb.losses import InfoNCE, PairwiseRanking
from vsemb.models import DualEncoder
from vsemb.systems.regions.encoders import ContextualTokenEncoder, RegionEncoder
from vsemb.systems.regions.similarities import MaxSim

DIM, WORDS, SIZE, REGIONS = 5, 12, 6, 4


def make_model(loss=None, seed: int = 0, **options) -> DualEncoder:
    """Regions of six features and sentences to sets of five numbers, compiled with a loss."""
    keras.utils.set_random_seed(seed)
    dtype = options.pop("dtype", "float32")
    words = WordEmbedding(WORDS, 3, init_scale=1.0, dtype=dtype)
    model = DualEncoder(
        RegionEncoder(DIM, dtype=dtype, **options.pop("image", {})),
        ContextualTokenEncoder(words, DIM, units=8, dtype=dtype, **options.pop("text", {})),
        MaxSim(),
        **options,
    )
    model.build({"image": (None, None, SIZE), "text": (None, None)})
    model.compile(keras.optimizers.SGD(0.01, momentum=0.9, clipvalue=5.0), loss=loss or PairwiseRanking(1.0))
    return model


def make_images(ids, generator) -> np.ndarray:
    """Two to four regions an image; rows with one id are one image."""
    pictures = {}
    for i in np.unique(ids):
        pictures[int(i)] = generator.normal(size=(REGIONS, SIZE)).astype(np.float32)
        pictures[int(i)][generator.integers(2, REGIONS + 1) :] = 0
    return np.stack([pictures[int(i)] for i in ids])


def make_texts(count: int, steps: int, generator) -> np.ndarray:
    """One to `steps` words a sentence, the last one with all."""
    texts = generator.integers(1, WORDS, (count, steps)).astype(np.int32)
    for row, length in zip(texts[:-1], generator.integers(1, steps + 1, count - 1), strict=True):
        row[length:] = 0
    return texts


def make_batch(ids, texts: int | None = None, steps: int = 3, seed: int = 0) -> dict[str, np.ndarray]:
    generator, ids = np.random.default_rng(seed), np.array(ids, np.int64)
    return {
        "image": make_images(ids, generator),
        "text": make_texts(texts or len(ids), steps, generator),
        "image_id": ids,
    }


def with_negatives(batch: dict[str, np.ndarray], image_ids, text_ids) -> dict[str, np.ndarray]:
    """Adds sampled negatives: images of two more regions, none of them real, and longer sentences."""
    more = make_batch(image_ids, seed=5), make_batch(text_ids, steps=6, seed=6)
    return {
        **batch,
        "negative_image": np.pad(more[0]["image"], [(0, 0), (0, 2), (0, 0)]),
        "negative_image_id": more[0]["image_id"],
        "negative_text": more[1]["text"],
        "negative_text_id": more[1]["image_id"],
    }


def scores_of(model: DualEncoder, images: np.ndarray, texts: np.ndarray) -> np.ndarray:
    """Equation 8 as it stands, in float64, over the regions and words that are no padding."""
    v = np.asarray(model.image_encoder(images), np.float64)
    s = np.asarray(model.text_encoder(texts), np.float64)
    scores = np.zeros((len(v), len(s)))
    for k, j in np.ndindex(scores.shape):
        regions = v[k][images[k].any(axis=1)]
        scores[k, j] = sum(max(region @ word for region in regions) for word in s[j][texts[j] != 0])
    return scores


def labelled(entries: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Labels and mask of candidates: 1 for a query's own, 0 for a negative, -1 for one to ignore."""
    return (entries == 1).astype(int), entries >= 0


def slow_loss(entries: tuple[np.ndarray, np.ndarray], scores: tuple[np.ndarray, np.ndarray]) -> float:
    """Loss 9 from the scores of images with texts, and of texts with images."""
    return sum(ranking_rows(*labelled(e), s, 1.0, 0.0).sum() for e, s in zip(entries, scores, strict=True))


@pytest.fixture
def worked_case() -> tuple[DualEncoder, dict[str, np.ndarray]]:
    """The oracle's two images and sentences: features are embeddings, and each word has an id of its own."""
    entry = oracle("dvsa_score_and_loss")
    regions, sentences = entry.inputs["regions_per_image"], entry.inputs["words_per_sentence"]
    vectors = [word for sentence in sentences for word in sentence]
    model = DualEncoder(RegionEncoder(3), WordEmbedding(1 + len(vectors), 3), "max-sim")
    model.build({"image": (None, None, 3), "text": (None, None)})
    model.image_encoder.affine.set_weights([np.eye(3), np.zeros(3)])
    model.text_encoder.set_vectors(np.array([[0.0] * 3, *vectors]))
    model.compile("sgd", loss=PairwiseRanking(margin=1.0))
    image = np.zeros((2, 3, 3), np.float32)
    for row, of_image in zip(image, regions, strict=True):
        row[: len(of_image)] = of_image
    text = np.array([[1, 2, 3], [4, 5, 0]], np.int32)
    return model, {"image": image, "text": text, "image_id": np.array([7, 8])}


def test_loss_9_of_the_oracle(worked_case) -> None:
    # S = [[3, 3], [5, 3]]. Rows: 3 - 3 + 1 and 5 - 3 + 1; columns: 5 - 3 + 1 and 3 - 3 + 1; the own pairs,
    # which add 1 to each of the four sums, are left out.
    model, batch = worked_case
    expected = oracle("dvsa_score_and_loss").expected
    encoded = model(batch)
    scores = model.similarity.scores(encoded["image"], encoded["text"])
    np.testing.assert_allclose(scores, expected["S_eq8"], **TOLERANCE)
    np.testing.assert_allclose(loss_of(model, batch), expected["loss_without_l_equal_k"], **TOLERANCE)


def test_loss_9_has_no_negatives_of_one_image(worked_case) -> None:
    model, batch = worked_case
    assert loss_of(model, {**batch, "image_id": np.array([7, 7])}) == 0
    # A third pair, the second one once more: S = [[3, 3, 3], [5, 3, 3], [5, 3, 3]]. Rows: 1 + 1, 3, 3;
    # columns: 3 + 3, 1, 1.
    again = {name: value[[0, 1, 1]] for name, value in batch.items()}
    np.testing.assert_allclose(loss_of(model, again), 16, **TOLERANCE)


@pytest.mark.parametrize("negatives", ["all", "hardest"])
def test_loss_of_both_directions(negatives: str) -> None:
    model = make_model(PairwiseRanking(1.0, negatives), image_weight=0.3)
    batch = make_batch([3, 1, 4, 3, 5])
    scores, hardest = scores_of(model, batch["image"], batch["text"]), float(negatives == "hardest")
    entries = np.eye(5, dtype=int)
    entries[0, 3] = entries[3, 0] = -1
    rows = (ranking_rows(*labelled(entries), s, 1.0, hardest).sum() for s in (scores, scores.T))
    expected = sum(weight * value for weight, value in zip((0.3, 1.0), rows, strict=True))
    assert expected > 1
    np.testing.assert_allclose(loss_of(model, batch), expected, rtol=1e-4)


@pytest.mark.parametrize("loss", [PairwiseRanking(1.0), InfoNCE(0.5)], ids=["ranking", "infonce"])
def test_several_texts_an_image_equal_the_expanded_batch(loss) -> None:
    model = make_model(loss)
    compact = make_batch([30, 10, 40], texts=5)
    compact["text_image_id"] = np.array([40, 30, 30, 10, 40])
    expanded = {
        "image": compact["image"][[2, 0, 0, 1, 2]],
        "text": compact["text"],
        "image_id": compact["text_image_id"],
    }
    np.testing.assert_allclose(loss_of(model, compact), loss_of(model, expanded), rtol=1e-6)


def test_sampled_negatives_of_other_sizes() -> None:
    model = make_model()
    # Sampled image 1 is the second pair's own, and sampled text 0 shows the third pair's image.
    batch = with_negatives(make_batch([3, 1, 0]), image_ids=[8, 1], text_ids=[0, 7, 9])
    own = np.diag(scores_of(model, batch["image"], batch["text"]))
    texts = scores_of(model, batch["image"], batch["negative_text"])
    images = scores_of(model, batch["negative_image"], batch["text"]).T
    to_texts = np.array([[1, 0, 0, 0], [1, 0, 0, 0], [1, -1, 0, 0]])
    to_images = np.array([[1, 0, 0], [1, 0, -1], [1, 0, 0]])
    scores = np.column_stack([own, texts]), np.column_stack([own, images])
    np.testing.assert_allclose(loss_of(model, batch), slow_loss((to_texts, to_images), scores), rtol=1e-4)


def test_classes() -> None:
    batch, classes = make_batch([3, 1, 4, 7, 5]), np.array([20, 21, 20, 22, 23])
    batch["class_id"] = classes
    model = make_model()
    scores = scores_of(model, batch["image"], batch["text"])
    entries = np.eye(5, dtype=int)
    entries[0, 2] = entries[2, 0] = -1
    expected = slow_loss((entries, entries), (scores, scores.T))
    np.testing.assert_allclose(loss_of(model, batch), expected, rtol=1e-4)
    # Of a system that may not be there.
    structured = pytest.importorskip("vsemb.systems.zero_shot.structured_loss")
    model = make_model(structured.StructuredJointEmbedding())
    rows = (structured_rows(s, classes, classes, np.arange(5), "hardest").mean() for s in (scores, scores.T))
    np.testing.assert_allclose(loss_of(model, batch), sum(rows), rtol=1e-4)


def test_padding_changes_nothing() -> None:
    model, batch = make_model(image={"standardize": True}), make_batch(range(5))
    padded = {
        "image": np.pad(batch["image"], [(0, 0), (0, 3), (0, 0)]),
        "text": np.pad(batch["text"], [(0, 0), (0, 4)]),
        "image_id": batch["image_id"],
    }
    gradients = []
    for each in (batch, padded):
        tensors = {name: tf.constant(value) for name, value in each.items()}
        with tf.GradientTape() as tape:
            loss = model.compute_loss(x=tensors, y_pred=model(tensors))
        variables = [v.value for v in model.trainable_variables]
        gradients.append([loss, *(tf.convert_to_tensor(g) for g in tape.gradient(loss, variables))])
    for got, expected in zip(*gradients[::-1], strict=True):
        # The same numbers are summed in products of other sizes.
        np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-5)


def test_l2_of_every_matrix_and_of_nothing_else() -> None:
    model, batch = make_model(l2=2.0), make_batch([3, 1, 4])
    sequence = model.text_encoder
    directions = sequence.recurrent.forward_layer, sequence.recurrent.backward_layer
    matrices = [model.image_encoder.affine.kernel, sequence.inner.kernel, sequence.outer.kernel]
    matrices += [layer.cell.recurrent_kernel for layer in directions]
    with_l2 = loss_of(model, batch)
    model.l2 = 0.0
    expected = sum(float(tf.reduce_sum(matrix**2)) for matrix in matrices)
    np.testing.assert_allclose(with_l2 - loss_of(model, batch), expected, rtol=1e-5)


@pytest.mark.parametrize("dtype", ["float32", "mixed_bfloat16"])
def test_outputs_are_float32_sets_and_padding_is_zeros(dtype: str) -> None:
    model, batch = make_model(dtype=dtype), make_batch(range(4))
    outputs = model(batch)
    assert outputs["image"].shape == (4, REGIONS, DIM)
    assert outputs["text"].shape == (4, 3, DIM)
    for value in outputs.values():
        assert value.dtype == tf.float32
    np.testing.assert_array_equal(outputs["image"].numpy().any(-1), batch["image"].any(-1))
    assert not outputs["text"].numpy()[batch["text"] == 0].any()


def test_save_and_reload(tmp_path) -> None:
    model, batch = make_model(), make_batch(range(4))
    model.run_eagerly = True  # A graph of each model takes seconds.
    model.fit(tf.data.Dataset.from_tensors(batch).repeat(3), shuffle=False, verbose=0)
    model.save(tmp_path / "model.keras")
    reloaded = keras.saving.load_model(tmp_path / "model.keras")
    for name, value in model(batch).items():
        np.testing.assert_allclose(reloaded(batch)[name], value, **SAME)
    for each in (model, reloaded):
        each.run_eagerly = True
        each.fit(tf.data.Dataset.from_tensors(batch), shuffle=False, verbose=0)
    np.testing.assert_allclose(reloaded(batch)["text"], model(batch)["text"], **SAME)
    config = model.get_config()
    assert _without_shapes(DualEncoder.from_config(config).get_config()) == _without_shapes(config)


@pytest.mark.slow
def test_fit_without_building_first() -> None:
    words = WordEmbedding(WORDS, 3)
    model = DualEncoder(RegionEncoder(DIM), ContextualTokenEncoder(words, DIM, units=8), MaxSim())
    model.compile("adam", loss="ranking")
    history = model.fit(tf.data.Dataset.from_tensors(make_batch(range(6))).repeat(3), shuffle=False, verbose=0)
    assert np.isfinite(history.history["loss"][0])


def toy_task(count: int, generator) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Images of one or two of eight things, sentences that name them, and where each thing is.

    The features of a thing are its own direction of sixteen; the other regions are noise, and the first of
    a sentence's words says nothing. Returns the pairs, and (count, 2) the regions of the things, or -1.
    """
    things = np.stack([generator.permutation(8)[:2] for _ in range(count)])
    places = np.stack([generator.permutation(5)[:2] for _ in range(count)])
    image = 0.3 * generator.normal(size=(count, 5, 16))
    for column in (0, 1):
        image[np.arange(count), places[:, column], things[:, column]] += 1
    text = np.column_stack([generator.integers(10, 20, count), things + 2])
    image[np.arange(0, count, 2), places[::2, 1]] = text[::2, 2] = 0
    places[::2, 1] = -1
    # Ids by what is shown: two images of the same things are no negatives.
    shown = np.sort(text[:, 1:], axis=1) @ [10, 1]
    return {"image": image.astype(np.float32), "text": text.astype(np.int32), "image_id": shown}, places


@pytest.mark.slow
def test_it_learns_which_word_means_which_region() -> None:
    keras.utils.set_random_seed(1)
    generator = np.random.default_rng(0)
    pairs, _ = toy_task(400, generator)
    words = WordEmbedding(20, 8)
    model = DualEncoder(RegionEncoder(16), ContextualTokenEncoder(words, 16, units=16), MaxSim())
    model.build({"image": (None, None, 16), "text": (None, None)})
    model.compile(keras.optimizers.Adam(0.01), loss=PairwiseRanking(1.0))
    data = tf.data.Dataset.from_tensor_slices(pairs).batch(40)
    losses = model.fit(data, shuffle=False, epochs=12, verbose=0).history["loss"]
    assert losses[-1] < 0.25 * losses[0]
    unseen, places = toy_task(200, generator)
    images, texts = (model(unseen)[name] for name in ("image", "text"))
    best = model.similarity.word_region_scores(images, texts).numpy().argmax(-1)[:, 1:]
    # One region of five by chance.
    assert (best == places)[places >= 0].mean() > 0.7
    # Words that say nothing come near the origin (section 6.1 of the paper).
    nothing, something = np.linalg.norm(texts, axis=-1).mean(0)[:2]
    assert nothing < 0.6 * something
