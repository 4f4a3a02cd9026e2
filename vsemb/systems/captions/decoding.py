"""Decoding: sequences of words from any model of the next word, by beam search or by sampling.

All of it runs in graph, with core TensorFlow operations only. From KerasHub come the rules by which a word is drawn
from probabilities: `greedy`, `random`, `top_k` and `top_p`, with a temperature. Its loops are not used. They go on
writing behind the end of a row until all rows have ended, and do not return log-probabilities. In its beam search a
finished hypothesis grows on, loses by every word behind its end, and falls out of the beam that it should have won.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import tensorflow as tf

from vsemb.errors import invalid_argument
from vsemb.parts import Count, NonNegative, require_fields
from vsemb.systems.captions.multimodal_rnn import MultimodalRNN
from vsemb.text.vocabulary import Vocabulary

Tensor = Any
State = Any
Step = Callable[[State, Tensor], tuple[Tensor, State]]
Choose = Callable[[Tensor, Tensor, Tensor], tuple[Tensor, ...]]

#: The id of START as an input and of END as a choice.
END = 0
_NEVER = float("-inf")
_ALWAYS = float("inf")
_RULES = "greedy, random, top-k=K with an integer K >= 1, or top-p=P with 0 < P <= 1"
# Below, log-probabilities over the temperature overflow in the end, and ids are drawn that are of no word.
_COLDEST = 1e-6


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


@dataclass(frozen=True)
class SearchOptions:
    """How sequences of words are searched for, or drawn.

    Attributes:
        beam: hypotheses of a row, at least 1; it may be more than there are words.
        n_best: hypotheses returned for a row, at most `beam`.
        max_words: how often the model is asked at most. A finished hypothesis has a word less, since END
            takes a turn.
        min_words: END is not chosen before so many words.
        length_penalty: a score is the log-probability over the number of words, END not counted, to this
            power; 0 compares sums, 1 means. Scores order what was found; which candidates are kept at
            a step is decided by sums, where all live ones are of one length.
        forbidden: ids that are never chosen, by default that of the unknown word.

    Raises:
        InvalidArgumentError: for a number that is not allowed.
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
    """Search for the likeliest sequences of words, all rows together.

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
        options: how wide and how far.
        rows: their number, known or not while the graph is made; 0 is allowed.

    Returns:
        The hypotheses, finished ones first, each kind by its scores.

    Example: a model of three ids, which likes 2 behind START, and END behind anything else.

    >>> table = tf.math.log([[0.0, 0.0, 1.0], [0.5, 0.5, 0.0], [0.6, 0.0, 0.4]])
    >>> found = beam_search(lambda state, words: (tf.gather(table, words), state), {}, SearchOptions(n_best=2), rows=1)
    >>> found.tokens[0, :, :3].numpy().tolist()
    [[2, 0, 0], [2, 2, 0]]
    >>> print(tf.exp(found.log_probs).numpy().round(2))
    [[0.6  0.24]]
    """
    beam = options.beam

    def choose(next_words: Tensor, log_probs: Tensor, finished: Tensor) -> tuple[Tensor, ...]:
        rows = tf.shape(log_probs)[0]
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
        log_probs = tf.where(frozen, tf.gather(log_probs, parents, batch_dims=1), best)
        return tf.where(frozen, END, chosen), log_probs, frozen, parents

    return decode(step, state, choose, options, rows=rows)


def decode(
    step: Step, state: State, choose: Choose, options: SearchOptions, *, rows: int | Tensor, first: int = 1
) -> Hypotheses:
    """Write sequences word by word, in the way that `choose` takes their next words.

    Args:
        step: as `beam_search` takes it.
        state: as `beam_search` takes it.
        choose: takes the log-probabilities of next words, (rows * beam, V), of hypotheses so far, (rows, beam), and
            whether those are finished; returns the words chosen, the new log-probabilities, whether hypotheses were
            finished before, (rows, beam) each, and, where hypotheses change places, those they come from.
        options: how wide and how far.
        rows: as `beam_search` takes it.
        first: hypotheses of a row before the first word: one, or all where they are drawn.
    """
    beam = options.beam
    rows = tf.cast(rows, tf.int32)
    # All but the first place of a row are empty at first; otherwise the beam would hold one thing many times.
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
    # Rows may be known in one tensor and not in another, which is no change of its shape.
    shapes = tf.nest.map_structure(lambda tensor: tf.TensorShape([None, *tensor.shape[1:]][: tensor.shape.rank]), loop)
    _, tokens, _, log_probs, finished, _ = tf.while_loop(
        goes_on, grow, loop, shape_invariants=shapes, maximum_iterations=options.max_words
    )
    return _ordered(tokens, log_probs, finished, options)


def _allowed(log_probs: Tensor, turn: Tensor, options: SearchOptions) -> Tensor:
    """Set log-probabilities (rows, V) of what must not be chosen at a turn to -inf."""
    ids = tf.range(log_probs.shape[-1] or tf.shape(log_probs)[-1])
    never = (ids == END) & (turn < options.min_words)
    for word in options.forbidden:
        never |= ids == word
    return tf.where(never, _NEVER, tf.cast(log_probs, tf.float32))


def _ordered(tokens: Tensor, log_probs: Tensor, finished: Tensor, options: SearchOptions) -> Hypotheses:
    """Order the hypotheses of each row in order: finished ones first, each kind by its scores."""
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
    """Draw next words from their log-probabilities; `Sampler.parse` makes one from text.

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
        """Create a sampler from text.

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
        """Draw a word for each row.

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
    """Draw sequences of words, all rows together, in graph.

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


