"""The recipe of the imgcap report: its tables, its parts, and what may stand in their place."""

from __future__ import annotations

import dataclasses
import json

import keras
import numpy as np
import pytest
import tensorflow as tf
from vsemb.runs.initialization import start_model, text_parts

from tests.conftest import FEATURE_DIM
from vsemb import recipes
from vsemb.data.features.store import FeatureStore
from vsemb.encoders import (
    BagOfWordsEncoder,
    ImageEncoder,
    ProjectionMLP,
    RecurrentSentenceEncoder,
    SequenceAndBagEncoder,
)
from vsemb.encoders.projection_mlp import unwrapped
from vsemb.errors import DataError, InvalidArgumentError
from vsemb.models import DualEncoder
from vsemb.recipes import Recipe
from vsemb.runs import build, optimizers, texts
from vsemb.systems.trees.tree_lstm import TreeLSTMEncoder
from vsemb.systems.trees.tree_tokenizer import TreeTokenizer
from vsemb.systems.trees.trees import Tree
from vsemb.text.cooccurrence import document_frequencies
from vsemb.training import RisingMomentumSGD

VARIANTS = ["vs", "s", "m1", "m2", "l"]
SMALL = ["text.units=6", "text.word_dim=5", "embedding_dim=8", "batches.size=6"]
WORDS = ["text.tokenizer=words", "text.encoder=gru"]


def small(*overrides: str) -> Recipe:
    return recipes.get("tree-twin").with_overrides([*SMALL, *overrides])


class ChainParses:
    """Parses in which every word hangs on the one before it."""

    def texts(self, split) -> list[str]:
        return [chain(caption) for caption in split.captions]


def chain(caption: str) -> str:
    words = tuple(caption.split())
    return Tree(words, tuple(range(len(words)))).text


def test_tuned_without_trees_is_vsepp() -> None:
    tuned, vsepp = recipes.get("tree-twin", "tuned"), recipes.get("vsepp", "tuned")
    words = tuned.with_overrides(["text.tokenizer=words", "text.encoder=gru"])
    assert dataclasses.replace(words, name="vsepp", variant="tuned", paper=vsepp.paper) == vsepp


def test_tables_1_and_2() -> None:
    # Hidden dimension, children, twin dimension, batch size, learning rate.
    rows = {
        "vs": (300, 2, 300, 10, 5e-4),
        "s": (350, 3, 350, 50, 5e-4),
        "m1": (450, 2, 450, 10, 5e-4),
        "m2": (400, 2, 512, 10, 1e-4),
        "l": (600, 2, 600, 20, 1e-3),
    }
    assert list(rows) == VARIANTS and recipes.get("tree-twin").variant == "vs"
    for variant, row in rows.items():
        recipe = recipes.get("tree-twin", variant)
        text, optimizer = recipe.text, recipe.optimizer
        found = (text.units, text.slots, recipe.embedding_dim, recipe.batches.size, optimizer.learning_rate)
        assert found == row
        assert (text.tokenizer, text.encoder, text.pooling, text.word_dim) == (
            *("trees", "tree-lstm", "last"),
            300,
        )
        assert (recipe.similarity, recipe.twin, recipe.twin_activate_first) == ("dot", True, True)
        assert (recipe.loss.name, recipe.loss.margin, recipe.loss.negatives) == ("ranking", 1.0, "all")
        assert (optimizer.name, optimizer.momentum_start, optimizer.momentum) == ("sgd", 0.5, 0.95)
        assert (optimizer.schedule, optimizer.decay_rate, optimizer.decay_steps) == ("step", 0.95, 2500)
        assert recipe.image.standardize and text.word_vectors is None


def words_of(tokenizer: TreeTokenizer, parsed: list[str]) -> tuple[np.ndarray, np.ndarray]:
    tokens, offsets = tokenizer.encode(parsed)
    return tokens[:, 0], offsets


def columns(model: DualEncoder) -> tuple[ProjectionMLP, ProjectionMLP]:
    image, text = model.image_encoder, model.text_encoder
    assert isinstance(image, ProjectionMLP) and isinstance(text, ProjectionMLP)
    return image, text


