"""From a recipe to the parts it names."""

from __future__ import annotations

import dataclasses
import json

import keras

from vsemb import losses
from vsemb.data.batches import PairBatches
from vsemb.data.features.store import FeatureStore
from vsemb.data.pixel_service import ServicePixels
from vsemb.data.sources import FeatureImages, ImageSource, PixelImages
from vsemb.data.store import Dataset, Split
from vsemb.encoders import ImageEncoder, PixelEncoder, ProjectionMLP
from vsemb.errors import DataError, invalid_argument, unknown_name
from vsemb.image.backbones import BackboneConfig
from vsemb.models import DualEncoder, LogitScale
from vsemb.presets import is_preset
from vsemb.recipes.schema import Recipe
from vsemb.runs.distortion import distortion
from vsemb.runs.precision import check_precision
from vsemb.runs.presets import without_downloads
from vsemb.runs.run_backbones import starting_backbone
from vsemb.runs.texts import build_text_encoder, token_shape
from vsemb.similarities import get as get_similarity
from vsemb.systems.regions.regions import RegionStore
from vsemb.text.tokenizers import Tokenizer

SAMPLINGS = ("pairs", "classes")
#: Where features come from: one vector an image, or one a region.
Store = FeatureStore | RegionStore
REDUCTIONS = {None: None, "sum": "sum", "mean": "sum_over_batch_size"}


def backbone_config(recipe: Recipe) -> BackboneConfig | None:
    """Returns the backbone that is trained from pixels; None where features are the input."""
    image = recipe.image
    if image.backbone is None:
        return None
    return BackboneConfig(image.backbone, image.size or 0, image.pooling or "", image.layer)


def similarity_name(recipe: Recipe) -> str:
    """Returns the name of the recipe's similarity, in `vsemb.similarities.SIMILARITIES`.

    Raises:
        InvalidArgumentError: for a similarity that has no direction to reverse.
    """
    if not recipe.reversed:
        return recipe.similarity
    if recipe.similarity != "order":
        raise invalid_argument("reversed", True, f"false with similarity={recipe.similarity!r}")
    return "order-reversed"


def build_images(
    recipe: Recipe,
    split: Split,
    store: Store | None,
    *,
    training: bool = False,
    data_service: str | None = None,
) -> ImageSource:
    """Returns where a split's images come from.

    Args:
        recipe: the recipe.
        split: the split.
        store: the dataset's features or regions, None for pixels.
        training: whether training batches are made, which see augmented images.
        data_service: address of a tf.data service whose workers decode, see `vsemb.data.ServicePixels`.

    Raises:
        InvalidArgumentError: for a service, or a policy of augmentation, where nothing is decoded.
        MissingExtraError: if what augments images is not installed.
        DataError: if there are no features, or no service answers.
    """
    from vsemb.systems.regions.sources import RegionImages

    config = backbone_config(recipe)
    augment = training and recipe.image.augment
    distort = distortion(recipe, config) if training else None
    if config is None and data_service is not None:
        fix = "Train from pixels with --fine-tune."
        raise invalid_argument("data_service", data_service, "none: the recipe reads cached features", fix)
    if config is None:
        if store is None:
            raise DataError("The recipe wants features and there are none.")
        if isinstance(store, RegionStore):
            return RegionImages(store, split, recipe.image.most_regions)
        return FeatureImages(store, split, augment=augment)
    if data_service is not None:
        return ServicePixels(split, config.size, address=data_service, augment=augment, distort=distort)
    return PixelImages(split, config.size, augment=augment, distort=distort)


def with_feature_size(recipe: Recipe, store: Store | None) -> Recipe:
    """Returns the recipe with the size of its space where that is the features' own.

    Args:
        recipe: the recipe.
        store: the features, where the recipe starts from features.

    Raises:
        InvalidArgumentError: if the features are to be the embedding and a backbone is trained, or columns
            of a twin network stand behind them.
    """
    if recipe.twin:
        _check_column(recipe)
    if recipe.image.projection:
        return recipe
    if is_preset(recipe.image.backbone):
        dim = build_image_encoder(without_downloads(recipe), None).backbone.output_shape[-1]
        return dataclasses.replace(recipe, embedding_dim=dim)
    if store is None:
        fix = "Add --set image.projection=true to train the backbone."
        raise invalid_argument("image.projection", False, "true where the backbone is trained", fix)
    return dataclasses.replace(recipe, embedding_dim=store.dim)


