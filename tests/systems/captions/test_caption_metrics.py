"""Caption metrics: oracles by hand, what captions cannot change, and what goes wrong."""

from __future__ import annotations

import math
import sys

import numpy as np
import pytest

from tests.oracles import TOLERANCE, oracle
from tests.raising import raises_argument
from vsemb.errors import DataError, MissingExtraError
from vsemb.systems.captions import meteor
from vsemb.systems.captions.caption_metrics import cider, evaluate_captions
from vsemb.systems.captions.training_captions import TrainingCaptions

pytest.importorskip("pycocoevalcap", reason="the extra `captions` is not installed")

CASE = oracle("caption_metrics")
HYPOTHESES, REFERENCES = CASE.inputs["hypotheses"], CASE.inputs["references"]


def test_oracle() -> None:
    metrics = evaluate_captions(HYPOTHESES, REFERENCES, meteor=False)
    expected = CASE.expected
    np.testing.assert_allclose(metrics.bleu, 100 * np.array(expected["bleu"]), **TOLERANCE)
    np.testing.assert_allclose(metrics.rouge_l, 100 * expected["rouge_l"], **TOLERANCE)
    np.testing.assert_allclose(metrics.per_image["rouge_l"], 100 * np.array(expected["rouge_l_each"]), **TOLERANCE)
    np.testing.assert_allclose(metrics.cider, 100 * expected["cider_d"], **TOLERANCE)
    np.testing.assert_allclose(metrics.per_image["cider"], 100 * np.array(expected["cider_d_each"]), **TOLERANCE)
    corpus, each = cider(HYPOTHESES, REFERENCES)
    np.testing.assert_allclose(corpus, expected["cider_d"], **TOLERANCE)
    np.testing.assert_allclose(each, expected["cider_d_each"], **TOLERANCE)
    assert metrics.meteor is None and "meteor" not in metrics.per_image and metrics.notes == ()
    assert (metrics.images, metrics.vocabulary, metrics.words) == (3, 14, 6.0)


def test_oracle_of_the_brevity_penalty() -> None:
    case = oracle("bleu_brevity_penalty")
    metrics = evaluate_captions(case.inputs["hypotheses"], case.inputs["references"], meteor=False)
    np.testing.assert_allclose(metrics.bleu, 100 * np.array(case.expected["bleu"]), **TOLERANCE)


def test_oracle_of_one_image_has_a_note() -> None:
    case = oracle("cider_single_image_is_zero")
    metrics = evaluate_captions(case.inputs["hypotheses"], case.inputs["references"], meteor=False)
    assert metrics.cider == case.expected["cider_d"]
    assert len(metrics.notes) == 1 and "one image" in metrics.notes[0]


def slow_cider(candidates: list[str], references: list[list[str]]) -> list[float]:
    """CIDEr-D as its paper and code define it, an n-gram at a time."""

    def grams(text: str, order: int) -> dict[tuple[str, ...], int]:
        words = text.split()
        counts: dict[tuple[str, ...], int] = {}
        for start in range(len(words) - order + 1):
            gram = tuple(words[start : start + order])
            counts[gram] = counts.get(gram, 0) + 1
        return counts

    def vector(text: str, order: int) -> dict[tuple[str, ...], float]:
        weighted = {}
        for gram, count in grams(text, order).items():
            having = sum(any(gram in grams(text, order) for text in texts) for texts in references)
            weighted[gram] = count * (math.log(len(references)) - math.log(max(1, having)))
        return weighted

    scores = []
    for candidate, texts in zip(candidates, references, strict=True):
        total = 0.0
        for text in texts:
            # The code compares numbers of bigrams, which is that of words less one.
            apart = max(len(candidate.split()) - 1, 0) - max(len(text.split()) - 1, 0)
            for order in range(1, 5):
                one, other = vector(candidate, order), vector(text, order)
                norms = math.hypot(*one.values()) * math.hypot(*other.values())
                dot = sum(min(one[gram], other[gram]) * other[gram] for gram in one if gram in other)
                total += (dot / norms if norms else 0.0) * math.exp(-(apart**2) / 72) / 4
        scores.append(10 * total / len(texts))
    return scores


