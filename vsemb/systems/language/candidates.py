"""Captions by the SC-NLM: many are written and the best are chosen (Kiros et al. 2014, supplement 5.2).

1. An image's embedding gives three vectors to write from: itself, the mean of the nearest words and the mean
   of the nearest training sentences.
2. From each vector, for each of many sequences of parts of speech, the SC-NLM writes the caption that it
   finds likeliest.
3. A caption's score is its cosine with the image, less where it repeats itself, and its log-probability under
   a trigram model, each times its weight. The best are returned.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from vsemb.errors import invalid_argument
from vsemb.models import DualEncoder
from vsemb.parts import NonNegative, Part
from vsemb.systems.captions.decoding import Captioner, Captions, SearchOptions, beam_search, detokenize
from vsemb.systems.captions.next_word import NextWordModel
from vsemb.systems.language.kneser_ney import KneserNeyTrigram
from vsemb.text.vocabulary import Vocabulary

Tensor = Any

#: What a caption is written from: the image, its nearest words, its nearest sentences.
VECTORS = 3
# Candidates are embedded in groups of so many words, so that short ones do not take a long one's time.
_GROUP_WORDS = 3


@dataclass(frozen=True)
class RankingWeights(Part):
    """What the two parts of a caption's score count.

    The score is `translation` times the cosine of image and caption, with the penalty of repeated words, plus
    `language` times the caption's log-probability under the trigram model.

    Attributes:
        translation: weight of the cosine.
        language: weight of the log-probability.
        per_word: whether the log-probability is divided by the number of targets, the words and END, so that
            long captions are not at a disadvantage.

    Example:

    >>> RankingWeights(language=0.02).to_json()
    {'translation': 1.0, 'language': 0.02, 'per_word': False}
    """

    translation: NonNegative = 1.0
    language: NonNegative = 0.0
    per_word: bool = False


class Candidates(NamedTuple):
    """The different captions written for one image, and what they are chosen by.

    Args:
        ids: (candidates, steps) int32, ids of words; 0 behind the end.
        log_probs: (candidates,) float32, under the SC-NLM given its vector and parts of speech, END included.
        cosine: (candidates,) float32, with the image.
        penalty: (candidates,) float32, see `repetition_penalty`.
        language: (candidates,) float32, log-probability under the trigram model.
    """

    ids: Tensor
    log_probs: Tensor
    cosine: Tensor
    penalty: Tensor
    language: Tensor

    def scores(self, weights: RankingWeights) -> Tensor:
        """Returns what the candidates are ordered by, (candidates,) float32."""
        targets = tf.cast(tf.math.count_nonzero(self.ids, axis=1) + 1, tf.float32)
        return ranking_scores(self.cosine, self.penalty, self.language, targets, weights)


class StructureContentCaptioner(Captioner):
    """Writes captions of images with an SC-NLM, a dual encoder and a trigram model, in graph.

    Images are captioned one after another, so that memory does not grow with their number. A `Multiplicative`
    model, which reads no parts of speech, writes the same way: of `sequences` it takes the lengths alone.

    Args:
        model: the language model; its content vectors are embeddings of `encoder`.
        encoder: embeds images and sentences in one space.
        vocabulary: words of `model`.
        encoder_vocabulary: words of `encoder`, which reads words; others are unknown to it.
        sequences: (n, longest) int32, different sequences of ids of parts of speech, padded on the right with
            0; the first are taken.
        words: (m, dim) float32, embeddings of single words.
        sentences: (k, dim) float32, embeddings of training sentences.
        trigrams: the trigram model, over `vocabulary`.
        stopwords: words that may be repeated without penalty.
        weights: of the parts of a caption's score.
        n_best: captions returned.
        candidates: captions written for an image: candidate i from vector i mod 3 and sequence i // 3. There
            are fewer where there are not enough sequences.
        neighbours: nearest words, and sentences, whose mean is written from.
        beam: hypotheses kept while a caption is searched for; 1 takes the likeliest word each time.

    Call args:
        images: (rows, ...) what the encoder's image tower takes.

    Returns:
        `Captions`, those of the best score first. A log-probability is that of the caption under the language
        model, given the vector and the parts of speech it was written from (the first, where it was written
        more than once); the order is not by it.

    Raises:
        InvalidArgumentError: for a number that is not allowed, or sequences that are none.

    Example:

        captioner = load_captioner(Run.open("runs/sc-nlm"))
        texts, log_probs = captioner(images)
    """

    def __init__(
        self,
        model: NextWordModel,
        encoder: DualEncoder,
        vocabulary: Vocabulary,
        *,
        encoder_vocabulary: Vocabulary,
        sequences: np.ndarray,
        words: np.ndarray,
        sentences: np.ndarray,
        trigrams: KneserNeyTrigram,
        stopwords: Collection[str],
        weights: RankingWeights,
        n_best: int = 5,
        candidates: int = 1000,
        neighbours: int = 5,
        beam: int = 1,
    ) -> None:
        # No control flow depends on tensors, and rewriting all code below for some takes seconds.
        super().__init__(n_best, autograph=False)
        numbers = {"n_best": n_best, "candidates": candidates, "neighbours": neighbours, "beam": beam}
        for name, value in numbers.items():
            if value < 1:
                raise invalid_argument(name, value, "an integer >= 1")
        self.model, self.encoder, self.vocabulary = model, encoder, vocabulary
        self.trigrams, self.weights = trigrams, weights
        self.candidates, self.neighbours, self.beam = candidates, neighbours, beam
        tags, self._lengths = _longest_first(sequences, candidates)
        places = {word: place for place, word in enumerate(encoder_vocabulary.words, start=2)}
        known = [0, 1, *(places.get(word, 1) for word in vocabulary.words)]
        repeated = frozenset(stopwords)
        may_repeat = [word in repeated for word in vocabulary.tokens]
        # Variables and no constants: a graph that holds more than 2 GB cannot be written.
        self._tags = _fixed(tags, tf.int32)
        self._encoder_ids = _fixed(known, tf.int32)
        self._may_repeat = _fixed(may_repeat, tf.bool)
        self._words, self._sentences = _fixed(_unit(words)), _fixed(_unit(sentences))
        self.facts = {"candidates": candidates, "beam": beam, "max_words": self.longest}

    @property
    def longest(self) -> int:
        """Words of the longest caption that is written."""
        return int(self._lengths[0])

    def _write(self, images: Tensor) -> Captions:
        embeddings = tf.cast(self.encoder.encode_images(images), tf.float32)
        spec = (
            tf.TensorSpec((self.n_best, self.longest), tf.int32),
            tf.TensorSpec((self.n_best,), tf.float32),
        )
        ids, log_probs = tf.map_fn(self._best, embeddings, fn_output_signature=spec, parallel_iterations=1)
        return Captions(detokenize(ids, self.vocabulary.tokens), log_probs)

    def _best(self, embedding: Tensor) -> tuple[Tensor, Tensor]:
        found = self.write(embedding)
        none = [[0, self.n_best]]
        scores = tf.pad(found.scores(self.weights), none, constant_values=float("-inf"))
        _, order = tf.math.top_k(scores, self.n_best)
        ids = tf.gather(tf.pad(found.ids, [*none, [0, 0]]), order)
        return ids, tf.gather(tf.pad(found.log_probs, none), order)

    def write(self, embedding: Tensor) -> Candidates:
        """Writes the candidates of one image.

        Args:
            embedding: (dim,) float32, of the image.

        Returns:
            The different ones among them, those of longer sequences first.
        """
        rows = len(self._lengths)
        content = tf.tile(self.vectors(embedding), [-(-rows // VECTORS), 1])[:rows]
        tags = tf.repeat(self._tags, VECTORS, axis=0)[:rows]
        write = self._greedily if self.beam == 1 else self._by_beam
        ids, log_probs = write(self.model.start({"content": content, "tags": tags}))
        first = first_of_each(ids)
        ids = tf.gather(ids, first)
        embedded = self._embed(tf.gather(self._encoder_ids, ids))
        cosine = tf.linalg.matvec(embedded, tf.math.l2_normalize(embedding))
        penalty = repetition_penalty(ids, self._may_repeat)
        return Candidates(ids, tf.gather(log_probs, first), cosine, penalty, self.trigrams.log_probs(ids))

    def vectors(self, embedding: Tensor) -> Tensor:
        """Returns what captions of one image are written from.

        A mean is brought to the length that embeddings have, which is that of the vectors that the language
        model was trained on.

        Args:
            embedding: (dim,) float32, of the image.

        Returns:
            (3, dim) float32: the image's, the nearest words' and the nearest sentences'.
        """
        unit = tf.math.l2_normalize(embedding)
        means = []
        for table in (self._words, self._sentences):
            count = min(self.neighbours, table.shape[0])
            nearest = tf.math.top_k(tf.linalg.matvec(table, unit), count).indices
            means.append(tf.reduce_mean(tf.gather(table, nearest), axis=0))
        normalized = self.encoder.similarity.normalize(tf.stack(means))
        return tf.concat([embedding[None], tf.cast(normalized, tf.float32)], axis=0)

    def _greedily(self, state: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
        """Takes the likeliest word each time; rows whose sequence is at its end leave the batch."""
        rows = len(self._lengths)
        last = tf.zeros([rows], tf.int32)
        log_probs = tf.zeros([rows])
        columns = []
        for step in range(self.longest + 1):
            read, grow = (int(np.sum(self._lengths >= length)) for length in (step, step + 1))
            state = {name: tensor[:read] for name, tensor in state.items()}
            next_words, state = self.model.step(state, last[:read])
            known = next_words[:grow, 2:]
            last = tf.argmax(known, axis=1, output_type=tf.int32) + 2
            gained = tf.concat([tf.reduce_max(known, axis=1), next_words[grow:, 0]], axis=0)
            log_probs += tf.pad(gained, [[0, rows - read]])
            columns.append(tf.pad(last, [[0, rows - grow]]))
        return tf.stack(columns[:-1], axis=1), log_probs

    def _by_beam(self, state: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
        """Searches for the likeliest words; END stands where the sequence ends and nowhere else."""

        def step(state: dict[str, Any], words: Tensor) -> tuple[Tensor, dict[str, Any]]:
            next_words, inner = self.model.step(state["model"], words)
            is_end = tf.range(tf.shape(next_words)[1]) == 0
            allowed = tf.equal(state["left"] == 0, is_end)
            next_words = tf.where(allowed, next_words, float("-inf"))
            return next_words, {"model": inner, "left": state["left"] - 1}

        rows = len(self._lengths)
        left = tf.constant(self._lengths[:, None], tf.int32)
        options = SearchOptions(beam=self.beam, max_words=self.longest + 1)
        found = beam_search(step, {"model": state, "left": left}, options, rows=rows)
        return found.tokens[:, 0, : self.longest], found.log_probs[:, 0]

    def _embed(self, ids: Tensor) -> Tensor:
        """Embeds sentences, longest first, for their cosine: (rows, steps) -> (rows, dim), unit length."""
        lengths = tf.math.count_nonzero(ids, axis=1)
        parts = []
        for most in range(self.longest, 0, -_GROUP_WORDS):
            within = (lengths <= most) & (lengths > most - _GROUP_WORDS)
            parts.append(self.encoder.encode_texts(tf.boolean_mask(ids, within)[:, :most]))
        return tf.math.l2_normalize(tf.cast(tf.concat(parts, axis=0), tf.float32), axis=1)


def _longest_first(sequences: np.ndarray, candidates: int) -> tuple[np.ndarray, np.ndarray]:
    """Takes as many sequences as are needed; returns them, and the length of each candidate's."""
    sequences = np.asarray(sequences, np.int32)
    if sequences.ndim != 2 or not len(sequences) or not np.all(sequences[:, 0] > 0):
        raise invalid_argument("sequences", sequences.shape, "(n, longest) ids, none of them empty")
    taken = sequences[: -(-candidates // VECTORS)]
    lengths = np.count_nonzero(taken, axis=1)
    order = np.argsort(-lengths, kind="stable")
    lengths = lengths[order]
    return taken[order][:, : lengths[0]], np.repeat(lengths, VECTORS)[:candidates]


def _fixed(values: Any, kind: tf.DType = tf.float32) -> tf.Variable:
    return tf.Variable(values, trainable=False, dtype=kind)


def _unit(vectors: np.ndarray) -> np.ndarray:
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return np.divide(vectors, lengths, out=np.zeros_like(vectors), where=lengths > 0)


def repetition_penalty(ids: Tensor, may_repeat: Tensor) -> Tensor:
    """What a caption's cosine is multiplied by where it says a word again and again.

    The paper gives "a multiplicative penalty to non-stopwords that appear too frequently" and no formula.
    Here it is one over how often the most repeated of these words stands in the caption: 1 where none is
    repeated, 1/2 where one stands twice.

    Args:
        ids: (rows, steps) int, 0 = padding.
        may_repeat: (vocabulary,) bool, for which ids repetition costs nothing: the stop words. Padding's
            entry is not looked at.

    Returns:
        (rows,) float32 in (0, 1].

    Example: the word 3 stands three times, and so does the stop word 2.

    >>> stop = tf.constant([True, False, True, False, False])
    >>> repetition_penalty([[2, 3, 2, 4, 2], [2, 3, 3, 2, 3]], stop).numpy().round(2).tolist()
    [1.0, 0.33000001311302185]
    """
    ids = tf.convert_to_tensor(ids)
    counted = (ids != 0) & ~tf.gather(may_repeat, ids)
    same = (ids[:, :, None] == ids[:, None, :]) & counted[:, :, None]
    times = tf.reduce_sum(tf.cast(same, tf.float32), axis=2)  # (rows, steps)
    return 1.0 / tf.maximum(tf.reduce_max(times, axis=1), 1.0)


def ranking_scores(
    cosine: Tensor, penalty: Tensor, language: Tensor, targets: Tensor, weights: RankingWeights
) -> Tensor:
    """Scores captions of one image; higher is better.

    A negative cosine is divided by the penalty, which multiplied would make it better.

    Args:
        cosine: (rows,) float, of image and caption.
        penalty: (rows,) float, of `repetition_penalty`.
        language: (rows,) float, log-probability under the trigram model, natural.
        targets: (rows,) float, number of words and END.
        weights: what each counts.

    Returns:
        (rows,) float32.

    Example:

    >>> pair = tf.constant([0.8, -0.8])
    >>> half, fluent, five = tf.constant([0.5, 0.5]), tf.constant([-10.0, -10.0]), tf.constant([5.0, 5.0])
    >>> ranking_scores(pair, half, fluent, five, RankingWeights(1.0, 0.1, per_word=True)).numpy().round(2)
    array([ 0.2, -1.8], dtype=float32)
    """
    translation = tf.where(cosine > 0, cosine * penalty, cosine / penalty)
    if weights.per_word:
        language = language / targets
    return weights.translation * translation + weights.language * language


def first_of_each(ids: Tensor) -> Tensor:
    """Finds the rows that are not the same as one before them.

    Args:
        ids: (rows, steps) int.

    Returns:
        (different rows,) int32, ascending.

    Example:

    >>> first_of_each(tf.constant([[5, 6], [7, 0], [5, 6], [5, 0]])).numpy().tolist()
    [0, 1, 3]
    """
    kinds, kind = tf.raw_ops.UniqueV2(x=ids, axis=tf.constant([0]))
    return tf.math.unsorted_segment_min(tf.range(tf.shape(ids)[0]), kind, tf.shape(kinds)[0])