def test_every_variant_builds_as_it_is() -> None:
    for variant in VARIANTS:
        recipe = recipes.get("tree-twin", variant)
        assert Recipe.from_json(json.loads(json.dumps(recipe.to_json()))) == recipe
        image, text = columns(build.build_model(recipe, 9, 4096))
        units, slots, dim = recipe.text.units, recipe.text.slots, recipe.embedding_dim
        assert image.first.kernel.shape == (4096, dim) and text.first.kernel.shape == (units, dim)
        assert image.second.kernel.shape == text.second.kernel.shape == (dim, dim)
        encoder = text.encoder
        assert isinstance(encoder, TreeLSTMEncoder)
        assert (encoder.units, encoder.slots, encoder.children, encoder.pooling) == (
            *(units, slots),
            *("slots", "root"),
        )
        # No layer between the root's state and the column.
        assert encoder.compute_output_shape((3, 7, 2)) == (3, units)
        optimizer = optimizers.build_optimizer(recipe, 100)
        assert isinstance(optimizer, RisingMomentumSGD)
        rates = [float(optimizer._learning_rate(step)) for step in (0, 2499, 2500, 5000)]
        rate = recipe.optimizer.learning_rate
        np.testing.assert_allclose(rates, [rate, rate, 0.95 * rate, 0.95**2 * rate], rtol=1e-6)
        keras.backend.clear_session()


@pytest.mark.parametrize(
    ("overrides", "children", "pooling", "size"),
    [
        ([], "slots", "root", 6),
        (["text.encoder=child-sum-tree-lstm"], "sum", "root", 6),
        (["text.pooling=mean"], "slots", "mean", 6),
        (["text.pooling=mean+max", "text.slots=1"], "slots", "mean+max", 12),
        (["twin=false"], "slots", "root", 8),
    ],
    ids=["root", "child-sum", "mean", "mean+max", "no-twin"],
)
def test_tree_encoders(overrides: list[str], children: str, pooling: str, size: int) -> None:
    recipe = small(*overrides)
    model = build.build_model(recipe, 9, FEATURE_DIM)
    encoder = unwrapped(model.text_encoder)
    assert isinstance(model.text_encoder, ProjectionMLP) == recipe.twin
    assert isinstance(encoder, TreeLSTMEncoder)
    assert (encoder.children, encoder.pooling, encoder.dim) == (children, pooling, size)
    tokens = np.array([[[2, 2], [3, 0], [4, 2]], [[5, 0], [0, 0], [0, 0]]], np.int32)
    batch = {"image": np.ones((2, FEATURE_DIM), np.float32), "text": tokens, "image_id": np.arange(2)}
    outputs = model(batch)
    assert outputs["image"].shape == outputs["text"].shape == (2, 8)
    assert np.ptp(np.asarray(outputs["text"]), axis=0).max() > 0


def test_words_in_their_order_in_the_same_recipe(scenes) -> None:
    recipe = small(*WORDS)
    assert dataclasses.replace(recipe, text=small().text) == small()
    split, store = scenes.split("train"), FeatureStore.find(scenes)
    vocabulary = texts.build_vocabulary(recipe, texts.read_texts(recipe, split).captions)
    tokenizer = texts.build_tokenizer(recipe, vocabulary)
    batches = build.build_batches(recipe, split, build.build_images(recipe, split, store), tokenizer)
    model = build.build_model(recipe, len(vocabulary), store.dim)
    assert isinstance(unwrapped(model.text_encoder), RecurrentSentenceEncoder)
    assert unwrapped(model.text_encoder).compute_output_shape((3, 7)) == (3, 6)
    model.compile(optimizers.build_optimizer(recipe, 5), build.build_loss(recipe, 5), jit_compile=False)
    before = model.get_weights()
    history = model.fit(batches.dataset().take(2), shuffle=False, verbose=0)
    assert np.isfinite(history.history["loss"][0])
    assert all((a != b).any() for a, b in zip(model.get_weights(), before, strict=True) if a.ndim > 1)


