"""How far the scores of a word's regions lie apart."""

from __future__ import annotations

import numpy as np
from vsemb.systems.regions.score_spread import ScoreSpread


def test_words_are_taken_one_by_one_and_padding_does_not_count() -> None:
    random = np.random.default_rng(3)
    spread, differences = ScoreSpread(), []
    for captions, steps, regions in ((4, 5, 3), (2, 7, 6), (0, 3, 2)):
        scores = random.normal(size=(captions, steps, regions)).astype(np.float32)
        words, known = random.random((captions, steps)) < 0.7, random.random((captions, regions)) < 0.7
        for caption, word in zip(*np.nonzero(words), strict=True):
            of_word = scores[caption, word][known[caption]].astype(np.float64)
            differences += [of_word - of_word.mean()] if len(of_word) else []
        # What padding holds does not count, whatever it is.
        scores[~words] = np.nan
        scores[np.broadcast_to(~known[:, None], scores.shape)] = np.inf
        spread.add(scores, words, known)
    np.testing.assert_allclose(spread.value, np.sqrt(np.mean(np.concatenate(differences) ** 2)), rtol=1e-12)
    assert ScoreSpread().value == 0.0


def test_a_broken_score_shows() -> None:
    for broken in (np.nan, np.inf):
        spread = ScoreSpread()
        spread.add(np.array([[[broken, 1.0]]]), np.ones((1, 1), bool), np.ones((1, 2), bool))
        assert not np.isfinite(spread.value)
