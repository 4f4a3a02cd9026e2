"""Edges of dependency trees as fragments: by hand, padding, and a run of `dvsa` over them."""

from __future__ import annotations

import shutil
from dataclasses import replace

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.contract import SAME, check_layer, check_padding
from tests.oracles import TOLERANCE
from tests.raising import raises_argument
from tests.systems.trees.test_sdt_rnn import DET, IDS, NSUBJ, ROOT
from tests.tiny import tiny
from vsemb import recipes
from vsemb.data.store import StoredDataset
from vsemb.encoders import WordEmbedding
from vsemb.errors import DataError
from vsemb.runs.measure import evaluate_run
from vsemb.runs.train import train
from vsemb.systems.trees.dependency_edges import DependencyEdgeEncoder
from vsemb.systems.trees.parses import write_parses
from vsemb.systems.trees.relations import RELATIONS
from vsemb.systems.trees.trees import Tree

OVERRIDES = ("text.tokenizer=labelled-trees", "text.encoder=dependency-edges", "text.encoder.words.dim=16")


def make(dtype: str = "float32", **options) -> DependencyEdgeEncoder:
    words = WordEmbedding(6, 3, dtype=dtype, init_scale=0.5)
    return DependencyEdgeEncoder(words, **{"dim": 5, **options}, dtype=dtype)


def test_by_hand() -> None:
    # Words of one entry: the 1, dog 2, runs 3. W_det = [1, -1], W_nsubj = [2, 1], W_root = [7, 4]; b = 0, -3 and 1.
    # the <- dog: 1 * 2 - 1 * 1 = 1; dog <- runs: 2 * 3 + 1 * 2 - 3 = 5; runs <- nothing: 7 * 0 + 4 * 3 + 1 = 13.
    words = WordEmbedding(5, 1)
    words.set_vectors(np.array([[9.0], [9.0], [1.0], [2.0], [3.0]]))
    encoder = DependencyEdgeEncoder(words, 1)
    encoder.build((None, None, 3))
    kernels, biases = np.full((len(RELATIONS), 2, 1), 99.0), np.full((len(RELATIONS), 1), 99.0)
    for relation, weights, bias in ((DET, [1, -1], 0), (NSUBJ, [2, 1], -3), (ROOT, [7, 4], 1)):
        kernels[relation, :, 0], biases[relation] = weights, bias
    encoder.kernels.assign(kernels)
    encoder.biases.assign(biases)
    np.testing.assert_allclose(encoder(IDS[:1])[0, :, 0], [1, 5, 13, 0], **TOLERANCE)
    # dog <- the has a negative sum, -1 * 2 + 1 * 1, and the ReLU gives 0.
    turned = np.array([[[2, 0, ROOT], [3, 1, DET]]])
    np.testing.assert_allclose(encoder(turned)[0, :, 0], [5, 0], **TOLERANCE)


@pytest.mark.parametrize("options", [{}, {"dim": None, "dropout": 0.3, "init_scale": 0.1}], ids=["defaults", "options"])
def test_contract(options, tmp_path) -> None:
    keras.utils.set_random_seed(0)
    edges = check_layer(lambda dtype="float32": make(dtype, **options), [IDS], tmp_path, sequence=True)
    assert edges.shape == (3, 4, options.get("dim", 5) or 3)


def test_padding_changes_nothing() -> None:
    encoder = make()
    edges = encoder(IDS).numpy()
    assert not edges[IDS[..., 0] == 0].any() and (edges[IDS[..., 0] != 0] > 0).any(-1).all()
    wider = encoder(np.pad(IDS, [(0, 0), (0, 2), (0, 0)])).numpy()
    np.testing.assert_allclose(wider[:, :4], edges, **SAME)
    np.testing.assert_allclose(encoder(IDS[1:2, :1])[0], edges[1, :1], **SAME)
    assert encoder(IDS[:0]).shape == (0, 4, 5)