def find_features(recipe: Recipe, dataset: Dataset) -> Store | None:
    """Opens the features, or regions, that the recipe wants; None where it starts from pixels."""

    if recipe.image.backbone is not None:
        return None
    kind = RegionStore if recipe.image.regions else FeatureStore
    return kind.find(dataset, recipe.image.features)


def of_sets(recipe: Recipe) -> bool:
    """Whether the recipe compares sets, of an image's regions and of a sentence's words."""
    return get_similarity(similarity_name(recipe)).sets


def check_sets(recipe: Recipe) -> None:
    """Refuses what does not go together where images and sentences are sets, or are not.

    Raises:
        InvalidArgumentError: if it does not.
    """
    sets = of_sets(recipe)
    if recipe.image.regions != sets:
        allowed = f"{str(sets).lower()} with similarity={recipe.similarity!r}"
        raise invalid_argument("image.regions", recipe.image.regions, allowed)
    if not sets:
        if recipe.image.most_regions is not None:
            allowed = "null, the default, with image.regions=false"
            raise invalid_argument("image.most_regions", recipe.image.most_regions, allowed)
        return
    default = Recipe(name="default")
    for path, why in _NOT_FOR_SETS.items():
        parent, _, leaf = path.rpartition(".")
        value, allowed = (getattr(getattr(of, parent) if parent else of, leaf) for of in (recipe, default))
        if value != allowed:
            raise invalid_argument(
                path, value, f"{json.dumps(allowed)}, the default, with image.regions=true", why
            )


#: What a recipe of sets does not read -> why.
_NOT_FOR_SETS = {
    "twin": "The columns of a twin network give one vector.",
    "image.backbone": "Regions are cached features: see `vsemb regions`.",
    "image.projection": "Regions always pass an affine map.",
    "text.bag": "A bag of words is one vector.",
    "text.pooling": "Each word keeps its vector.",
    "text.directions": "Words are always read in both directions.",
    "training.start": "Canonical correlation wants one vector an image.",
    "training.select": "Recognition compares classes by one vector.",
}


def build_model(
    recipe: Recipe, vocabulary_size: int, feature_dim: int | None, attribute_dim: int | None = None
) -> DualEncoder:
    """Builds the recipe's model, its weights drawn from the recipe's seed.

    Args:
        recipe: the recipe.
        vocabulary_size: number of token ids.
        feature_dim: size of a feature vector, or of a region's; None where the recipe has a backbone of its
            own.
        attribute_dim: number of attributes of a class, where the recipe reads them.

    Raises:
        InvalidArgumentError: for a field with a value that is not allowed.
    """
    check_sets(recipe)
    check_precision(recipe)
    keras.utils.set_random_seed(recipe.training.seed)
    loss = recipe.loss
    image_encoder = build_image_encoder(recipe, feature_dim)
    text_encoder = build_text_encoder(recipe, vocabulary_size, attribute_dim)
    if recipe.twin:
        image_encoder, text_encoder = _column(recipe, image_encoder), _column(recipe, text_encoder)
    elif not recipe.twin_activate_first:
        raise invalid_argument("twin_activate_first", False, "true, the default, with twin=false")
    learned = loss.name in ("infonce", "sigmoid") and loss.learn_temperature
    bias = loss.bias if loss.name == "sigmoid" else None
    model = DualEncoder(
        image_encoder,
        text_encoder,
        similarity_name(recipe),
        # A pretrained one may have learned more than CLIP's 100.
        logit_scale=LogitScale(1 / loss.temperature, max(100.0, 1 / loss.temperature), bias)
        if learned
        else None,
        image_weight=loss.image_weight,
        text_weight=loss.text_weight,
        l2=loss.l2,
        chunk_size=recipe.training.chunk_size,
        block_size=loss.block_size,
    )
    config = backbone_config(recipe)
    rows = (None, None) if recipe.image.regions else (None,)
    shape = (*rows, feature_dim) if config is None else (None, config.size, config.size, 3)
    model.build({"image": shape, "text": (None, None, *token_shape(recipe))})
    return model


