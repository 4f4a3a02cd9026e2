"""Re-ranking by likelihood: ranks by hand, the places of the first results, the protocol and the search."""

from __future__ import annotations

import json

import numpy as np
import pytest
import tensorflow as tf

import vsemb
from tests.raising import raises_argument
from vsemb.cli.__main__ import main
from vsemb.errors import DataError
from vsemb.evaluation import retrieval_ranks
from vsemb.runs.measure import evaluate_run
from vsemb.systems.captions.likelihoods import Likelihoods, log_mean
from vsemb.systems.captions.reranking import Candidates, first_candidates, measure_reranking

TEXT = "a red circle above a blue square"


def test_ranks_by_hand() -> None:
    """With weight 0.1, the scores of the rows are 1.0 1.1 0.8, then 0.9 0.9, and no correct candidate in the last."""
    candidates = Candidates(
        rows=np.array([[5, 1, 3], [0, 2, 4], [1, 2, 3]]),
        scores=np.array([[0.9, 0.8, 0.7], [0.6, 0.5, 0.4], [0.3, 0.2, 0.1]]),
        positives=np.array([[False, True, True], [False, True, False], [False, False, False]]),
        ranks=np.array([1, 1, 7]),
    )
    likelihoods = np.array([[1.0, 3.0, 1.0], [3.0, 4.0, 0.0], [9.0, 9.0, 9.0]])
    assert candidates.reranked(likelihoods, 0.0).tolist() == [1, 1, 7]
    assert candidates.reranked(likelihoods, 0.1).tolist() == [0, 1, 7]  # A tie counts against the model.


def test_first_candidates_have_correct_ones_last_among_equals() -> None:
    scores = np.array([[2.0, 3.0, 2.0, 1.0]], np.float32)
    positives = np.array([[True, False, False, False]])
    candidates = first_candidates(lambda queries: scores[queries], lambda queries: positives[queries], np.array([2]), 2)
    assert candidates.rows.tolist() == [[1, 2]]
    assert candidates.scores.tolist() == [[3.0, 2.0]]
    assert not candidates.positives.any()
    assert [side.tolist() for side in candidates.pairs] == [[0, 0], [1, 2]]


def test_all_candidates_without_a_weight_have_the_ranks_of_retrieval() -> None:
    """Whole numbers have ties; more queries than a block."""
    scores = np.random.default_rng(3).integers(0, 6, (130, 9)).astype(np.float32)
    own = np.random.default_rng(4).integers(0, 9, 130)
    positives = own[:, None] == np.arange(9)
    _, expected = retrieval_ranks(np.eye(9, dtype=np.float32), scores, None, np.append(np.arange(9), own[9:]), "dot")
    positives[:9] = np.eye(9, dtype=bool)
    candidates = first_candidates(lambda queries: scores[queries], lambda queries: positives[queries], expected, 99)
    np.testing.assert_array_equal(candidates.reranked(np.zeros((130, 9)), 1.0), expected)


@pytest.fixture(scope="module")
def reranked(tiny_run, caption_run, scenes):
    return measure_reranking(tiny_run, caption_run, scenes, rerank_first=4, tune="test", prior=5)


def test_before_is_the_retrieval_run(reranked, tiny_run, scenes) -> None:
    metrics = evaluate_run(tiny_run, scenes)
    assert reranked.before.image_to_text == metrics.image_to_text
    assert reranked.before.text_to_image == metrics.text_to_image
    assert reranked.chosen_on == "the first 12 images of test"
    assert reranked.gains["recall_sum"].difference == pytest.approx(
        reranked.after.recall_sum - reranked.before.recall_sum
    )


def test_no_weight_changes_nothing(tiny_run, caption_run, scenes) -> None:
    measured = measure_reranking(tiny_run, caption_run, scenes, rerank_first=4, weight=0.0, prior=5)
    assert measured.after == measured.before
    assert measured.chosen_on is None


def test_a_large_weight_ranks_all_by_the_normalized_likelihood(tiny_run, caption_run, scenes) -> None:
    from vsemb.systems.captions.likelihood_ranking import measure_ranking

    every = {"rerank_first": 1000, "weight": 1e9, "prior": 5}
    measured = measure_reranking(tiny_run, caption_run, scenes, **every)
    expected = measure_ranking(caption_run, scenes, prior=5)
    assert measured.after.image_to_text == expected.image_to_text
    assert measured.after.text_to_image == expected.text_to_image


def test_recall_at_the_number_of_results_does_not_change(reranked) -> None:
    measured = reranked.to_json()
    assert measured["first"] == 4
    for direction in ("image_to_text", "text_to_image"):
        assert measured["after"][direction]["R@5"] == measured["before"][direction]["R@5"]


def test_the_weight_is_not_chosen_on_the_measured_split(tiny_run, caption_run, scenes) -> None:
    with raises_argument("tune"):
        measure_reranking(tiny_run, caption_run, scenes, "test", tune="test")
    with raises_argument("prior"):
        measure_reranking(tiny_run, caption_run, scenes, prior=0)


