"""Ranking by likelihood: ranks by hand, and likelihoods against one pair at a time."""

from __future__ import annotations

import json

import numpy as np
import pytest
import tensorflow as tf

from tests.raising import raises_argument
from vsemb import Run
from vsemb.cli.__main__ import main
from vsemb.evaluation import retrieval_ranks
from vsemb.systems.captions.likelihood_ranking import measure_ranking, score_ranks
from vsemb.systems.captions.likelihoods import Likelihoods


def test_ranks_are_those_of_retrieval() -> None:
    """Whole numbers have ties; images are rows of scores, and captions the unit vectors."""
    generator = np.random.default_rng(3)
    own = np.repeat(np.arange(7), [1, 2, 3, 1, 2, 4, 1])
    scores = generator.integers(0, 6, (7, len(own))).astype(np.float32)
    expected = retrieval_ranks(scores, np.eye(len(own), dtype=np.float32), None, own, "dot")
    for measured, ranks in zip(score_ranks(scores, own), expected, strict=True):
        np.testing.assert_array_equal(measured, ranks)


def test_likelihoods_are_those_of_single_pairs(caption_run, scenes) -> None:
    part = scenes.split("val")
    captions = [part.captions[0], part.captions[7], "a"]
    images = caption_run.images_of(scenes, part).gather(np.arange(9))  # More than a block of images.
    log_probs = Likelihoods(caption_run).of_all(tf.constant(images), *caption_run.tokenizer.encode(captions))
    assert log_probs.shape == (9, 3)
    for column, caption in enumerate(captions):
        text = caption_run.tokenizer(tf.constant([caption]))
        for row in (0, 4, 8):
            pair = {"image": images[row : row + 1], "text": text}
            alone = caption_run.model.log_likelihoods(pair).numpy().sum()
            np.testing.assert_allclose(log_probs[row, column], alone, rtol=1e-4)


def test_a_run_that_was_just_opened_has_its_weights(caption_run, scenes) -> None:
    expected = measure_ranking(caption_run, scenes, first=6)
    assert measure_ranking(Run.open(caption_run.path), scenes, first=6) == expected


def test_common_captions_are_discounted_and_images_are_ranked_as_without(caption_run, scenes) -> None:
    part, train = scenes.split("val"), scenes.split("train")
    metrics = measure_ranking(caption_run, scenes, first=4, prior=3)
    own = part.caption_rows[: part.caption_offsets[4]]
    ids = caption_run.tokenizer.encode(part.captions[: len(own)])
    images = caption_run.images_of(scenes, part).gather(np.arange(4))
    prior = caption_run.images_of(scenes, train).gather(np.array([0, (len(train) - 1) // 2, len(train) - 1]))
    of_images, of_prior = (Likelihoods(caption_run).of_all(tf.constant(rows), *ids) for rows in (images, prior))
    scores = of_images - np.log(np.exp(of_prior).mean(axis=0))
    ranks, of_captions = score_ranks(scores, own)
    np.testing.assert_array_equal(of_captions, score_ranks(of_images, own)[1])
    assert metrics.image_to_text["mean_rank"] == pytest.approx(ranks.mean() + 1)
    assert metrics.text_to_image["mean_rank"] == pytest.approx(of_captions.mean() + 1)
    assert (metrics.images, metrics.texts) == (4, len(own))


def test_numbers_out_of_range(caption_run, scenes) -> None:
    for name, value in (("first", 0), ("first", 1000), ("prior", 0)):
        with raises_argument(name):
            measure_ranking(caption_run, scenes, **{name: value})


def test_all_training_images_where_they_are_few(caption_run, scenes) -> None:
    count = len(scenes.split("train"))
    assert measure_ranking(caption_run, scenes, first=2) == measure_ranking(caption_run, scenes, first=2, prior=count)


def test_the_command(caption_run, tmp_path, capsys) -> None:
    file = tmp_path / "ranking.json"
    options = ["--protocol", "likelihood", "--first", "3", "--prior", "2", "--json", str(file)]
    assert main(["evaluate", str(caption_run.path), *options]) == 0
    assert "3 images" in capsys.readouterr().out
    assert json.loads(file.read_text())["images"] == 3