_FIVE = SearchOptions(n_best=5)


@dataclass(frozen=True)
class CaptionOptions:
    """How captions are looked for; None leaves it to the run's recipe.

    Attributes:
        beam: hypotheses kept while a caption is searched for.
        n_best: captions per image, best first; None for five, or fewer where the beam of a network is narrower, and
            one where words are drawn greedily. A search may find fewer.
        length_penalty: of a beam search.
        max_words: longest caption.
        sample: `greedy`, `random`, `top-k=5` or `top-p=0.9`: words are drawn, and no beam is searched.
        temperature: of the draws.
        seed: of the draws.
        candidates: of language models, captions written before the best are chosen.

    Raises:
        InvalidArgumentError: for an `n_best` < 1.
    """

    beam: int | None = None
    n_best: Count | None = None
    length_penalty: float | None = None
    max_words: int | None = None
    sample: str | None = None
    temperature: float = 1.0
    seed: int = 0
    candidates: int | None = None

    def __post_init__(self) -> None:
        require_fields(self)

    def check_only(self, names: Sequence[str], allowed: str) -> None:
        """Reject options that are given and not read.

        Args:
            names: the options that are read.
            allowed: what the others may be, for the error.

        Raises:
            InvalidArgumentError: naming the first.
        """
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if field.name not in names and value != field.default:
                raise invalid_argument(field.name, value, allowed)


class Captions(NamedTuple):
    """Captions of images, of each the best first.

    Args:
        texts: (rows, n) string, `""` where there is none.
        log_probs: (rows, n) float32, natural logarithm of the probability; 0 where there is none.
    """

    texts: Tensor
    log_probs: Tensor


class Captioner(tf.Module):
    """Base of the captioners: from rows of images to captions; usable inside `tf.function`.

    Args:
        n_best: captions of an image.
        autograph: whether control flow of `_write` depends on tensors.

    Call args:
        images: (rows, ...), the model's input of each image: features, or pixels. The number of rows may be 0, and
            unknown in a graph.

    Attributes:
        n_best: as given.
        facts: numbers for a contract, such as `beam` and `max_words`.
    """

    facts: dict[str, int | float]

    def __init__(self, n_best: int, *, autograph: bool = True) -> None:
        super().__init__()
        self.n_best = n_best
        # Without, a batch that is not captioned inside a graph would take its time for each of its words.
        self._in_graph = tf.function(self._write, reduce_retracing=True, autograph=autograph)

    def __call__(self, images: Tensor) -> Captions:
        return self._in_graph(tf.convert_to_tensor(images))

    def _write(self, images: Tensor) -> Captions:
        raise NotImplementedError


class NeuralCaptioner(Captioner):
    """Write captions by a model of the next word that sees the image.

    Args:
        model: a model of the next word that is conditioned on `image`.
        vocabulary: its words.
        search: how captions are searched for.
        sampler: draws words in place of the beam search; None for none.

    Attributes:
        model: as given.
        n_best: captions of an image.

    Example:

    ```python
    captioner = NeuralCaptioner(run.model, run.tokenizer.vocabulary, SearchOptions(beam=7, n_best=5))
    texts, log_probs = captioner(features)
    ```
    """

    def __init__(
        self,
        model: MultimodalRNN,
        vocabulary: Vocabulary,
        search: SearchOptions = _FIVE,
        sampler: Sampler | None = None,
    ) -> None:
        super().__init__(search.n_best)
        self.model = model
        self.search = search
        self.facts = {name: getattr(search, name) for name in ("beam", "length_penalty", "max_words")}
        self._tokens = vocabulary.tokens
        self._sampler = sampler

    def _write(self, images: Tensor) -> Captions:
        state, rows = self.model.start({"image": images}), tf.shape(images)[0]
        if self._sampler is None:
            found = beam_search(self.model.step, state, self.search, rows=rows)
        else:
            found = sample(self.model.step, state, self._sampler, self.search, rows=rows)
        texts = tf.where(found.exists, detokenize(found.tokens, self._tokens), "")
        return Captions(texts, tf.where(found.exists, found.log_probs, 0.0))


def detokenize(ids: Tensor, vocabulary_tokens: Sequence[str] | Tensor) -> Tensor:
    """Join words into texts, with core TensorFlow operations only.

    Words are joined by single blanks; one that begins with an apostrophe, as the English 's does, follows the
    word before it without.

    Args:
        ids: (..., steps) int, of words; 0 is no word, wherever it stands.
        vocabulary_tokens: (V,) string, all entries of a vocabulary by id.

    Returns:
        (...) string, `""` without words.

    Example:

    >>> ids = tf.constant([[2, 3, 4, 5], [2, 3, 0, 0]])
    >>> detokenize(ids, Vocabulary(["a", "dog", "'s", "ball"]).tokens).numpy().tolist()
    [b"a dog's ball", b'a dog']
    """
    pieces = tf.strings.regex_replace(tf.strings.join([" ", vocabulary_tokens]), "^ '", "'")
    pieces = tf.where(tf.range(tf.shape(pieces)[0]) == 0, "", pieces)
    return tf.strings.strip(tf.strings.reduce_join(tf.gather(pieces, ids), axis=-1))
