"""Sets in a served model: regions of image bytes, words padded to one length, and which word goes where.

An embedding is a set of vectors here, (batch, items, dim), and a row of zeros is no item.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeGuard

import tensorflow as tf

from vsemb.errors import invalid_argument
from vsemb.models import DualEncoder
from vsemb.similarities import Similarity
from vsemb.systems.regions.set_scores import item_mask
from vsemb.systems.regions.viterbi import best_chain
from vsemb.text.tokenizers import Tokenizer

if TYPE_CHECKING:
    from vsemb.systems.regions.image import RegionExtractor, Regions

Outputs = dict[str, tf.Tensor]

_SETS = "and the model embeds images and texts as sets of vectors"


def of_sets(model: object) -> TypeGuard[DualEncoder]:
    """Tells whether a model's embeddings are sets of vectors."""
    return isinstance(model, DualEncoder) and model.similarity.multi_vector


def check_sets(
    tokenizer: object,
    regions: bool | None = None,
    classes: Sequence[str] | None = None,
    corpus: str | None = None,
) -> None:
    """Refuses what a model of sets cannot be served with.

    Args:
        tokenizer: of the model.
        regions: whether images become regions; None where they cannot be embedded.
        classes: names of what images would be classified among; None for no classes.
        corpus: what would be searched; None for nothing.

    Raises:
        InvalidArgumentError: for a tokenizer that does not say how long its texts may be, images without
            regions, classes, or a corpus.
    """
    if not isinstance(tokenizer, Tokenizer) or tokenizer.token_shape:
        allowed = "a tokenizer of words where texts are sets of their words' vectors"
        raise invalid_argument("tokenizer", type(tokenizer).__name__, allowed)
    if regions is False:
        fix = "Give ImageInput the RegionExtractor that the model was trained with."
        raise invalid_argument("image_input", "no regions", "regions where images are sets of them", fix)
    if classes is not None:
        allowed = f"no classes, since a served class is one vector, {_SETS}"
        raise invalid_argument("classes", classes, allowed, "Classify with the run: vsemb classify RUN")
    if corpus is not None:
        allowed = f"no index, since a corpus holds one vector an item, {_SETS}"
        raise invalid_argument("index", corpus, allowed, "Search with the run: vsemb search RUN")


def filled_up(values: tf.Tensor, steps: int) -> tf.Tensor:
    """Fills rows up with zeros or "" to a fixed number of steps, and cuts longer ones.

    Args:
        values: (batch, any number, ...).
        steps: of the result.

    Returns:
        (batch, steps, ...), the same type.

    Example:

    >>> filled_up(tf.constant([["a", "dog"]]), 3).numpy().tolist()
    [[b'a', b'dog', b'']]
    """
    missing = tf.maximum(steps - tf.shape(values)[1], 0)
    wider = tf.pad(values, [[0, 0], [0, missing], *[[0, 0]] * (values.shape.rank - 2)])
    return tf.ensure_shape(wider[:, :steps], [values.shape[0], steps, *values.shape[2:]])


def find_regions(extractor: RegionExtractor, image_bytes: tf.Tensor, boxes: tf.Tensor | None) -> Regions:
    """Finds the regions of images, among candidates where the caller has to give them.

    Args:
        extractor: as the model was trained with.
        image_bytes: (batch,) string.
        boxes: (batch, candidates, 4) float32, `[x, y, w, h]` as fractions of the image, best first; zeros are
            padding, anywhere. None where regions are proposed in graph.

    Returns:
        What the extractor gives. An image with a candidate that is no box (not finite, or without width or
        height) is not valid.
    """
    if boxes is None:
        return extractor(image_bytes)
    real = tf.reduce_any(tf.not_equal(boxes, 0.0), axis=-1)  # (batch, candidates); NaN is not equal to 0.
    good = tf.reduce_all(tf.math.is_finite(boxes), axis=-1) & tf.reduce_all(boxes[..., 2:] > 0, axis=-1)
    fine = tf.reduce_all(good | ~real, axis=1)
    boxes = tf.where(good[..., None] & fine[:, None, None], boxes, 0.0)
    # One place at least, so that no image may have candidates at all.
    found = extractor(image_bytes, tf.pad(boxes, [[0, 0], [0, 1], [0, 0]]))
    return found._replace(valid=found.valid & fine)


def padded_words(tokenizer: Callable[[tf.Tensor], tf.Tensor], texts: tf.Tensor) -> tf.Tensor:
    """Returns the words that a tokenizer reads: (batch,) string to (batch, max_length) string, "" padding."""
    assert isinstance(tokenizer, Tokenizer)
    return filled_up(tokenizer.pieces(texts).to_tensor(), tokenizer.max_length)


def aligned(similarity: Similarity, images: Outputs, texts: Outputs, words: tf.Tensor, affinity: tf.Tensor) -> Outputs:
    """Finds the region of each word: the best chain of Karpathy & Fei-Fei 2015, equations 10 to 12.

    Args:
        similarity: the model's.
        images: `embedding` (batch, regions, dim), `boxes` (batch, regions, 4) and `valid` (batch,).
        texts: `embedding` (batch, steps, dim) and `valid` (batch,).
        words: (batch, steps) string, "" for padding.
        affinity: (batch,) float32, what two neighbours on one region are worth, the paper's beta; a row with
            one that is negative or NaN is not valid.

    Returns:
        `boxes` float32 (batch, regions, 4), `words` string, `regions` int64, -1 where no word is, and
        `scores` float32, each (batch, steps), and `valid` bool (batch,).
    """
    valid = images["valid"] & texts["valid"] & (affinity >= 0)
    here = valid[:, None]
    unaries = similarity.word_region_scores(images["embedding"], texts["embedding"])  # type: ignore[attr-defined]
    is_word = tf.not_equal(words, "") & here
    # An image that can be read has one region at least, the whole of it, even where nothing is seen in it.
    is_region = item_mask(images["embedding"]) | (tf.range(tf.shape(unaries)[2]) == 0)[None, :]
    path = _chain(unaries, is_word, is_region, tf.where(affinity >= 0, affinity, 0.0))
    scores = tf.gather(unaries, tf.maximum(path, 0), axis=2, batch_dims=2)
    return {
        "boxes": tf.where(here[..., None], images["boxes"], 0.0),
        "words": tf.where(is_word, words, ""),
        "regions": tf.cast(tf.where(is_word, path, -1), tf.int64),
        "scores": tf.where(is_word, scores, 0.0),
        "valid": valid,
    }


@tf.function(reduce_retracing=True, autograph=False)
def _chain(unaries: tf.Tensor, words: tf.Tensor, regions: tf.Tensor, affinity: tf.Tensor) -> tf.Tensor:
    # A graph of its own, since its many small steps take a second a row outside of one.
    return best_chain(unaries, words, regions, affinity)[0]


def row_counts(*tensors: Any) -> list[tf.Operation]:
    """Returns a check in graph that tensors have as many rows as each other: one row would pass for all."""
    first, *others = tensors
    checks = [
        tf.debugging.assert_equal(tf.shape(other)[0], tf.shape(first)[0], "inputs have different numbers of rows.")
        for other in others
    ]
    return [check for check in checks if check is not None]
