"""Runs of the captions task: a network that writes about images, and training one.

The run directory is that of `vsemb.runs.stored_run`; a run of regions has the snippets that it was trained
on in `snippets/`, and in `run.json` the fingerprint of the alignment that cut them.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import os
import sys
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import keras
import numpy as np

from vsemb.data.features.store import FeatureStore
from vsemb.data.store import Dataset, Split
from vsemb.encoders import ImageEncoder, PixelEncoder, WordEmbedding
from vsemb.errors import invalid_argument, unknown_name
from vsemb.presets import display_name
from vsemb.recipes.reading import check_read
from vsemb.recipes.schema import Recipe
from vsemb.runs import build, optimizers
from vsemb.runs.image_run import ImageRun
from vsemb.runs.initialization import start_word_vectors
from vsemb.runs.loop import Batches, fit_run
from vsemb.runs.precision import check_precision, settled
from vsemb.runs.run import Run
from vsemb.runs.run_backbones import starting_backbone
from vsemb.runs.run_directory import check_out, prepare_run
from vsemb.runs.stored_run import RECIPE
from vsemb.runs.texts import build_tokenizer, build_vocabulary, read_texts
from vsemb.systems.captions.attentive_rnn import AttentiveRNN
from vsemb.systems.captions.cut_snippets import Snippets, keep_snippets, stored_snippets
from vsemb.systems.captions.multimodal_rnn import GATES, MultimodalRNN
from vsemb.systems.captions.next_word_loss import NextWordCrossEntropy
from vsemb.systems.captions.snippet_batches import SnippetBatches, SnippetImages, check_same_regions
from vsemb.systems.captions.spatial_features import SpatialFeatureEncoder
from vsemb.systems.captions.validation import CiderValidation, PerplexityValidation, likelihood_batches
from vsemb.systems.regions.regions import RegionStore
from vsemb.text.tokenizers import Tokenizer
from vsemb.training.strategies import DistributionContext, as_distribution

#: Name of what decides which epoch is kept -> its name in the logs.
SELECTIONS = {"perplexity": "val_log2_likelihood", "cider": "val_cider"}
SNIPPETS = "snippets"
# Regions whose statistics stand for those of all.
_REGIONS = 50_000

# The fields of a recipe that this task reads.
_READ = (
    *("name", "variant", "paper", "task", "optimizer.", "loss.l2", "batches.size"),
    *("text.tokenizer", "text.min_count", "text.max_", "text.word_", "text.train_words"),
    *("text.dense_gradient", "text.embedding_dropout", "image.features", "image.regions", "image.use_bias"),
    *("image.dropout", "image.standardize", "image.init_scale", "caption.decoder", "caption.units"),
    *("caption.image_steps", "caption.dropout", "caption.frequency_bias", "caption.init_scale"),
    *("caption.beam", "caption.length_penalty", "caption.max_words", "training.epochs", "training.select"),
    *("training.patience", "training.seed", "training.precision"),
)
# Those of whole images alone, and of regions alone.
_READ_IMAGES = (
    *("image.backbone", "image.weights", "image.size", "image.pooling", "image.layer", "image.augment"),
    *("image.frozen_statistics", "image.policy", "image.erasing", "batches.captions", "caption.heads"),
)
_READ_REGIONS = ("caption.affinity",)


@dataclass(frozen=True)
class CaptionRun(ImageRun):
    """A trained network that writes captions.

    Example:

        run = CaptionRun.open("runs/captions")
        captioner = NeuralCaptioner(run.model, run.vocabulary, beam=7, n_best=5)
        texts, log_probs = captioner(features)
    """

    task: ClassVar[str] = "captions"

    @cached_property
    def model(self) -> MultimodalRNN:
        """The model with the selected weights."""
        # The backbone's weights are random: the selected ones replace them anyway.
        recipe = self.recipe.with_overrides(["image.weights=null"])
        model = build_caption_model(recipe, len(self.vocabulary), self.info["feature_dim"])
        self._load_best(model)
        return model

    def model_rows(self, images: Any) -> Any:
        """Returns what the model takes of images as `images_of` gives them.

        Args:
            images: (n, ...), of a run of regions (n, regions, dim).

        Returns:
            (n, ...); of a run of regions (n, dim), the first region, which is the whole image.
        """
        return images[:, 0] if self.multi_vector else images


def build_caption_model(recipe: Recipe, vocabulary_size: int, feature_dim: int | None) -> MultimodalRNN:
    """Builds the recipe's model, its weights drawn from the recipe's seed.

    Args:
        recipe: the recipe.
        vocabulary_size: number of token ids.
        feature_dim: size of a feature vector, or of a region's; None where the recipe has a backbone of its
            own.

    Raises:
        InvalidArgumentError: for a field with a value that is not allowed, or that captions do not read and
            that is not at its default.
    """
    check_read(recipe, (*_READ, *(_READ_REGIONS if recipe.image.regions else _READ_IMAGES)))
    text, caption = recipe.text, recipe.caption
    if text.tokenizer != "words":
        raise unknown_name("text.tokenizer", text.tokenizer, ["words"])
    if caption.decoder not in GATES:
        raise unknown_name("caption.decoder", caption.decoder, GATES)
    check_precision(recipe)
    keras.utils.set_random_seed(recipe.training.seed)
    image_encoder = _build_image_encoder(recipe, feature_dim)
    words = WordEmbedding(
        vocabulary_size,
        text.word_dim,
        train_words=text.train_words,
        init_scale=text.word_init_scale,
        word_dropout=text.word_dropout,
        dropout=text.embedding_dropout,
        dense_gradient=text.dense_gradient,
        dtype=recipe.training.dtype,
    )
    options: dict[str, Any] = {
        "cell": caption.decoder,
        "units": caption.units,
        "image_steps": caption.image_steps,
        "dropout": caption.dropout,
        "init_scale": caption.init_scale,
        "l2": recipe.loss.l2,
    }
    if caption.heads:
        model = AttentiveRNN(image_encoder, words, heads=caption.heads, **options)
    else:
        model = MultimodalRNN(image_encoder, words, **options)
    config = build.backbone_config(recipe)
    image = (None, feature_dim) if config is None else (None, config.size, config.size, 3)
    model.build({"image": image, "text": (None, None)})
    return model


def check_places(recipe: Recipe) -> None:
    """Refuses attention to places where an image has none.

    Raises:
        InvalidArgumentError: if it has none, or for a field that is not read with attention.
    """
    image, caption = recipe.image, recipe.caption
    if not caption.heads:
        return
    if image.regions:
        raise invalid_argument("caption.heads", caption.heads, "0 with image.regions=true")
    config = build.backbone_config(recipe)
    if config is None:
        fix = "Train from pixels: --fine-tune SmallConvNet --set image.pooling=flat"
        raise invalid_argument("caption.heads", caption.heads, "0 without a backbone in the recipe", fix)
    if config.pooling != "flat" or config.layer is not None:
        allowed = "'flat', and no image.layer, with caption.heads"
        raise invalid_argument(
            "image.pooling", image.pooling or config.pooling, allowed, "Add --set image.pooling=flat."
        )
    if config.network is not None and config.network.kind != "map":
        name = display_name(config.name)
        raise invalid_argument("image.backbone", name, "a network that gives a map, with caption.heads")
    for name, default in (("use_bias", False), ("init_scale", None), ("standardize", False)):
        if (value := getattr(image, name)) != default:
            fix = "Places pass a map of their own, with a bias each."
            raise invalid_argument(f"image.{name}", value, f"{json.dumps(default)} with caption.heads", fix)


def _build_image_encoder(recipe: Recipe, feature_dim: int | None) -> keras.layers.Layer:
    image, caption = recipe.image, recipe.caption
    if not caption.heads:
        # A region is read as an image is: one vector, straight to what the cell's gates read.
        one_image = dataclasses.replace(
            recipe,
            embedding_dim=GATES[caption.decoder] * caption.units,
            image=dataclasses.replace(image, regions=False),
        )
        return build.build_image_encoder(one_image, feature_dim)
    check_places(recipe)
    config = build.backbone_config(recipe)
    assert config is not None
    backbone = starting_backbone(config, recipe)
    height, width = backbone.get_layer("flat").input.shape[1:3]
    return PixelEncoder(
        backbone,
        SpatialFeatureEncoder(height * width, caption.units, dropout=image.dropout, dtype=recipe.training.dtype),
        frozen_statistics=image.frozen_statistics,
        dtype=recipe.training.dtype,
    )


def train_captions(
    recipe: Recipe,
    dataset: Dataset,
    out: str | os.PathLike[str],
    *,
    alignment: Run | None = None,
    checkpoint_seconds: float = 60.0,
    checkpoint_steps: int | None = None,
    strategy: str | DistributionContext = "none",
) -> CaptionRun:
    """Trains a captions recipe; a training that was stopped goes on where it stopped.

    Args:
        recipe: what to train.
        dataset: with splits `train` and `val`.
        out: the run directory.
        alignment: the run of `dvsa` that cuts captions into snippets, for a recipe of regions.
        checkpoint_seconds: time between stored states.
        checkpoint_steps: store after so many steps instead.
        strategy: `none`, `mirrored`, `multiworker`, or devices, see `vsemb.training.open_distribution`.

    Returns:
        The run, with the weights selected on validation.

    Raises:
        VsembError: for bad recipes, data or directories; nothing written before is lost.

    Example:

        run = train_captions(recipes.get("multimodal-rnn"), Dataset.open("data/flickr8k"), "runs/captions")
    """
    out, devices = Path(out), as_distribution(strategy)
    check_selection(recipe)
    check_places(recipe)
    devices.check_batch_size(recipe.batches.size)
    train_split = read_texts(recipe, dataset.split("train"), training=True)
    store = build.find_features(recipe, dataset)
    vocabulary = build_vocabulary(recipe, train_split.captions)
    cut_by = None if alignment is None else alignment.fingerprint
    enter = functools.partial(prepare_run, recipe, dataset, out, vocabulary, store, alignment=cut_by)
    if not recipe.image.regions and alignment is not None:
        raise invalid_argument("alignment", str(alignment.path), "none with image.regions=false")
    if (out / RECIPE).exists():
        if enter()["status"] == "finished":
            print(f"{out} is finished already.", file=sys.stderr)
            return CaptionRun.open(out)
    else:
        check_out(out)
    tokenizer = build_tokenizer(recipe, vocabulary)
    with devices.scope():
        model = build_caption_model(settled(recipe), len(vocabulary), None if store is None else store.dim)
        optimizers.build_optimizer(recipe, 1)
        if recipe.image.regions:
            pairs = _regions(recipe, dataset, out / SNIPPETS, store, tokenizer, alignment)
        else:
            pairs = _whole_images(recipe, dataset, train_split, store, tokenizer)
        # Only now, so that a recipe that does not work, or an alignment, leaves no run behind.
        info = devices.first_worker_first(enter)
        for name, snippets in pairs.snippets.items() if devices.writes else ():
            keep_snippets(snippets, out / SNIPPETS / name)
        _start(recipe, model, tokenizer, pairs)
        batches = pairs.batches
        model.compile(
            optimizer=optimizers.build_optimizer(recipe, batches.steps_per_epoch),
            loss=NextWordCrossEntropy(),
            jit_compile=False,
        )
    fit_run(
        recipe,
        model,
        batches,
        out,
        info,
        validation=pairs.validation,
        monitor=SELECTIONS[recipe.training.select],
        unit="snippets" if recipe.image.regions else "captions",
        devices=devices,
        checkpoint_seconds=checkpoint_seconds,
        checkpoint_steps=checkpoint_steps,
    )
    return CaptionRun.open(out)


def check_selection(recipe: Recipe) -> None:
    """Refuses a measure of validation that does not exist, or that a run of regions has not.

    Raises:
        InvalidArgumentError: if it does not.
    """
    select = recipe.training.select
    if select not in SELECTIONS:
        raise unknown_name("training.select", select, SELECTIONS)
    if recipe.image.regions and select == "cider":
        fix = "There are no captions of regions to compare with."
        raise invalid_argument("training.select", select, "'perplexity' with image.regions=true", fix)


@dataclass(frozen=True)
class _Pairs:
    """What a network is trained on.

    Attributes:
        batches: of training.
        texts: of training.
        features: float (n, dim) whose statistics are those of the features, where there are such.
        validation: of every epoch.
        snippets: that captions were cut into, by the name of their split.
    """

    batches: Batches
    texts: list[str]
    features: np.ndarray | None
    validation: PerplexityValidation
    snippets: dict[str, Snippets] = dataclasses.field(default_factory=dict)


def _whole_images(
    recipe: Recipe, dataset: Dataset, train: Split, store: build.Store | None, tokenizer: Tokenizer
) -> _Pairs:
    images = build.build_images(recipe, train, store, training=True)
    val = dataset.split("val")
    val_images = build.build_images(recipe, val, store)
    likelihoods = likelihood_batches(
        val_images.gather, val.caption_rows, *tokenizer.encode(val.captions), finish=val_images.finish
    )
    validation = PerplexityValidation(likelihoods)
    if recipe.training.select == "cider":
        most = recipe.caption.max_words
        validation = CiderValidation(likelihoods, val, val_images, tokenizer, max_words=most)
    batches = build.build_batches(recipe, train, images, tokenizer)
    features = store.rows(train.ids) if isinstance(store, FeatureStore) else None
    return _Pairs(batches, train.captions, features, validation)


def _regions(
    recipe: Recipe,
    dataset: Dataset,
    folder: Path,
    store: build.Store | None,
    tokenizer: Tokenizer,
    alignment: Run | None,
) -> _Pairs:
    if alignment is None:
        fix = "Name it with --alignment RUN; train one with: vsemb train dvsa"
        raise invalid_argument("alignment", None, "a run of dvsa, which cuts captions into snippets", fix)
    assert isinstance(store, RegionStore)
    check_same_regions(alignment.regions_of(dataset).fingerprint, store.fingerprint)
    found = {
        name: stored_snippets(folder / name, alignment, dataset, name, affinity=recipe.caption.affinity)
        for name in ("train", "val")
    }
    train, val = found["train"], found["val"]
    batches = SnippetBatches(train, store, tokenizer, recipe.batches.size, recipe.training.seed)
    likelihoods = likelihood_batches(
        SnippetImages(val, store).gather, np.arange(len(val)), *tokenizer.encode(val.texts)
    )
    some = np.arange(0, len(train), max(1, len(train) // _REGIONS))
    features = SnippetImages(train, store, memory=0).gather(some)
    return _Pairs(batches, train.texts, features, PerplexityValidation(likelihoods), found)


def _start(recipe: Recipe, model: MultimodalRNN, tokenizer: Tokenizer, pairs: _Pairs) -> None:
    """Sets feature statistics, word vectors and the words' frequencies."""
    encoder = model.image_encoder
    if isinstance(encoder, ImageEncoder) and encoder.scaling is not None and pairs.features is not None:
        encoder.scaling.adapt(pairs.features)
    ids, offsets = tokenizer.encode(pairs.texts)
    start_word_vectors(recipe, model.words, tokenizer.vocabulary, ids, offsets)
    if recipe.caption.frequency_bias:
        counts = np.bincount(ids, minlength=len(tokenizer.vocabulary))
        counts[0] = len(pairs.texts)
        model.set_frequencies(counts)
