"""Pretrained image networks: from pixels to one feature vector per image.

Networks come from `keras.applications`, or from systems under a name `PREFIX:NAME` (`vsemb.image.presets`).
`SmallConvNet` is trained from scratch. Each model includes the pixel scaling of its network, so callers pass pixels in
0..255.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import math
import os
from pathlib import Path
from typing import Any, ClassVar, Literal

import keras
import numpy as np

from vsemb.configured import Configured
from vsemb.errors import DataError, invalid_argument, one_line, unknown_name
from vsemb.image.pooling import pooled_map
from vsemb.image.presets import Network, preset_class
from vsemb.image.resizing import Resizing
from vsemb.weights import load_weights, save_weights

# Part of every feature fingerprint: raise it when decoding, resizing, cropping or scaling changes.
PREPROCESSING_VERSION = "vsemb-image-2"

#: The network of image features that are made without the name of one.
DEFAULT_BACKBONE = "MobileNetV2"

# The papers' names of VGG's fully connected layers (after ReLU) -> Keras' names.
_FULLY_CONNECTED = {"fc6": "fc1", "fc7": "fc2"}
# (channels, side of the kernel, stride) of each block of SmallConvNet.
_SMALL_BLOCKS = ((32, 6, 4), (64, 3, 2), (96, 3, 2), (128, 3, 1))

#: Ways to make an image square, the default first. Presets with a `Resizing` of their own add `PRESET_RESIZE`.
RESIZES = ("squash", "short-side")
PRESET_RESIZE = "preset"


@dataclasses.dataclass(frozen=True)
class Architecture(Network):
    """A network that is described by a row of `ARCHITECTURES`; `keras.applications` builds it.

    Attributes:
        mode: scaling of RGB pixels in 0..255: `"tf"` (to [-1, 1]), `"caffe"` (to BGR, minus the ImageNet means),
            `"torch"` (to 0..1, minus mean, over deviation), or `"none"` (the network scales them itself).
        pooling, levels: see `Network`.
        layers: `fc6` and `fc7`, or maps, see `Network`.
    """

    published: ClassVar[str | None] = "imagenet"
    has_classifier: ClassVar[bool] = True

    mode: Literal["tf", "caffe", "torch", "none"]
    pooling: str = "mean"
    layers: tuple[str, ...] = ()
    levels: tuple[str, ...] = ()

    @property
    def inner_maps(self) -> tuple[str, ...]:
        return tuple(layer for layer in self.layers if layer not in _FULLY_CONNECTED)

    def build(self, config: BackboneConfig, weights: str | None = None) -> keras.Model:
        layer = _FULLY_CONNECTED.get(config.layer or "")
        options = {"weights": weights, "input_shape": (config.size, config.size, 3)}
        try:
            network = getattr(keras.applications, config.name)(include_top=layer is not None, **options)
        except ValueError as error:
            raise invalid_argument("size", config.size, f"a size that {config.name} accepts", str(error)) from error
        except Exception as error:  # Keras raises a bare Exception when a download fails
            if weights is None:
                raise
            raise DataError(
                f"Cannot get the ImageNet weights of {config.name} ({' '.join(str(error).split())}). "
                "Download them by hand and name the file as `weights`."
            ) from error
        if layer is None:
            return network
        return keras.Model(network.inputs, network.get_layer(layer).output, name=f"{network.name}_{config.layer}")

    def with_classifier(self, name: str, weights: str | None = None) -> keras.Model:
        return getattr(keras.applications, name)(weights=weights, input_shape=(self.size, self.size, 3))

    def scaled(self, pixels: Any) -> Any:
        return pixels if self.mode == "none" else PixelScaling(self.mode, name="scaling")(pixels)


class SmallConvNet(Architecture):
    """The network of `small_conv_net`, trained from scratch."""

    published = None
    has_classifier = False

    def build(self, config: BackboneConfig, weights: str | None = None) -> keras.Model:
        return small_conv_net((config.size, config.size, 3))


ARCHITECTURES: dict[str, Network] = {
    "MobileNetV2": Architecture(
        224,
        "tf",
        pooling="multilevel",
        layers=("block_13_project_BN",),
        levels=("block_13_expand_relu", "block_16_project_BN"),
    ),
    "MobileNetV3Small": Architecture(224, "none"),
    "MobileNetV3Large": Architecture(224, "none"),
    "EfficientNetB0": Architecture(224, "none"),
    "EfficientNetV2B0": Architecture(224, "none"),
    "EfficientNetV2S": Architecture(384, "none"),
    "ResNet50": Architecture(224, "caffe", levels=("conv4_block6_out",)),
    "ResNet101": Architecture(224, "caffe"),
    "ResNet152": Architecture(224, "caffe"),
    "ResNet50V2": Architecture(224, "tf"),
    "VGG16": Architecture(224, "caffe", layers=("fc6", "fc7")),
    "VGG19": Architecture(224, "caffe", layers=("fc6", "fc7")),
    "InceptionV3": Architecture(299, "tf"),
    "Xception": Architecture(299, "tf"),
    "DenseNet121": Architecture(224, "torch"),
    "ConvNeXtTiny": Architecture(224, "none"),
    "SmallConvNet": SmallConvNet(64, "tf", pooling="mean+max", layers=("block2_relu",)),
}


@dataclasses.dataclass(frozen=True)
class BackboneConfig:
    """Everything about an image network except its weights.

    Attributes:
        name: a key of `ARCHITECTURES`, or the name of a preset, such as `hub:NAME`, which the constructor opens.
        size: width and height of input images in pixels; 0 or None for the architecture's default.
        pooling: pooling of the last feature map; empty or None for the architecture's default, mean for most: `"mean"`,
            `"max"` or `"mean+max"` (concatenated) over grid cells; `"multilevel"`, mean and maximum of the last map and
            means of inner maps, which are less specific to the classes of ImageNet; `"regional"`, the same with the
            mean of the maxima over overlapping regions of 5 x 5 cells (R-MAC, Tolias et al. 2016, arXiv:1511.05879) in
            place of the maximum; `"flat"`, all grid cells concatenated, which keeps positions; `"pyramid"`, the maximum
            over the map and over each ninth of it, which keeps rough positions. For transformers in presets also
            `"token"`, the class token; for CLIP and SigLIP `"embedding"`, their joint embedding.
        layer: an inner layer in place of the last map: `"fc6"` or `"fc7"` of VGG, the 4096-d features of the papers,
            which need the weights of the whole network and size 224; or one of `inner_maps`, such as
            `"block_13_project_BN"` of MobileNetV2, whose default pooling is `"flat"`.
        crops: 1 (the whole image, or its centre) or 10 (features averaged over ten crops).
        resize: `"squash"`, the whole image to a square, with no regard to its aspect ratio; or `"short-side"`, the
            shorter side to 256 pixels for crops of 224, and the same ratio for other sizes, as in Vendrov et al. 2016,
            section 4.2. One crop is then the centre. For presets also `"preset"`, the interpolation, antialiasing, crop
            and padding of the preset. Empty for the default: `"preset"` for presets that say how to resize, `"squash"`
            for other networks.
        preset: fields of the `vsemb.image.presets.Preset` that was found by its name; None for other networks.

    Raises:
        InvalidArgumentError: for a value that is not allowed.
        DataError: for a preset that cannot be opened.

    Example:

    >>> BackboneConfig("MobileNetV2").size
    224
    """

    name: str
    size: int = 0
    pooling: str = ""
    layer: str | None = None
    crops: int = 1
    resize: str = ""
    preset: dict[str, Any] | None = dataclasses.field(default=None, hash=False, repr=False)

    def __post_init__(self) -> None:
        network_class = preset_class(self.name)
        if network_class is not None and self.preset is None:
            object.__setattr__(self, "preset", dataclasses.asdict(network_class.open(self.name)))
        network = self.network
        if self.size is None or self.size == 0:
            object.__setattr__(self, "size", network.size)
        if not self.pooling:
            object.__setattr__(self, "pooling", "flat" if self.inner_map else network.pooling)
        if not isinstance(self.size, int) or isinstance(self.size, bool) or self.size < 32:
            raise invalid_argument("size", self.size, "a number of pixels >= 32")
        if self.size != network.size and not network.any_size:
            raise invalid_argument("size", self.size, f"{network.size} for {self.name}")
        if not self.has_pooling(self.pooling):
            raise unknown_name("pooling", self.pooling, self.poolings)
        if self.layer is not None and self.layer not in network.layers:
            allowed = f"None, or one of {', '.join(network.layers)}" if network.layers else "None"
            raise invalid_argument("layer", self.layer, f"{allowed} for {self.name}")
        if self.crops not in (1, 10):
            raise invalid_argument("crops", self.crops, "1 or 10")
        resizes = dict.fromkeys((self._default_resize, *RESIZES))
        if not self.resize:
            object.__setattr__(self, "resize", self._default_resize)
        if self.resize not in resizes:
            raise unknown_name("resize", self.resize, resizes)

    @functools.cached_property
    def network(self) -> Network:
        """The network without its weights.

        Raises:
            InvalidArgumentError: for an unknown name.
        """
        network_class = preset_class(self.name)
        if network_class is not None:
            return network_class(**(self.preset or {}))
        if self.name not in ARCHITECTURES:
            raise unknown_name("backbone", self.name, ARCHITECTURES)
        return ARCHITECTURES[self.name]

    @property
    def inner_maps(self) -> tuple[str, ...]:
        """The inner layers whose maps the network can give, with layers above that can be trained.

        Example:

        >>> BackboneConfig("SmallConvNet").inner_maps, BackboneConfig("VGG16").inner_maps
        (('block2_relu',), ())
        """
        return self.network.inner_maps

    @property
    def poolings(self) -> tuple[str, ...]:
        """The poolings that the network has."""
        return tuple(pooling for pooling in (*self.network.poolings, "multilevel") if self.has_pooling(pooling))

    def has_pooling(self, pooling: object) -> bool:
        """Whether the network has a pooling."""
        return pooling in self.network.poolings or (pooling == "multilevel" and bool(self.network.levels))

    def fitting(self, pooling: str | None) -> str | None:
        """Return a recipe's pooling for this network: None in place of the mean of a map that it does not have.

        Example:

        >>> BackboneConfig("ResNet50").fitting("mean")
        'mean'
        """
        return None if pooling == "mean" and not self.has_pooling("mean") else pooling

    @property
    def _default_resize(self) -> str:
        return RESIZES[0] if self.network.resizing is None else PRESET_RESIZE

    @property
    def resizing(self) -> Resizing | None:
        """How the preset resizes images; None for the resizing of other networks."""
        if self.resize != PRESET_RESIZE:
            return None
        return Resizing(**(self.network.resizing or {}))

    @property
    def levels(self) -> tuple[str, ...]:
        """The inner layers whose means are part of the features."""
        added = self.layer is None and self.pooling in ("multilevel", "regional")
        return self.network.levels if added else ()

    @property
    def inner_map(self) -> bool:
        """Whether `layer` is a map, with layers above that can be trained."""
        return self.layer is not None and self.layer in self.network.inner_maps

    def to_json(self) -> dict[str, Any]:
        """Return the configuration as a JSON object."""
        values = dataclasses.asdict(self)
        # Leave out these defaults, so that features and runs from before the fields existed keep their fingerprints.
        if self.preset is None:
            del values["preset"]
        if self.resize == self._default_resize == RESIZES[0]:
            del values["resize"]
        return values

    def identity(self) -> dict[str, Any]:
        """Return the fields that determine the features, for fingerprints.

        Of a preset, these are its network, and its inner maps if they are used, but not its path.
        """
        fields = self.to_json()
        if self.preset:
            fields["name"] = self.name.partition(":")[0] + ":"
            fields["preset"] = {**self.preset, **({"inner_maps": list(self.levels)} if self.levels else {})}
        return fields

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> BackboneConfig:
        """Build the configuration from the result of `to_json`; an unknown key is an error."""
        fields = [field.name for field in dataclasses.fields(cls)]
        for key in value:
            if key not in fields:
                raise unknown_name("backbone field", key, fields)
        if "name" not in value:
            raise invalid_argument("backbone", value, "an object with the key `name`")
        if preset_class(value["name"]) is not None and not isinstance(value.get("preset"), dict):
            # The constructor would open the preset by its name, and a stored configuration may come from others.
            raise invalid_argument("backbone", value, "an object with the key `preset`, as it was stored")
        return cls(**value)


def build_backbone(config: BackboneConfig, weights: str | os.PathLike[str] | None = None, seed: int = 0) -> keras.Model:
    """Build the network, with pixel scaling before it and pooling after it.

    Args:
        config: configuration of the network.
        weights: `"imagenet"` (Keras downloads its published weights), a `.weights.h5` or `.h5` file of
            the network with or without its classifier, or None / `"random"`. A preset takes `"preset"`
            (its own weights) in place of `"imagenet"`.
        seed: seed of random weights.

    Returns:
        A functional model from float pixels (batch, size, size, 3) in 0..255 to features (batch, dim).

    Raises:
        DataError: if the weights cannot be downloaded, read, or do not fit the network.
        InvalidArgumentError: if the network cannot work at this size.

    Example:

    >>> build_backbone(BackboneConfig("SmallConvNet")).output_shape
    (None, 256)
    """
    own = config.network.published
    if weights in {"imagenet", "preset"} - {own}:
        allowed = f"a path or 'random' for {config.name}"
        raise invalid_argument("weights", weights, f"{own!r}, {allowed}" if own else allowed)
    base = config.network.build(config, own if weights == own else None)
    if weights is None or weights == "random":
        config.network.set_random(base, seed)
    elif weights != own:
        _load(base, config, Path(weights))
    pixels = keras.Input((config.size, config.size, 3), name="pixels")
    network = base
    inner: tuple[Any, ...] = (config.layer,) if config.inner_map else config.levels
    if inner:
        # The last map stays an output, so that the network keeps all its weights.
        outputs = [*(base.get_layer(name).output for name in inner), base.output]
        network = keras.Model(base.inputs, outputs, name=base.name)
    *levels, features = keras.tree.flatten(network(config.network.scaled(pixels)))
    if config.inner_map:
        features = levels.pop()
    return keras.Model(pixels, config.network.pooled(features, config.pooling, levels), name="backbone")


def build_top(config: BackboneConfig, weights: str | Path | None = None, pooling: str = "regional") -> keras.Model:
    """Build the layers of a network above an inner map, with a pooling of all these maps.

    Args:
        config: configuration of the network below, whose `layer` is a map and whose `pooling` is `"flat"`.
        weights: a file of the whole network's weights; None for random ones.
        pooling: pooling of the last map, see `BackboneConfig`; means of the inner maps are added.

    Returns:
        A functional model from flat maps (batch, height x width x channels) to features (batch, dim).

    Raises:
        DataError: if the weights cannot be read.
        InvalidArgumentError: for another layer or pooling.

    Example:

    >>> build_top(BackboneConfig("MobileNetV2", size=32, layer="block_13_project_BN")).input_shape
    (None, 160)
    """
    if not config.inner_map or config.pooling != "flat":
        raise invalid_argument("config", config, "of an inner map with pooling='flat'")
    base = config.network.build(config)
    if weights is not None:
        _load(base, config, Path(weights))
    names = [layer.name for layer in base.layers]
    above = [name for name in config.network.levels if names.index(name) > names.index(config.layer)]
    start = base.get_layer(config.layer).output
    top = keras.Model(start, [*(base.get_layer(name).output for name in above), base.output], name="top")
    # Networks of presets are built for images of any size.
    shape = keras.Model(base.inputs, start).compute_output_shape((None, config.size, config.size, 3))[1:]
    flat = keras.Input((math.prod(shape),), name="map")
    below = keras.layers.Reshape(shape)(flat)
    *levels, last = keras.tree.flatten(top(below))
    return keras.Model(flat, pooled_map(last, pooling, [below, *levels]), name="backbone")


@keras.saving.register_keras_serializable(package="vsemb")
class PixelScaling(Configured, keras.layers.Layer):
    """Scale RGB pixels in 0..255 as in a network's training, by one of the three modes of `keras.applications`.

    Always computes in float32: bfloat16 has 8 bits of precision, fewer than the pixels.

    Args:
        mode: `"tf"`, `"caffe"` or `"torch"`.

    Call args:
        pixels: (batch, height, width, 3), RGB in 0..255.

    Example:

    >>> import numpy as np
    >>> float(PixelScaling("tf")(np.full((1, 1, 1, 3), 255.0))[0, 0, 0, 0])
    1.0
    """

    def __init__(self, mode: Literal["tf", "caffe", "torch"], **kwargs: Any) -> None:
        super().__init__(**{**kwargs, "dtype": "float32"})
        self.keep_arguments(locals())

    def call(self, pixels: Any) -> Any:
        """Return the scaled pixels, same shape."""
        return keras.applications.imagenet_utils.preprocess_input(pixels, "channels_last", self.mode)


def save_backbone_weights(backbone: keras.Model, path: str | os.PathLike[str]) -> None:
    """Write the weights of a network to a file that `build_backbone` can load.

    Args:
        backbone: result of `build_backbone`.
        path: a name that ends in `.weights.h5`.
    """
    save_weights(_base(backbone), path)


def weights_sha256(backbone: keras.Model) -> str:
    """Return the hex SHA-256 of the values of all weights; it does not depend on the file's format."""
    digest = hashlib.sha256()
    for weight in _base(backbone).weights:
        value = np.ascontiguousarray(keras.ops.convert_to_numpy(weight))
        digest.update(f"{value.dtype.str}{value.shape}".encode())
        digest.update(value.data)
    return digest.hexdigest()


