"""Sampling captions: the next word is drawn by a sampler of KerasHub.

From KerasHub come the rules by which a word is drawn from probabilities, which are right: `greedy`, `random`,
`top_k` and `top_p`, with a temperature. Its loops are not used. They go on writing behind the end of a row
until all rows have ended, and do not tell how likely was what they wrote. In its beam search this does harm:
a finished hypothesis grows on, loses by every word behind its end, and falls out of the beam that it should
have won. So `vsemb.systems.captions.beam_search` is our own.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import tensorflow as tf

from vsemb.errors import invalid_argument
from vsemb.systems.captions.beam_search import END, Hypotheses, SearchOptions, Step, decode

Tensor = Any

_RULES = "greedy, random, top-k=K with an integer K >= 1, or top-p=P with 0 < P <= 1"
# Below, log-probabilities over the temperature overflow in the end, and ids are drawn that are of no word.
_COLDEST = 1e-6


class Sampler(tf.Module):
    """Draws next words from their log-probabilities; `Sampler.parse` makes one from text.

    Args:
        kind: `greedy` (always the likeliest), `random`, `top-k` (one of the k likeliest) or `top-p` (one of
            the fewest likeliest whose probabilities sum to more than p).
        number: the k or p; None for the other two.
        temperature: log-probabilities are divided by it before a word is drawn: below 1 likely words become
            likelier. `greedy` does not feel it.
        seed: the same seed gives the same words where the same calls are made in the same order.

    Attributes:
        kind: as given.
        number: as given.

    Raises:
        InvalidArgumentError: for a kind, number or temperature that is not allowed.

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
        # KerasHub takes seconds to import, and beam search does without.
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
        # Tracked here, so that a SavedModel finds what the seed has become.
        self._seeds = list(self._rule.variables)

    @classmethod
    def parse(cls, rule: str, *, temperature: float = 1.0, seed: int = 0) -> Sampler:
        """Makes a sampler from text.

        Args:
            rule: `greedy`, `random`, `top-k=5`, `top-p=0.9` or the like.
            temperature: as above.
            seed: as above.

        Raises:
            InvalidArgumentError: if it is none of these.

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
        """Draws a word for each row.

        Args:
            log_probs: (rows, V) float, natural; -inf for what is never drawn.

        Returns:
            (rows,) int32; any id where a row has nothing but -inf.

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
    """Draws sequences of words, all rows together, in graph.

    Sequences that have chosen END grow no more; those without it are cut at `max_words`.

    Args:
        step: as `beam_search` takes it.
        state: as `beam_search` takes it.
        sampler: draws the words.
        options: as `beam_search` takes them; `beam` is not read. Of the `n_best` sequences of a row two may be the
            same. `greedy` finds one, and the others do not exist.
        rows: their number.

    Returns:
        The sequences, in the order in which `beam_search` returns its own. Log-probabilities are those of the
        model, whatever the temperature.

    Example:

    >>> table = tf.math.log([[0.0, 0.0, 1.0], [0.5, 0.5, 0.0], [0.6, 0.0, 0.4]])
    >>> greedy = Sampler("greedy")
    >>> found = sample(lambda state, words: (tf.gather(table, words), state), {}, greedy, SearchOptions(), rows=1)
    >>> found.tokens[0, 0, :3].numpy().tolist()
    [2, 0, 0]
    """

    def draw(next_words: Tensor, log_probs: Tensor, finished: Tensor) -> tuple[Tensor, ...]:
        chosen = tf.where(tf.reshape(finished, [-1]), END, sampler(next_words))
        gained = tf.reshape(tf.gather(next_words, chosen, batch_dims=1), [-1, options.n_best])
        return tf.reshape(chosen, [-1, options.n_best]), log_probs + tf.where(finished, 0.0, gained), finished

    first = 1 if sampler.kind == "greedy" else options.n_best
    return decode(step, state, draw, replace(options, beam=options.n_best), rows=rows, first=first)
