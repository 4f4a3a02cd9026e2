"""What regions need of a network besides its features: the maps before its pooling, and its classifier."""

from __future__ import annotations

import math
import os
import warnings

import keras
import numpy as np

from vsemb.errors import DataError, VsembError, invalid_argument, one_line
from vsemb.files import require_space
from vsemb.image.backbones import ARCHITECTURES, BackboneConfig, scaled


def feature_maps(backbone: keras.Model, config: BackboneConfig) -> keras.Model:
    """Returns the part of a network that comes before its pooling, for features of parts of an image.

    Args:
        backbone: what `build_backbone(config)` returned; the weights are shared with it.
        config: its configuration.

    Returns:
        A functional model from float pixels (batch, size, size, 3) in 0..255 to the last map (batch,
        height, width, channels); with `"multilevel"` pooling to a list of the inner maps and the last.

    Raises:
        InvalidArgumentError: if the network's features are no pooled map, but an inner layer.

    Example:

    >>> from vsemb.image.backbones import build_backbone
    >>> config = BackboneConfig("SmallConvNet")
    >>> [places.shape for places in feature_maps(build_backbone(config), config).outputs]
    [(None, 4, 4, 128)]
    """
    if config.layer is not None:
        raise invalid_argument("layer", config.layer, "None", "A fully connected layer has no map.")
    if config.network is not None and config.network.kind != "map":
        raise invalid_argument("backbone", config.name, "a network that gives a map, for regions")
    network = next(layer for layer in backbone.layers if isinstance(layer, keras.Model))
    pixels = keras.Input((config.size, config.size, 3), name="pixels")
    maps = network(scaled(pixels, config))
    return keras.Model(pixels, maps, name="maps")


def build_classifier(config: BackboneConfig, weights: str | os.PathLike[str]) -> keras.Model:
    """Builds the linear classifier that a network was trained with, for ranking boxes by its confidence.

    Args:
        config: the network; one whose classifier is linear in the mean of the last map.
        weights: `"imagenet"`, a `.weights.h5` or `.h5` file of the whole network, or one that
            `save_classifier_weights` wrote.

    Returns:
        A model from features (batch, n, channels), means of the network's last map or single places of
        it, to the logits of the classes (batch, n, 1000).

    Raises:
        DataError: if the weights cannot be read or hold no classifier.
        InvalidArgumentError: if the network has no such classifier.
    """
    instead = 'Use rank="objectness".'
    if config.name not in ARCHITECTURES or config.name == "SmallConvNet":
        allowed = f"'objectness' for {config.name}, which has no classifier here"
        raise invalid_argument("rank", "confidence", allowed, instead)
    if weights != "imagenet" and not os.path.isfile(weights):
        raise DataError(f"No weights file at {weights}. Expected: one of {config.name} with its classifier.")
    side = ARCHITECTURES[config.name].size
    source = "imagenet" if weights == "imagenet" else None
    try:
        network = getattr(keras.applications, config.name)(weights=source, input_shape=(side, side, 3))
        *_, before, dense = [part for part in network.layers if not isinstance(part, keras.layers.Dropout)]
        if not isinstance(before, keras.layers.GlobalAveragePooling2D):
            allowed = f"'objectness' for {config.name}, whose classifier is more than linear"
            raise invalid_argument("rank", "confidence", allowed, instead)
        features = keras.Input((None, dense.kernel.shape[0]), name="features")
        logits = keras.layers.Dense(dense.units, name="logits")
        classifier = keras.Model(features, logits(features), name="classifier")
        if source is not None or not _loaded(classifier, logits, weights):
            if source is None and not _loaded(network, dense, weights):
                raise ValueError("the file has no weights of the classifier")
            logits.set_weights(dense.get_weights())
    except VsembError:
        raise
    except Exception as error:  # Keras raises many types for a file that does not fit, or a failed download
        raise DataError(
            f"Cannot get the classifier of {config.name} from {weights} ({one_line(error, 200)}). Expected: "
            f"weights of the whole network, with its classifier. {instead}"
        ) from error
    return classifier


def save_classifier_weights(classifier: keras.Model, path: str | os.PathLike[str]) -> None:
    """Writes the weights of a classifier of `build_classifier`, which reads them back given the path.

    Args:
        classifier: what `build_classifier` returned.
        path: a name that ends in `.weights.h5`.
    """
    require_space(path, sum(math.prod(weight.shape) * 4 for weight in classifier.weights) + (1 << 20))
    classifier.save_weights(path)


def _loaded(network: keras.Model, layer: keras.layers.Layer, path: str | os.PathLike[str]) -> bool:
    """Loads a file into a network and returns whether it held the weights of a layer."""
    # Keras only warns about layers that a file lacks, and leaves them as they are: NaN gives them away.
    layer.set_weights([np.full(weight.shape, np.nan, np.float32) for weight in layer.weights])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            network.load_weights(path)
        except ValueError:  # the file is of another network
            return False
    return not any(np.isnan(weight).any() for weight in layer.get_weights())
