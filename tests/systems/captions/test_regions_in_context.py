"""Regions with the whole image beside them: equation 13 by hand, batches, and a trained run."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from tests.conftest import TINY_CAPTIONS
from tests.systems.captions.test_multimodal_rnn import parts
from tests.tiny import tiny
from vsemb import Run, recipes
from vsemb.systems.captions.captioner import NeuralCaptioner
from vsemb.systems.captions.captioning import CaptionWriter
from vsemb.systems.captions.decoding import SearchOptions
from vsemb.systems.captions.recipe import RegionsInContext
from vsemb.systems.captions.region_captions import caption_regions
from vsemb.systems.captions.region_measure import region_features
from vsemb.systems.captions.snippets import Snippets
from vsemb.systems.regions.region_store import RegionStore

DIM = 3


@pytest.fixture(scope="module")
def recipe():
    return tiny(recipes.get("multimodal-rnn-regions", "context"), *TINY_CAPTIONS)


@pytest.fixture(scope="module")
def context_run(recipe, region_scenes, region_run, trained) -> Run:
    return trained("context-captions", recipe, region_scenes, inputs={"alignment": region_run})


def beside(regions: np.ndarray, chosen: np.ndarray) -> np.ndarray:
    """Features of one region per image, then of its whole image, (n, 2 dim), row by row."""
    return np.array([[*of_image[place], *of_image[0]] for of_image, place in zip(regions, chosen, strict=True)])


def test_the_first_state_is_the_sum_of_two_products(recipe) -> None:
    plain = recipe.with_overrides(["image.standardize=false", "decoder.cell=rnn"])
    model = plain.build(7, {"feature_dim": DIM}, "float32")
    generator = np.random.default_rng(0)
    whole, region = regions = generator.normal(size=(2, DIM)).astype(np.float32)
    # Rows are the whole image, with itself as context, and the region.
    state = model.start({"image": tf.constant(plain.region_inputs(regions))})
    _, state = model.step(state, tf.zeros(2, tf.int32))
    weights = {name: np.asarray(value) for name, value in parts(model).items()}
    of_region, of_whole = weights["W_hi"][:DIM], weights["W_hi"][DIM:]
    start = weights["x"][0] @ weights["W_hx"] + weights["b_h"]
    wanted = np.maximum(start + np.stack([whole, region]) @ of_region + whole @ of_whole, 0)
    np.testing.assert_allclose(state["hidden"], wanted, rtol=1e-5, atol=1e-6)
    # The whole image is a region like the others: one product with the sum of both matrices.
    np.testing.assert_allclose(wanted[0], np.maximum(start + whole @ (of_region + of_whole), 0), rtol=1e-5, atol=1e-6)
    assert wanted.any()


@pytest.mark.parametrize("memory", [1 << 30, 0], ids=["in memory", "from disk"])
def test_a_snippet_has_its_region_and_the_whole_image(region_scenes, memory) -> None:
    store = RegionStore.find(region_scenes)
    part, random = region_scenes.split("train"), np.random.default_rng(3)
    rows, regions = random.integers(len(part.ids), size=20), random.integers(store.count, size=20)
    regions[:2] = 0, store.count - 1
    snippets = Snippets(rows, part.ids[rows], regions, ["a dog"] * 20, 0.5, store.fingerprint, "c0ffee")
    images = RegionsInContext().snippet_images(snippets, store, memory=memory)
    order = random.permutation(20)
    gathered = images.gather(order)
    np.testing.assert_array_equal(gathered, beside(store.rows(part.ids[rows]), regions)[order])
    assert images.spec.shape == gathered.shape[1:] and images.spec.dtype == gathered.dtype


@pytest.mark.slow
def test_captions_of_regions_are_of_the_cached_features(context_run, region_scenes) -> None:
    split, row = region_scenes.split("val"), 3
    regions = context_run.features_of(region_scenes).rows(split.ids[[row]])[0]
    written = caption_regions(context_run, split.keys[row], region_scenes, most=3, beam=3, overlap=1.0)
    captioner = NeuralCaptioner(context_run.model, context_run.vocabulary, SearchOptions(beam=3))
    for caption in written.captions:
        inputs = beside(regions[None], np.array([caption.region]))
        texts, log_probs = captioner(tf.constant(inputs))
        assert caption.text == texts.numpy()[0, 0].decode()
        # The cache holds float16.
        np.testing.assert_allclose(caption.log_prob, log_probs.numpy()[0, 0], rtol=1e-3, atol=1e-3)
    assert written.captions


@pytest.mark.slow
def test_annotated_boxes_have_their_image_beside_them(context_run, region_scenes) -> None:
    part, store = region_scenes.split("val"), context_run.features_of(region_scenes)
    rows, chosen = np.array([0, 0, 2, 2]), np.array([2, 1, 1, 0])
    boxes = store.boxes(part.ids[:3])[rows, chosen]
    features = region_features(context_run, part, rows, boxes, context_run.recipe.region_inputs)
    wanted = beside(store.rows(part.ids[rows]), chosen)
    np.testing.assert_allclose(features, wanted, rtol=2**-9, atol=1e-3)


@pytest.mark.slow
def test_a_whole_image_is_its_own_context(context_run, region_scenes) -> None:
    split = region_scenes.split("val")
    images = context_run.images_of(region_scenes, split)
    whole = context_run.features_of(region_scenes).rows(split.ids[:3])[:, 0]
    gathered = images.gather(np.arange(3))
    np.testing.assert_array_equal(gathered, np.concatenate([whole, whole], axis=1))
    assert images.spec.shape == gathered.shape[1:]
    # A served caption reads the same features from the bytes of the image.
    served, valid = context_run.image_input(tf.constant([split.read_image(0), b"no image"]))
    np.testing.assert_allclose(served[:1], gathered[:1], rtol=2**-9, atol=1e-3)
    assert valid.numpy().tolist() == [True, False]
    writer = CaptionWriter(context_run)
    assert writer.of_bytes(split.read_image(0))[0][0] == writer.of_split_row(region_scenes, split, 0)[0][0]
