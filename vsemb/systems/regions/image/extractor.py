"""From image bytes to regions and their features, in graph: for the cache and for serving alike."""

from __future__ import annotations

from typing import NamedTuple

import keras
import tensorflow as tf

from vsemb.errors import invalid_argument
from vsemb.image.backbones import BackboneConfig
from vsemb.image.decode import decode_images
from vsemb.systems.regions.image.config import RegionConfig
from vsemb.systems.regions.image.cutting import crop_regions
from vsemb.systems.regions.image.networks import feature_maps
from vsemb.systems.regions.image.objectness import objectness
from vsemb.systems.regions.image.pooling import pool_regions
from vsemb.systems.regions.image.proposals import propose
from vsemb.systems.regions.image.ranking import best_boxes

_WHOLE = (0.0, 0.0, 1.0, 1.0)
# Candidates narrower than this part of the image show nothing; larger than this are the whole image again.
_NARROWEST, _LARGEST = 1 / 512, 0.95
# Crops are cut from images of this many times the network's size, since they enlarge what they show.
_DETAIL = 2
# Pixels of crops that go through the network at a time: 64 crops of 224 x 224.
_PIXELS_AT_ONCE = 64 * 224 * 224


class Regions(NamedTuple):
    """The regions of a batch of images; rows of zeros are padding.

    Attributes:
        features: float32 (batch, count, dim).
        boxes: float32 (batch, count, 4), `[x, y, w, h]` as fractions of the image's width and height;
            first the whole image, then the best boxes, best first.
        scores: float32 (batch, count), what the boxes were ranked by; 1 for the whole image.
        valid: bool (batch,), whether the image could be decoded; where not, the rest is zeros.
    """

    features: tf.Tensor
    boxes: tf.Tensor
    scores: tf.Tensor
    valid: tf.Tensor


