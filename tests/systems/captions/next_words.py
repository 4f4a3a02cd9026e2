"""Models of the next word that are tables, and what a search must find in them, done slowly in Python."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import tensorflow as tf

_PRIME = 97


class HistoryModel:
    """Random probabilities of the next word that depend on the row and on every word before.

    Args:
        size: V, with END as id 0.
        seed: of the probabilities.
        never: share of the words that have probability 0.
    """

    def __init__(self, size: int, seed: int, never: float = 0.0) -> None:
        generator = np.random.default_rng(seed)
        logits = 2.0 * generator.normal(size=(_PRIME, size))
        logits[generator.random(logits.shape) < never] = -np.inf
        with np.errstate(invalid="ignore", divide="ignore"):
            table = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
        self.table = np.where(np.isnan(table), -np.inf, table).astype(np.float32)
        self.size = size

    def start(self, rows: Iterable[int]) -> dict[str, tf.Tensor]:
        return {"history": tf.constant(list(rows), tf.int32)}

    def step(self, state, words):
        history = (state["history"] * 31 + words * 7 + 13) % _PRIME
        return tf.gather(self.table, history), {"history": history}

    def next(self, row: int, words: tuple[int, ...]) -> np.ndarray:
        """The log-probabilities behind some words, (V,)."""
        history = row
        for word in (0, *words):
            history = (history * 31 + word * 7 + 13) % _PRIME
        return self.table[history]


@dataclass(frozen=True)
class Hypothesis:
    """A sequence without its END."""

    words: tuple[int, ...]
    log_prob: float
    finished: bool

    def score(self, length_penalty: float) -> float:
        return self.log_prob / max(len(self.words), 1) ** length_penalty


def grown(model: HistoryModel, row: int, start: Hypothesis, min_words: int, forbidden: tuple[int, ...]):
    """All continuations of a sequence by one word or END."""
    for word, log_prob in enumerate(model.next(row, start.words)):
        if word in forbidden or (word == 0 and len(start.words) < min_words) or log_prob == -np.inf:
            continue
        words = start.words if word == 0 else (*start.words, word)
        yield Hypothesis(words, start.log_prob + float(log_prob), word == 0)


def sort(hypotheses: list[Hypothesis], length_penalty: float) -> list[Hypothesis]:
    return sorted(hypotheses, key=lambda one: (not one.finished, -one.score(length_penalty)))


def brute_force(model, row, *, max_words, min_words=1, forbidden=(1,), length_penalty=0.0) -> list[Hypothesis]:
    """Every sequence that there is, in order."""
    hypotheses = [Hypothesis((), 0.0, False)]
    for _ in range(max_words):
        live = [one for one in hypotheses if not one.finished]
        hypotheses = [one for one in hypotheses if one.finished]
        hypotheses += [new for one in live for new in grown(model, row, one, min_words, forbidden)]
    return sort(hypotheses, length_penalty)


def slow_beam(model, row, beam, *, max_words, min_words=1, forbidden=(1,), length_penalty=0.0) -> list[Hypothesis]:
    """The rule of `beam_search`, one hypothesis after another."""
    hypotheses = [Hypothesis((), 0.0, False)]
    for _ in range(max_words):
        frozen = [one for one in hypotheses if one.finished]
        live = [one for one in hypotheses if not one.finished]
        candidates = [new for one in live for new in grown(model, row, one, min_words, forbidden)]
        candidates.sort(key=lambda one: -one.log_prob)
        hypotheses = frozen + candidates[: beam - len(frozen)]
    return sort(hypotheses, length_penalty)


def hypotheses_of(hypotheses, row: int) -> list[Hypothesis]:
    """What a search returned of a row."""
    result = []
    for tokens, log_prob, finished, exists in zip(
        hypotheses.tokens[row].numpy(),
        hypotheses.log_probs[row].numpy(),
        hypotheses.finished[row].numpy(),
        hypotheses.exists[row].numpy(),
        strict=True,
    ):
        if exists:
            words = tuple(tokens[: np.count_nonzero(tokens)].tolist())
            assert not tokens[len(words) :].any()
            result.append(Hypothesis(words, float(log_prob), bool(finished)))
        else:
            assert not tokens.any() and not finished and log_prob == -np.inf
    return result


def assert_same(got: list[Hypothesis], wanted: list[Hypothesis]) -> None:
    assert [(one.words, one.finished) for one in got] == [(one.words, one.finished) for one in wanted]
    # Sums of up to twenty float32 against the same in float64.
    np.testing.assert_allclose([one.log_prob for one in got], [one.log_prob for one in wanted], atol=1e-5)
