"""Initialization of a dual encoder: random, or by canonical correlation in closed form.

Regularized linear CCA (Hotelling 1936; Gong et al. 2014, arXiv:1212.4522, on images and text) of bags of words and
image features gives word vectors and an image map that already match. Gradient descent starts from these instead of
random weights. CCA reads training data only.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import keras
import numpy as np

from vsemb.console import progress
from vsemb.encoders.text_encoder import TextCorpus
from vsemb.errors import DataError, invalid_argument
from vsemb.models import DualEncoder
from vsemb.parts import Part

# Number of captions per chunk of dense rows, which limits memory to chunk x vocabulary.
_CHUNK = 4096

# Squared correlations below this are rounding errors; their directions are not used.
_SMALLEST = 1e-10


@dataclass(frozen=True)
class Initialization(Part, family="initialization"):
    """Initialization of weights; base of the family `initialization`.

    Class attributes:
        accepts: the type of embeddings, see `vsemb.similarities.Similarity.accepts`; None for all.
        maps_features: whether it sets the affine map of cached features.
    """

    accepts: ClassVar[str | None] = None
    maps_features: ClassVar[bool] = False

    def apply(self, model: DualEncoder, corpus: TextCorpus, rows: np.ndarray, features: np.ndarray | None) -> None:
        """Set weights before the first step; other weights keep their random values.

        Args:
            model: the model, built.
            corpus: the training texts.
            rows: (texts,) the image of each text.
            features: (images, dim) float32 features of the training images; None for images without features.

        Raises:
            InvalidArgumentError: if the model does not have these weights.
        """


@dataclass(frozen=True)
class Random(Initialization, kind="random"):
    """Random weights."""


def canonical_correlation(
    ids: np.ndarray,
    offsets: np.ndarray,
    rows: np.ndarray,
    features: np.ndarray,
    rarity: np.ndarray,
    dim: int,
    *,
    text_ridge: float = 1.0,
    image_ridge: float = 0.1,
    max_words: int = 4096,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Find the directions with the largest correlation of bags of words and image features.

    Args:
        ids: (tokens,) int32, the concatenated captions.
        offsets: (captions + 1,) int64.
        rows: (captions,) the image of each caption.
        features: (images, features) float32.
        rarity: (vocabulary,) weight of each word in a bag; bags are scaled to unit length.
        dim: number of directions; directions beyond the rank of the data are zero.
        text_ridge: added to the diagonal of the text covariance, in units of its mean.
        image_ridge: the same for images.
        max_words: number of words to use, since time grows with its square. Words with larger ids, which are rarer,
            get zero vectors.

    Returns:
        words: (vocabulary, dim) float32, a vector for each word.
        image: (features, dim) float32, the map of image features.
        correlations: (at most dim,) the canonical correlations, descending.

    Raises:
        DataError: if all captions, or all features, are equal.
    """
    size = min(len(rarity), max_words)
    count = len(offsets) - 1
    weights = np.bincount(rows, minlength=len(features)).astype(np.float64)
    image_mean = (weights @ features) / count
    centred = (features - image_mean).astype(np.float32)
    image_cov = (centred * weights[:, None].astype(np.float32)).T @ centred / count
    text_cov, cross = np.zeros((size, size), np.float64), np.zeros((features.shape[1], size), np.float64)
    text_mean = np.zeros(size)
    starts = range(0, count, _CHUNK)
    for start in progress(starts, desc="canonical correlation", unit="block", leave=False):
        end = min(start + _CHUNK, count)
        bags = _bags(ids, offsets, start, end, rarity[:size])
        text_mean += bags.sum(0)
        text_cov += bags.T @ bags
        cross += centred[rows[start:end]].T @ bags
    text_mean /= count
    text_cov = text_cov / count - np.outer(text_mean, text_mean)
    # After both sides are whitened by Cholesky factors, the canonical directions are the singular vectors of the cross
    # covariance. An eigendecomposition of its smaller Gram matrix is much faster than an SVD.
    length = float(np.square(features).sum(axis=1).mean())
    image_root, text_root = _root(image_cov, image_ridge, length), _root(text_cov, text_ridge, 1.0)
    whitened = np.linalg.solve(image_root, np.linalg.solve(text_root, (cross / count).T).T)
    swap = len(whitened) > whitened.shape[1]
    short = whitened.T if swap else whitened
    values, vectors = np.linalg.eigh(short @ short.T)
    rank = min(dim, int((values > _SMALLEST).sum()))
    order = np.argsort(-values)[:rank]
    correlations, first = np.sqrt(values[order]), vectors[:, order]
    second = short.T @ first / correlations
    left, right = (second, first) if swap else (first, second)
    words, image = np.zeros((len(rarity), dim), np.float32), np.zeros((features.shape[1], dim), np.float32)
    words[:size, :rank] = np.linalg.solve(text_root.T, right) * correlations
    image[:, :rank] = np.linalg.solve(image_root.T, left) * correlations
    return words, image, correlations