def build_image_encoder(recipe: Recipe, feature_dim: int | None) -> keras.layers.Layer:
    """Builds the recipe's image encoder.

    Args:
        recipe: the recipe.
        feature_dim: size of a feature vector, or of a region's; None with a backbone in the recipe.

    Returns:
        A layer up to the shared space, or, with columns of a twin network, up to its features.

    Raises:
        InvalidArgumentError: for a field with a value that is not allowed.
    """
    from vsemb.systems.regions.region_encoder import RegionEncoder

    image, config, dtype = recipe.image, backbone_config(recipe), recipe.training.dtype
    if recipe.image.regions:
        return RegionEncoder(
            recipe.embedding_dim,
            use_bias=image.use_bias,
            dropout=image.dropout,
            standardize=image.standardize,
            init_scale=image.init_scale,
            dtype=dtype,
        )
    if recipe.twin:
        _check_column(recipe)
    elif not image.projection and config is None and feature_dim != recipe.embedding_dim:
        allowed = f"{feature_dim}, the features' size, with image.projection=false"
        raise invalid_argument("embedding_dim", recipe.embedding_dim, allowed)

    def head(features: int | None) -> ImageEncoder:
        if recipe.twin:
            assert features is not None
            return ImageEncoder(
                features, dropout=image.dropout, standardize=image.standardize, projection=False, dtype=dtype
            )
        return ImageEncoder(
            recipe.embedding_dim,
            use_bias=image.use_bias,
            dropout=image.dropout,
            standardize=image.standardize,
            init_scale=image.init_scale,
            projection=image.projection,
            dtype=dtype,
        )

    if config is None:
        return head(feature_dim)
    # A map is made before the backbone, since random weights follow from the order too.
    before = None if recipe.twin else head(None)
    backbone = starting_backbone(config, recipe)
    after = before or head(backbone.output_shape[-1])
    return PixelEncoder(backbone, after, frozen_statistics=image.frozen_statistics, dtype=dtype)


def _column(recipe: Recipe, encoder: keras.layers.Layer) -> ProjectionMLP:
    return ProjectionMLP(
        encoder,
        recipe.embedding_dim,
        activate_first=recipe.twin_activate_first,
        dtype=recipe.training.dtype,
    )


def _check_column(recipe: Recipe) -> None:
    """Refuses what is said about the map of an image encoder in whose place a column stands."""
    for name, allowed in (("projection", True), ("use_bias", True), ("init_scale", None)):
        value = getattr(recipe.image, name)
        if value != allowed:
            fix = "The layers of a twin column take the place of the affine map."
            raise invalid_argument(f"image.{name}", value, f"{allowed}, the default, with twin=true", fix)


def build_loss(recipe: Recipe, steps_per_epoch: int) -> losses.RowLoss:
    """Returns the recipe's loss."""
    loss = recipe.loss
    if loss.reduction not in REDUCTIONS:
        raise unknown_name("loss.reduction", str(loss.reduction), map(str, REDUCTIONS))
    reduction = REDUCTIONS[loss.reduction]
    warmup = round(loss.warmup_epochs * steps_per_epoch) if loss.negatives != "all" else 0
    if loss.name == "ranking":
        ranking = losses.PairwiseRanking(loss.margin, loss.negatives, warmup, reduction=reduction)
        if not loss.infonce_weight:
            return ranking
        infonce = losses.InfoNCE(loss.temperature, loss.label_smoothing)
        return losses.CombinedLoss([ranking, infonce], [1.0, loss.infonce_weight], reduction=reduction)
    if loss.name == "infonce":
        temperature = 1.0 if loss.learn_temperature else loss.temperature
        return losses.InfoNCE(temperature, loss.label_smoothing, reduction=reduction)
    if loss.name == "sigmoid":
        if loss.learn_temperature:
            return losses.SigmoidLoss(reduction=reduction)
        return losses.SigmoidLoss(loss.temperature, loss.bias, reduction=reduction)
    if loss.name == "structured":
        return losses.StructuredJointEmbedding(loss.margin, loss.negatives, warmup, reduction=reduction)
    raise unknown_name("loss.name", loss.name, losses.LOSSES)


def build_batches(recipe: Recipe, split: Split, images: ImageSource, tokenizer: Tokenizer) -> PairBatches:
    """Returns the recipe's training batches.

    Raises:
        InvalidArgumentError: for a way of sampling that does not exist or does not fit the loss.
        DataError: if the split has too few pairs or classes.
    """
    from vsemb.systems.zero_shot.class_batches import ClassBatches

    batches, seed = recipe.batches, recipe.training.seed
    if batches.sampling not in SAMPLINGS:
        raise unknown_name("batches.sampling", batches.sampling, SAMPLINGS)
    if batches.negatives != "batch" and (batches.sampling == "classes" or recipe.loss.name == "structured"):
        raise invalid_argument("batches.negatives", batches.negatives, "'batch' for losses over classes")
    if batches.sampling == "classes":
        return ClassBatches(split, images, tokenizer, batch_size=batches.size, seed=seed)
    return PairBatches(
        split,
        images,
        tokenizer,
        batch_size=batches.size,
        captions=batches.captions,
        negatives=batches.negatives,
        seed=seed,
    )