@pytest.mark.parametrize(
    ("overrides", "size"),
    [
        (["text.directions=concat"], 12),
        (["text.directions=average", "text.pooling=mean+max"], 12),
        (["text.encoder=sum"], 5),
        (["text.encoder=average"], 8),
        (["text.encoder=bow"], 8),
    ],
    ids=["concat", "mean+max", "sum", "average", "bow"],
)
def test_sentences_enter_the_column_as_large_as_they_are(overrides: list[str], size: int) -> None:
    model = build.build_model(small(*WORDS, *overrides), 9, FEATURE_DIM)
    assert columns(model)[1].first.kernel.shape == (size, 8)


def test_a_bag_beside_the_tree() -> None:
    model = build.build_model(small("text.bag=true"), 9, FEATURE_DIM)
    encoder = unwrapped(model.text_encoder)
    assert isinstance(encoder, SequenceAndBagEncoder)
    words, bag = text_parts(model)
    assert words is encoder.sequence.words and isinstance(bag, BagOfWordsEncoder) and bag is encoder.bag
    tokens = tf.constant([[[2, 2], [3, 0]], [[3, 0], [0, 0]]], tf.int32)
    assert model.encode_texts(tokens).shape == (2, 8)


@pytest.mark.parametrize(
    ("overrides", "field"),
    [
        (["image.projection=false"], "image.projection"),
        (["image.use_bias=false"], "image.use_bias"),
        (["image.init_scale=0.1"], "image.init_scale"),
        (["text.encoder=gru"], "text.encoder"),
        (["text.tokenizer=words"], "text.encoder"),
        (["text.encoder=attributes"], "text.encoder"),
        (["text.pooling=first"], "pooling"),
        (["twin=false", "twin_activate_first=false"], "twin_activate_first"),
    ],
    ids=["projection", "bias", "scale", "gru-of-trees", "tree-of-words", "attributes", "pooling", "no-twin"],
)
def test_what_does_not_go_together(overrides: list[str], field: str) -> None:
    with pytest.raises(InvalidArgumentError, match=field):
        build.build_model(small(*overrides), 9, FEATURE_DIM)


def test_features_do_not_set_the_size_of_the_columns(scenes) -> None:
    store = FeatureStore.find(scenes)
    assert build.with_feature_size(small(), store) == small()
    with pytest.raises(InvalidArgumentError, match="image.projection"):
        build.with_feature_size(small("image.projection=false"), store)


def test_texts_are_parses(scenes) -> None:
    split = scenes.split("train")
    read = texts.read_texts(small(), split, training=True, parses=ChainParses())
    assert read.captions == [chain(caption) for caption in split.captions]
    np.testing.assert_array_equal(read.caption_rows, split.caption_rows)
    first = small("batches.captions_per_image=1")
    few = texts.read_texts(first, split, training=True, parses=ChainParses())
    starts = np.unique(split.caption_rows, return_index=True)[1]
    assert few.captions == [chain(split.captions[place]) for place in starts]
    np.testing.assert_array_equal(few.caption_rows, np.arange(len(split)))
    # Only in training.
    assert len(texts.read_texts(first, split, parses=ChainParses()).captions) == len(split.captions)


def test_without_parses_nothing_is_read(scenes) -> None:
    with pytest.raises(DataError, match="vsemb parse"):
        texts.read_texts(small(), scenes.split("train"))
    with pytest.raises(InvalidArgumentError, match="text.tokenizer"):
        texts.build_vocabulary(dataclasses.replace(small(), task="entailment"), ["a dog"])


