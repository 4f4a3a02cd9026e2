"""Towers of a recipe: texts with tokenizer and encoder; images from cached features or pixels."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import keras
import numpy as np

from vsemb.console import say
from vsemb.data.features.store import FeatureStore, unlike
from vsemb.data.sources import FeatureImages, FeatureViews, ImageSource, PixelImages, ServicePixels
from vsemb.data.store import Split, StoredDataset
from vsemb.encoders.ensemble import EnsembleEncoder
from vsemb.encoders.image import Affine, PixelEncoder, Projection
from vsemb.encoders.recurrent import Recurrent
from vsemb.encoders.text_encoder import TextCorpus, TextEncoderPart, TextSpec
from vsemb.errors import DataError, invalid_argument
from vsemb.files import hard_link_or_copy, read_json, reading, write_json
from vsemb.image.augmentation import Augmentation, ImageAugmenter
from vsemb.image.backbones import ARCHITECTURES, BackboneConfig, build_backbone, build_top
from vsemb.image.presets import Preset, display_name, preset_class
from vsemb.parts import Part, Positive, Probability, Share, Size
from vsemb.printing import command_line
from vsemb.recipes.info import feature_dim
from vsemb.text.tokenizers import Tokenizer, TokenizerPart, Words

if TYPE_CHECKING:
    from vsemb.exporting.served_inputs import ImageInput
    from vsemb.recipes.info import RunInfo

#: Weights are initialized from the first images and their captions, so that their features fit in memory.
MOST_IMAGES = 200_000

# Maps per batch for the top of a network.
_ROWS = 256

#: Names of weights that are neither a file nor a run.
PUBLISHED = ("imagenet", "preset", "random")
#: Files of the backbone behind cached features, in a run directory.
BACKBONE, BACKBONE_CONFIG, BACKBONE_WEIGHTS = "backbone", "backbone.json", "backbone.weights.h5"


@dataclass(frozen=True)
class Text(Part):
    """The text tower.

    Attributes:
        tokenizer: converts texts to token ids.
        encoder: maps token ids to the embedding.
    """

    tokenizer: TokenizerPart = field(default_factory=Words)
    encoder: TextEncoderPart = field(default_factory=Recurrent)

    def check(self) -> None:
        self.encoder.check_tokenizer(self.tokenizer)

    def build(self, dim: int | None, vocabulary_size: int, info: RunInfo, dtype: str) -> keras.layers.Layer:
        """Build the encoder, see `TextEncoderPart.build`."""
        spec = TextSpec(vocabulary_size, self.tokenizer.length, info, self.tokenizer.ngram_buckets)
        return self.encoder.build(dim, spec, dtype)

    def corpus(
        self, tokenizer: Tokenizer, texts: list[str], seed: int, dataset: StoredDataset | None = None
    ) -> TextCorpus:
        """Return training texts as ids, from which the encoder is initialized.

        Args:
            tokenizer: the built tokenizer of the recipe.
            texts: the training texts, as the tokenizer reads them.
            seed: seed of random draws.
            dataset: dataset of the texts; None for other texts.
        """
        tokens, offsets = tokenizer.encode(texts)
        ids, whole = tokenizer.word_ids(tokens), self.tokenizer.whole_words
        return TextCorpus(tokenizer.vocabulary, ids, offsets, whole, seed, dataset, tokenizer.grams_of_words())


@dataclass(frozen=True)
class ImageTower(Part, family="image tower"):
    """Image tower of a recipe; base of the family `image tower`.

    Class attributes:
        produces: `vector`, or `multi_vector` for a set of vectors per image.
        from_pixels: whether the backbone is part of the model.
    """

    produces: ClassVar[str] = "vector"
    from_pixels: ClassVar[bool] = False

    @property
    def starting_run(self) -> Path | None:
        """The run with the initial weights of the backbone, if any."""
        return None

    def open(self, dataset: StoredDataset) -> Any:
        """Open the cache of a dataset's images; None if images are decoded.

        Raises:
            DataError: if the cache does not exist.
        """

    def open_for(self, dataset: StoredDataset, info: RunInfo, path: Path) -> Any:
        """Open the cache of a dataset's images for a run; None if images are decoded.

        Args:
            dataset: the training dataset or another one.
            info: contents of `run.json`.
            path: the run directory.

        Raises:
            DataError: if the dataset lacks this cache.
        """

    def images(self, split: Split, store: Any, *, training: bool = False, service: str | None = None) -> ImageSource:
        """Return the image source of a split.

        Args:
            split: the split.
            store: result of `open`.
            training: whether the images are for training batches, which are augmented.
            service: address of a tf.data service whose workers decode images.
        """
        raise NotImplementedError

    def describe(self, store: Any) -> dict[str, Any]:
        """Return the entries of `run.json` about images: `features`, a fingerprint, and `feature_dim`."""
        return {"features": None, "feature_dim": None}

    def keep(self, store: Any, folder: Path) -> None:
        """Write the files for embedding new images to a new run directory."""

    def input_shape(self, info: RunInfo) -> tuple[int | None, ...]:
        """Return the shape of a batch of images."""
        raise NotImplementedError

    def build(self, dim: int | None, info: RunInfo, *, seed: int, dtype: str) -> keras.layers.Layer:
        """Build the layer from `input_shape` to the embedding; it has an attribute `dim`.

        Args:
            dim: size of the embedding; None for the size of the features.
            info: contents of `run.json`, including `feature_dim`.
            seed: seed of a backbone's random weights.
            dtype: dtype policy of the layer.
        """
        raise NotImplementedError

    def features(self, store: Any, split: Split) -> np.ndarray | None:
        """Return features with the statistics of the images, (n, dim) float32; None for images without features.

        For one vector per image, row i belongs to image i of the split, and n is `MOST_IMAGES` at most.
        """
        return None

    @property
    def network(self) -> dict[str, Any]:
        """Arguments of `vsemb.runs.features.features` for the features that the tower reads."""
        return {}

    def initialize(self, layer: keras.layers.Layer, features: np.ndarray | None, store: Any) -> None:
        """Set the layer's weights before the first step.

        Args:
            layer: result of `build`.
            features: result of `features`; their mean and deviation scale features.
            store: result of `open`.
        """
        scaling = getattr(layer, "scaling", None)
        if scaling is not None and features is not None:
            scaling.adapt(features)

    def image_input(self, path: Path) -> ImageInput | None:
        """Return the conversion from image bytes to inputs of the layer.

        Args:
            path: the run directory, with the files of `keep`.

        Returns:
            The conversion; None for precomputed features, whose backbone is not known.
        """
        raise NotImplementedError

    def has_cache(self, dataset: StoredDataset, info: RunInfo, path: Path) -> bool:
        """Return whether a run reads a dataset's images from a cache instead of their bytes.

        Args:
            dataset: the dataset.
            info: contents of `run.json`.
            path: the run directory.
        """
        return False

    def further_inputs(self, path: Path, encoded: bytes, name: str) -> dict[str, np.ndarray]:
        """Return further inputs for a new image besides its bytes, such as candidate boxes; empty for most towers.

        Args:
            path: the run directory.
            encoded: the bytes of the image.
            name: name of the image in errors.

        Returns:
            Name of a further argument of `ServedModel.encode_image` -> its value for a batch of this image.

        Raises:
            DataError: if new images do not have these inputs.
        """
        return {}

    def facts(self, path: Path) -> str:
        """Return a phrase about the images for the model card."""
        raise NotImplementedError


@dataclass(frozen=True)
class CachedImages(ImageTower):
    """Base of the towers that read cached features.

    Attributes:
        fingerprint: fingerprint of the feature cache; null if the dataset has only one.
        standardize: whether features are first scaled to unit length and standardized.
        dropout: share of features dropped in training.

    Class attributes:
        folder: folder of the caches in a dataset.
    """

    folder: ClassVar[str] = "features"

    fingerprint: str | None = None
    standardize: bool = False
    dropout: Share = 0.0

    def describe(self, store: Any) -> dict[str, Any]:
        return {"features": store.fingerprint, "feature_dim": store.dim}

    def keep(self, store: Any, folder: Path) -> None:
        if store.backbone is None or store.weights_path is None:
            return
        target = folder / BACKBONE
        target.mkdir(exist_ok=True)
        hard_link_or_copy(store.weights_path, target / BACKBONE_WEIGHTS)
        write_json(target / BACKBONE_CONFIG, store.backbone.to_json())

    def has_cache(self, dataset: StoredDataset, info: RunInfo, path: Path) -> bool:
        # Without a known backbone, only the cache can be read. `open_for` raises an error if it is missing.
        return kept_backbone(path) is None or (dataset.path / self.folder / str(info["features"])).is_dir()

    def check_dim(self, store: Any, dataset: StoredDataset, info: RunInfo) -> None:
        """Check that features have the size that the run was trained on.

        Raises:
            DataError: for another size; the message names both sizes.
        """
        if store.dim != info["feature_dim"]:
            raise DataError(
                f"The features of {dataset.path} have {store.dim} entries, the run was trained on "
                f"{info['feature_dim']}."
            )


@dataclass(frozen=True)
class Features(CachedImages, kind="features"):
    """One cached feature vector per image, see `vsemb features`.

    Attributes:
        augment: whether training reads mirror images or crops if the cache has them.
        size: width and height of the images behind the features; null for any, and for the network's where training
            makes them (`--backbone`).
        pooling: pooling of the network's last map, in the same way.
        projection: map from features to the embedding.
    """

    augment: bool = True
    size: Size | None = None
    pooling: str | None = None
    projection: Projection = field(default_factory=Affine)

    @property
    def network(self) -> dict[str, Any]:
        return {"size": self.size, "pooling": self.pooling}

    def below(self, backbone: str) -> Features:
        """Return the tower for the features of another network."""
        return replace(self, pooling=BackboneConfig(backbone).fitting(self.pooling))

    def open(self, dataset: StoredDataset) -> FeatureStore:
        store = FeatureStore.find(dataset, self.fingerprint, preferred=self.network)
        other = unlike(store.backbone, self.network)
        # A fingerprint is a choice.
        if store.backbone is not None and other and self.fingerprint is None:
            wanted = {name: self.network[name] for name in other}
            making = _making(dataset, replace(store.backbone, **wanted), store.weights_path)
            say(
                f"The features of {dataset.path} have {_fields(other)}, and the recipe names {_fields(wanted)}. "
                f"To make these: {making}"
            )
        return store

    def open_for(self, dataset: StoredDataset, info: RunInfo, path: Path) -> FeatureStore:
        # Precomputed features do not name their backbone, so only their size can be compared.
        same = dataset.fingerprint == info["dataset"] or kept_backbone(path) is not None
        try:
            store = FeatureStore.find(dataset, info["features"] if same else None)
        except DataError as error:
            if (kept := kept_backbone(path)) is None:
                raise
            raise DataError(f"{error} To make them: {_making(dataset, *kept)}.") from error
        self.check_dim(store, dataset, info)
        return store

    def images(self, split: Split, store: Any, *, training: bool = False, service: str | None = None) -> ImageSource:
        # Outside training, features are read only once and therefore stay on disk.
        memory = 4 << 30 if training else 0
        return FeatureImages(store, split, augment=training and self.augment, memory=memory)

    def input_shape(self, info: RunInfo) -> tuple[int | None, ...]:
        return None, info["feature_dim"]

    def build(self, dim: int | None, info: RunInfo, *, seed: int, dtype: str) -> keras.layers.Layer:
        return self.build_projection(feature_dim(info), dim, dtype)

    def build_projection(self, size: int, dim: int | None, dtype: str) -> keras.layers.Layer:
        """Build the map from features to the embedding, see `Projection.build`; without `dim` it keeps `size`."""
        options: dict[str, Any] = {"dropout": self.dropout, "standardize": self.standardize, "dtype": dtype}
        return self.projection.build(size, size if dim is None else dim, **options)

    def features(self, store: Any, split: Split) -> np.ndarray | None:
        return store.rows(split.ids[:MOST_IMAGES])

    def image_input(self, path: Path) -> ImageInput | None:
        from vsemb.exporting.served_inputs import ImageInput

        kept = kept_backbone(path)
        return None if kept is None else ImageInput(kept[0], build_backbone(*kept))

    def facts(self, path: Path) -> str:
        kept = kept_backbone(path)
        if kept is None:
            return "precomputed features of an unknown network"
        return f"features of {kept[0].name}, pooling {kept[0].pooling}, images of {kept[0].size} pixels a side"


@dataclass(frozen=True)
class Top(Features, kind="top"):
    """Cached maps of an inner layer of a network; the layers above it are trained.

    The layers below are computed once, so an epoch takes a fraction of the time of training from pixels.

    Attributes:
        layer: the inner layer; null for the network's own choice.
        pooling: pooling of the last map, to which means of inner maps are added, see `vsemb features`.
        mirror: whether an image's embedding, outside training, is the mean of its own and its mirror image's.
        learning_rate_share: factor of the learning rate for the layers of the network.
        networks: how many copies of the layers are trained. Each gives an equal share of the embedding, and has a
            map and dropout of its own; use it with the similarity `mean-cosine`.
    """

    layer: str | None = None
    pooling: Literal["regional", "mean", "max", "mean+max"] = "regional"
    mirror: bool = True
    learning_rate_share: Positive = 0.1
    networks: Size = 1

    @property
    def network(self) -> dict[str, Any]:
        return {"size": self.size, "layer": self.layer}

    def below(self, backbone: str) -> Top:
        layers = BackboneConfig(backbone).inner_maps
        if not layers:
            having = ", ".join(name for name in ARCHITECTURES if BackboneConfig(name).inner_maps)
            fix = f"Use {having}, a preset of a convolutional network, or image features (image=features)."
            raise invalid_argument("backbone", backbone, "a network with inner maps", fix)
        if self.layer is not None and self.layer not in layers:
            raise invalid_argument(
                "image.layer", self.layer, f"one of {', '.join(layers)} for {backbone}", "Leave image.layer out."
            )
        return replace(self, layer=self.layer or layers[0])

    def open(self, dataset: StoredDataset) -> FeatureStore:
        store = FeatureStore.find(dataset, self.fingerprint, maps=True, layer=self.layer)
        network = store.backbone
        if network is None or not network.inner_map or unlike(network, {"layer": self.layer}):
            fix = "Train with `backbone`, such as MobileNetV2, which makes them."
            allowed = f"maps of {self.layer or 'an inner layer'}"
            raise invalid_argument("image.fingerprint", self.fingerprint, allowed, fix)
        return self._with_mirror_images(store)

    def open_for(self, dataset: StoredDataset, info: RunInfo, path: Path) -> FeatureStore:
        return self._with_mirror_images(super().open_for(dataset, info, path))

    def _with_mirror_images(self, store: FeatureStore) -> FeatureStore:
        if self.mirror and store.views_count != 2:
            fix = "Make features without --no-mirror and --training-crops, or set image.mirror=false."
            raise invalid_argument("image.mirror", True, "false for features without mirror images", fix)
        return store

    def images(self, split: Split, store: Any, *, training: bool = False, service: str | None = None) -> ImageSource:
        if self.mirror and not training:
            return FeatureViews(store, split)
        return super().images(split, store, training=training)

    def image_input(self, path: Path) -> ImageInput:
        from vsemb.exporting.served_inputs import ImageInput, MirroredInput

        kept = kept_backbone(path)
        # `open` has checked that the features name their network.
        assert kept is not None
        config, weights = kept
        return (MirroredInput if self.mirror else ImageInput)(config, build_backbone(config, weights))

    def describe(self, store: Any) -> dict[str, Any]:
        return {**super().describe(store), "backbone": store.backbone.to_json()}

    def build(self, dim: int | None, info: RunInfo, *, seed: int, dtype: str) -> keras.layers.Layer:
        if dim is not None and dim % self.networks:
            raise invalid_argument("embedding_dim", dim, f"a multiple of image.networks={self.networks}")
        part, members = None if dim is None else dim // self.networks, []
        for _ in range(self.networks):
            top = build_top(BackboneConfig.from_json(info["backbone"]), None, self.pooling)
            head = self.build_projection(top.output_shape[-1], part, dtype)
            members.append(PixelEncoder(top, head, learning_rate_share=self.learning_rate_share, dtype=dtype))
        return EnsembleEncoder(members, dtype=dtype)

    def features(self, store: Any, split: Split) -> np.ndarray:
        top, ids = build_top(store.backbone, store.weights_path, self.pooling), split.ids[:MOST_IMAGES]
        starts = range(0, len(ids), _ROWS)
        return np.concatenate([top.predict_on_batch(store.rows(ids[start : start + _ROWS])) for start in starts])

    def initialize(self, layer: Any, features: np.ndarray | None, store: Any) -> None:
        weights = build_top(store.backbone, store.weights_path, self.pooling).get_weights()
        for member in layer.members:
            member.backbone.set_weights(weights)
            super().initialize(member.head, features, store)


def _making(dataset: StoredDataset, config: BackboneConfig, weights: Path | None) -> str:
    """Return the command that makes features of a dataset."""
    usual = BackboneConfig(config.name, preset=config.preset)
    names = ("size", "pooling", "layer", "crops", "resize")
    other = {name: getattr(config, name) for name in names if getattr(config, name) != getattr(usual, name)}
    options = [item for name, value in other.items() for item in (f"--{name}", str(value))]
    options += [] if weights is None else ["--weights", str(weights)]
    return command_line("features", dataset.path, "--backbone", config.name, *options)


def _fields(values: Mapping[str, Any]) -> str:
    return " and ".join(f"{name}={value}" for name, value in values.items())


def kept_backbone(path: Path) -> tuple[BackboneConfig, Path] | None:
    """Return the backbone of a run's features and the file of its weights; None if the backbone is not known.

    Args:
        path: the run directory.
    """
    folder = path / BACKBONE
    if not (folder / BACKBONE_CONFIG).exists():
        return None
    with reading(folder / BACKBONE_CONFIG, "backbone"):
        config = BackboneConfig.from_json(read_json(folder / BACKBONE_CONFIG, "backbone"))
    return config, folder / BACKBONE_WEIGHTS


@dataclass(frozen=True)
class Pixels(ImageTower, kind="pixels"):
    """A backbone that is trained from pixels.

    Attributes:
        backbone: name of the network, or of a preset, such as `hub:NAME`.
        weights: initial weights: `imagenet`, `preset` (weights of the preset), the path of a file or of a run that was
            trained from pixels; null for random weights.
        size: width and height of the input in pixels; null for the backbone's default.
        pooling: pooling of the backbone's last feature map; null for its default.
        layer: an inner layer of the backbone in place of the last one.
        frozen_statistics: whether batch normalization keeps its stored statistics.
        augment: whether training images are randomly cropped and mirrored.
        augmentation: further augmentation of training images; null for none.
        erasing: probability that a rectangle of a training image is replaced by noise.
        dropout: share of features dropped in training.
        projection: map from features to the embedding.
    """

    from_pixels: ClassVar[bool] = True

    backbone: str = "SmallConvNet"
    weights: str | None = None
    size: Size | None = None
    pooling: str | None = None
    layer: str | None = None
    frozen_statistics: bool = True
    augment: bool = True
    augmentation: Augmentation | None = None
    erasing: Probability = 0.0
    dropout: Share = 0.0
    projection: Projection = field(default_factory=Affine)

    @cached_property
    def preset(self) -> type[Preset] | None:
        """The class of the network if it is a preset; None for the others."""
        return preset_class(self.backbone)

    @cached_property
    def config(self) -> BackboneConfig:
        """The network."""
        return BackboneConfig(self.backbone, self.size or 0, self.pooling or "", self.layer)

    def check(self) -> None:
        if self.preset is None:
            # Building the configuration checks that name, size, pooling and layer match.
            _ = self.config

    @property
    def starting_run(self) -> Path | None:
        if self.weights is None or self.weights in PUBLISHED or not Path(self.weights).is_dir():
            return None
        return Path(self.weights)

    def augmenter(self) -> ImageAugmenter | None:
        """Return the augmenter of training images, in addition to crops and mirror images.

        Raises:
            MissingExtraError: if the Model Garden is not installed.
        """
        if self.augmentation is None and not self.erasing:
            return None
        options = {} if self.augmentation is None else self.augmentation.options()
        return ImageAugmenter(self.config.size, erasing=self.erasing, **options)

    def images(self, split: Split, store: Any, *, training: bool = False, service: str | None = None) -> ImageSource:
        augmenter = self.augmenter() if training else None
        config = self.config
        options: dict[str, Any] = {"augment": training and self.augment, "resizing": config.resizing}
        if service is not None:
            return ServicePixels(split, config.size, address=service, augmenter=augmenter, **options)
        return PixelImages(split, config.size, augmenter=augmenter, **options)

    def input_shape(self, info: RunInfo) -> tuple[int | None, ...]:
        return None, self.config.size, self.config.size, 3

    def build(self, dim: int | None, info: RunInfo, *, seed: int, dtype: str) -> keras.layers.Layer:
        options: dict[str, Any] = {"dropout": self.dropout, "standardize": False, "dtype": dtype}
        head = None
        if dim is not None and not self.projection.needs_size:
            # Build the projection before the backbone, because random weights depend on the order.
            head = self.projection.build(None, dim, **options)
        config = self.config
        backbone = build_backbone(config, self.weights, seed=seed)
        if head is None:
            size = backbone.output_shape[-1]
            head = self.projection.build(size, size if dim is None else dim, **options)
        resizing = None if config.resizing is None else config.resizing._asdict()
        return PixelEncoder(backbone, head, frozen_statistics=self.frozen_statistics, resizing=resizing, dtype=dtype)

    def keep_files(self, folder: Path) -> None:
        if self.preset is not None:
            self.preset.keep(self.backbone, folder)

    def localized(self, path: Path) -> Pixels:
        return self if self.preset is None else replace(self, backbone=self.preset.kept_name(self.backbone, path))

    def without_downloads(self) -> Pixels:
        return self if self.weights is None else replace(self, weights=None)

    def image_input(self, path: Path) -> ImageInput:
        from vsemb.exporting.served_inputs import ImageInput

        return ImageInput(self.config)

    def facts(self, path: Path) -> str:
        config = self.config
        return f"pixels, {config.size} a side, read by {display_name(config.name)}, which was trained too"
