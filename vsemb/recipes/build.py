"""From a recipe to the parts it names."""

from __future__ import annotations

import keras

from vsemb import losses
from vsemb.data.batches import PairBatches
from vsemb.data.features import FeatureStore
from vsemb.data.sources import FeatureImages, ImageSource, PixelImages
from vsemb.data.store import Dataset, Split
from vsemb.encoders import (
    BagOfWordsEncoder,
    HybridSentenceEncoder,
    ImageEncoder,
    LinearSentenceEncoder,
    PixelEncoder,
    RecurrentSentenceEncoder,
    WordEmbedding,
)
from vsemb.errors import DataError, invalid_argument, unknown_name
from vsemb.image.backbones import BackboneConfig, build_backbone
from vsemb.models import DualEncoder, LogitScale
from vsemb.recipes.schema import OptimizerConfig, Recipe
from vsemb.text.tokenizers import WordTokenizer
from vsemb.text.vocabulary import Vocabulary

LINEAR = ("sum", "mean")
PRECISIONS = ("float32", "mixed_bfloat16")
REDUCTIONS = {None: None, "sum": "sum", "mean": "sum_over_batch_size"}


def build_vocabulary(recipe: Recipe, captions: list[str]) -> Vocabulary:
    """Returns the vocabulary of the training captions."""
    return Vocabulary.from_captions(captions, recipe.text.min_count, recipe.text.max_words)


def build_tokenizer(recipe: Recipe, vocabulary: Vocabulary) -> WordTokenizer:
    """Returns the recipe's tokenizer."""
    return WordTokenizer(vocabulary, recipe.text.max_length)


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
    recipe: Recipe, split: Split, store: FeatureStore | None, *, augment: bool = False
) -> ImageSource:
    """Returns where a split's images come from; `augment` for training batches alone."""
    config = backbone_config(recipe)
    if config is None:
        if store is None:
            raise DataError("The recipe wants features and there are none.")
        return FeatureImages(store, split, augment=augment)
    return PixelImages(split, config.size, augment=augment)


def find_features(recipe: Recipe, dataset: Dataset) -> FeatureStore | None:
    """Opens the features that the recipe wants; None where it starts from pixels."""
    if recipe.image.backbone is not None:
        return None
    return FeatureStore.find(dataset, recipe.image.features)


def build_model(recipe: Recipe, vocabulary_size: int, feature_dim: int | None) -> DualEncoder:
    """Builds the recipe's model, its weights drawn from the recipe's seed.

    Args:
        recipe: the recipe.
        vocabulary_size: number of token ids.
        feature_dim: size of a feature vector; None where the recipe has a backbone of its own.

    Raises:
        InvalidArgumentError: for a field with a value that is not allowed.
    """
    if recipe.training.precision not in PRECISIONS:
        raise unknown_name("training.precision", recipe.training.precision, PRECISIONS)
    keras.utils.set_random_seed(recipe.training.seed)
    dtype = recipe.training.precision
    image, loss = recipe.image, recipe.loss
    image_encoder: keras.layers.Layer = ImageEncoder(
        recipe.embedding_dim,
        use_bias=image.use_bias,
        dropout=image.dropout,
        standardize=image.standardize,
        init_scale=image.init_scale,
        dtype=dtype,
    )
    config = backbone_config(recipe)
    if config is not None:
        backbone = build_backbone(config, image.weights, seed=recipe.training.seed)
        image_encoder = PixelEncoder(
            backbone, image_encoder, frozen_statistics=image.frozen_statistics, dtype=dtype
        )
    text_encoder = build_text_encoder(recipe, vocabulary_size)
    learned = loss.name == "infonce" and loss.learn_temperature
    model = DualEncoder(
        image_encoder,
        text_encoder,
        similarity_name(recipe),
        logit_scale=LogitScale(1 / loss.temperature) if learned else None,
        image_weight=loss.image_weight,
    )
    shape = (None, feature_dim) if config is None else (None, config.size, config.size, 3)
    model.build({"image": shape, "text": (None, None)})
    return model


