"""Retrieval in two stages: an encoder ranks, and a decoder scores its first results (Kiros et al. 2014).

The score of an image and a caption is s(image, caption) + weight x (log p(caption | image) - log p(caption)), with the
similarity s of the retrieval run and the likelihoods of the caption model, see
`vsemb.systems.captions.likelihood_ranking`. Only the first results of each query are scored again; the others keep
their places. log p(caption) is the same for all images, so only captions for an image need it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from time import perf_counter
from typing import Any

import keras
import numpy as np

from vsemb.data.store import Split, StoredDataset
from vsemb.errors import DataError, invalid_argument
from vsemb.evaluation import Embedder, PairedDifference, RetrievalMetrics, compare_ranks, retrieval_ranks
from vsemb.evaluation.retrieval import rank_metrics, scorer
from vsemb.ops.tensorflow import tf
from vsemb.results import Result
from vsemb.runs.measure import difference_table
from vsemb.runs.run import Run
from vsemb.runs.searching import SearchResult, SearchSession
from vsemb.systems.captions.captioning import image_inputs
from vsemb.systems.captions.likelihoods import Likelihoods, log_mean, training_images

#: Weights that are tried; the best is chosen.
WEIGHTS = (0.0, *(2.0**power for power in range(-12, 5)))
# Queries whose candidates are sorted at a time.
_QUERIES = 100


@dataclass(frozen=True, eq=False)
class Candidates:
    """The first results of the queries of one direction, for re-ranking.

    Attributes:
        rows: (queries, K) int64, the candidates.
        scores: (queries, K) float64, their retrieval scores.
        positives: (queries, K) bool, whether a candidate is correct.
        ranks: (queries,) int64, ranks from 0 among all candidates, as of `vsemb.evaluation.retrieval_ranks`.

    Example: the second candidate of the only query is correct. The weight moves it to the top.

    >>> candidates = Candidates(
    ...     np.array([[4, 7]]), np.array([[0.9, 0.8]]), np.array([[False, True]]), np.array([1])
    ... )
    >>> [candidates.reranked(np.array([[-1.0, 1.0]]), weight).tolist() for weight in (0.0, 0.1)]
    [[1], [0]]
    """

    rows: np.ndarray
    scores: np.ndarray
    positives: np.ndarray
    ranks: np.ndarray

    @property
    def pairs(self) -> tuple[np.ndarray, np.ndarray]:
        """(queries x K,) query and candidate of each pair."""
        return np.repeat(np.arange(len(self.rows)), self.rows.shape[1]), self.rows.ravel()

    def reranked(self, likelihoods: np.ndarray, weight: float) -> np.ndarray:
        """Rank again, with ties against the model.

        Args:
            likelihoods: (queries, K) log-likelihoods of the candidates.
            weight: their weight beside the scores.

        Returns:
            (queries,) int64 ranks from 0. Queries without a correct candidate keep their rank.
        """
        scores = self.scores + weight * likelihoods
        best = np.where(self.positives, scores, -np.inf).max(axis=1, keepdims=True)
        above = np.count_nonzero(~self.positives & (scores >= best), axis=1)
        return np.where(self.positives.any(axis=1), above, self.ranks)


def first_candidates(
    scores_of: Callable[[slice], np.ndarray],
    positives_of: Callable[[slice], np.ndarray],
    ranks: np.ndarray,
    first: int,
) -> Candidates:
    """Find the first candidates of each query. Of equal scores, correct candidates are last.

    Args:
        scores_of: queries -> (queries, candidates) float scores.
        positives_of: queries -> (queries, candidates) bool, whether a candidate is correct.
        ranks: (queries,) int64, see `Candidates`.
        first: number of candidates; all if there are fewer.
    """
    parts = []
    for start in range(0, len(ranks), _QUERIES):
        queries = slice(start, min(start + _QUERIES, len(ranks)))
        scores, positives = scores_of(queries).astype(np.float64), positives_of(queries)
        rows = np.lexsort((positives, -scores), axis=1)[:, :first]
        parts.append((rows, np.take_along_axis(scores, rows, 1), np.take_along_axis(positives, rows, 1)))
    rows, scores, positives = map(np.concatenate, zip(*parts, strict=True))
    return Candidates(rows, scores, positives, ranks)


@dataclass(frozen=True, eq=False)
class _Stages:
    """Candidates and likelihoods of a split in both directions: captions for images, and images for captions."""

    candidates: tuple[Candidates, Candidates]
    likelihoods: tuple[np.ndarray, np.ndarray]
    own: np.ndarray
    milliseconds: dict[str, float]

    def ranks(self, weight: float) -> tuple[np.ndarray, np.ndarray]:
        sides = zip(self.candidates, self.likelihoods, strict=True)
        of_images, of_texts = (side.reranked(likelihoods, weight) for side, likelihoods in sides)
        return of_images, of_texts

    def metrics(self, ranks: tuple[np.ndarray, np.ndarray]) -> RetrievalMetrics:
        of_images, of_texts = ranks
        return RetrievalMetrics(rank_metrics(of_images), rank_metrics(of_texts), len(of_images), len(of_texts))


@dataclass(frozen=True, eq=False, repr=False)
class Reranking(Result):
    """The result of `measure_reranking`.

    Attributes:
        split: name of the split.
        first: number of results per query that were re-ranked.
        weight: weight of the log-likelihood.
        chosen_on: images on which the weight was chosen; None if it was given.
        before: metrics of the retrieval run alone.
        after: metrics after re-ranking.
        gains: `image_to_text R@1` and so on, and `recall_sum` -> comparison of both, by a paired bootstrap.
        milliseconds: time of the second stage in a batch of all queries: `image_query`, `text_query`, and `caption`,
            the time of log p(caption), which is computed once per caption.
    """

    split: str
    first: int
    weight: float
    chosen_on: str | None
    before: RetrievalMetrics
    after: RetrievalMetrics
    gains: dict[str, PairedDifference]
    milliseconds: dict[str, float]

    def to_json(self) -> dict[str, Any]:
        """Return the values as `vsemb evaluate --json` writes them."""
        fields = {name: getattr(self, name) for name in ("split", "first", "weight", "chosen_on", "milliseconds")}
        sides = {"before": self.before.to_json(), "after": self.after.to_json()}
        return {**fields, **sides, "gains": {name: asdict(gain) for name, gain in self.gains.items()}}

    def __str__(self) -> str:
        chosen = "" if self.chosen_on is None else f", chosen on {self.chosen_on}"
        times = self.milliseconds
        return "\n".join(
            [
                difference_table(self.split, self.gains, ("retrieval", f"first {self.first} re-ranked")),
                f"{self.before.images} images, {self.before.texts} texts",
                f"weight of the log-likelihood: {self.weight:.4g}{chosen}",
                f"second stage: {times['image_query']:.1f} ms per image query, {times['text_query']:.1f} ms per text "
                f"query, and {times['caption']:.1f} ms once per caption",
            ]
        )


def measure_reranking(
    run: Run,
    captioner: Run,
    dataset: StoredDataset,
    split: str = "val",
    *,
    rerank_first: int = 20,
    weight: float | None = None,
    tune: str = "train",
    tune_images: int = 500,
    prior: int = 100,
) -> Reranking:
    """Measure retrieval before and after the first results are re-ranked by the likelihood of captions.

    The weight is the one with the best recall sum on the first images of another split. Both runs were trained on the
    images of `train`, which makes the runs better there, so a split that neither has seen chooses a better weight.

    Args:
        run: a run for retrieval.
        captioner: a run of `multimodal-rnn`, which reads images of the same dataset.
        dataset: the dataset, with a split `train`.
        split: name of the measured split.
        rerank_first: number of results per query that are re-ranked.
        weight: weight of the log-likelihood; None to choose it.
        tune: split on which the weight is chosen.
        tune_images: its first images, this many; all if there are fewer.
        prior: number of training images for p(caption); all if there are fewer.

    Raises:
        InvalidArgumentError: if the weight would be chosen on the measured split, or a number is out of range.
        DataError: if a run and the dataset do not match, or a likelihood is NaN.

    Example:

        both = Run.open("runs/vsepp"), Run.open("runs/captions", "captions")
        measure_reranking(*both, Dataset.open("data/flickr8k")).gains["recall_sum"].difference
    """
    if weight is None and tune == split:
        raise invalid_argument("tune", tune, f"another split than the measured one, {split!r}")
    captioner.features_of(dataset)
    likelihoods = Likelihoods(captioner)
    images_of_prior = training_images(captioner, dataset, prior)

    def stages(part: Split, count: int) -> _Stages:
        return _stages(run, captioner, dataset, part, count, rerank_first, likelihoods, images_of_prior)

    chosen_on = None
    if weight is None:
        part = dataset.split(tune)
        count = min(tune_images, len(part))
        tuned = stages(part, count)
        weight = max(WEIGHTS, key=lambda each: tuned.metrics(tuned.ranks(each)).recall_sum)
        chosen_on = f"the first {count} images of {tune}"
    part = dataset.split(split)
    measured = stages(part, len(part))
    of_images, of_texts = measured.candidates
    before, after = (of_images.ranks, of_texts.ranks), measured.ranks(weight)
    return Reranking(
        split,
        rerank_first,
        weight,
        chosen_on,
        measured.metrics(before),
        measured.metrics(after),
        compare_ranks(before, after, measured.own),
        measured.milliseconds,
    )


def _stages(
    run: Run,
    captioner: Run,
    dataset: StoredDataset,
    part: Split,
    count: int,
    first: int,
    likelihoods: Likelihoods,
    prior: tf.Tensor,
) -> _Stages:
    """Rank the first images of a split and their texts, and compute the likelihoods of the first results."""
    ids, offsets, own = run.encoded_texts_of(part)
    own = own[own < count]
    embedder, similarity = Embedder(run.model), run.model.similarity
    images = embedder.images(run.images_of(dataset, part), count)
    texts = embedder.texts(ids[: offsets[len(own)]], offsets[: len(own) + 1])
    image_ranks, text_ranks = retrieval_ranks(images, texts, None, own, similarity)
    score, rows = scorer(similarity), np.arange(count)

    def scores(of_images: slice, of_texts: slice) -> np.ndarray:
        return keras.ops.convert_to_numpy(score(images[of_images], texts[of_texts]))

    everything = slice(None)
    of_images = first_candidates(
        lambda queries: scores(queries, everything), lambda queries: own == rows[queries, None], image_ranks, first
    )
    of_texts = first_candidates(
        lambda queries: scores(everything, queries).T, lambda queries: rows == own[queries, None], text_ranks, first
    )
    pictures = image_inputs(captioner.images_of(dataset, part), rows)
    shown = run.shown_texts_of(part)
    captions = captioner.encode(shown[: len(own)])
    found, place = np.unique(of_images.rows, return_inverse=True)
    times = [perf_counter()]
    of_found = log_mean(likelihoods.of_all(prior, *captioner.encode([shown[row] for row in found])))
    times.append(perf_counter())
    of_captions = likelihoods.of_pairs(pictures, *captions, *of_images.pairs).reshape(of_images.rows.shape)
    of_captions -= of_found[place].reshape(of_captions.shape)
    times.append(perf_counter())
    queries, candidates = of_texts.pairs
    of_pictures = likelihoods.of_pairs(pictures, *captions, candidates, queries).reshape(of_texts.rows.shape)
    times.append(perf_counter())
    caption, image_query, text_query = (1000 * np.diff(times) / [len(found), count, len(own)]).tolist()
    milliseconds = {"image_query": image_query, "text_query": text_query, "caption": caption}
    return _Stages((of_images, of_texts), (of_captions, of_pictures), own, milliseconds)


class ImageReranker:
    """The second stage of a search for images by a text.

    The score of an image becomes its retrieval score plus weight x (log p(text | image) - log of the mean of p(text |
    image) over the re-ranked images).

    Args:
        captioner: a run of `multimodal-rnn`.
        weight: weight of the log-likelihood.

    Example:

        ImageReranker(Run.open("runs/captions", "captions"), 0.01).reordered(search, "a dog on a beach", results)
    """

    def __init__(self, captioner: Run, weight: float) -> None:
        self._captioner, self._weight = captioner, weight
        self._likelihoods = Likelihoods(captioner)

    def reordered(self, search: SearchSession, text: str, results: Sequence[SearchResult]) -> list[SearchResult]:
        """Order images again.

        Args:
            search: the session that found them.
            text: the query.
            results: the images, best first.

        Returns:
            The same images with new ranks and scores.

        Raises:
            DataError: if the captioner cannot read the images, or a likelihood is NaN.
        """
        likelihoods = self._likelihoods.of_all(self._images(search, results), *self._captioner.encode([text]))
        gains = self._weight * (likelihoods - log_mean(likelihoods))[:, 0]
        scores = gains + [result.score for result in results]
        order = np.argsort(-scores, kind="stable")
        return [replace(results[row], rank=rank, score=float(scores[row])) for rank, row in enumerate(order, 1)]

    def _images(self, search: SearchSession, results: Sequence[SearchResult]) -> tf.Tensor:
        """Return images as inputs of the captioner: cached features, or else what it reads from their bytes."""
        run, dataset = self._captioner, search.dataset
        if dataset is not None and run.has_features(dataset):
            rows = []
            for result in results:
                part = dataset.split(result.item.split)
                row = np.array([part.keys.index(result.item.image_key)])
                rows.append(image_inputs(run.images_of(dataset, part), row))
            return tf.concat(rows, axis=0)
        if run.image_input is None:
            raise DataError(
                f"The run {run.path} must see the images found; it was trained on precomputed features, which the "
                "searched data lacks. Search a dataset with these features, or train on features of a backbone: vsemb "
                "features"
            )
        images, valid = run.image_input(tf.constant([search.image_of(result) for result in results]))
        if not valid.numpy().all():
            raise DataError(f"The image {results[int(np.argmin(valid))].name} must decode as JPEG or PNG.")
        return images
