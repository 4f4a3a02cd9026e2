"""CLIPScore and RefCLIPScore (Hessel et al. 2021, arXiv:2104.08718), from the embeddings of any run.

The paper uses CLIP ViT-B/32 and puts "A photo depicts" before each caption. Here captions are embedded as they are.
Values of two captioners can be compared if the same run measured both.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np

from vsemb.data.store import StoredDataset
from vsemb.errors import DataError
from vsemb.evaluation import Embedder
from vsemb.recipes.retrieval import Retrieval
from vsemb.runs.run import Run

_WEIGHT = 2.5


def clip_scores(
    images: np.ndarray, captions: np.ndarray, references: np.ndarray, reference_rows: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Compute CLIPScore and RefCLIPScore of one caption per image.

    CLIPScore is 2.5 max(cos(caption, image), 0). RefCLIPScore is its harmonic mean with the largest cosine of the
    caption and a reference, at least 0.

    Args:
        images: (n, dim) embeddings.
        captions: (n, dim) embeddings.
        references: (m, dim) embeddings of the references.
        reference_rows: (m,) int64, row of each reference's image.

    Returns:
        (n,) and (n,) float64, 0 to 2.5 and 0 to about 1.43.

    Example: the caption is at 60 degrees from the image, and equals a reference.

    >>> image, caption = np.array([[1.0, 0.0]]), np.array([[0.5, 0.75**0.5]])
    >>> [score.round(3).tolist() for score in clip_scores(image, caption, caption, np.array([0]))]
    [[1.25], [1.111]]
    """
    images, captions, references = map(_unit, (images, captions, references))
    score = _WEIGHT * np.maximum(np.einsum("nd,nd->n", captions, images), 0)
    nearest = np.zeros(len(captions))
    np.maximum.at(nearest, reference_rows, np.einsum("nd,nd->n", references, captions[reference_rows]))
    total = score + nearest
    return score, np.divide(2 * score * nearest, total, out=np.zeros_like(total), where=total > 0)


def _unit(vectors: np.ndarray) -> np.ndarray:
    vectors = vectors.astype(np.float64)
    return vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)


class ClipScorer:
    """CLIPScore of captions for some images of a split.

    Args:
        run: a run for retrieval with one vector per image and per text.
        dataset: a dataset that matches the run.
        split: name of the split.
        rows: (n,) int64, the images.

    Raises:
        DataError: if the run is of another kind, or run and dataset do not match; from a call, if captions must be
            parsed and the run lacks a parser.

    Example:

        scores, of_references = ClipScorer(run, dataset, "test", np.arange(2))(captions, references)
    """

    def __init__(self, run: Run, dataset: StoredDataset, split: str, rows: np.ndarray) -> None:
        if not isinstance(run.recipe, Retrieval) or run.multi_vector:
            raise DataError(
                f"{run.path} must embed images and captions as one vector each, for CLIPScore; its recipe "
                f"{run.recipe.name!r} does not. Name another run, such as one of vsepp."
            )
        self._run, self._embedder = run, Embedder(run.model)
        self._images = self._embedder.images(run.images_of(dataset, dataset.split(split)), rows)

    def __call__(self, captions: Sequence[str], references: Sequence[Sequence[str]]) -> tuple[np.ndarray, np.ndarray]:
        """Return CLIPScore and RefCLIPScore in percent; 0 for a caption without words.

        Args:
            captions: n captions.
            references: the references of each image.

        Returns:
            (n,) and (n,) float64.
        """
        rows = np.repeat(np.arange(len(references)), [len(own) for own in references])
        # An empty text has no tokens to embed.
        embedded = [caption.strip() or own[0] for caption, own in zip(captions, references, strict=True)]
        wordless = np.array([not caption.strip() for caption in captions])
        texts = self._embedder.texts(*self._run.encode([*embedded, *itertools.chain.from_iterable(references)]))
        of_captions, of_references = np.split(texts, [len(embedded)])
        score, with_references = clip_scores(self._images, of_captions, of_references, rows)
        return np.where(wordless, 0.0, 100 * score), np.where(wordless, 0.0, 100 * with_references)
