"""Beam search over any model of the next word, in graph and with core TensorFlow operations only."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from vsemb.errors import invalid_argument

Tensor = Any
State = Any
Step = Callable[[State, Tensor], tuple[Tensor, State]]

#: The id of START as an input and of END as a choice.
END = 0
_NEVER = float("-inf")
_ALWAYS = float("inf")


class Hypotheses(NamedTuple):
    """What a search found, of each row the best first.

    Args:
        tokens: (rows, n, max_words) int32, ids of words; 0 behind the end.
        log_probs: (rows, n) float32, the sum over the words, and over END where it is finished; -inf where
            there is no hypothesis.
        scores: (rows, n) float32, what they are ordered by; -inf where there is none.
        finished: (rows, n) bool, whether it has chosen END, and not been cut at `max_words`.
        exists: (rows, n) bool, false where there are fewer hypotheses than asked for.
    """

    tokens: Tensor
    log_probs: Tensor
    scores: Tensor
    finished: Tensor
    exists: Tensor


def beam_search(
    step: Step,
    state: State,
    *,
    rows: int | Tensor,
    beam: int = 7,
    n_best: int = 1,
    max_words: int = 20,
    min_words: int = 1,
    length_penalty: float = 0.0,
    forbidden: Sequence[int] = (1,),
) -> Hypotheses:
    """Searches for the likeliest sequences of words, all rows together.

    Each row has `beam` places. A hypothesis that chooses END is frozen: it keeps its place for good, never
    grows, and the live ones share the places that are left. So a step keeps the best candidates, by the sum
    of their log-probabilities, of all continuations of live hypotheses, finished ones leave the beam one by
    one, and none that was found is lost again to one that looked better for a while. The search ends when
    all are finished, or have `max_words` words: those are cut, and stand behind all that are finished. A
    beam of 1 takes the likeliest word each time; one as wide as there are sequences finds the best of all.

    Ties go to the hypothesis that stood before, then to the smaller id. Rows do not depend on each other.

    Args:
        step: takes the state and the last words, (rows * beam,) int32, 0 (START) first; returns natural
            log-probabilities of the next, (rows * beam, V) with END as id 0, and the new state of the same
            structure. -inf is allowed.
        state: tensors in any structure, with rows as their 0th dimension; each is repeated for the beam here.
        rows: their number, known or not while the graph is made; 0 is allowed.
        beam: hypotheses of a row, at least 1; it may be more than there are words.
        n_best: hypotheses returned for a row, at most `beam`.
        max_words: how often the model is asked at most. A finished hypothesis has a word less, since END
            takes a turn.
        min_words: END is not chosen before so many words.
        length_penalty: a score is the log-probability over the number of words, END not counted, to this
            power; 0 compares sums, 1 means. Scores order what was found; which candidates are kept at
            a step is decided by sums, where all live ones are of one length.
        forbidden: ids that are never chosen, by default that of the unknown word.

    Returns:
        The hypotheses, finished ones first, each kind by its scores.

    Raises:
        InvalidArgumentError: for a number that is not allowed.

    Example: a model of three ids, which likes 2 behind START, and END behind anything else.

    >>> table = tf.math.log([[0.0, 0.0, 1.0], [0.5, 0.5, 0.0], [0.6, 0.0, 0.4]])
    >>> found = beam_search(lambda state, words: (tf.gather(table, words), state), {}, rows=1, n_best=2)
    >>> found.tokens[0, :, :3].numpy().tolist()
    [[2, 0, 0], [2, 2, 0]]
    >>> print(tf.exp(found.log_probs).numpy().round(2))
    [[0.6  0.24]]
    """
    check_search(
        beam=beam,
        n_best=n_best,
        max_words=max_words,
        min_words=min_words,
        length_penalty=length_penalty,
        forbidden=forbidden,
    )
    rows = tf.cast(rows, tf.int32)
    # All but the first place of a row are empty at first; otherwise the beam would hold one thing many times.
    log_probs = tf.tile([[0.0] + [_NEVER] * (beam - 1)], [rows, 1])
    finished = tf.zeros_like(log_probs, tf.bool)
    tokens = tf.zeros([rows, beam, max_words], tf.int32)
    words = tf.zeros([rows * beam], tf.int32)
    first_places = tf.range(rows)[:, None] * beam
    if beam > 1:
        state = tf.nest.map_structure(lambda tensor: tf.repeat(tensor, beam, axis=0), state)

    def goes_on(
        turn: Tensor, tokens: Tensor, words: Tensor, log_probs: Tensor, finished: Tensor, state: State
    ) -> Tensor:
        return tf.reduce_any(_exists(log_probs) & ~finished)

    def choose(
        turn: Tensor, tokens: Tensor, words: Tensor, log_probs: Tensor, finished: Tensor, state: State
    ) -> tuple[Any, ...]:
        next_words, state = step(state, words)
        next_words = allowed(next_words, turn, min_words, forbidden)
        # No more than a beam of them can be kept of one hypothesis, so most are dropped at once.
        few = tf.minimum(beam, tf.shape(next_words)[-1])
        grown, ids = (tf.reshape(x, [rows, beam, few]) for x in tf.math.top_k(next_words, few))
        # A frozen hypothesis has one continuation, itself, which nothing outdoes.
        itself = tf.where(tf.range(few) == 0, _ALWAYS, _NEVER)
        grown = tf.where(finished[:, :, None], itself, log_probs[:, :, None] + grown)
        best, places = tf.math.top_k(tf.reshape(grown, [rows, beam * few]), beam)
        parents = places // few
        frozen = tf.equal(best, _ALWAYS)
        chosen = tf.gather(tf.reshape(ids, [rows, beam * few]), places, batch_dims=1)
        chosen = tf.where(frozen, END, chosen)

        log_probs = tf.where(frozen, tf.gather(log_probs, parents, batch_dims=1), best)
        finished = frozen | ((chosen == END) & _exists(log_probs))
        tokens = tf.gather(tokens, parents, batch_dims=1)
        tokens = tf.where(tf.range(max_words) == turn, chosen[:, :, None], tokens)
        if beam > 1:
            origin = tf.reshape(first_places + parents, [-1])
            state = tf.nest.map_structure(lambda tensor: tf.gather(tensor, origin), state)
        return turn + 1, tokens, tf.reshape(chosen, [-1]), log_probs, finished, state

    # Rows may be known in one tensor and not in another, which is no change of its shape.
    loop = (tf.constant(0), tokens, words, log_probs, finished, state)
    shapes = tf.nest.map_structure(lambda tensor: rows_unknown(tensor.shape), loop)
    _, tokens, _, log_probs, finished, _ = tf.while_loop(
        goes_on, choose, loop, shape_invariants=shapes, maximum_iterations=max_words
    )
    return ordered(tokens, log_probs, finished, n_best=n_best, length_penalty=length_penalty)


def allowed(log_probs: Tensor, turn: Tensor, min_words: int, forbidden: Sequence[int]) -> Tensor:
    """Takes from the log-probabilities of next words what may not be chosen.

    Args:
        log_probs: (rows, V) float, of the next word.
        turn: scalar int32, the words that were chosen before.
        min_words: END may not be chosen before so many.
        forbidden: ids that are never chosen.

    Returns:
        (rows, V) float32, -inf in their places.

    Example:

    >>> print(allowed(tf.math.log([[0.2, 0.3, 0.5]]), tf.constant(0), 1, (1,)).numpy().round(2))
    [[ -inf  -inf -0.69]]
    """
    ids = tf.range(log_probs.shape[-1] or tf.shape(log_probs)[-1])
    never = (ids == END) & (turn < min_words)
    for word in forbidden:
        never |= ids == word
    return tf.where(never, _NEVER, tf.cast(log_probs, tf.float32))


def ordered(tokens: Tensor, log_probs: Tensor, finished: Tensor, *, n_best: int, length_penalty: float) -> Hypotheses:
    """Puts the hypotheses of each row in order: finished ones first, each kind by its scores.

    Args:
        tokens: (rows, m, max_words) int32.
        log_probs: (rows, m) float32, -inf where there is no hypothesis.
        finished: (rows, m) bool.
        n_best: how many of the m are kept.
        length_penalty: as in `beam_search`.
    """
    exists = _exists(log_probs)
    finished &= exists
    tokens = tf.where(exists[:, :, None], tokens, END)
    words = tf.reduce_sum(tf.cast(tokens != END, tf.float32), axis=-1)
    scores = log_probs / tf.maximum(words, 1.0) ** length_penalty
    order = tf.argsort(scores, axis=-1, direction="DESCENDING", stable=True)
    unfinished = tf.cast(~tf.gather(finished, order, batch_dims=1), tf.int32)
    order = tf.gather(order, tf.argsort(unfinished, axis=-1, stable=True), batch_dims=1)[:, :n_best]
    return Hypotheses(
        *(tf.gather(tensor, order, batch_dims=1) for tensor in (tokens, log_probs, scores, finished, exists))
    )


def _exists(log_probs: Tensor) -> Tensor:
    return log_probs > _NEVER


def rows_unknown(shape: tf.TensorShape) -> tf.TensorShape:
    return shape if shape.rank == 0 else tf.TensorShape([None, *shape[1:]])


def check_search(
    *,
    beam: int,
    n_best: int,
    max_words: int,
    min_words: int = 1,
    length_penalty: float = 0.0,
    forbidden: Sequence[int] = (),
) -> None:
    """Checks what a search is given, before any model is asked.

    Raises:
        InvalidArgumentError: for a number that `beam_search` does not allow.

    Example:

    >>> check_search(beam=7, n_best=5, max_words=20)
    """
    for name, value in (("beam", beam), ("max_words", max_words)):
        if value < 1:
            raise invalid_argument(name, value, "an integer >= 1")
    if not 1 <= n_best <= beam:
        raise invalid_argument(
            "n_best", n_best, f"an integer from 1 to the beam, {beam}", "Make the beam as wide at least."
        )
    if not 0 <= min_words <= max_words:
        raise invalid_argument("min_words", min_words, f"an integer from 0 to max_words, {max_words}")
    if not 0 <= length_penalty < _ALWAYS:
        raise invalid_argument("length_penalty", length_penalty, "a finite number >= 0")
    if END in forbidden:
        raise invalid_argument("forbidden", list(forbidden), "ids of words; 0 is END")