def _bags(ids: np.ndarray, offsets: np.ndarray, start: int, end: int, rarity: np.ndarray) -> np.ndarray:
    bags = np.zeros((end - start, len(rarity)), np.float32)
    texts = np.repeat(np.arange(end - start), np.diff(offsets[start : end + 1]))
    words = ids[offsets[start] : offsets[end]]
    texts, words = texts[words < len(rarity)], words[words < len(rarity)]
    np.add.at(bags, (texts, words), rarity[words])
    return bags / np.maximum(np.linalg.norm(bags, axis=1, keepdims=True), 1e-6)


def _root(covariance: np.ndarray, ridge: float, length: float) -> np.ndarray:
    size = len(covariance)
    mean = np.trace(covariance) / size
    # Compared with the mean squared length, because equal float32 rows have a small variance from rounding.
    if not np.trace(covariance) > 1e-6 * length:
        raise DataError(
            "Canonical correlation needs captions and features that differ; all captions, or all features, are equal. "
            "Train with initialization=random."
        )
    return np.linalg.cholesky(covariance + ridge * mean * np.eye(size))


# Deviation of the entries of word vectors after CCA, the same as of random word vectors.
_WORD_DEVIATION = 0.1


@dataclass(frozen=True)
class CCA(Initialization, kind="cca"):
    """Initialize word vectors and image map by canonical correlation, so that they agree from the start."""

    accepts: ClassVar[str | None] = "vector"
    maps_features: ClassVar[bool] = True

    def apply(self, model: DualEncoder, corpus: TextCorpus, rows: np.ndarray, features: np.ndarray | None) -> None:
        towers = getattr(model.image_encoder, "members", [model.image_encoder])
        maps = [getattr(tower, "head", tower) for tower in towers]
        members = getattr(model.text_encoder, "members", [model.text_encoder])
        # The recipe has checked that the image tower maps cached features by an affine map.
        assert features is not None
        if not all(hasattr(member, "words") for member in members):
            raise invalid_argument("initialization", self.kind, "random with an encoder without word vectors")
        if maps[0].scaling is not None:
            features = keras.ops.convert_to_numpy(maps[0].scaling(features)).astype(np.float32)
        texts, dim = len(corpus.offsets) - 1, model.image_encoder.dim // len(members)
        rarity = np.log((1 + texts) / (1 + corpus.document_frequencies))
        vectors, image, _ = canonical_correlation(corpus.ids, corpus.offsets, rows, features, rarity, dim)
        deviation = np.abs(features @ image).std() * np.sqrt(dim)
        kernels = np.split(np.tile(image / deviation, len(members)), len(maps), axis=1)
        for image_map, kernel in zip(maps, kernels, strict=True):
            image_map.affine.kernel.assign(kernel)
        for member in members:
            _set_words(member, vectors, corpus.grams)


def _set_words(encoder: Any, vectors: np.ndarray, grams: np.ndarray | None) -> None:
    """Set the word vectors of a text encoder, and of its bag of words."""
    # Words that CCA excluded keep their random vectors.
    included = vectors.any(axis=1)
    vectors = vectors[included]
    if grams is not None:
        grams = grams * np.expand_dims(included, 1)
    table = keras.ops.convert_to_numpy(encoder.words.table).copy()
    size = min(table.shape[1], vectors.shape[1])
    table[included, :size] = vectors[:, :size] / vectors[:, :size].std() * _WORD_DEVIATION
    encoder.words.set_vectors(table, grams)
    bag = getattr(encoder, "bag", None)
    if bag is not None:
        table = keras.ops.convert_to_numpy(bag.words.table).copy()
        table[included] = vectors / np.linalg.norm(vectors, axis=1).mean()
        bag.words.set_vectors(table, grams)
