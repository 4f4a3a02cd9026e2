"""RandAugment, AutoAugment and random erasing of the TensorFlow Model Garden, with stateless random numbers.

The library (`official.vision.ops.augment`) draws the operation of each image and its strength from `tf.random`, which
has a state. A resumed training, or one whose batches come from other processes, would get different images. This
module runs a copy of the library that draws from stateless operations, so the same seed gives the same images in any
process. The graph consists of core operations, so processes that run it, such as workers of a tf.data service, need no
Model Garden.

References:
    RandAugment: Cubuk et al. 2019, https://arxiv.org/abs/1909.13719
    AutoAugment: Cubuk et al. 2018, https://arxiv.org/abs/1805.09501
    Random erasing: Zhong et al. 2017, https://arxiv.org/abs/1708.04896
"""

from __future__ import annotations

import contextvars
import functools
import importlib.util
import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from types import ModuleType
from typing import Annotated, Any, Literal

from vsemb.errors import invalid_argument, missing_extra
from vsemb.ops.tensorflow import tf
from vsemb.parts import Count, Part, Probability, Range, Size, between

Magnitude = Annotated[float, Range("a number in [0, 30]", lambda value: 0 <= value <= 30)]

_MODULE = "official.vision.ops.augment"
# Side of the images for which the library's distances in pixels are meant.
_USUAL_SIZE = 224
# Mean and deviation of ImageNet, in 0..255. Erased pixels become normal noise with this mean and deviation.
_MEAN = (123.675, 116.28, 103.53)
_DEVIATION = (58.395, 57.12, 57.375)
# Attempts to draw a rectangle that fits; one in a hundred does not. The library makes ten attempts, each a copy of the
# graph.
_TRIALS = 3