def test_an_edge_reads_its_two_words_and_its_relation_only() -> None:
    encoder = make()
    edges = encoder(IDS[:1]).numpy()[0]
    for place, changes, same in ((0, [5, 2, DET], [1, 2]), (1, [5, 3, NSUBJ], [2]), (2, [4, 0, 0], [0, 1])):
        ids = IDS[:1].copy()
        ids[0, place] = changes
        other = encoder(ids).numpy()[0]
        equal = [number for number in range(3) if np.allclose(other[number], edges[number])]
        assert equal == same


def test_where_weights_start() -> None:
    for scale, limit in ((None, np.sqrt(6 / (6 + 5))), (0.02, 0.02)):
        encoder = make(init_scale=scale)
        encoder.build((None, None, 3))
        assert 0.9 * limit < np.abs(encoder.kernels.numpy()).max() <= limit
        assert not encoder.biases.numpy().any()


@pytest.mark.parametrize("more", [(), ("similarity=sum-sim", "loss=ranking-fragments")], ids=["max-sim", "DeFrag"])
def test_a_step_of_dvsa_over_edges(more: tuple[str, ...]) -> None:
    recipe, generator = tiny(recipes.get("dvsa", "adam"), *OVERRIDES, *more), np.random.default_rng(0)
    keras.utils.set_random_seed(1)
    model = recipe.build(10, {"feature_dim": 6}, "float32")
    model.compile(recipe.optimizer.build(10, 15), loss=recipe.loss.build(10), run_eagerly=True)
    images = generator.normal(size=(3, 3, 6)).astype(np.float32)
    batch = {"image": images, "text": IDS, "image_id": np.arange(3)}
    before = model.text_encoder.kernels.numpy()
    (loss,) = model.fit(tf.data.Dataset.from_tensors(batch).repeat(2), verbose=0).history["loss"]
    changed = (model.text_encoder.kernels.numpy() != before).any((1, 2))
    assert np.isfinite(loss) and set(np.flatnonzero(changed)) == {0, DET, NSUBJ, ROOT}


def labelled(dataset: StoredDataset) -> dict[str, list[Tree]]:
    """Returns trees in which each word hangs on the next."""
    trees = {}
    for name in dataset.splits:
        trees[name] = []
        for caption in dataset.split(name).captions:
            words = caption.split()
            heads = (*range(2, len(words) + 1), 0)
            relations = (*["nmod:poss"] * (len(words) - 1), "ROOT")
            trees[name].append(Tree(tuple(words), heads, relations=relations))
    return trees


@pytest.mark.slow
def test_dvsa_trains_on_edges(region_scenes, tmp_path) -> None:
    dataset = StoredDataset.open(shutil.copytree(region_scenes.path, tmp_path / "data"))
    trees = labelled(dataset)
    parses = write_parses(dataset, trees)
    recipe = tiny(recipes.get("dvsa", "adam"), "training.epochs=1", *OVERRIDES)
    run = train(recipe, dataset, tmp_path / "run")
    assert run.multi_vector and run.info["status"] == "finished"
    assert run.info["best_recall_sum"] == pytest.approx(evaluate_run(run, dataset).recall_sum)
    texts, _ = run.texts_of(dataset.split("val"))
    assert texts == parses.labelled_texts(dataset.split("val"))
    ids = run.tokenizer(texts[:1]).numpy()
    assert set(ids[0, :-1, 2]) == {RELATIONS.index("nmod")} and ids[0, -1, 2] == ROOT
    # A single word needs no parser.
    assert run.reader(["red"]) == ["red\t0\troot"]
    # Trees of the dataset without relations are refused before the training.
    bare = {name: [replace(tree, relations=()) for tree in of_split] for name, of_split in trees.items()}
    write_parses(dataset, bare, overwrite=True)
    with pytest.raises(DataError, match="relation"):
        train(recipe, dataset, tmp_path / "other")


def test_tokens_without_relations_are_refused() -> None:
    with raises_argument("text.encoder"):
        recipes.get("dvsa", "adam").with_overrides(["text.tokenizer=trees", "text.encoder=dependency-edges"])
    with raises_argument("text.encoder"):
        recipes.get("dvsa", "adam").with_overrides(["text.encoder=dependency-edges"])


def test_padding_of_one_row() -> None:
    encoder = keras.Sequential([make(), keras.layers.GlobalMaxPooling1D()])
    check_padding(encoder, IDS)
