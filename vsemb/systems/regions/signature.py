"""Regions in a served model: boxes with embeddings, and the signature `align` of words with regions.

An embedding is a set of vectors, (batch, items, dim); a row of zeros is padding.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from vsemb.exporting import ImageInput, ServedModel, Signature
from vsemb.exporting.reference_outputs import Arrays, Tie, golden_images, golden_texts
from vsemb.exporting.signatures import (
    Outputs,
    embedding_rows,
    filled_up,
    first_rows,
    one_row_at_least,
    score_scale,
    tensors,
)
from vsemb.ops.tensorflow import tf
from vsemb.similarities import Similarity
from vsemb.systems.regions.extractor import ImageRegions, RegionExtractor
from vsemb.systems.regions.similarities import item_mask
from vsemb.systems.regions.viterbi import best_chain

_TEXT = tf.TensorSpec([None], tf.string, name="text")
_AFFINITY = tf.TensorSpec([None], tf.float32, name="affinity")
_BOXES = tf.TensorSpec([None, None, 4], tf.float32, name="boxes")


@dataclass(frozen=True, eq=False, kw_only=True)
class WholeImageInput(ImageInput):
    """Image bytes to the features of the whole image, equal to region 0 of cached regions.

    Attributes:
        extractor: extractor of regions and features, as in training.
    """

    extractor: RegionExtractor

    @classmethod
    def of(cls, extractor: RegionExtractor) -> Self:
        """Return the input of an extractor and its backbone."""
        return cls(extractor.backbone_config, extractor.backbone, extractor=extractor)

    def __call__(self, encoded: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        regions = self.extractor(encoded)
        return regions.features[:, 0], regions.valid

    def tower(self, model: Any) -> str:
        return "an image is a set of regions that are cut out of it"


class RegionInput(WholeImageInput):
    """Image bytes to a set of regions, for models trained on cached regions.

    `encode_image` also returns `boxes` float32 (batch, regions, 4). If regions are not proposed in graph, it also takes
    candidates, `boxes` float32 (batch, candidates, 4), see `find_regions`. The model gets a signature `align`.
    """

    multi_vector = True

    def __call__(self, encoded: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        regions = self.extractor(encoded)
        return regions.features, regions.valid

    @property
    def wants_boxes(self) -> bool:
        """Whether the model needs candidate boxes with an image, since it does not propose regions in graph."""
        return not self.extractor.regions.candidates.in_graph

    @property
    def specs(self) -> tuple[tf.TensorSpec, ...]:
        return (*super().specs, _BOXES) if self.wants_boxes else super().specs

    @property
    def instance(self) -> Mapping[str, Any]:
        if not self.wants_boxes:
            return super().instance
        return {**super().instance, "boxes": [[0, 0, 0, 0], [0.1, 0.2, 0.5, 0.6]]}

    def rows(self, model: Any, image_bytes: tf.Tensor, **more: tf.Tensor) -> Outputs:
        rows = tf.shape(image_bytes)[0]
        regions = find_regions(self.extractor, *same_rows(image_bytes, *more.values()))
        outputs = embedding_rows(model.encode_images(regions.features), regions.valid)
        outputs["boxes"] = tf.where(regions.valid[:, None, None], regions.boxes, 0.0)
        return first_rows(outputs, rows)

    def examples(self) -> Arrays:
        if not self.wants_boxes:
            return super().examples()
        images = golden_images()
        return {"image_bytes": np.array([*images, images[0]], object), "boxes": _boxes(len(images) + 1)}

    def signatures(self, served: ServedModel) -> Sequence[Signature]:
        return [align_signature(served, self)]

    def limits(self) -> list[str]:
        count = self.extractor.count
        regions = "one region, the whole image" if count == 1 else f"{count} regions at most, the whole image first"
        limits = [*super().limits(), f"An image has {regions}: boxes x, y, w, h, as fractions of its sides."]
        if self.wants_boxes:
            limits.append("It proposes no regions: send candidate boxes, best first, and zeros as padding.")
        return limits


def align_signature(served: ServedModel, image_input: RegionInput) -> Signature:
    """Return the signature `align`, which aligns the words of a text with the regions of an image.

    Inputs of the signature:

    - `image_bytes`: string (batch,).
    - `text`: string (batch,).
    - `affinity`: float32 (batch,), bonus for two neighbouring words on one region.
    - `boxes`: float32 (batch, candidates, 4), if the model needs candidates.

    Outputs of the signature:

    - `boxes`: float32 (batch, regions, 4), `[x, y, w, h]` as fractions of the image; the first box is the whole image.
    - `words`: string (batch, steps), "" for padding.
    - `regions`: int64 (batch, steps), row of each word's box, -1 for padding.
    - `scores`: float32 (batch, steps), score of each word with its region.
    - `valid`: bool (batch,), false if image, text or affinity is invalid.

    Args:
        served: a multi-vector model.
        image_input: image input of this model.
    """

    def rows(image_bytes: tf.Tensor, text: tf.Tensor, affinity: tf.Tensor, **more: tf.Tensor) -> Outputs:
        count = tf.shape(image_bytes)[0]
        image_bytes, text, affinity, *candidates = same_rows(image_bytes, text, affinity, *more.values())
        images = served.image_rows(image_bytes=image_bytes, **dict(zip(more, candidates, strict=True)))
        words = filled_up(served.tokenizer.pieces(text).to_tensor(), served.tokenizer.max_length)
        outputs = aligned(served.model.similarity, images, served.text_rows(text=text), words, affinity)
        return first_rows(outputs, count)

    def scale() -> dict[str, float]:
        assert served.image is not None
        words = served.text.function(**tensors(served.text.examples()))["embedding"].numpy()
        return score_scale(served.image, words)

    bytes_spec, *boxes = image_input.specs
    return Signature(
        "align",
        (bytes_spec, _TEXT, _AFFINITY, *boxes),
        rows,
        lambda: golden_alignments(served.tokenizer, boxes=bool(boxes)),
        scale,
        {"regions": Tie("chosen", "scores")},
        {**image_input.instance, **served.text.instance, "affinity": 0.5},
    )


def find_regions(extractor: RegionExtractor, image_bytes: tf.Tensor, boxes: tf.Tensor | None = None) -> ImageRegions:
    """Compute the regions of images, from candidates if the model needs them.

    Args:
        extractor: extractor of regions and features, as in training.
        image_bytes: (batch,) string.
        boxes: (batch, candidates, 4) float32, `[x, y, w, h]` as fractions of the image, best first. Zeros at any
            place are padding. None if regions are proposed in graph.

    Returns:
        The regions. An image is invalid if a candidate is not finite, or has no width or height.
    """
    if boxes is None:
        return extractor(image_bytes)
    real = tf.reduce_any(tf.not_equal(boxes, 0.0), axis=-1)  # (batch, candidates); NaN is not equal to 0.
    good = tf.reduce_all(tf.math.is_finite(boxes), axis=-1) & tf.reduce_all(boxes[..., 2:] > 0, axis=-1)
    fine = tf.reduce_all(good | ~real, axis=1)
    boxes = tf.where(good[..., None] & fine[:, None, None], boxes, 0.0)
    # One place is added, since the extractor needs at least one and requests may have none.
    regions = extractor(image_bytes, tf.pad(boxes, [[0, 0], [0, 1], [0, 0]]))
    return regions._replace(valid=regions.valid & fine)


def aligned(similarity: Similarity, images: Outputs, texts: Outputs, words: tf.Tensor, affinity: tf.Tensor) -> Outputs:
    """Compute the region of each word: the best chain of Karpathy & Fei-Fei 2015, equations 10 to 12.

    Args:
        similarity: similarity of the model.
        images: `embedding` (batch, regions, dim), `boxes` (batch, regions, 4) and `valid` (batch,).
        texts: `embedding` (batch, steps, dim) and `valid` (batch,).
        words: (batch, steps) string, "" for padding.
        affinity: (batch,) float32, bonus for two neighbouring words on one region, the paper's beta. A row with a
            negative affinity or NaN is invalid.

    Returns:
        `boxes` float32 (batch, regions, 4), and `valid` bool (batch,). `words` string, `regions` int64 (-1 for
            padding) and `scores` float32, each (batch, steps).
    """
    valid = images["valid"] & texts["valid"] & (affinity >= 0)
    here = valid[:, None]
    unaries = similarity.word_region_scores(images["embedding"], texts["embedding"])  # type: ignore[attr-defined]
    is_word = tf.not_equal(words, "") & here
    # A valid image has at least the region of the whole image, even if its embedding is zero.
    is_region = item_mask(images["embedding"]) | (tf.range(tf.shape(unaries)[2]) == 0)[None, :]
    path = chain_in_graph(unaries, is_word, is_region, tf.where(affinity >= 0, affinity, 0.0))
    scores = tf.gather(unaries, tf.maximum(path, 0), axis=2, batch_dims=2)
    return {
        "boxes": tf.where(here[..., None], images["boxes"], 0.0),
        "words": tf.where(is_word, words, ""),
        "regions": tf.cast(tf.where(is_word, path, -1), tf.int64),
        "scores": tf.where(is_word, scores, 0.0),
        "valid": valid,
    }


@tf.function(reduce_retracing=True, autograph=False)
def chain_in_graph(unaries: tf.Tensor, words: tf.Tensor, regions: tf.Tensor, affinity: tf.Tensor) -> tf.Tensor:
    """Compute the path of `best_chain` in graph; eagerly, its many small steps take a second per row.

    Args:
        unaries: (batch, words, regions) float32, scores of each word with each region.
        words: (batch, words) bool, False for padding.
        regions: (batch, regions) bool, False for padding.
        affinity: (batch,) float32, bonus for neighbouring words on one region.

    Returns:
        (batch, words) int32, the region of each word; -1 for padding.
    """
    return best_chain(unaries, words, regions, affinity)[0]


def same_rows(*tensors: tf.Tensor) -> list[tf.Tensor]:
    """Check in graph that tensors have equal numbers of rows, and add a row to empty tensors.

    Without the check, a single row would be broadcast.
    """
    first, *others = tensors
    checks = [
        tf.debugging.assert_equal(tf.shape(other)[0], tf.shape(first)[0], "inputs have different numbers of rows.")
        for other in others
    ]
    with tf.control_dependencies([check for check in checks if check is not None]):
        return [one_row_at_least(tensor) for tensor in tensors]


def golden_alignments(tokenizer: Any, boxes: bool) -> Arrays:
    """Return example inputs of `align`: valid rows, and rows with one invalid input.

    Args:
        tokenizer: tokenizer of the model.
        boxes: whether to add candidate boxes.
    """
    # A text with known words, and unusual texts.
    texts = golden_texts(tokenizer)[1:]
    jpeg, no_image, png, *_ = golden_images()
    images = [(jpeg, png)[row % 2] for row in range(len(texts))]
    affinities = np.resize(np.array([0, 0.25, 2, 1e6], np.float32), len(texts) + 3)
    affinities[-2] = -1
    rows = {
        "image_bytes": np.array([*images, no_image, png, jpeg], object),
        "text": np.array([*texts, *texts[:1] * 3], object),
        "affinity": affinities,
    }
    if boxes:
        rows["boxes"] = _boxes(len(affinities))
    return rows


def _boxes(rows: int) -> np.ndarray:
    """Return candidate boxes (rows, 5, 4) float32; the last row has a box with negative height."""
    good = np.array([[0.1, 0.2, 0.5, 0.5], [0.5, 0.4, 0.75, 0.5], [0.3, 0, 0.25, 1]], np.float32)
    none = np.zeros((2, 4), np.float32)
    # Padding may come first, since TensorFlow Serving pads a request with its own first element.
    kinds = np.stack([np.concatenate([none, good]), np.concatenate([good, none]), np.zeros((5, 4), np.float32)])
    boxes = np.resize(kinds, (rows, 5, 4))
    boxes[-1] = kinds[0]
    boxes[-1, -1, 3] = -0.25
    return boxes
