"""The task of retrieval: a dual encoder of images and texts."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

import keras
import numpy as np

from vsemb.console import say
from vsemb.data.batches import BatchesPart, PairBatches, Pairs
from vsemb.data.store import StoredDataset
from vsemb.errors import counted, invalid_argument
from vsemb.hubs import HubCorrection
from vsemb.losses.in_batch import InBatchLoss, LossPart
from vsemb.losses.ranking import Ranking
from vsemb.losses.small_loss import AllPairs, TrainedPairs
from vsemb.models import DualEncoder, LogitScale
from vsemb.ops.tensorflow import tf
from vsemb.parts import Count, NonNegative, Size, Whole
from vsemb.recipes.info import untyped
from vsemb.recipes.schema import Job, Recipe
from vsemb.recipes.towers import MOST_IMAGES, Features, ImageTower, Text
from vsemb.similarities import Cosine, Similarity
from vsemb.text.tokenizers import NGRAMS
from vsemb.training.callbacks import CollapseWarning
from vsemb.training.hub_bank import HubBankValidation
from vsemb.training.initialization import Initialization, Random
from vsemb.training.validation import RecallSum, ValidationPart

if TYPE_CHECKING:
    from vsemb.recipes.info import RunInfo
    from vsemb.runs.run import Run

# With this many images or fewer, recall at 10 is 100 % for any model.
_FEW = 10


@dataclass(frozen=True)
class Retrieval(Recipe, kind="retrieval"):
    """A dual encoder of images and texts, trained on pairs.

    Attributes:
        embedding_dim: size of the embedding; null for the size of the image features, without a projection.
        text: the text tower.
        image: the image tower.
        similarity: the similarity of image and text embeddings.
        loss: the loss over the candidates of a batch.
        pairs: the pairs of a batch that are trained on.
        batches: the batches of pairs.
        validation: the validation that selects the best epoch.
        initialization: the initialization of weights.
        l2: weight of L2 regularization: half the sum of squares of all trained matrices except word vectors.
        chunk_size: rows that are embedded at a time (gradient caching); null for the whole batch. Gradients do not
            change.
        hub_bank: training images and captions by which embeddings are corrected for hubs; null for no correction.
        ngrams_below: number of training images below which the tokenizer is `ngrams`, unless the training sets another;
            0 for never.
    """

    run_fields: ClassVar[tuple[str, ...]] = ("features", "feature_dim")

    embedding_dim: Size | None = 1024
    text: Text = field(default_factory=Text)
    image: ImageTower = field(default_factory=Features)
    similarity: Similarity = field(default_factory=Cosine)
    loss: LossPart = field(default_factory=Ranking)
    pairs: TrainedPairs = field(default_factory=AllPairs)
    batches: BatchesPart = field(default_factory=Pairs)
    validation: ValidationPart = field(default_factory=RecallSum)
    initialization: Initialization = field(default_factory=Random)
    l2: NonNegative = 0.0
    chunk_size: Count | None = None
    hub_bank: Count | None = None
    ngrams_below: Whole = 0

    def check(self) -> None:
        super().check()
        for name, part in (("image", self.image), ("text.encoder", self.text.encoder)):
            if part.produces != self.similarity.accepts:
                allowed = f"a part that makes one {self.similarity.accepts} per item"
                fix = f"The similarity {self.similarity.kind!r} compares those."
                raise invalid_argument(name, part.kind, f"{allowed}, not one {part.produces}", fix)
        for name in ("validation", "initialization", "loss"):
            part = getattr(self, name)
            if part.accepts not in (None, self.similarity.accepts):
                raise invalid_argument(name, part.kind, f"another with similarity={self.similarity.kind!r}")
        projection = getattr(self.image, "projection", None)
        keeps_size = projection is not None and projection.keeps_size
        affine = projection is not None and projection.affine
        if self.initialization.maps_features and (self.image.from_pixels or not affine):
            allowed = "random, unless features pass an affine map"
            raise invalid_argument("initialization", self.initialization.kind, allowed)
        if keeps_size != (self.embedding_dim is None):
            allowed = "null with image.projection=none, and a number with another"
            raise invalid_argument("embedding_dim", self.embedding_dim, allowed)
        if self.hub_bank is not None and not self.similarity.compares_directions:
            fix = f"Corrections are added to cosines; the similarity is {self.similarity.kind!r}."
            raise invalid_argument("hub_bank", self.hub_bank, "null with this similarity", fix)
        if self.pairs.compares:
            if self.loss.block_size is not None:
                raise invalid_argument("loss.block_size", self.loss.block_size, f"null with pairs={self.pairs.kind}")
            self.pairs.select(self.loss.build(1), 1)  # Refuses losses that cannot be selected.
        if self.loss.similarities and self.similarity.kind not in self.loss.similarities:
            allowed = f"{' or '.join(self.loss.similarities)} with loss={self.loss.kind}"
            raise invalid_argument("similarity", self.similarity.kind, allowed)
        if self.loss.over_classes and not self.batches.in_batch:
            raise invalid_argument("batches.negatives", "sampled", "'batch' for losses over classes")

    @property
    def added_dim(self) -> int:  # type: ignore[override]
        # Two for each member of an ensemble, see `vsemb.hubs.HubCorrection`.
        return 0 if self.hub_bank is None else 2 * self.similarity.ensemble_size

    def open_data(self, path: str | os.PathLike[str]) -> StoredDataset:
        return StoredDataset.open(path)

    def suited_to(self, data: StoredDataset) -> tuple[Sequence[str], str]:
        images = len(data.split("train"))
        # Without TensorFlow, n-grams cannot be read.
        if images >= self.ngrams_below or not tf:
            return (), ""
        line = f"{counted(images, 'training image')}: reading words by their n-grams, too, with {NGRAMS}."
        return (NGRAMS,), f"{line} For whole words, set text.tokenizer=words."

    def with_pixels(self, image: Any) -> Self:
        # Closed-form initialization needs cached features, and a tower from pixels has no cache.
        dim = self.embedding_dim if image.projection.keeps_size else self.embedding_dim or 1024
        return replace(self, image=image, initialization=Random(), embedding_dim=dim)

    def prepare(self, data: Any, out: Path, inputs: Mapping[str, Run]) -> RetrievalJob:
        return RetrievalJob(self, data)

    def build(self, vocabulary_size: int, info: RunInfo, dtype: str) -> DualEncoder:
        keras.utils.set_random_seed(self.training.seed)
        image_encoder = self.image.build(self.embedding_dim, info, seed=self.training.seed, dtype=dtype)
        text_encoder = self.text.build(image_encoder.dim, vocabulary_size, info, dtype)
        learned = self.loss.logit_scale()
        scale = None
        if learned is not None:
            temperature, bias = learned
            # A pretrained model may have learned a larger factor than CLIP's maximum of 100.
            scale = LogitScale(1 / temperature, max(100.0, 1 / temperature), bias)
        hubs = None
        if self.hub_bank is not None:
            size = min(self.hub_bank, info["train_images"])
            # One neighbour in a hundred was the best of several numbers.
            members, neighbours = self.similarity.ensemble_size, max(1, size // 100)
            hubs = HubCorrection(image_encoder.dim, members=members, size=size, neighbours=neighbours)
        model = DualEncoder(
            image_encoder,
            text_encoder,
            self.similarity,
            hubs=hubs,
            logit_scale=scale,
            image_weight=self.loss.image_weight,
            text_weight=self.loss.text_weight,
            l2=self.l2,
            chunk_size=self.chunk_size,
            block_size=self.loss.block_size,
        )
        tokens = (None, None, *self.text.tokenizer.token_shape)
        model.build({"image": self.image.input_shape(info), "text": tokens})
        return model

    def card_facts(self, run: Run) -> dict[str, Any]:
        facts = super().card_facts(run)
        if "preset" in run.info:
            own = "with its weights" if getattr(self.text.encoder, "weights", None) else "with random weights"
            facts["notes"] = [f"It was not trained here: it is the preset {run.info['preset']} of keras-hub, {own}."]
        return facts

    @property
    def splits(self) -> tuple[str, ...]:
        return ("train", "val") if self.validation.measures else ("train",)

    def summary(self, info: RunInfo, out: str) -> list[str]:
        option = f" {self.validation.option}" if self.validation.option else ""
        # After a training without validation, `val` may be part of `train`.
        unseen = option or not self.validation.measures
        split = "test" if unseen and "test" in info.get("splits", ()) else "val"
        return [
            f"best epoch   {info['best_epoch'] + 1}, validation {self.validation.describe(info)}",
            f"next         vsemb evaluate {out} --split {split}{option}",
        ]


class RetrievalJob(Job):
    """The training of `Retrieval` on a dataset.

    Args:
        recipe: the recipe.
        dataset: the dataset, with the split `train`, and `val` if the recipe's validation measures it.

    Raises:
        VsembError: if the dataset lacks what the recipe reads.
    """

    def __init__(self, recipe: Retrieval, dataset: StoredDataset) -> None:
        self.recipe = recipe
        self.dataset = dataset
        self.monitor = recipe.validation.monitor
        recipe.validation.check_data(dataset)
        part = recipe.text.tokenizer
        said = part.describe(dataset)
        self.train = part.select(dataset.split("train")).first_captions(recipe.batches.captions_per_image)
        # Without validation, the dataset may lack `val`, for example if it was merged into `train`.
        measured = recipe.validation.measures
        self.val = part.select(dataset.split("val" if measured or "val" in dataset.splits else "train"))
        if measured and len(self.val.ids) <= _FEW:
            say(
                f"warning: the split val has {len(self.val.ids)} images, too few to tell epochs apart: recall at 10 is "
                "100 % with 10 images. Prepare a dataset with 100 or more."
            )
        self.store = recipe.image.open(dataset)
        self.vocabulary = part.learn(self.train.captions, dataset)
        self.info = described(dataset)
        untyped(self.info).update({**recipe.image.describe(self.store), **said})

    def keep(self, folder: Path) -> None:
        """Write the backbone of the features, and the files of the tokenizer, such as a parser."""
        self.recipe.image.keep(self.store, folder)
        self.recipe.text.tokenizer.keep(self.dataset, folder)

    def training_texts(self) -> Sequence[str]:
        return self.train.captions

    def batches(self) -> PairBatches:
        """Return the training batches."""
        recipe = self.recipe
        images = recipe.image.images(self.train, self.store, training=True, service=self.data_service)
        views = getattr(self.store, "training_views", None)
        advice = None if views is None else recipe.batches.advice(len(views))
        if advice is not None:
            say(advice)
        return recipe.batches.build(self.train, images, self.tokenizer, recipe.training.seed)

    def model(self, recipe: Any, dtype: str) -> DualEncoder:
        """Build the model and initialize it from the training split."""
        model = recipe.build(len(self.vocabulary), self.info, dtype)
        features = None if self.store is None else recipe.image.features(self.store, self.train)
        recipe.image.initialize(model.image_encoder, features, self.store)
        texts = list(self.train.captions[: self.train.caption_offsets[: MOST_IMAGES + 1][-1]])
        corpus = recipe.text.corpus(self.tokenizer, texts, recipe.training.seed, self.dataset)
        recipe.initialization.apply(model, corpus, self.train.rows_of(np.arange(len(texts))), features)
        # The encoder comes last, so that no initialization overwrites its vectors from a file.
        recipe.text.encoder.initialize(model.text_encoder, corpus)
        return model

    def loss(self, steps_per_epoch: int) -> InBatchLoss:
        """Return the loss."""
        return self.recipe.pairs.select(self.recipe.loss.build(steps_per_epoch), steps_per_epoch)

    def validation(self) -> keras.callbacks.Callback:
        """Return the callback that measures the split `val`."""
        recipe = self.recipe
        validation = recipe.validation.build(self.val, recipe.image.images(self.val, self.store), self.tokenizer)
        if recipe.hub_bank is None:
            return validation
        images = recipe.image.images(self.train, self.store)
        return HubBankValidation(validation, self.train, images, self.tokenizer, seed=recipe.training.seed)

    def checks(self, batch_size: int) -> Sequence[keras.callbacks.Callback]:
        """Return the warning about a collapsed model."""
        return [CollapseWarning(batch_size)]


def described(dataset: StoredDataset) -> RunInfo:
    """Return the entries of `run.json` about a dataset."""
    train = dataset.split("train")
    info: RunInfo = {
        "dataset": dataset.fingerprint,
        "dataset_name": dataset.name,
        "data": str(dataset.path.resolve()),
        "splits": list(dataset.splits),
        "train_images": len(train),
        "train_captions": len(train.captions),
    }
    if train.has_classes:
        # Zero-shot recognition on any dataset compares its classes with these training classes.
        info["classes"] = sorted({name for name in train.class_names if name})
    return info
