"""The recipe of the imgcap report: its tables, its parts, and what may stand in their place."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.conftest import FEATURE_DIM
from tests.raising import raises_argument
from vsemb import Recipe, recipes
from vsemb.data.store import StoredDataset
from vsemb.encoders import (
    BagOfWordsEncoder,
    ImageEncoder,
    RecurrentSentenceEncoder,
    SequenceAndBagEncoder,
)
from vsemb.encoders.text_encoder import TextCorpus
from vsemb.errors import DataError
from vsemb.losses.ranking import All, Ranking
from vsemb.models import DualEncoder
from vsemb.recipes.retrieval import Retrieval, RetrievalJob
from vsemb.similarities import Dot
from vsemb.systems.trees.parse_texts import Trees
from vsemb.systems.trees.rising_momentum import RisingMomentumSGD
from vsemb.systems.trees.tree_lstm import TreeLSTM, TreeLSTMEncoder
from vsemb.systems.trees.tree_tokenizer import TreeTokenizer
from vsemb.systems.trees.trees import Tree
from vsemb.systems.trees.twin_network import MLP, MLPText, ProjectionMLP
from vsemb.training.optimizers import Step

VARIANTS = ["vs", "s", "m1", "m2", "l"]
SMALL = ["text.encoder.encoder.units=6", "text.encoder.encoder.words.dim=5", "embedding_dim=8", "batches.size=6"]
WORDS = ["text.tokenizer=words", "text.encoder.encoder=recurrent"]
INFO = {"feature_dim": FEATURE_DIM}


def small(*overrides: str) -> Retrieval:
    """The recipe `vs` with small sizes, which also hold for another encoder among the overrides."""
    return recipes.get("tree-twin").with_overrides([*SMALL, *overrides])


def build(recipe: Any) -> DualEncoder:
    return recipe.build(9, INFO, "float32")


class ChainParses:
    """Parses in which every word hangs on the one before it."""

    fingerprint = "chain"

    def texts(self, split) -> list[str]:
        return [chain(caption) for caption in split.captions]


def chain(caption: str) -> str:
    words = tuple(caption.split())
    return Tree(words, tuple(range(len(words)))).text


@pytest.fixture
def chained(scenes_path: Path, monkeypatch) -> StoredDataset:
    """The scenes, with chains for parses."""
    dataset = StoredDataset.open(scenes_path)
    monkeypatch.setitem(dataset._annotations, "parses", ChainParses())
    return dataset


def train_two_steps(job: RetrievalJob) -> tuple[list[np.ndarray], DualEncoder]:
    """Trains two steps, and returns the weights before them and the model."""
    recipe = job.recipe
    batches = job.batches()
    model = job.model(recipe, "float32")
    model.compile(recipe.optimizer.build(5, 1), job.loss(5), jit_compile=False)
    before = model.get_weights()
    history = model.fit(batches.dataset().take(2), shuffle=False, verbose=0)
    assert np.isfinite(history.history["loss"][0])
    return before, model


def test_tuned_with_the_text_tower_of_vsepp_is_vsepp() -> None:
    tuned, vsepp = recipes.get("tree-twin", "tuned"), recipes.get("vsepp", "tuned")
    assert (tuned.text.tokenizer.kind, tuned.text.encoder.sequence.kind) == ("trees", "tree-lstm")
    assert (tuned.text.encoder.sequence.units, tuned.text.encoder.sequence.pooling) == (256, "mean+max")
    same = {"name": "vsepp", "variant": "tuned", "paper": vsepp.paper, "text": vsepp.text}
    assert dataclasses.replace(tuned, **same) == vsepp


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
        column, optimizer = recipe.text.encoder, recipe.optimizer
        encoder = column.encoder
        found = (encoder.units, encoder.slots, recipe.embedding_dim, recipe.batches.size, optimizer.learning_rate)
        assert found == row
        assert recipe.text.tokenizer == Trees()
        assert (encoder.kind, encoder.pooling, encoder.words.dim) == ("tree-lstm", "root", 300)
        assert (column.kind, column.activate_first, recipe.image.projection) == ("projection-mlp", True, MLP())
        assert recipe.similarity == Dot()
        assert recipe.loss == Ranking(margin=1.0, negatives=All(), reduction="mean")
        assert (optimizer.kind, optimizer.momentum_start, optimizer.momentum) == ("rising-momentum-sgd", 0.5, 0.95)
        assert optimizer.momentum_steps == 2500
        assert optimizer.schedule == Step(factor=0.95, every=2500.0, unit="steps")
        assert recipe.image.standardize and not recipe.image.augment and encoder.words.vectors is None
        assert (recipe.training.epochs, recipe.training.patience) == (30, 5)


def words_of(tokenizer: TreeTokenizer, parsed: list[str]) -> tuple[np.ndarray, np.ndarray]:
    tokens, offsets = tokenizer.encode(parsed)
    return tokens[:, 0], offsets


def columns(model: DualEncoder) -> tuple[ProjectionMLP, ProjectionMLP]:
    image, text = model.image_encoder, model.text_encoder
    assert isinstance(image, ProjectionMLP) and isinstance(text, ProjectionMLP)
    return image, text


def test_variants_build_as_they_are() -> None:
    for variant in ("vs", "s"):
        recipe = recipes.get("tree-twin", variant)
        assert Recipe.from_json(json.loads(json.dumps(recipe.to_json()))) == recipe
        image, text = columns(recipe.build(9, {"feature_dim": 4096}, "float32"))
        inner = recipe.text.encoder.encoder
        units, slots, dim = inner.units, inner.slots, recipe.embedding_dim
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
        optimizer = recipe.optimizer.build(100, 30)
        assert isinstance(optimizer, RisingMomentumSGD)
        rates = [float(optimizer._learning_rate(step)) for step in (0, 2499, 2500, 5000)]
        rate = recipe.optimizer.learning_rate
        np.testing.assert_allclose(rates, [rate, rate, 0.95 * rate, 0.95**2 * rate], rtol=1e-6)
        keras.backend.clear_session()


CHILD_SUM = ["text.encoder.encoder=child-sum-tree-lstm"]
NO_COLUMN = ["text.encoder=tree-lstm", "text.encoder.words.dim=5", "text.encoder.units=6"]


@pytest.mark.parametrize(
    ("overrides", "children", "pooling", "size"),
    [
        ([], "slots", "root", 6),
        (CHILD_SUM, "sum", "root", 6),
        (["text.encoder.encoder.pooling=mean"], "slots", "mean", 6),
        (["text.encoder.encoder.pooling=mean+max", "text.encoder.encoder.slots=1"], "slots", "mean+max", 12),
        (NO_COLUMN, "slots", "root", 8),
    ],
    ids=["root", "child-sum", "mean", "mean+max", "no-twin"],
)
def test_tree_encoders(overrides: list[str], children: str, pooling: str, size: int) -> None:
    recipe = recipes.get("tree-twin").with_overrides(
        [*(each for each in SMALL if overrides is not NO_COLUMN or not each.startswith("text")), *overrides]
    )
    model = build(recipe)
    encoder = model.text_encoder
    assert isinstance(encoder, ProjectionMLP) == (overrides is not NO_COLUMN)
    encoder = getattr(encoder, "encoder", encoder)
    assert isinstance(encoder, TreeLSTMEncoder)
    assert (encoder.children, encoder.pooling, encoder.dim) == (children, pooling, size)
    tokens = np.array([[[2, 2], [3, 0], [4, 2]], [[5, 0], [0, 0], [0, 0]]], np.int32)
    batch = {"image": np.ones((2, FEATURE_DIM), np.float32), "text": tokens, "image_id": np.arange(2)}
    outputs = model(batch)
    assert outputs["image"].shape == outputs["text"].shape == (2, 8)
    assert np.ptp(np.asarray(outputs["text"]), axis=0).max() > 0


@pytest.mark.slow
def test_words_in_their_order_in_the_same_recipe(scenes) -> None:
    recipe = small(*WORDS)
    assert dataclasses.replace(recipe, text=small().text) == small()
    before, model = train_two_steps(RetrievalJob(recipe, scenes))
    encoder = columns(model)[1].encoder
    assert isinstance(encoder, RecurrentSentenceEncoder)
    assert encoder.compute_output_shape((3, 7)) == (3, 6)
    assert all((a != b).any() for a, b in zip(model.get_weights(), before, strict=True) if a.ndim > 1)


@pytest.mark.parametrize(
    ("encoder", "overrides", "size"),
    [
        ("recurrent", ["units=6", "directions=concat"], 12),
        ("recurrent", ["units=6", "directions=average", "pooling=mean+max"], 12),
        ("linear", ["words.dim=5"], 5),
        ("linear", ["words.dim=5", "pooling=mean", "projection=true"], 5),
    ],
    ids=["concat", "mean+max", "sum", "average"],
)
def test_sentences_enter_the_column_as_large_as_they_are(encoder: str, overrides: list[str], size: int) -> None:
    inner = [f"text.encoder.encoder={encoder}", *(f"text.encoder.encoder.{each}" for each in overrides)]
    recipe = recipes.get("tree-twin").with_overrides(["embedding_dim=8", "text.tokenizer=words", *inner])
    assert columns(build(recipe))[1].first.kernel.shape == (size, 8)


BAG = [
    "text.encoder.encoder=sequence-and-bag",
    "text.encoder.encoder.sequence=tree-lstm",
    "text.encoder.encoder.sequence.units=6",
    "text.encoder.encoder.sequence.words.dim=5",
]


def with_bag(*overrides: str) -> Retrieval:
    return recipes.get("tree-twin").with_overrides(["embedding_dim=8", "batches.size=6", *BAG, *overrides])


def test_a_bag_beside_the_tree() -> None:
    model = build(with_bag())
    encoder = columns(model)[1].encoder
    assert isinstance(encoder, SequenceAndBagEncoder)
    assert isinstance(encoder.sequence, TreeLSTMEncoder) and isinstance(encoder.bag, BagOfWordsEncoder)
    tokens = tf.constant([[[2, 2], [3, 0]], [[3, 0], [0, 0]]], tf.int32)
    assert model.encode_texts(tokens).shape == (2, 8)


@pytest.mark.parametrize(
    ("overrides", "field"),
    [
        (["image.projection=none"], "embedding_dim"),
        (["image.projection.use_bias=false"], "recipe field"),
        (["image.projection.init_scale=0.1"], "recipe field"),
        (["text.encoder.encoder=recurrent"], "text.encoder"),
        (["text.tokenizer=words"], "text.encoder"),
        (["text.encoder=tree-lstm", "text.encoder.activate_first=false"], "recipe field"),
        (["text.encoder.encoder.pooling=first"], "pooling"),
        (["text.encoder.encoder.pooling=last"], "pooling"),
        (["text.encoder.encoder.slots=0"], "slots"),
        (["text.encoder.encoder.slots=17"], "slots"),
        ([*CHILD_SUM, "text.encoder.encoder.slots=3"], "recipe field"),
    ],
)
def test_what_does_not_go_together(overrides: list[str], field: str) -> None:
    with raises_argument(field):
        recipes.get("tree-twin").with_overrides(overrides)


def test_texts_are_parses(chained) -> None:
    split = chained.split("train")
    read = Trees().select(split)
    assert read.captions == [chain(caption) for caption in split.captions]
    np.testing.assert_array_equal(read.caption_rows, split.caption_rows)
    job = RetrievalJob(small("batches.captions_per_image=1"), chained)
    starts = np.unique(split.caption_rows, return_index=True)[1]
    assert job.train.captions == [chain(split.captions[place]) for place in starts]
    np.testing.assert_array_equal(job.train.caption_rows, np.arange(len(split)))
    # Only in training.
    assert len(job.val.captions) == len(chained.split("val").captions)


def test_without_parses_nothing_is_read(scenes) -> None:
    for read in (lambda: Trees().select(scenes.split("train")), lambda: Trees().describe(scenes)):
        with pytest.raises(DataError, match="vsemb annotate"):
            read()
    with raises_argument("text.tokenizer"):
        Trees().learn(["a dog"])


@pytest.mark.parametrize("bag", [False, True], ids=["plain", "bag"])
def test_the_start_sees_through_the_columns(bag: bool, chained, tmp_path) -> None:
    vectors = tmp_path / "vectors.txt"
    vectors.write_text("circle 1 2 3 4 5\nsquare 5 4 3 2 1\n")
    field = f"words.vectors={vectors}"
    recipe = (
        with_bag(f"text.encoder.encoder.sequence.{field}")
        if bag
        else small(f"text.encoder.encoder.{field}", "image.standardize=false")
    )
    job = RetrievalJob(recipe, chained)
    tokenizer, vocabulary = job.tokenizer, job.vocabulary
    assert isinstance(tokenizer, TreeTokenizer) and recipe.text.tokenizer.token_shape == (2,)
    model = job.model(recipe, "float32")
    image, text = columns(model)
    encoder = text.encoder
    place = vocabulary.tokens.index("circle")
    np.testing.assert_array_equal(encoder.words.table[place], [1, 2, 3, 4, 5])
    assert isinstance(image.encoder, ImageEncoder)
    assert (image.encoder.scaling is not None) == bag
    if bag:
        assert np.abs(image.encoder.scaling.mean).max() > 0
        # Ids of words were counted, not heads.
        counts = TextCorpus(vocabulary, *words_of(tokenizer, job.train.captions), True, 0).document_frequencies
        assert np.argmin(encoder.bag.rarity[2:]) == np.argmax(counts[2:])
    tokens = tokenizer(tf.constant(job.train.captions[:3]))
    assert model.encode_texts(tokens).shape == (3, 8)


def test_canonical_correlation_has_no_map_to_set() -> None:
    with raises_argument("initialization"):
        small(*WORDS, "initialization=cca")


@pytest.mark.slow
def test_trees_take_a_step(chained) -> None:
    before, model = train_two_steps(RetrievalJob(small("l2=1e-4"), chained))
    assert model.l2 == 1e-4
    # Chains have no child on the right, so the word vectors and the columns are what surely moves.
    moved = [(a != b).any() for a, b in zip(model.get_weights(), before, strict=True) if a.ndim > 1]
    assert sum(moved) >= 6


def test_pixels_enter_a_column() -> None:
    pixels = ["image=pixels", "image.size=32", "image.frozen_statistics=false", "image.projection=mlp"]
    model = build(small(*pixels))
    column = model.image_encoder.head
    assert isinstance(column, ProjectionMLP) and isinstance(model.text_encoder, ProjectionMLP)
    assert column.first.kernel.shape == (256, 8)
    images = np.zeros((2, 32, 32, 3), np.float32)
    assert model.encode_images(images).shape == (2, 8)
    again = DualEncoder.from_config(model.get_config())
    again.build({"image": (None, 32, 32, 3), "text": (None, None, 2)})
    again.set_weights(model.get_weights())
    np.testing.assert_allclose(again.encode_images(images), model.encode_images(images), rtol=1e-6)


def test_a_column_of_its_own_defaults() -> None:
    recipe = recipes.get("tree-twin").with_overrides(["text.encoder=projection-mlp", "text.encoder.encoder=tree-lstm"])
    assert recipe.text.encoder == MLPText(encoder=TreeLSTM())