def build_text_encoder(recipe: Recipe, vocabulary_size: int) -> keras.layers.Layer:
    """Builds the recipe's sentence encoder.

    Raises:
        InvalidArgumentError: for a field with a value that is not allowed.
    """
    text, dtype = recipe.text, recipe.training.precision
    words = WordEmbedding(
        vocabulary_size,
        text.word_dim,
        train_words=text.train_words,
        init_scale=text.word_init_scale,
        word_dropout=text.word_dropout,
        dropout=text.embedding_dropout,
        dtype=dtype,
    )
    if text.encoder in LINEAR:
        if text.word_dim != recipe.embedding_dim:
            raise invalid_argument(
                "text.word_dim",
                text.word_dim,
                f"{recipe.embedding_dim}, the embedding_dim, for {text.encoder!r}",
            )
        return LinearSentenceEncoder(words, text.encoder, dtype=dtype)
    sequence = RecurrentSentenceEncoder(
        words,
        recipe.embedding_dim,
        cell=text.encoder,
        units=text.units,
        directions=text.directions,
        pooling=text.pooling,
        dropout=text.dropout,
        init_scale=text.init_scale,
        dtype=dtype,
    )
    if not text.bag:
        return sequence
    bag_words = WordEmbedding(vocabulary_size, recipe.embedding_dim, dtype=dtype)
    bag = BagOfWordsEncoder(bag_words, dropout=text.bag_dropout, dtype=dtype)
    return HybridSentenceEncoder(sequence, bag, dtype=dtype)


def build_loss(recipe: Recipe, steps_per_epoch: int) -> losses.RowLoss:
    """Returns the recipe's loss."""
    loss = recipe.loss
    if loss.reduction not in REDUCTIONS:
        raise unknown_name("loss.reduction", str(loss.reduction), map(str, REDUCTIONS))
    reduction = REDUCTIONS[loss.reduction]
    if loss.name == "ranking":
        warmup = round(loss.warmup_epochs * steps_per_epoch)
        warmup = warmup if loss.negatives != "all" else 0
        ranking = losses.PairwiseRanking(loss.margin, loss.negatives, warmup, reduction=reduction)
        if not loss.infonce_weight:
            return ranking
        infonce = losses.InfoNCE(loss.temperature, loss.label_smoothing)
        return losses.CombinedLoss([ranking, infonce], [1.0, loss.infonce_weight], reduction=reduction)
    if loss.name == "infonce":
        temperature = 1.0 if loss.learn_temperature else loss.temperature
        return losses.InfoNCE(temperature, loss.label_smoothing, reduction=reduction)
    raise unknown_name("loss.name", loss.name, losses.LOSSES)


SCHEDULES = ("constant", "exponential", "step", "cosine")


def build_schedule(
    config: OptimizerConfig, steps_per_epoch: int, epochs: int
) -> float | keras.optimizers.schedules.LearningRateSchedule:
    """Returns the learning rate over optimizer steps."""
    rate = config.learning_rate
    if config.schedule not in SCHEDULES:
        raise unknown_name("optimizer.schedule", config.schedule, SCHEDULES)
    if config.schedule == "cosine":
        warmup = round(config.warmup_epochs * steps_per_epoch)
        decay = max(epochs * steps_per_epoch - warmup, 1)
        if warmup == 0:
            return keras.optimizers.schedules.CosineDecay(rate, decay)
        return keras.optimizers.schedules.CosineDecay(0.0, decay, warmup_target=rate, warmup_steps=warmup)
    if config.schedule == "constant":
        return rate
    return keras.optimizers.schedules.ExponentialDecay(
        rate,
        max(round(config.decay_epochs * steps_per_epoch), 1),
        config.decay_rate,
        staircase=config.schedule == "step",
    )


def build_optimizer(recipe: Recipe, steps_per_epoch: int) -> keras.optimizers.Optimizer:
    """Returns the recipe's optimizer."""
    config = recipe.optimizer
    options = {
        "learning_rate": build_schedule(config, steps_per_epoch, recipe.training.epochs),
        "global_clipnorm": config.clip,
        "use_ema": config.ema is not None,
        "ema_momentum": 0.99 if config.ema is None else config.ema,
    }
    if config.name == "adamw":
        return keras.optimizers.AdamW(weight_decay=config.weight_decay, **options)
    if config.weight_decay:
        raise invalid_argument("optimizer.weight_decay", config.weight_decay, "0, or optimizer.name=adamw")
    optimizers = {
        "sgd": keras.optimizers.SGD,
        "adam": keras.optimizers.Adam,
        "rmsprop": keras.optimizers.RMSprop,
    }
    if config.name not in optimizers:
        raise unknown_name("optimizer.name", config.name, [*optimizers, "adamw"])
    return optimizers[config.name](**options)


def build_batches(recipe: Recipe, split: Split, images: ImageSource, tokenizer: WordTokenizer) -> PairBatches:
    """Returns the recipe's training batches."""
    return PairBatches(
        split,
        images,
        tokenizer,
        batch_size=recipe.batches.size,
        captions=recipe.batches.captions,
        negatives=recipe.batches.negatives,
        seed=recipe.training.seed,
    )
