"""Measuring runs by both protocols of retrieval, and on pairs of captions by hand."""

from __future__ import annotations

import itertools
import shutil

import numpy as np
import pytest

from tests.forgetful import forgetful
from tests.raising import raises_argument
from vsemb import similarities
from vsemb.data import tokens
from vsemb.data.store import StoredDataset
from vsemb.errors import DataError
from vsemb.evaluation import Embedder, evaluate_retrieval
from vsemb.evaluation.retrieval import rank_metrics, retrieval_ranks
from vsemb.runs import measure as module
from vsemb.runs.measure import LengthAnalysis, analyse_lengths, embedded, evaluate_run, length_pairs


def test_pairs_are_the_first_images_with_their_first_captions_embedded_once(tiny_run, scenes, monkeypatch) -> None:
    calls = []
    for name in ("images", "texts"):
        real = getattr(Embedder, name)

        def counted(self, *args, real=real, name=name, **kwargs):
            calls.append(name)
            return real(self, *args, **kwargs)

        monkeypatch.setattr(Embedder, name, counted)
    metrics = evaluate_run(tiny_run, scenes, "test", recalls=(1, 5, 10, 20, 50), pairs=7)
    assert calls == ["images", "texts"]
    assert metrics.pairs is not None and (metrics.pairs.images, metrics.pairs.texts) == (7, 7)
    # By hand: the split's entries are in the order of the index, captions in the order of an entry.
    part = scenes.split("test")
    embedder = Embedder(tiny_run.model)
    images = embedder.images(tiny_run.images_of(scenes, part), 7)
    captions = [part.captions_of(row)[0] for row in range(7)]
    texts = embedder.texts(*tiny_run.encode(captions))
    ids = part.ids[:7]
    expected = evaluate_retrieval(images, texts, ids, ids, tiny_run.model.similarity)
    for side in ("image_to_text", "text_to_image"):
        found, by_hand = getattr(metrics.pairs, side), getattr(expected, side)
        # Other batches may round otherwise; ranks among seven do not notice.
        assert {name: found[name] for name in by_hand} == pytest.approx(by_hand, rel=1e-9)
        assert found["R@20"] == found["R@50"] == 100


def test_asking_for_pairs_changes_nothing_else(tiny_run, scenes) -> None:
    alone = evaluate_run(tiny_run, scenes, "val", folds=3, bootstrap=20)
    beside = evaluate_run(tiny_run, scenes, "val", folds=3, bootstrap=20, pairs=12)
    written = beside.to_json()
    whole = {"folds", "unknown", "with_known_word", "all_words_known"}
    assert set(written.pop("pairs")) == set(written) - whole == set(alone.to_json()) - whole
    assert written == alone.to_json()


def test_queries_with_unknown_words_are_also_left_out(tiny_run, scenes, tmp_path) -> None:
    part = scenes.split("val")
    run = forgetful(tiny_run, {*part.captions[0].lower().split()} - {"a", "and"}, tmp_path / "run")
    metrics = evaluate_run(run, scenes, "val", bootstrap=5)
    shares = []
    for caption in part.captions:
        ids = run.tokenizer.encode([caption])[0]
        shares.append(np.mean(ids > 1))
    unknown = metrics.unknown
    assert unknown is not None and (unknown.texts, unknown.unit) == (60, "words")
    assert unknown.texts_without_known == shares.count(0.0) > 0
    assert unknown.texts_with_unknown == len(shares) - shares.count(1.0) > 0
    images, texts, rows = embedded(run, scenes, "val")
    of_images, of_texts = retrieval_ranks(images, texts, part.ids, part.ids[rows], run.model.similarity)
    chosen = np.array(shares) > 0
    left = metrics.with_known_word
    assert left is not None and left.texts == chosen.sum() and left.images == len({*rows[chosen]})
    # All images and texts remain candidates.
    assert left.text_to_image == rank_metrics(of_texts[chosen])
    assert left.image_to_text == rank_metrics(of_images[np.unique(rows[chosen])])
    assert left.intervals_95 is not None and np.isfinite(left.intervals_95["recall_sum"]).all()
    written = metrics.to_json()
    assert written["unknown"]["texts_without_known"] == unknown.texts_without_known
    assert written["with_known_word"]["texts"] == left.texts


def test_nothing_is_left_out_where_all_words_are_known(tiny_run, scenes) -> None:
    metrics = evaluate_run(tiny_run, scenes, "train")
    assert metrics.unknown is not None and metrics.unknown.unknown_tokens == 0 and metrics.notes == []
    assert metrics.with_known_word is None and metrics.all_words_known is None


def test_kept_token_ids_are_used(tiny_run, scenes, tmp_path, monkeypatch) -> None:
    data = StoredDataset.open(shutil.copytree(scenes.path, tmp_path / "data"))
    expected = evaluate_run(tiny_run, data, "val")
    assert not (data.path / "tokens").exists()
    monkeypatch.setattr(tokens, "_MANY", 3)
    assert evaluate_run(tiny_run, data, "val") == expected
    monkeypatch.setattr(tokens, "_write", None)
    assert evaluate_run(tiny_run, data, "val") == expected