def _base(backbone: keras.Model) -> keras.Model:
    network = next(layer for layer in backbone.layers if isinstance(layer, keras.Model))
    if len(network.outputs) == 1:
        return network
    # Restore the network without inner outputs, because weights files depend on the order of layers.
    return keras.Model(network.inputs, network.outputs[-1], name=network.name)


def small_conv_net(input_shape: tuple[int, int, int] = (64, 64, 3)) -> keras.Model:
    """Build SmallConvNet: four blocks of convolution, batch normalization and ReLU, trained on a CPU in minutes.

    It is made for rendered scenes of 64 x 64 pixels. The first block has a wide kernel and stride 4, because
    convolutions at full resolution are expensive, and plain shapes have little detail.

    Args:
        input_shape: (height, width, 3), sides of at least 32 pixels.

    Returns:
        A functional model from float pixels (batch, height, width, 3), already scaled to [-1, 1], to
        a map of features (batch, height / 16, width / 16, 128), sides rounded up.

    Example:

    >>> small_conv_net((64, 64, 3)).output_shape
    (None, 4, 4, 128)
    """
    pixels = x = keras.Input(input_shape, name="pixels")
    for number, (channels, kernel, stride) in enumerate(_SMALL_BLOCKS):
        x = keras.layers.Conv2D(channels, kernel, stride, padding="same", use_bias=False, name=f"block{number}_conv")(x)
        # With the default momentum of 0.99, the statistics converge too slowly for a training of minutes.
        x = keras.layers.BatchNormalization(momentum=0.9, name=f"block{number}_norm")(x)
        x = keras.layers.ReLU(name=f"block{number}_relu")(x)
    return keras.Model(pixels, x, name="small_conv_net")