@pytest.mark.parametrize("overrides", [[], ["text.bag=true", "image.standardize=true"]], ids=["plain", "all"])
def test_the_start_sees_through_the_columns(overrides: list[str], scenes, tmp_path) -> None:
    vectors = tmp_path / "vectors.txt"
    vectors.write_text("circle 1 2 3 4 5\nsquare 5 4 3 2 1\n")
    recipe = small(f"text.word_vectors={vectors}", *overrides)
    split, store = (
        texts.read_texts(recipe, scenes.split("train"), parses=ChainParses()),
        FeatureStore.find(scenes),
    )
    vocabulary = texts.build_vocabulary(recipe, split.captions)
    tokenizer = texts.build_tokenizer(recipe, vocabulary)
    assert isinstance(tokenizer, TreeTokenizer) and texts.token_shape(recipe) == (2,)
    model = build.build_model(recipe, len(vocabulary), store.dim)
    start_model(recipe, model, tokenizer, split, store)
    words, bag = text_parts(model)
    place = vocabulary.tokens.index("circle")
    np.testing.assert_array_equal(words.table[place], [1, 2, 3, 4, 5])
    image = unwrapped(model.image_encoder)
    assert isinstance(image, ImageEncoder)
    if image.scaling is not None:
        assert np.abs(image.scaling.mean).max() > 0
    if bag is not None:
        # Ids of words were counted, not heads.
        counts = document_frequencies(*words_of(tokenizer, split.captions), len(vocabulary))
        assert np.argmin(bag.rarity[2:]) == np.argmax(counts[2:])
    tokens = tokenizer(tf.constant(split.captions[:3]))
    assert model.encode_texts(tokens).shape == (3, 8)


def test_canonical_correlation_has_no_map_to_set(scenes) -> None:
    recipe = small(*WORDS, "training.start=cca")
    split, store = scenes.split("train"), FeatureStore.find(scenes)
    vocabulary = texts.build_vocabulary(recipe, split.captions)
    model = build.build_model(recipe, len(vocabulary), store.dim)
    with pytest.raises(InvalidArgumentError, match="training.start"):
        start_model(recipe, model, texts.build_tokenizer(recipe, vocabulary), split, store)


def test_trees_take_a_step(scenes) -> None:
    recipe = small("loss.l2=1e-4")
    split, store = (
        texts.read_texts(recipe, scenes.split("train"), parses=ChainParses()),
        FeatureStore.find(scenes),
    )
    vocabulary = texts.build_vocabulary(recipe, split.captions)
    images = build.build_images(recipe, split, store)
    batches = build.build_batches(recipe, split, images, texts.build_tokenizer(recipe, vocabulary))
    model = build.build_model(recipe, len(vocabulary), store.dim)
    assert model.l2 == 1e-4
    model.compile(optimizers.build_optimizer(recipe, 5), build.build_loss(recipe, 5), jit_compile=False)
    before = model.get_weights()
    history = model.fit(batches.dataset().take(2), shuffle=False, verbose=0)
    assert np.isfinite(history.history["loss"][0])
    # Chains have no child on the right, so the word vectors and the columns are what surely moves.
    moved = [(a != b).any() for a, b in zip(model.get_weights(), before, strict=True) if a.ndim > 1]
    assert sum(moved) >= 6


def test_pixels_enter_a_column(scenes) -> None:
    recipe = small("image.backbone=SmallConvNet", "image.size=32", "image.frozen_statistics=false")
    model = build.build_model(recipe, 9, None)
    image, _ = columns(model)
    assert image.first.kernel.shape == (256, 8)
    pixels = np.zeros((2, 32, 32, 3), np.float32)
    assert model.encode_images(pixels).shape == (2, 8)
    again = DualEncoder.from_config(model.get_config())
    again.build({"image": (None, 32, 32, 3), "text": (None, None, 2)})
    again.set_weights(model.get_weights())
    np.testing.assert_allclose(again.encode_images(pixels), model.encode_images(pixels), rtol=1e-6)


def test_runs_of_earlier_versions_still_open() -> None:
    new = {
        "": ("twin", "twin_activate_first"),
        "text": ("slots",),
        "loss": ("l2",),
        "optimizer": ("decay_steps", "momentum", "momentum_start", "momentum_steps"),
    }
    recipe = recipes.get("kiros2014")
    plain = recipe.to_json()
    for part, names in new.items():
        for name in names:
            del (plain[part] if part else plain)[name]
    assert Recipe.from_json(plain) == recipe
