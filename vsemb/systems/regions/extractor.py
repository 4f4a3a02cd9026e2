"""Image bytes to regions and their features, in graph, for the cache and for serving."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import NamedTuple

import keras

from vsemb.errors import DataError, VsembError, invalid_argument, one_line
from vsemb.exporting.signatures import one_row_at_least
from vsemb.image.backbones import BackboneConfig, load_all_weights
from vsemb.image.decode import decode_images
from vsemb.ops.tensorflow import tf
from vsemb.systems.regions.proposals import best_boxes, objectness, propose
from vsemb.systems.regions.region_store import WHOLE_IMAGE, RegionConfig

# Candidates with a side below the first share, or an area above the second share of the image, are dropped.
_NARROWEST, _LARGEST = 1 / 512, 0.95
# Crops are cut from images of this many times the network's size, since cropping enlarges.
_DETAIL = 2
# Pixels of crops per forward pass of the network: 64 crops of 224 x 224.
_PIXELS_AT_ONCE = 64 * 224 * 224


class ImageRegions(NamedTuple):
    """Regions of a batch of images; rows of zeros are padding.

    Attributes:
        features: float32 (batch, count, dim), features of the regions.
        boxes: float32 (batch, count, 4), `[x, y, w, h]` as fractions of the image's width and height. The whole image
            comes first, then the best boxes, best first.
        scores: float32 (batch, count), ranking scores of the boxes; 1 for the whole image.
        valid: bool (batch,), whether the image decodes; if false, the other values are zeros.
    """

    features: tf.Tensor
    boxes: tf.Tensor
    scores: tf.Tensor
    valid: tf.Tensor


class RegionExtractor:
    """Extractor of regions and their features from image bytes, entirely in graph.

    The boxes of an image depend on its bytes alone, not on the rest of the batch.

    Args:
        backbone_config: configuration of the network, with one crop and `resize="squash"`: boxes are fractions of the
            whole image.
        regions: configuration of the regions.
        backbone: result of `build_backbone(backbone_config)`.
        classifier: result of `build_classifier`, to rank candidates by the network's own confidence. Without it,
            candidates ranked by confidence must come best first or with scores.

    Attributes:
        count: regions per image, including the whole image and padding.
        dim: size of a region's features: the channels of the maps with `pooling="map"`, the network's features with
            `"crops"`.

    Raises:
        InvalidArgumentError: if the network does not fit the regions.

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
        if backbone_config.resize != "squash":
            raise invalid_argument("resize", backbone_config.resize, "squash where images have regions")
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

    def __call__(
        self, encoded: tf.Tensor, boxes: tf.Tensor | None = None, scores: tf.Tensor | None = None
    ) -> ImageRegions:
        """Compute the regions of a batch of images and their features.

        Args:
            encoded: string (batch,), bytes of JPEG or PNG images; the batch may be empty.
            boxes: float32 (batch, candidates, 4), `[x, y, w, h]` as fractions of the image, clipped to it; zeros are
                padding. They are ranked by `regions.rank`. If this is confidence, and there are no classifier and no
                `scores`, they must come best first. None if `regions.source` is `"grid"`.
            scores: float32 (batch, candidates), confidence of a detector.

        Returns:
            The regions.

        Raises:
            InvalidArgumentError: if candidates are missing, or given to a grid.
        """
        in_graph = self.regions.candidates.in_graph
        if (boxes is None) != in_graph:
            allowed = "None, since they are proposed," if in_graph else "candidates"
            received = None if boxes is None else boxes.shape
            raise invalid_argument("boxes", received, f"{allowed} with the source {self.regions.source!r}")
        encoded = tf.convert_to_tensor(encoded, tf.string)
        if boxes is not None:
            boxes = tf.convert_to_tensor(boxes, tf.float32)
        if scores is not None:
            scores = tf.convert_to_tensor(scores, tf.float32)
        return self._extract(encoded, boxes, scores)

    def _run(self, encoded: tf.Tensor, boxes: tf.Tensor | None, scores: tf.Tensor | None) -> ImageRegions:
        rows, batch = tf.shape(encoded)[0], encoded.shape[0]
        encoded = one_row_at_least(encoded)
        if boxes is not None:
            boxes = one_row_at_least(boxes)
        if scores is not None:
            scores = one_row_at_least(scores)
        pixels, valid = decode_images(encoded, self.backbone_config.size)
        # For a single output, Keras returns a tensor, not a list.
        maps = [] if self.maps is None else tf.nest.flatten(self.maps(pixels, training=False))
        best, best_scores = self._best(pixels, maps, boxes, scores)
        whole = tf.broadcast_to(tf.constant(WHOLE_IMAGE), tf.stack([tf.shape(pixels)[0], 1, 4]))
        best = tf.concat([whole, best], axis=1)
        best_scores = tf.concat([tf.ones_like(whole[..., 0]), best_scores], axis=1)
        features = pool_regions(maps, best) if self.regions.pooling == "map" else self._cropped(encoded, pixels, best)
        real = valid[:, None, None] & tf.reduce_any(best != 0, axis=-1, keepdims=True)
        features = tf.where(real, features, 0.0)[:rows]
        best = tf.where(real, best, 0.0)[:rows]
        best_scores = tf.where(real[..., 0], best_scores, 0.0)[:rows]
        return ImageRegions(
            tf.ensure_shape(features, (batch, self.count, self.dim)),
            tf.ensure_shape(best, (batch, self.count, 4)),
            tf.ensure_shape(best_scores, (batch, self.count)),
            tf.ensure_shape(valid[:rows], (batch,)),
        )

    def _best(
        self, pixels: tf.Tensor, maps: list[tf.Tensor], boxes: tf.Tensor | None, scores: tf.Tensor | None
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Return the best boxes of each image, and their ranking scores."""
        count, overlap = self.regions.count, self.regions.overlap
        if not count:
            none = tf.zeros((tf.shape(pixels)[0], 0, 4))
            return none, none[..., 0]
        if boxes is None:
            return propose(pixels, count, overlap)
        boxes = _clipped(boxes)
        if self.regions.rank == "objectness":
            scores = objectness(pixels, boxes)
        elif self.classifier is not None and scores is None:
            scores = _confidence(self.classifier, maps[-1], boxes)
        elif scores is None:
            # Candidates come best first: the score is the reciprocal rank among all candidates.
            scores = tf.ones_like(boxes[..., 0]) / tf.range(1, tf.shape(boxes)[1] + 1, dtype=tf.float32)
        return best_boxes(boxes, scores, count, overlap)[:2]

    def _cropped(self, encoded: tf.Tensor, pixels: tf.Tensor, boxes: tf.Tensor) -> tf.Tensor:
        """Compute network features of the whole images and of the crop of each other box, some images at a time."""
        size = self.backbone_config.size
        detailed = decode_images(encoded, _DETAIL * size)[0] if self.regions.count else pixels
        at_once = max(1, _PIXELS_AT_ONCE // (self.count * size * size))
        rows = tf.shape(pixels)[0]

        def some(start: tf.Tensor, done: tf.TensorArray) -> tuple[tf.Tensor, tf.TensorArray]:
            part = slice(start, start + at_once)
            crops = pixels[part, None]
            if self.regions.count:
                # Pixels of the whole image are whole numbers (`decode_images` rounds), so crops are rounded too.
                crops = tf.concat([crops, tf.round(crop_regions(detailed[part], boxes[part, 1:], size))], axis=1)
            features = self.backbone(tf.reshape(crops, (-1, size, size, 3)), training=False)
            features = tf.reshape(tf.cast(features, tf.float32), (-1, self.count, self.dim))
            return start + at_once, done.write(start // at_once, features)

        steps = (rows + at_once - 1) // at_once
        done = tf.TensorArray(tf.float32, steps, infer_shape=False, element_shape=(None, self.count, self.dim))
        _, done = tf.while_loop(lambda start, _: start < rows, some, (tf.constant(0), done), parallel_iterations=1)
        return done.concat()


def _clipped(boxes: tf.Tensor) -> tf.Tensor:
    """Clip boxes to the image; boxes that are too narrow, or nearly as large as the image, become padding."""
    low = tf.clip_by_value(boxes[..., :2], 0.0, 1.0)
    sides = tf.clip_by_value(boxes[..., :2] + boxes[..., 2:], 0.0, 1.0) - low
    # Comparisons with NaN are false, so boxes with NaN are dropped too.
    kept = tf.reduce_all(sides >= _NARROWEST, axis=-1) & (sides[..., 0] * sides[..., 1] <= _LARGEST)
    return tf.where(kept[..., None], tf.concat([low, sides], axis=-1), 0.0)


def _confidence(classifier: keras.Model, places: tf.Tensor, boxes: tf.Tensor) -> tf.Tensor:
    """Return the largest class probability of each box: (batch, candidates)."""
    # The classifier is linear, so the logits of a mean are the mean of the logits of the map's cells.
    cells, channels = places.shape[1] * places.shape[2], places.shape[3]
    logits = classifier(tf.reshape(places, (-1, cells, channels)), training=False)
    logits = tf.reshape(logits, (-1, places.shape[1], places.shape[2], logits.shape[-1]))

    def of_one(image: tuple[tf.Tensor, tf.Tensor]) -> tf.Tensor:
        pooled = pool_regions([image[0][None]], image[1][None])[0]
        return tf.reduce_max(tf.nn.softmax(pooled), axis=-1)

    # One image at a time: the logits of 1,000 boxes take 4 MB.
    return tf.map_fn(of_one, (logits, boxes), fn_output_signature=tf.float32, parallel_iterations=1)


def pool_regions(maps: Sequence[tf.Tensor], boxes: tf.Tensor) -> tf.Tensor:
    """Average maps over each box, with cells weighted by the area that they share with the box.

    The map is constant within each cell, so boxes may have any edges. The whole image gives the map's mean. Gradients
    flow into the map.

    Args:
        maps: one or more maps (batch, height, width, channels), of any height and width.
        boxes: float32 (batch, n, 4), `[x, y, w, h]` as fractions, within the image.

    Returns:
        float32 (batch, n, channels), with the channels of several maps concatenated; zeros for boxes without area, such
        as padding.

    Example:

    >>> place = tf.constant([[1.0, 4.0], [5.0, 6.0]])[None, :, :, None]
    >>> boxes = [[[0.0, 0.0, 1.0, 1.0], [0.0, 0.0, 0.75, 0.5], [0.0, 0.0, 0.0, 0.0]]]
    >>> pool_regions([place], boxes)[0, :, 0].numpy().round(6).tolist()  # the second: (2 * 1 + 1 * 4) / 3
    [4.0, 2.0, 0.0]
    """
    boxes = tf.convert_to_tensor(boxes, tf.float32)
    return tf.concat([_pooled(one, boxes) for one in maps], axis=-1)


def _pooled(maps: tf.Tensor, boxes: tf.Tensor) -> tf.Tensor:
    across = _shares(boxes[..., 0], boxes[..., 2], maps.shape[2])  # (batch, n, width)
    down = _shares(boxes[..., 1], boxes[..., 3], maps.shape[1])
    weights = down[..., :, None] * across[..., None, :]
    cells, channels = maps.shape[1] * maps.shape[2], maps.shape[3]
    weights = tf.reshape(weights, tf.concat([tf.shape(boxes)[:2], [cells]], axis=0))
    return tf.matmul(weights, tf.reshape(tf.cast(maps, tf.float32), (-1, cells, channels)))


def _shares(start: tf.Tensor, length: tf.Tensor, cells: int) -> tf.Tensor:
    """Return the share of each interval in each of the equal cells of 0..1: (batch, n, cells)."""
    low = start[..., None] * cells
    high = (start + length)[..., None] * cells
    cell = tf.range(cells, dtype=tf.float32)
    shared = tf.maximum(tf.minimum(high, cell + 1) - tf.maximum(low, cell), 0.0)
    return tf.math.divide_no_nan(shared, tf.reduce_sum(shared, axis=-1, keepdims=True))


def crop_regions(pixels: tf.Tensor, boxes: tf.Tensor, size: int) -> tf.Tensor:
    """Crop boxes from images and resize each crop to a square, bilinearly and with antialiasing.

    Each side is a product with a small matrix: the triangle filter of `tf.image.resize(..., antialias=True)`, as wide
    as a pixel of the crop or of the image, whichever is larger. (`tf.image.crop_and_resize` samples single pixels, so
    it skips pixels if it shrinks.)

    Args:
        pixels: (batch, height, width, 3), in any range.
        boxes: float32 (batch, n, 4), `[x, y, w, h]` as fractions, within the image.
        size: height and width of a crop, in pixels.

    Returns:
        float32 (batch, n, size, size, 3); zeros for boxes without area, such as padding.

    Example:

    >>> pixels = tf.random.uniform((1, 8, 8, 3))
    >>> whole = crop_regions(pixels, [[[0.0, 0.0, 1.0, 1.0]]], size=8)
    >>> bool(tf.reduce_all(whole[:, 0] == pixels))
    True
    """
    boxes = tf.convert_to_tensor(boxes, tf.float32)
    pixels = tf.cast(pixels, tf.float32)
    down = _filters(boxes[..., 1], boxes[..., 3], pixels.shape[1], size)  # (batch, n, size, height)
    across = _filters(boxes[..., 0], boxes[..., 2], pixels.shape[2], size)
    rows = tf.einsum("bnih,bhwc->bniwc", down, pixels)
    return tf.einsum("bnjw,bniwc->bnijc", across, rows)


def _filters(start: tf.Tensor, length: tf.Tensor, pixels: int, size: int) -> tf.Tensor:
    """Return the weight of each image pixel in each crop pixel: (batch, n, size, pixels)."""
    step = length[..., None, None] * (pixels / size)
    places = tf.range(size, dtype=tf.float32)[:, None] + 0.5
    centres = start[..., None, None] * pixels + places * step
    away = tf.abs(tf.range(pixels, dtype=tf.float32) + 0.5 - centres)
    weights = tf.maximum(1.0 - away / tf.maximum(step, 1.0), 0.0)
    weights = tf.where(step > 0, weights, 0.0)
    return tf.math.divide_no_nan(weights, tf.reduce_sum(weights, axis=-1, keepdims=True))


def feature_maps(backbone: keras.Model, config: BackboneConfig) -> keras.Model:
    """Return the part of a network before its pooling, for features of regions.

    Args:
        backbone: result of `build_backbone(config)`; the weights are shared.
        config: configuration of the network.

    Returns:
        A functional model from float pixels (batch, size, size, 3) in 0..255 to the last map (batch, height, width,
        channels). With `"multilevel"` or `"regional"` pooling of a network with inner maps, a list of them and the
        last map.

    Raises:
        InvalidArgumentError: if the network's features come from an inner layer instead of a pooled map.

    Example:

    >>> from vsemb.image.backbones import build_backbone
    >>> config = BackboneConfig("SmallConvNet")
    >>> [places.shape for places in feature_maps(build_backbone(config), config).outputs]
    [(None, 4, 4, 128)]
    """
    if config.layer is not None:
        fix = 'A fully connected layer has no map: use pooling="crops".'
        raise invalid_argument("layer", config.layer, "None where features are pooled from a map", fix)
    if not config.network.gives_map:
        raise invalid_argument("backbone", config.name, "a network that gives a map, for regions")
    network = next(layer for layer in backbone.layers if isinstance(layer, keras.Model))
    pixels = keras.Input((config.size, config.size, 3), name="pixels")
    maps = network(config.network.scaled(pixels))
    return keras.Model(pixels, maps, name="maps")


def build_classifier(config: BackboneConfig, weights: str | os.PathLike[str]) -> keras.Model:
    """Build the linear classifier of a trained network, to rank boxes by its confidence.

    Args:
        config: a network whose classifier is linear in the mean of the last map.
        weights: `"imagenet"`, a `.weights.h5` or `.h5` file of the whole network, or a file written by `save_weights`.

    Returns:
        A model from features (batch, n, channels), means or single cells of the network's last map, to the logits of
        the classes (batch, n, 1000).

    Raises:
        DataError: if the weights cannot be read or lack the classifier.
        InvalidArgumentError: if the network lacks such a classifier.
    """
    instead = 'Use rank="objectness".'
    if not config.network.has_classifier:
        allowed = f"'objectness' for {config.name}, which has no classifier here"
        raise invalid_argument("rank", "confidence", allowed, instead)
    if weights != "imagenet" and not os.path.isfile(weights):
        raise DataError(f"No weights file at {weights}. Expected: one of {config.name} with its classifier.")
    source = "imagenet" if weights == "imagenet" else None
    try:
        network = config.network.with_classifier(config.name, source)
        *_, before, dense = [part for part in network.layers if not isinstance(part, keras.layers.Dropout)]
        if not isinstance(before, keras.layers.GlobalAveragePooling2D):
            allowed = f"'objectness' for {config.name}, whose classifier is more than linear"
            raise invalid_argument("rank", "confidence", allowed, instead)
        features = keras.Input((None, dense.kernel.shape[0]), name="features")
        logits = keras.layers.Dense(dense.units, name="logits")
        classifier = keras.Model(features, logits(features), name="classifier")
        try:
            if source is None:
                load_all_weights(classifier, weights)
                return classifier
        except ValueError:  # the file has the whole network, or another network
            load_all_weights(network, weights)
        logits.set_weights(dense.get_weights())
    except VsembError:
        raise
    except Exception as error:  # Keras raises many types for a file that does not fit, or a failed download
        raise DataError(
            f"Cannot get the classifier of {config.name} from {weights} ({one_line(error, 200)}). Expected: "
            f"weights of the whole network, with its classifier. {instead}"
        ) from error
    return classifier