def _load(base: keras.Model, config: BackboneConfig, path: Path) -> None:
    if not path.is_file():
        raise DataError(f"No weights file at {path}. Expected: a .weights.h5 or .h5 file of {config.name}.")
    if path.suffix != ".h5":
        raise DataError(f"The weights file {path} has an unknown ending. Expected: .weights.h5 or .h5.")
    try:
        load_all_weights(base, path)
        return
    except Exception as error:  # h5py and Keras raise many types for a file that does not fit
        reason = one_line(error, 200)
    if not config.network.has_classifier:
        raise DataError(f"The weights in {path} do not fit {config.name}: {reason}")
    try:
        # The file may hold the whole network with its classifier, whose weights come last.
        network = config.network.with_classifier(config.name)
        load_all_weights(network, path)
        base.set_weights([keras.ops.convert_to_numpy(w) for w in network.weights[: len(base.weights)]])
    except Exception as error:
        raise DataError(f"The weights in {path} do not fit {config.name} at size {config.size}: {reason}") from error


def load_all_weights(network: keras.Model, path: str | os.PathLike[str]) -> None:
    """Load a file that must have all weights of a network.

    Raises:
        DataError: if the file is damaged.
        ValueError: if it lacks a weight, or belongs to another network.
    """
    # Keras only warns about missing layers and leaves them unchanged. Set them to NaN first, to detect them.
    floats = [weight for weight in network.weights if "float" in keras.backend.standardize_dtype(weight.dtype)]
    for weight in floats:
        weight.assign(np.full(weight.shape, np.nan, np.float32))
    load_weights(network, path)
    for weight in floats:
        if np.isnan(keras.ops.convert_to_numpy(weight)).any():
            raise ValueError(f"nothing, or NaN, for the weight {weight.path}.")