@dataclass(frozen=True)
class ImageAugmenter(Part):
    """Distort training images by a policy, then erase a rectangle of some of them.

    Distances (translations, squares of Cutout) are the library's for images of 224 pixels, and are scaled with the
    size of the image. An image of 224 pixels takes 4 ms of one core for the policy, and 4 ms for erasing. tf.data
    prepares the graph again for each epoch, which takes 2 seconds (5 for `autoaugment`).

    Attributes:
        size: height and width of the images in pixels.
        policy: `randaugment`, `autoaugment` (the policy `v0` of the paper) or None.
        magnitude: strength of the operations of `randaugment`, M in the paper, from 0 to 30.
        layers: number of successive operations of `randaugment`, N in the paper.
        erasing: probability that a rectangle of 2 % to a third of an image's area is replaced by noise.

    Raises:
        InvalidArgumentError: for an unknown policy, a number out of range, or nothing to do.
        MissingExtraError: if the Model Garden is not installed.

    Example:

        augmenter = ImageAugmenter(224, "randaugment", magnitude=9, erasing=0.25)
        pixels = augmenter(pixels, seed=[epoch, step])
    """

    size: Size
    policy: Literal["randaugment", "autoaugment"] | None = None
    magnitude: Magnitude = 10.0
    layers: Count = 2
    erasing: Probability = 0.0

    def check(self) -> None:
        if self.policy is None and self.erasing == 0:
            raise invalid_argument("policy", self.policy, "randaugment or autoaugment with erasing=0")
        _stateless_module()

    @functools.cached_property
    def _graph(self) -> Any:
        # Traced once per augmenter and not once per epoch, since tracing takes seconds.
        signature = (tf.TensorSpec((None, self.size, self.size, 3), tf.uint8), tf.TensorSpec((2,), tf.int32))
        return tf.function(self._batch, input_signature=signature, autograph=False)

    def __call__(self, pixels: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
        """Distort a batch.

        Args:
            pixels: (batch, size, size, 3) in 0..255, integer values of any dtype.
            seed: int (2,), as in `tf.random.stateless_uniform`. Each row gets a seed derived from it.

        Returns:
            Integer values in 0..255 of the same shape and dtype.
        """
        pixels = tf.convert_to_tensor(pixels)
        distorted = self._graph(tf.cast(pixels, tf.uint8), tf.cast(seed, tf.int32))
        return tf.ensure_shape(tf.cast(distorted, pixels.dtype), pixels.shape)

    def _batch(self, pixels: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
        # Fold a number into the seed, because crops are drawn from the seed itself.
        seed = tf.random.experimental.stateless_fold_in(seed, _STREAM)
        seeds = tf.random.experimental.stateless_split(seed, tf.shape(pixels)[0])
        row = tf.TensorSpec((self.size, self.size, 3), tf.uint8)
        return tf.map_fn(lambda image: self._one(*image), (pixels, seeds), fn_output_signature=row)

    def _one(self, image: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
        library = _stateless_module()
        # Different keys give independent numbers, and addition is the smallest graph that makes them.
        token = _seeds.set(seed + tf.constant([0, number]) for number in itertools.count(1))
        try:
            if self.policy is not None:
                image = self._policy(library).distort(image)
            if self.erasing:
                # A new object, because its method is a `tf.function` that would keep the seed of an earlier trace.
                erase = library.RandomErasing(probability=self.erasing, trials=_TRIALS)
                normal = (tf.cast(image, tf.float32) - _MEAN) / _DEVIATION
                erased = tf.round(erase.distort(normal) * _DEVIATION + _MEAN)
                image = tf.cast(tf.clip_by_value(erased, 0.0, 255.0), tf.uint8)
        finally:
            _seeds.reset(token)
        return image

    def _policy(self, library: ModuleType) -> Any:
        ratio = self.size / _USUAL_SIZE
        if self.policy == "autoaugment":
            return library.AutoAugment(cutout_const=100 * ratio, translate_const=250 * ratio)
        return library.RandAugment(self.layers, self.magnitude, cutout_const=40 * ratio, translate_const=100 * ratio)


# Arbitrary number, different from other numbers that are folded into a batch's seed.
_STREAM = 0x6175676D


# The seeds of one image; each draw takes the next one.
_seeds: contextvars.ContextVar[Iterator[tf.Tensor]] = contextvars.ContextVar("seeds")


class _StatelessRandom:
    """The functions of `tf.random` that the library calls."""

    @staticmethod
    @tf.autograph.experimental.do_not_convert
    def uniform(shape: Any, minval: Any = 0, maxval: Any = None, dtype: Any = "float32", **_: Any) -> tf.Tensor:
        return tf.random.stateless_uniform(shape, next(_seeds.get()), minval, maxval, dtype)

    @staticmethod
    @tf.autograph.experimental.do_not_convert
    def normal(shape: Any, mean: Any = 0.0, stddev: Any = 1.0, dtype: Any = "float32", **_: Any) -> tf.Tensor:
        return tf.random.stateless_normal(shape, next(_seeds.get()), mean, stddev, dtype)


class _StatelessTensorFlow:
    """TensorFlow with `tf.random` replaced by its stateless functions."""

    random = _StatelessRandom

    def __getattr__(self, name: str) -> Any:
        return getattr(tf, name)


@functools.cache
def _stateless_module() -> ModuleType:
    """Load a separate copy of the library's module, so that importers of the library get the unchanged one."""
    try:
        spec = importlib.util.find_spec(_MODULE)
        if spec is None or spec.loader is None:
            raise ImportError(_MODULE)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    except ImportError as error:
        raise missing_extra("tf-models-official", "models") from error
    module.__dict__["tf"] = _StatelessTensorFlow()
    return module


@dataclass(frozen=True)
class Augmentation(Part, family="augmentation"):
    """Augmentation of training images beyond crops and mirror images; base of the family `augmentation`.

    The kind is the policy of `ImageAugmenter`, and the fields are its options.
    """

    def options(self) -> dict[str, Any]:
        """Return arguments of `ImageAugmenter`."""
        return {"policy": self.kind, **self.arguments()}


@dataclass(frozen=True)
class RandAugment(Augmentation, kind="randaugment"):
    """RandAugment of the TensorFlow Model Garden (extra `models`).

    Attributes:
        magnitude: strength of the operations, from 0 to 30.
        layers: number of operations per image.
    """

    magnitude: Magnitude = 10.0
    layers: Annotated[int, between(1, 16)] = 2


@dataclass(frozen=True)
class AutoAugment(Augmentation, kind="autoaugment"):
    """AutoAugment of the TensorFlow Model Garden (extra `models`)."""