def test_cider_equals_a_slow_reference() -> None:
    generator = np.random.default_rng(0)
    words = np.array(["a", "dog", "cat", "runs", "on", "grass", "red"])
    drawn = [" ".join(generator.choice(words, generator.integers(1, 9))) for _ in range(24)]
    candidates, references = drawn[:6], [drawn[6 + row * 3 : 9 + row * 3] for row in range(6)]
    # Float64 both, summed in another order.
    np.testing.assert_allclose(
        cider(candidates, references)[1], slow_cider(candidates, references), rtol=1e-9, atol=1e-9
    )


def test_order_of_images_and_case_change_nothing() -> None:
    metrics = evaluate_captions(HYPOTHESES, REFERENCES, meteor=False)
    turned = evaluate_captions(
        [text.upper() + " ." for text in HYPOTHESES[::-1]], [texts[::-1] for texts in REFERENCES[::-1]],
        meteor=False,
    )  # fmt: skip
    np.testing.assert_allclose(turned.bleu, metrics.bleu, rtol=1e-12)
    for name, values in metrics.per_image.items():
        np.testing.assert_allclose(turned.per_image[name], values[::-1], rtol=1e-12)


def test_captions_without_words_score_nothing() -> None:
    metrics = evaluate_captions(["", " . ", "a dog"], [["a dog"], ["a cat"], ["a dog", ""]], meteor=False)
    assert metrics.per_image["rouge_l"][:2].tolist() == metrics.per_image["cider"][:2].tolist() == [0, 0]
    assert metrics.per_image["rouge_l"][2] == pytest.approx(100)
    empty = evaluate_captions(["", ""], [["a dog"], ["a cat"]], meteor=False)
    assert empty.bleu == pytest.approx((0, 0, 0, 0), abs=1e-6) and empty.cider == 0 and empty.vocabulary == 0
    assert cider(["", "a"], [["."], ["!"]])[0] == 0


def test_nothing_is_printed(capfd) -> None:
    evaluate_captions(HYPOTHESES, REFERENCES, meteor=False)
    captured = capfd.readouterr()
    assert captured.out == "" and captured.err == ""


def test_novelty_and_vocabulary_stand_in_json() -> None:
    train = TrainingCaptions(["A dog runs on the grass .", "a man"])
    metrics = evaluate_captions(HYPOTHESES, REFERENCES, train=train, meteor=False)
    written = metrics.to_json()
    assert written["novel"] == pytest.approx(200 / 3) and written["train_vocabulary"] == 7
    assert list(written)[1:8] == ["BLEU-1", "BLEU-2", "BLEU-3", "BLEU-4", "METEOR", "ROUGE-L", "CIDEr"]
    assert all(isinstance(value, int | float | list | None) for value in written.values())


@pytest.mark.parametrize(
    ("candidates", "references", "name"),
    [
        ([], [], "candidates"),
        ("a dog", [["a dog"]], "candidates"),
        (["a dog"], [], "references"),
        (["a dog"], [[]], "references"),
        (["a dog"], ["a dog"], "references"),
    ],
)
@pytest.mark.parametrize("measure", [evaluate_captions, cider])
def test_refusals(measure, candidates, references, name) -> None:
    with raises_argument(name):
        measure(candidates, references)


def test_the_extra_is_named_where_it_is_missing(monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "pycocoevalcap.cider.cider", None)
    with pytest.raises(MissingExtraError, match="pycocoevalcap"):
        cider(["a"], [["a"]])


def test_what_keeps_meteor_away_is_a_note(monkeypatch) -> None:
    monkeypatch.setattr(meteor.shutil, "which", lambda name: None)
    metrics = evaluate_captions(HYPOTHESES, REFERENCES)
    assert metrics.meteor is None
    (note,) = metrics.notes
    assert "METEOR" in note and "`java`" in note and "\n" not in note
    with pytest.raises(DataError, match="java"):
        meteor.meteor_of_tokens(["a"], [["a"]])