# Two images, a and b, with a long and a short caption each. Violations E(image, caption):
#
#              a, long   a, short  b, long   b, short
#              (3, 1)    (1, 0)    (.5, 3)   (0, 1)
#   a (3, 1)      0         0      2² = 4       0
#   b (.5, 3)  2.5² = 6.25 .5² = .25  0         0
#
# Each caption finds its image first but for b's short one, which is above both: a tie, rank 2.
# Captions by the short ones, E(candidate, query): for (1, 0), the long one of a has 0, (.5, 3) has .25 and
# (0, 1) has 1: rank 1. For (0, 1), both long ones have 0: a tie, rank 2. With the two sides exchanged,
# (1, 0) would give its long caption 2² + 1 = 5 and the (0, 1) 1: rank 2.
IMAGES = np.array([[3, 1], [0.5, 3]], np.float32)
TEXTS = np.array([[3, 1], [1, 0], [0.5, 3], [0, 1]], np.float32)
IDS, TEXT_IDS, PAIRS = np.array([7, 4]), np.array([7, 7, 4, 4]), np.array([[1, 0], [3, 2]])


@pytest.mark.parametrize("block", [1, 100])
def test_order_by_hand(monkeypatch, block):
    monkeypatch.setattr(module, "_BLOCK", block)
    found = analyse_lengths(IMAGES, TEXTS, IDS, TEXT_IDS, PAIRS, similarities.get("order"))
    assert found.image_ranks.tolist() == [1, 1, 1, 2]
    assert found.longer_ranks.tolist() == [1, 2]
    assert found.to_json() == {
        "image_all": 1.25,
        "image_pairs": 1.25,
        "image_shorter": 1.5,
        "image_longer": 1.0,
        "longer_by_shorter": 1.5,
    }


def test_dot_by_hand():
    # Image a scores 10, 3, 4.5, 1 and image b 4.5, .5, 9.25, 3: all ranks are 1. By (1, 0), the captions
    # score 3, -, .5, 0, and by (0, 1) they score 1, 0, 3, -.
    found = analyse_lengths(IMAGES, TEXTS, IDS, TEXT_IDS, PAIRS, similarities.get("dot"))
    assert found.image_ranks.tolist() == [1, 1, 1, 1] and found.longer_ranks.tolist() == [1, 1]
    # And the other way round: by (3, 1) they score -, 3, 4.5, 1, so the short one is second, and by (.5, 3)
    # they score 4.5, .5, -, 3, so it is second too.
    found = analyse_lengths(IMAGES, TEXTS, IDS, TEXT_IDS, PAIRS[:, ::-1], similarities.get("dot"))
    assert found.longer_ranks.tolist() == [2, 2]


def test_a_caption_of_several_pairs_counts_once():
    analysis = LengthAnalysis(np.array([[0, 2], [1, 2]]), np.array([1, 3, 8, 100]), np.array([4, 6]))
    means = analysis.to_json()
    assert means["image_pairs"] == 4 and means["image_longer"] == 8 and means["image_shorter"] == 2
    assert means["image_all"] == 28 and means["longer_by_shorter"] == 5


def test_a_constant_model_is_worst():
    ones = np.ones((4, 2), np.float32)
    found = analyse_lengths(ones[:2], ones, IDS, TEXT_IDS, PAIRS, similarities.get("order"))
    assert found.image_ranks.tolist() == [2] * 4 and found.longer_ranks.tolist() == [3, 3]


@pytest.mark.parametrize("seed", range(3))
def test_pairs_equal_a_full_sort(seed):
    generator = np.random.default_rng(seed)
    ids = np.repeat(generator.permutation(50)[:9], generator.integers(1, 6, 9))
    words = generator.integers(2, 7, len(ids))
    everything = [
        (words[i] - words[j], i, j)
        for i, j in itertools.combinations(range(len(ids)), 2)
        if ids[i] == ids[j] and words[i] != words[j]
    ]
    everything.sort(key=lambda pair: (-abs(pair[0]), pair[1], pair[2]))
    wanted = [[j, i] if more > 0 else [i, j] for more, i, j in everything]
    assert length_pairs(words, ids, 5).tolist() == wanted[:5]
    assert length_pairs(words, ids, 10**6).tolist() == wanted


def test_what_is_refused():
    with raises_argument("pairs"):
        length_pairs(np.array([1, 2]), np.array([3, 3]), 0)
    for words, ids in (([4, 4], [1, 1]), ([4, 5], [1, 2])):
        with pytest.raises(DataError, match="different lengths"):
            length_pairs(np.array(words), np.array(ids))
    with pytest.raises(DataError, match="NaN"):
        analyse_lengths(IMAGES * np.nan, TEXTS, IDS, TEXT_IDS, PAIRS, similarities.get("order"))