class RegionExtractor:
    """Finds the regions of images and describes them, from the images' bytes, wholly in graph.

    Which boxes an image gets depends on its bytes alone, not on the rest of the batch.

    Args:
        backbone_config: the network's configuration, with one crop.
        regions: which regions.
        backbone: what `build_backbone(backbone_config)` returned.
        classifier: what `build_classifier` returned, for candidates that the network's own confidence
            is to rank. Without it, candidates ranked by confidence come best first or with scores.

    Attributes:
        count: regions of an image, the whole image and padding included.
        dim: length of a region's features: the channels of the maps with `pooling="map"`, the
            network's features with `"crops"`.

    Raises:
        InvalidArgumentError: if network and regions do not go together.

    Example:

    >>> from vsemb.image.backbones import build_backbone
    >>> config = BackboneConfig("SmallConvNet")
    >>> extract = RegionExtractor(config, RegionConfig(count=5), build_backbone(config))
    >>> regions = extract(tf.stack([tf.io.encode_png(tf.ones((64, 64, 3), tf.uint8)), b"no image"]))
    >>> regions.features.shape, regions.boxes.numpy()[0, 0].tolist(), regions.valid.numpy().tolist()
    (TensorShape([2, 6, 128]), [0.0, 0.0, 1.0, 1.0], [True, False])
    """

    def __init__(
        self,
        backbone_config: BackboneConfig,
        regions: RegionConfig,
        backbone: keras.Model,
        classifier: keras.Model | None = None,
    ) -> None:
        if backbone_config.crops != 1:
            raise invalid_argument("crops", backbone_config.crops, "1 where images have regions")
        if backbone_config.layer is not None and (regions.pooling == "map" or classifier is not None):
            allowed = f"'crops' with the layer {backbone_config.layer}, which has no map"
            raise invalid_argument("pooling", regions.pooling, allowed)
        self.backbone_config = backbone_config
        self.regions = regions
        self.backbone = backbone
        self.classifier = classifier if regions.rank == "confidence" else None
        self.count = 1 + regions.count
        needs_maps = regions.pooling == "map" or self.classifier is not None
        self.maps = feature_maps(backbone, backbone_config) if needs_maps else None
        outputs = self.maps.outputs if self.maps is not None and regions.pooling == "map" else [backbone.output]
        self.dim = sum(int(output.shape[-1]) for output in outputs)
        self._extract = tf.function(self._run, reduce_retracing=True, autograph=False)

    def __call__(self, encoded: tf.Tensor, boxes: tf.Tensor | None = None, scores: tf.Tensor | None = None) -> Regions:
        """Finds and describes the regions of a batch of images.

        Args:
            encoded: string (batch,), the bytes of JPEG or PNG images; may be empty.
            boxes: float32 (batch, candidates, 4), `[x, y, w, h]` as fractions of the image, clipped to it;
                zeros are padding. Ranked as `regions.rank` says, best first where that is confidence and
                there is neither a classifier nor `scores`. None where `regions.source` is `"grid"`.
            scores: float32 (batch, candidates), the confidence of a detector.

        Returns:
            The regions.

        Raises:
            InvalidArgumentError: if candidates are missing, or given to a grid.
        """
        if boxes is None and not self.regions.in_graph:
            raise invalid_argument("boxes", None, f"candidates, with the source {self.regions.source!r}")
        if boxes is not None and self.regions.in_graph:
            raise invalid_argument("boxes", boxes.shape, "None: with the source 'grid' they are proposed")
        encoded = tf.convert_to_tensor(encoded, tf.string)
        if boxes is None:
            return Regions(*self._extract(encoded, None, None))
        boxes = tf.convert_to_tensor(boxes, tf.float32)
        scores = None if scores is None else tf.convert_to_tensor(scores, tf.float32)
        return Regions(*self._extract(encoded, boxes, scores))

    def _run(self, encoded: tf.Tensor, boxes: tf.Tensor | None, scores: tf.Tensor | None) -> tuple:
        # TensorFlow 2.20's optimised convolutions fail on an empty batch in a graph: it gets one image.
        rows, batch = tf.shape(encoded)[0], encoded.shape[0]
        none = tf.cast(tf.equal(rows, 0), tf.int32)
        encoded = tf.concat([encoded, tf.fill(none[None], "")], axis=0)
        boxes = None if boxes is None else tf.pad(boxes, tf.stack([[0, none], [0, 0], [0, 0]]))
        scores = None if scores is None else tf.pad(scores, tf.stack([[0, none], [0, 0]]))

        pixels, valid = decode_images(encoded, self.backbone_config.size)
        maps = [] if self.maps is None else self.maps(pixels, training=False)
        maps = maps if isinstance(maps, list) else [maps]  # Keras takes a single output out of its list
        best, best_scores = self._best(pixels, maps, boxes, scores)
        whole = tf.broadcast_to(tf.constant(_WHOLE), tf.stack([tf.shape(pixels)[0], 1, 4]))
        best = tf.concat([whole, best], axis=1)
        best_scores = tf.concat([tf.ones_like(whole[..., 0]), best_scores], axis=1)
        features = pool_regions(maps, best) if self.regions.pooling == "map" else self._cropped(encoded, pixels, best)
        real = valid[:, None, None] & tf.reduce_any(best != 0, axis=-1, keepdims=True)
        features, best = tf.where(real, features, 0.0)[:rows], tf.where(real, best, 0.0)[:rows]
        best_scores = tf.where(real[..., 0], best_scores, 0.0)[:rows]
        return (
            tf.ensure_shape(features, (batch, self.count, self.dim)),
            tf.ensure_shape(best, (batch, self.count, 4)),
            tf.ensure_shape(best_scores, (batch, self.count)),
            tf.ensure_shape(valid[:rows], (batch,)),
        )

    def _best(
        self,
        pixels: tf.Tensor,
        maps: list[tf.Tensor],
        boxes: tf.Tensor | None,
        scores: tf.Tensor | None,
    ) -> tuple[tf.Tensor, tf.Tensor]:
        count, overlap = self.regions.count, self.regions.overlap
        if boxes is None:
            return propose(pixels, count, overlap)
        boxes = _clipped(boxes)
        if self.regions.rank == "objectness":
            scores = objectness(pixels, boxes)
        elif self.classifier is not None and scores is None:
            scores = _confidence(self.classifier, maps[-1], boxes)
        elif scores is None:
            # Best first: the place decides, counted among all that were given.
            scores = tf.ones_like(boxes[..., 0]) / tf.range(1, tf.shape(boxes)[1] + 1, dtype=tf.float32)
        best, best_scores, _ = best_boxes(boxes, scores, count, overlap)
        return best, best_scores

    def _cropped(self, encoded: tf.Tensor, pixels: tf.Tensor, boxes: tf.Tensor) -> tf.Tensor:
        """Runs the network on the whole images and on each of the other boxes, some images at a time."""
        size = self.backbone_config.size
        detailed, _ = decode_images(encoded, _DETAIL * size)
        at_once = max(1, _PIXELS_AT_ONCE // (self.count * size * size))
        rows = tf.shape(pixels)[0]

        def some(start: tf.Tensor, done: tf.TensorArray) -> tuple:
            part = slice(start, start + at_once)
            crops = crop_regions(detailed[part], boxes[part, 1:], size)
            # The whole image as everywhere else; the others in whole numbers, as it is.
            crops = tf.concat([pixels[part, None], tf.round(crops)], axis=1)
            features = self.backbone(tf.reshape(crops, (-1, size, size, 3)), training=False)
            features = tf.reshape(tf.cast(features, tf.float32), (-1, self.count, self.dim))
            return start + at_once, done.write(start // at_once, features)

        done = tf.TensorArray(
            tf.float32,
            size=(rows + at_once - 1) // at_once,
            infer_shape=False,
            element_shape=(None, self.count, self.dim),
        )
        _, done = tf.while_loop(lambda start, _: start < rows, some, (tf.constant(0), done), parallel_iterations=1)
        return done.concat()


def _clipped(boxes: tf.Tensor) -> tf.Tensor:
    """Clips boxes to the image; those that show nothing of it, or all of it, become padding."""
    low = tf.clip_by_value(boxes[..., :2], 0.0, 1.0)
    sides = tf.clip_by_value(boxes[..., :2] + boxes[..., 2:], 0.0, 1.0) - low
    # Comparisons with NaN are false, so a box with one is dropped too.
    kept = tf.reduce_all(sides >= _NARROWEST, axis=-1) & (sides[..., 0] * sides[..., 1] <= _LARGEST)
    return tf.where(kept[..., None], tf.concat([low, sides], axis=-1), 0.0)


def _confidence(classifier: keras.Model, places: tf.Tensor, boxes: tf.Tensor) -> tf.Tensor:
    """Returns the largest class probability of each box: (batch, candidates)."""
    # The classifier is linear, so the logits of a mean are the mean of the places' logits.
    cells, channels = places.shape[1] * places.shape[2], places.shape[3]
    logits = classifier(tf.reshape(places, (-1, cells, channels)), training=False)
    logits = tf.reshape(logits, (-1, places.shape[1], places.shape[2], logits.shape[-1]))

    def of_one(image: tuple[tf.Tensor, tf.Tensor]) -> tf.Tensor:
        pooled = pool_regions(image[0][None], image[1][None])[0]
        return tf.reduce_max(tf.nn.softmax(pooled), axis=-1)

    # One image at a time: the logits of a thousand boxes are 4 MB.
    return tf.map_fn(of_one, (logits, boxes), fn_output_signature=tf.float32, parallel_iterations=1)
