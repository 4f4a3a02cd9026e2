"""Decoding: sequences of words from any next-word model, by beam search or by sampling.

All functions run in graph, with core TensorFlow operations only. The sampling rules `greedy`, `random`, `top-k` and
`top-p`, with a temperature, are from KerasHub. Its loops are not used, for two reasons. They continue a finished row
until all rows are finished, and they do not return log-probabilities. Its beam search also extends finished
hypotheses. Each word after the end lowers their score, so the best hypothesis can drop out of the beam.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from vsemb.errors import invalid_argument
from vsemb.ops.tensorflow import tf
from vsemb.parts import Count, NonNegative, require_fields

Tensor = Any
State = Any
Step = Callable[[State, Tensor], tuple[Tensor, State]]
Choose = Callable[[Tensor, Tensor, Tensor], tuple[Tensor, ...]]

#: The id of START as an input and of END as a choice.
END = 0
_NEVER = float("-inf")
_ALWAYS = float("inf")
_RULES = "greedy, random, top-k=K with an integer K >= 1, or top-p=P with 0 < P <= 1"
# Below this temperature, log-probabilities / temperature can overflow, and invalid ids are drawn.
_COLDEST = 1e-6


class Hypotheses(NamedTuple):
    """The hypotheses of a search, best first per row.

    Args:
        tokens: (rows, n, max_words) int32, word ids; 0 after the end.
        log_probs: (rows, n) float32, the sum over the words, and over END for finished hypotheses; -inf for missing
            hypotheses.
        scores: (rows, n) float32, the sort key; -inf for missing hypotheses.
        finished: (rows, n) bool, true if END was chosen, false if the hypothesis was cut at `max_words`.
        exists: (rows, n) bool, false for missing hypotheses, if fewer than n were found.
    """

    tokens: Tensor
    log_probs: Tensor
    scores: Tensor
    finished: Tensor
    exists: Tensor


@dataclass(frozen=True)
class SearchOptions:
    """Options of beam search and sampling.

    Attributes:
        beam: hypotheses per row, at least 1; may exceed the number of words. Default 7.
        n_best: hypotheses returned per row, at most `beam`; default 1.
        max_words: maximum number of steps; default 20. END is a step, so a finished hypothesis has fewer words.
        min_words: minimum number of words before END; default 1.
        length_penalty: exponent p of the score, log-probability / words ** p, END not counted. 0 (the default)
            compares sums, 1 compares means. Scores order the final hypotheses. Within a step sums decide, since all
            live hypotheses have the same length.
        forbidden: ids that are never chosen; by default the unknown word.

    Raises:
        InvalidArgumentError: if a number is out of range, or END is forbidden.
    """

    beam: Count = 7
    n_best: int = 1
    max_words: Count = 20
    min_words: int = 1
    length_penalty: NonNegative = 0.0
    forbidden: Sequence[int] = (1,)

    def __post_init__(self) -> None:
        require_fields(self)
        if not 1 <= self.n_best <= self.beam:
            allowed = f"an integer from 1 to the beam, {self.beam}"
            raise invalid_argument("n_best", self.n_best, allowed, "Make the beam as wide at least.")
        if not 0 <= self.min_words <= self.max_words:
            raise invalid_argument("min_words", self.min_words, f"an integer from 0 to max_words, {self.max_words}")
        if END in self.forbidden:
            raise invalid_argument("forbidden", list(self.forbidden), "ids of words; 0 is END")


def beam_search(step: Step, state: State, options: SearchOptions, *, rows: int | Tensor) -> Hypotheses:
    """Search for the most probable sequences of words, all rows together.

    Each row has `beam` places. A hypothesis that chooses END is frozen: it keeps its place and never grows. Live
    hypotheses share the other places. Each step keeps the best continuations of live hypotheses, by the sum of
    log-probabilities. Live hypotheses never displace finished ones. The search ends when all hypotheses
    are finished or have `max_words` words. The latter are cut, and sorted after all finished ones. A beam of 1 is
    greedy search. A beam as wide as the number of sequences is exact.

    Ties go to the earlier hypothesis, then to the smaller id. Rows are independent of each other.

    Args:
        step: function of the state and the last words, (rows * beam,) int32, 0 (START) first. Returns natural
            log-probabilities of the next words, (rows * beam, V) with END as id 0, and the new state of the same
            structure. -inf is allowed.
        state: tensors in any structure, with rows as dimension 0. Each is repeated for the beam here.
        options: options of the search.
        rows: number of rows, static or dynamic; 0 is allowed.

    Returns:
        The hypotheses, finished ones first, each group sorted by score.

    Example: a model of three ids, which prefers 2 after START, and END after other words.

    >>> table = tf.math.log([[0.0, 0.0, 1.0], [0.5, 0.5, 0.0], [0.6, 0.0, 0.4]])
    >>> best = beam_search(lambda state, words: (tf.gather(table, words), state), {}, SearchOptions(n_best=2), rows=1)
    >>> best.tokens[0, :, :3].numpy().tolist()
    [[2, 0, 0], [2, 2, 0]]
    >>> print(tf.exp(best.log_probs).numpy().round(2))
    [[0.6  0.24]]
    """
    beam = options.beam

    def choose(next_words: Tensor, log_probs: Tensor, finished: Tensor) -> tuple[Tensor, ...]:
        rows = tf.shape(log_probs)[0]
        # At most `beam` continuations of one hypothesis can be kept, so the others are dropped at once.
        few = tf.minimum(beam, tf.shape(next_words)[-1])
        grown, ids = (tf.reshape(x, [rows, beam, few]) for x in tf.math.top_k(next_words, few))
        # A frozen hypothesis has one continuation, itself, with the maximum score.
        itself = tf.where(tf.range(few) == 0, _ALWAYS, _NEVER)
        grown = tf.where(finished[:, :, None], itself, log_probs[:, :, None] + grown)
        best, places = tf.math.top_k(tf.reshape(grown, [rows, beam * few]), beam)
        parents = places // few
        frozen = tf.equal(best, _ALWAYS)
        chosen = tf.gather(tf.reshape(ids, [rows, beam * few]), places, batch_dims=1)
        log_probs = tf.where(frozen, tf.gather(log_probs, parents, batch_dims=1), best)
        return tf.where(frozen, END, chosen), log_probs, frozen, parents

    return decode(step, state, choose, options, rows=rows)


def decode(
    step: Step, state: State, choose: Choose, options: SearchOptions, *, rows: int | Tensor, first: int = 1
) -> Hypotheses:
    """Write sequences word by word; `choose` selects the next words.

    Args:
        step: see `beam_search`.
        state: see `beam_search`.
        choose: function of the log-probabilities of next words, (rows * beam, V), and of hypotheses, (rows,
            beam), and whether they are finished, (rows, beam). Returns the chosen words, the new log-probabilities,
            and whether hypotheses were finished before, (rows, beam) each. If hypotheses change places, it also
            returns their parents, (rows, beam).
        options: options of the search.
        rows: see `beam_search`.
        first: hypotheses per row before the first word: one for beam search and greedy sampling, else all.
    """
    beam = options.beam
    rows = tf.cast(rows, tf.int32)
    # In beam search only the first place of a row is used at the start, so that the beam contains no duplicates.
    log_probs = tf.tile([[0.0] * first + [_NEVER] * (beam - first)], [rows, 1])
    finished = tf.zeros_like(log_probs, tf.bool)
    tokens = tf.zeros([rows, beam, options.max_words], tf.int32)
    words = tf.zeros([rows * beam], tf.int32)
    first_places = tf.range(rows)[:, None] * beam
    if beam > 1:
        state = tf.nest.map_structure(lambda tensor: tf.repeat(tensor, beam, axis=0), state)

    def goes_on(*loop: Any) -> Tensor:
        _, _, _, log_probs, finished, _ = loop
        return tf.reduce_any(_exists(log_probs) & ~finished)

    def grow(*loop: Any) -> tuple[Any, ...]:
        turn, tokens, words, log_probs, finished, state = loop
        next_words, state = step(state, words)
        next_words = _allowed(next_words, turn, options)
        chosen, log_probs, finished, *parents = choose(next_words, log_probs, finished)
        if parents:
            tokens = tf.gather(tokens, parents[0], batch_dims=1)
        if parents and beam > 1:
            origin = tf.reshape(first_places + parents[0], [-1])
            state = tf.nest.map_structure(lambda tensor: tf.gather(tensor, origin), state)
        finished |= (chosen == END) & _exists(log_probs)
        tokens = tf.where(tf.range(options.max_words) == turn, chosen[:, :, None], tokens)
        return turn + 1, tokens, tf.reshape(chosen, [-1]), log_probs, finished, state

    loop = (tf.constant(0), tokens, words, log_probs, finished, state)
    # The number of rows may be static in one tensor and dynamic in another; the shape invariant allows both.
    shapes = tf.nest.map_structure(lambda tensor: tf.TensorShape([None, *tensor.shape[1:]][: tensor.shape.rank]), loop)
    _, tokens, _, log_probs, finished, _ = tf.while_loop(
        goes_on, grow, loop, shape_invariants=shapes, maximum_iterations=options.max_words
    )
    return _ordered(tokens, log_probs, finished, options)


def _allowed(log_probs: Tensor, turn: Tensor, options: SearchOptions) -> Tensor:
    """Set the log-probabilities (rows, V) of words that are not allowed at a step to -inf."""
    ids = tf.range(log_probs.shape[-1] or tf.shape(log_probs)[-1])
    never = (ids == END) & (turn < options.min_words)
    for word in options.forbidden:
        never |= ids == word
    return tf.where(never, _NEVER, tf.cast(log_probs, tf.float32))


def _ordered(tokens: Tensor, log_probs: Tensor, finished: Tensor, options: SearchOptions) -> Hypotheses:
    """Sort the hypotheses of each row: finished ones first, each group by score."""
    exists = _exists(log_probs)
    finished &= exists
    tokens = tf.where(exists[:, :, None], tokens, END)
    words = tf.reduce_sum(tf.cast(tokens != END, tf.float32), axis=-1)
    scores = log_probs / tf.maximum(words, 1.0) ** options.length_penalty
    order = tf.argsort(scores, axis=-1, direction="DESCENDING", stable=True)
    unfinished = tf.cast(~tf.gather(finished, order, batch_dims=1), tf.int32)
    order = tf.gather(order, tf.argsort(unfinished, axis=-1, stable=True), batch_dims=1)[:, : options.n_best]
    return Hypotheses(
        *(tf.gather(tensor, order, batch_dims=1) for tensor in (tokens, log_probs, scores, finished, exists))
    )


def _exists(log_probs: Tensor) -> Tensor:
    return log_probs > _NEVER


class Sampler(tf.Module):
    """Sampler of next words from their log-probabilities; `Sampler.parse` creates one from text.

    Args:
        kind: `greedy` takes the most probable word. `random` draws from all words, `top-k` from the k most probable
            words. `top-p` draws from the smallest set of most probable words whose probabilities sum to more than p.
        number: k or p; None for `greedy` and `random`.
        temperature: divisor of log-probabilities before sampling; default 1. Values below 1 favour probable words.
            `greedy` ignores it.
        seed: random seed; default 0. Equal seeds and equal sequences of calls give equal words.

    Attributes:
        kind: as given.
        number: as given.

    Raises:
        InvalidArgumentError: if kind, number or temperature is invalid.

    Example:

    >>> sampler = Sampler("top-k", 2, seed=7)
    >>> int(sampler(tf.math.log([[0.1, 0.5, 0.4]]))[0]) in (1, 2)
    True
    """

    def __init__(self, kind: str, number: float | None = None, *, temperature: float = 1.0, seed: int = 0) -> None:
        super().__init__()
        if not _COLDEST <= temperature < float("inf"):
            fix = "`greedy` always takes the likeliest word."
            raise invalid_argument("temperature", temperature, f"a number > 0, {_COLDEST:g} at least", fix)
        # Imported here: KerasHub takes seconds to import, and beam search does not need it.
        from keras_hub import samplers

        if kind == "greedy" and number is None:
            self._rule = samplers.GreedySampler(temperature=temperature)
        elif kind == "random" and number is None:
            self._rule = samplers.RandomSampler(seed=seed, temperature=temperature)
        elif kind == "top-k" and number is not None and number >= 1 and float(number).is_integer():
            self._rule = samplers.TopKSampler(k=int(number), seed=seed, temperature=temperature)
        elif kind == "top-p" and number is not None and 0 < number <= 1:
            self._rule = samplers.TopPSampler(p=float(number), seed=seed, temperature=temperature)
        else:
            raise invalid_argument("sample", kind if number is None else f"{kind}={number}", _RULES)
        self.kind, self.number = kind, number
        # Tracked here, so that a SavedModel contains the state of the seed.
        self._seeds = list(self._rule.variables)

    @classmethod
    def parse(cls, rule: str, *, temperature: float = 1.0, seed: int = 0) -> Sampler:
        """Create a sampler from text.

        Args:
            rule: `greedy`, `random`, `top-k=K` or `top-p=P`, such as `top-k=5`.
            temperature: see `Sampler`.
            seed: see `Sampler`.

        Raises:
            InvalidArgumentError: if the rule is invalid.

        Example:

        >>> sampler = Sampler.parse("top-p=0.9", temperature=0.7)
        >>> sampler.kind, sampler.number
        ('top-p', 0.9)
        """
        kind, equals, text = rule.partition("=")
        try:
            number = float(text) if equals else None
        except ValueError:
            raise invalid_argument("sample", rule, _RULES) from None
        return cls(kind, number, temperature=temperature, seed=seed)

    def __call__(self, log_probs: Tensor) -> Tensor:
        """Draw one word per row.

        Args:
            log_probs: (rows, V) float, natural logarithms; -inf for words that are never drawn.

        Returns:
            (rows,) int32; an arbitrary id for a row with only -inf.

        Raises:
            InvalidArgumentError: if k is larger than V.
        """
        size = log_probs.shape[-1]
        if self.kind == "top-k" and size is not None and self._rule.k > size:
            raise invalid_argument("sample", f"top-k={self._rule.k}", f"top-k={size} at most, all words")
        none = tf.reduce_max(log_probs, axis=-1, keepdims=True) == float("-inf")
        probabilities = self._rule.compute_probabilities(tf.where(none, 0.0, log_probs))
        return tf.cast(self._rule.get_next_token(probabilities), tf.int32)


def sample(step: Step, state: Any, sampler: Sampler, options: SearchOptions, *, rows: int | Tensor) -> Hypotheses:
    """Sample sequences of words, all rows together, in graph.

    Sequences end at END, or are cut at `max_words`.

    Args:
        step: see `beam_search`.
        state: see `beam_search`.
        sampler: sampler of the words.
        options: see `beam_search`; `beam` is ignored. The `n_best` sequences of a row may contain duplicates. `greedy`
            returns one sequence per row.
        rows: number of rows.

    Returns:
        The sequences, sorted as by `beam_search`. Log-probabilities are computed by the model, without the temperature.

    Example:

    >>> table = tf.math.log([[0.0, 0.0, 1.0], [0.5, 0.5, 0.0], [0.6, 0.0, 0.4]])
    >>> greedy = Sampler("greedy")
    >>> hypotheses = sample(lambda state, words: (tf.gather(table, words), state), {}, greedy, SearchOptions(), rows=1)
    >>> hypotheses.tokens[0, 0, :3].numpy().tolist()
    [2, 0, 0]
    """

    def draw(next_words: Tensor, log_probs: Tensor, finished: Tensor) -> tuple[Tensor, ...]:
        chosen = tf.where(tf.reshape(finished, [-1]), END, sampler(next_words))
        gained = tf.reshape(tf.gather(next_words, chosen, batch_dims=1), [-1, options.n_best])
        return tf.reshape(chosen, [-1, options.n_best]), log_probs + tf.where(finished, 0.0, gained), finished

    first = 1 if sampler.kind == "greedy" else options.n_best
    return decode(step, state, draw, replace(options, beam=options.n_best), rows=rows, first=first)
