"""Caption generation with the SC-NLM: write candidates and rank them (Kiros et al. 2014, supplement 5.2).

1. An image has three content vectors: its embedding, the mean of the nearest words and the mean of the nearest
   training sentences.
2. For each content vector and each sequence of parts of speech, the SC-NLM writes the most probable caption. In the
   paper, and with `sampled`, a vector and a sequence are sampled for each caption.
3. The score of a caption is a weighted sum of its cosine with the image and its log-probability under a trigram
   model. A penalty for repeated words reduces the cosine. The captions with the highest scores are returned.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from vsemb.errors import invalid_argument
from vsemb.models import DualEncoder
from vsemb.ops.tensorflow import tf
from vsemb.parts import NonNegative, Part
from vsemb.systems.captions.captioner import Captioner, Captions, detokenize
from vsemb.systems.captions.decoding import SearchOptions, beam_search
from vsemb.systems.captions.next_word import NextWordModel
from vsemb.systems.language.kneser_ney import KneserNeyTrigram
from vsemb.text.vocabulary import Vocabulary
from vsemb.unicode import composed

Tensor = Any

#: Content vectors per image: the image, its nearest words, its nearest sentences.
VECTORS = 3
# Candidates are embedded in groups of similar length, in words, to reduce padding.
_GROUP_WORDS = 3


@dataclass(frozen=True)
class RankingWeights(Part):
    """Weights of the two terms of a caption's score.

    The score is `translation` times the cosine of image and caption plus `language` times the log-probability of the
    caption under the trigram model. The cosine includes the penalty for repeated words.

    Attributes:
        translation: weight of the cosine.
        language: weight of the log-probability.
        per_word: whether to divide the log-probability by the number of targets (words and END), so that long
            captions have no disadvantage.

    Example:

    >>> RankingWeights(language=0.02).to_json()
    {'translation': 1.0, 'language': 0.02, 'per_word': False}
    """

    translation: NonNegative = 1.0
    language: NonNegative = 0.0
    per_word: bool = False


class Candidates(NamedTuple):
    """Distinct captions for one image, and the terms of their scores.

    Args:
        ids: (candidates, steps) int32, word ids; 0 after the end.
        log_probs: (candidates,) float32, log-probability under the SC-NLM given content vector and parts of speech,
            including END.
        cosine: (candidates,) float32, cosine with the image.
        penalty: (candidates,) float32, see `repetition_penalty`.
        language: (candidates,) float32, log-probability under the trigram model.
    """

    ids: Tensor
    log_probs: Tensor
    cosine: Tensor
    penalty: Tensor
    language: Tensor

    def scores(self, weights: RankingWeights) -> Tensor:
        """Return the scores of the candidates, (candidates,) float32."""
        targets = tf.cast(tf.math.count_nonzero(self.ids, axis=1) + 1, tf.float32)
        return ranking_scores(self.cosine, self.penalty, self.language, targets, weights)


class StructureContentCaptioner(Captioner):
    """Captioner of images with an SC-NLM, a dual encoder and a trigram model, in graph.

    Images are processed one at a time, so that memory does not grow with their number. A `Multiplicative` model
    does not read parts of speech and uses only the lengths of `sequences`.

    Args:
        model: the language model; its content vectors are embeddings of `encoder`.
        encoder: encoder of images and sentences in one space, with words as tokens.
        vocabulary: words of `model`.
        encoder_vocabulary: words of `encoder`; it reads other words as unknown.
        sequences: (n, longest) int32, distinct sequences of ids of parts of speech, padded on the right with 0; the
            first ones are used.
        words: (m, dim) float32, embeddings of single words.
        sentences: (k, dim) float32, embeddings of training sentences.
        trigrams: the trigram model, over `vocabulary`.
        stopwords: words that may be repeated without penalty.
        weights: weights of the terms of the score.
        n_best: number of returned captions; default 5.
        candidates: number of candidates per image; default 1000. Candidate i has vector i mod 3 and sequence i // 3.
            Fewer are written if there are fewer than `candidates` / 3 sequences.
        sampled: whether the vector and the sequence of each candidate are sampled instead, uniformly and with
            replacement, as in the paper. The samples are the same for all images.
        neighbours: number of nearest words, and of nearest sentences, in a mean; default 5.
        beam: beam width; 1 for greedy search.

    Call args:
        images: (rows, ...) inputs of the encoder's image tower.

    Returns:
        `Captions`, the highest score first. `log_probs` are under the language model, given the content vector and the
        parts of speech that the caption was written from; of a caption written twice, the first ones. They do not
        define the order.

    Raises:
        InvalidArgumentError: for a number outside its range, or invalid sequences.

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
        sampled: bool = False,
        neighbours: int = 5,
        beam: int = 1,
    ) -> None:
        # Control flow does not depend on tensors, and AutoGraph takes seconds.
        super().__init__(n_best)
        numbers = {"n_best": n_best, "candidates": candidates, "neighbours": neighbours, "beam": beam}
        for name, value in numbers.items():
            if value < 1:
                raise invalid_argument(name, value, "an integer >= 1")
        self.model, self.encoder, self.vocabulary = model, encoder, vocabulary
        self.trigrams, self.weights = trigrams, weights
        self.candidates, self.neighbours, self.beam = candidates, neighbours, beam
        tags, places, vectors = _planned(sequences, candidates, sampled)
        self._lengths = np.count_nonzero(tags, axis=1)[places]
        tags = tags[:, : self.longest]
        encoder_ids = [0, 1, *(encoder_vocabulary.ids.get(composed(word), 1) for word in vocabulary.words)]
        repeated = frozenset(stopwords)
        may_repeat = [word in repeated for word in vocabulary.tokens]
        # Variables instead of constants: a graph of more than 2 GB cannot be saved.
        self._tags = _fixed(tags, tf.int32)
        self._sequences = _fixed(places, tf.int32)
        self._vectors = _fixed(vectors, tf.int32)
        self._encoder_ids = _fixed(encoder_ids, tf.int32)
        self._may_repeat = _fixed(may_repeat, tf.bool)
        self._words, self._sentences = _fixed(_unit(words)), _fixed(_unit(sentences))
        self.facts = {"candidates": candidates, "beam": beam, "max_words": self.longest}

    @property
    def longest(self) -> int:
        """Number of words of the longest caption."""
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
        captions = self.write(embedding)
        none = [[0, self.n_best]]
        scores = tf.pad(captions.scores(self.weights), none, constant_values=float("-inf"))
        _, order = tf.math.top_k(scores, self.n_best)
        ids = tf.gather(tf.pad(captions.ids, [*none, [0, 0]]), order)
        return ids, tf.gather(tf.pad(captions.log_probs, none), order)

    def write(self, embedding: Tensor) -> Candidates:
        """Write the candidates of one image.

        Args:
            embedding: (dim,) float32, embedding of the image.

        Returns:
            The distinct candidates, longer sequences first.
        """
        content = tf.gather(self.vectors(embedding), self._vectors)
        tags = tf.gather(self._tags, self._sequences)
        write = self._greedily if self.beam == 1 else self._by_beam
        ids, log_probs = write(self.model.start({"content": content, "tags": tags}))
        first = first_of_each(ids)
        ids = tf.gather(ids, first)
        embedded = self._embed(tf.gather(self._encoder_ids, ids))
        cosine = tf.linalg.matvec(embedded, tf.math.l2_normalize(embedding))
        penalty = repetition_penalty(ids, self._may_repeat)
        return Candidates(ids, tf.gather(log_probs, first), cosine, penalty, self.trigrams.log_probs(ids))

    def vectors(self, embedding: Tensor) -> Tensor:
        """Return the content vectors of one image.

        A mean is normalized like embeddings, because the language model was trained on normalized embeddings.

        Args:
            embedding: (dim,) float32, embedding of the image.

        Returns:
            (3, dim) float32: the image, the nearest words and the nearest sentences.
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
        """Select the most probable word at each step; rows leave the batch when their sequence ends."""
        rows = len(self._lengths)
        last = tf.zeros([rows], tf.int32)
        log_probs = tf.zeros([rows])
        columns = []
        for step in range(self.longest + 1):
            read = int(np.sum(self._lengths >= step))
            grow = int(np.sum(self._lengths > step))
            state = {name: tensor[:read] for name, tensor in state.items()}
            next_words, state = self.model.step(state, last[:read])
            words = next_words[:grow, 2:]
            last = tf.argmax(words, axis=1, output_type=tf.int32) + 2
            gained = tf.concat([tf.reduce_max(words, axis=1), next_words[grow:, 0]], axis=0)
            log_probs += tf.pad(gained, [[0, rows - read]])
            columns.append(tf.pad(last, [[0, rows - grow]]))
        return tf.stack(columns[:-1], axis=1), log_probs

    def _by_beam(self, state: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
        """Run beam search with END exactly at the end of each sequence."""

        def step(state: dict[str, Any], words: Tensor) -> tuple[Tensor, dict[str, Any]]:
            next_words, inner = self.model.step(state["model"], words)
            is_end = tf.range(tf.shape(next_words)[1]) == 0
            allowed = tf.equal(state["left"] == 0, is_end)
            next_words = tf.where(allowed, next_words, float("-inf"))
            return next_words, {"model": inner, "left": state["left"] - 1}

        rows = len(self._lengths)
        left = tf.constant(self._lengths[:, None], tf.int32)
        options = SearchOptions(beam=self.beam, max_words=self.longest + 1)
        best = beam_search(step, {"model": state, "left": left}, options, rows=rows)
        return best.tokens[:, 0, : self.longest], best.log_probs[:, 0]

    def _embed(self, ids: Tensor) -> Tensor:
        """Embed sentences, longest first, with unit length: (rows, steps) -> (rows, dim)."""
        lengths = tf.math.count_nonzero(ids, axis=1)
        parts = []
        for most in range(self.longest, 0, -_GROUP_WORDS):
            within = (lengths <= most) & (lengths > most - _GROUP_WORDS)
            parts.append(self.encoder.encode_texts(tf.boolean_mask(ids, within)[:, :most]))
        return tf.math.l2_normalize(tf.cast(tf.concat(parts, axis=0), tf.float32), axis=1)


def _planned(sequences: np.ndarray, candidates: int, sampled: bool) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the sequences, longest first, and the place of each candidate's sequence and of its vector."""
    sequences = np.asarray(sequences, np.int32)
    if sequences.ndim != 2 or not len(sequences) or not np.all(sequences[:, 0] > 0):
        raise invalid_argument("sequences", sequences.shape, "(n, longest) ids, none of them empty")
    taken = sequences if sampled else sequences[: -(-candidates // VECTORS)]
    taken = taken[np.argsort(-np.count_nonzero(taken, axis=1), kind="stable")]
    if sampled:
        generator = np.random.default_rng(0)
        # Sorted, so that lengths descend. Vectors are drawn independently.
        places = np.sort(generator.integers(len(taken), size=candidates))
        return taken, places, generator.integers(VECTORS, size=candidates)
    places = np.arange(min(candidates, VECTORS * len(taken)))
    return taken, places // VECTORS, places % VECTORS


def _fixed(values: Any, dtype: tf.DType = tf.float32) -> tf.Variable:
    return tf.Variable(values, trainable=False, dtype=dtype)


def _unit(vectors: np.ndarray) -> np.ndarray:
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return np.divide(vectors, lengths, out=np.zeros_like(vectors), where=lengths > 0)


def repetition_penalty(ids: Tensor, may_repeat: Tensor) -> Tensor:
    """Compute the factor that reduces the cosine of captions with repeated words.

    The paper describes "a multiplicative penalty to non-stopwords that appear too frequently", without a formula.
    Here the factor is 1 / (count of the most frequent non-stopword): 1 without repetition, 1/2 for a count of
    two.

    Args:
        ids: (rows, steps) int, 0 = padding.
        may_repeat: (vocabulary,) bool, True for stop words, which have no penalty. The entry of padding is not read.

    Returns:
        (rows,) float32 in (0, 1].

    Example: the word 3 and the stop word 2 appear three times.

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
    """Compute the scores of captions of one image; higher is better.

    A negative cosine is divided by the penalty, because multiplication would increase it.

    Args:
        cosine: (rows,) float, cosine of image and caption.
        penalty: (rows,) float, result of `repetition_penalty`.
        language: (rows,) float, natural log-probability under the trigram model.
        targets: (rows,) float, number of words plus END.
        weights: weights of the terms.

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
    """Find the first occurrence of each distinct row.

    Args:
        ids: (rows, steps) int.

    Returns:
        (distinct rows,) int32, ascending.

    Example:

    >>> first_of_each(tf.constant([[5, 6], [7, 0], [5, 6], [5, 0]])).numpy().tolist()
    [0, 1, 3]
    """
    distinct, numbers = tf.raw_ops.UniqueV2(x=ids, axis=tf.constant([0]))
    return tf.math.unsorted_segment_min(tf.range(tf.shape(ids)[0]), numbers, tf.shape(distinct)[0])