def test_the_protocol_needs_a_run_of_captions(tiny_run) -> None:
    with raises_argument("captioner"):
        vsemb.evaluate(tiny_run, protocol="rerank")
    with pytest.raises(DataError, match="captions"):
        vsemb.evaluate(tiny_run, protocol="rerank", captioner=tiny_run.path)


def test_the_command(tiny_run, caption_run, tmp_path, capsys) -> None:
    file = tmp_path / "reranked.json"
    options = ["--captioner", str(caption_run.path), "--rerank-first", "3", "--tune-images", "6", "--prior", "2"]
    assert main(["evaluate", str(tiny_run.path), "--protocol", "rerank", *options, "--json", str(file)]) == 0
    assert "chosen on the first 6 images of train" in capsys.readouterr().out
    values = json.loads(file.read_text())
    assert set(values["milliseconds"]) == {"image_query", "text_query", "caption"}


def test_a_search_moves_only_its_first_results(tiny_run, caption_run, scenes) -> None:
    found = vsemb.find(tiny_run, TEXT, split="val", k=8)
    options = {"rerank": caption_run.path, "rerank_first": 5, "rerank_weight": 0.5}
    reranked = vsemb.find(tiny_run, TEXT, split="val", k=8, **options)
    assert [each.item for each in reranked[5:]] == [each.item for each in found[5:]]
    assert [each.rank for each in reranked] == list(range(1, 9))
    part, first = scenes.split("val"), found[:5]
    images = caption_run.images_of(scenes, part).gather(np.array([part.keys.index(each.item.key) for each in first]))
    likelihoods = Likelihoods(caption_run).of_all(tf.constant(images), *caption_run.encode([TEXT]))
    scores = [each.score for each in first] + 0.5 * (likelihoods - log_mean(likelihoods))[:, 0]
    order = np.argsort(-scores)
    assert [each.item for each in reranked[:5]] == [first[row].item for row in order]
    np.testing.assert_allclose([each.score for each in reranked[:5]], scores[order], rtol=1e-4)


def test_a_search_for_fewer_results_reads_as_many(tiny_run, caption_run) -> None:
    options = {"rerank": caption_run.path, "rerank_first": 12, "rerank_weight": 10.0}
    every, few = (vsemb.find(tiny_run, TEXT, split="val", k=k, **options) for k in (12, 2))
    assert list(few) == list(every[:2])


def test_searches_that_are_not_reranked(tiny_run, caption_run, scenes) -> None:
    rerank = {"rerank": caption_run.path}
    with raises_argument("rerank"):
        vsemb.find(tiny_run, image=scenes.split("val").keys[0], **rerank)
    with raises_argument("rerank"):
        vsemb.find(tiny_run, TEXT, captions=True, **rerank)
    with raises_argument("rerank"):
        vsemb.find(tiny_run, TEXT, minus=["red"], **rerank)
    with raises_argument("rerank"):
        vsemb.find(tiny_run, TEXT, rerank_first=3)
    with raises_argument("resort"):
        vsemb.find(tiny_run, TEXT, resort=20, **rerank)
    with pytest.raises(DataError, match="captions"):
        vsemb.find(tiny_run, TEXT, rerank=tiny_run.path)


def test_a_captioner_that_cannot_see_the_images_found(tiny_pixel_run, caption_run, scenes, tmp_path) -> None:
    files = tmp_path / "pictures"
    files.mkdir()
    for row in range(3):
        (files / f"{row}.png").write_bytes(scenes.split("val").read_image(row))
    vsemb.index(tiny_pixel_run, images=[files], out=tmp_path / "index")
    with pytest.raises(DataError, match="precomputed features"):
        vsemb.find(tmp_path / "index", TEXT, rerank=caption_run.path)


def test_the_search_command(tiny_run, caption_run, capsys) -> None:
    options = ["--split", "val", "-k", "3", "--rerank", str(caption_run.path), "--rerank-first", "4", "--json", "-"]
    assert main(["search", str(tiny_run.path), TEXT, *options]) == 0
    assert len(json.loads(capsys.readouterr().out)["results"]) == 3


@pytest.mark.slow
def test_a_run_reads_the_images_of_files(tiny_pixel_run, pixel_caption_run, scenes, tmp_path, capsys) -> None:
    files = tmp_path / "pictures"
    files.mkdir()
    for row in range(5):
        (files / f"{row}.png").write_bytes(scenes.split("val").read_image(row))
    vsemb.index(tiny_pixel_run, images=[files], out=tmp_path / "index")
    options = {"rerank": pixel_caption_run.path, "rerank_weight": 5.0}
    found, reranked = (vsemb.find(tmp_path / "index", TEXT, **more) for more in ({}, options))
    assert {each.item.key for each in found} == {each.item.key for each in reranked}
    assert not np.allclose([each.score for each in reranked], [each.score for each in found])
    # A file that is gone is named and comes last, also among those that are read.
    (files / "2.png").unlink()
    capsys.readouterr()
    left = vsemb.find(tmp_path / "index", TEXT, **options)
    assert [each.item.key for each in left if each.problem] == [left[-1].item.key] == [str(files / "2.png")]
    assert [each.rank for each in left] == [1, 2, 3, 4, 5]
    assert "2.png" in capsys.readouterr().err
