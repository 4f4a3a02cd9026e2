"""A task: captions of one image are paraphrases. A text encoder brings them together and all others apart."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import keras
import numpy as np
import tensorflow as tf
from keras import ops

from vsemb.data.batches import BatchSource, pad_ids
from vsemb.data.store import Split, StoredDataset
from vsemb.evaluation.embed import Embedder
from vsemb.losses.ranking import PairwiseRanking
from vsemb.parts import Count, Part, Size
from vsemb.recipes.retrieval import described
from vsemb.recipes.schema import Job, Recipe, Training
from vsemb.recipes.towers import Text
from vsemb.similarities import Cosine
from vsemb.training.optimizers import Adam


@keras.saving.register_keras_serializable("outsider")
class ParaphraseModel(keras.Model):
    """One text encoder for both sides of a pair; the loss is the ranking loss of VSE++ over the batch."""

    def __init__(self, text_encoder: keras.layers.Layer, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.text_encoder = text_encoder
        self.similarity = Cosine()

    def build(self, input_shape: Any = None) -> None:
        self.text_encoder.build((None, None))

    def encode_texts(self, token_ids: Any, training: bool = False) -> Any:
        return self.similarity.normalize(self.text_encoder(token_ids, training=training))

    def call(self, inputs: Mapping[str, Any], training: bool = False) -> Any:
        sides = [self.encode_texts(inputs[name], training=training) for name in ("text", "other")]
        return self.similarity.scores(*sides)  # (pairs, pairs)

    def compute_loss(
        self, x: Any = None, y: Any = None, y_pred: Any = None, sample_weight: Any = None, training: bool = True
    ) -> Any:
        del x, y, sample_weight, training
        return self.loss(ops.eye(ops.shape(y_pred)[0], dtype="int32"), y_pred)


class ParaphraseBatches(BatchSource):
    """Pairs of two captions of an image, the first two of each."""

    def __init__(self, split: Split, tokenizer: Any, **options: Any) -> None:
        self._ids, self._offsets = tokenizer.encode(split.captions)
        self._first = np.searchsorted(split.caption_rows, np.arange(len(split)))
        super().__init__([np.diff(self._offsets)[self._first]], unit="images", **options)

    def gather(self, rows: np.ndarray) -> dict[str, np.ndarray]:
        first = self._first[rows]
        return {
            "text": pad_ids(self._ids, self._offsets, first),
            "other": pad_ids(self._ids, self._offsets, first + 1),
        }

    def signature(self) -> dict[str, tf.TensorSpec]:
        return dict.fromkeys(("text", "other"), tf.TensorSpec((self.batch_size, None), tf.int32))


def accuracy(model: Any, tokenizer: Any, split: Split) -> float:
    """Returns the share of captions, in percent, whose nearest other caption is of the same image."""
    texts = Embedder(model).texts(*tokenizer.encode(split.captions))
    scores = texts @ texts.T - 2 * np.eye(len(texts), dtype=np.float32)
    return float(100 * np.mean(split.caption_rows[scores.argmax(axis=1)] == split.caption_rows))


class ParaphraseValidation(keras.callbacks.Callback):
    """Adds `val_paraphrase`, see `accuracy`, to the logs of an epoch."""

    def __init__(self, split: Split, tokenizer: Any) -> None:
        super().__init__()
        self._split, self._tokenizer = split, tokenizer

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        if logs is not None:
            logs["val_paraphrase"] = accuracy(self.model, self._tokenizer, self._split)


@dataclass(frozen=True)
class Batches(Part):
    """The batches.

    Attributes:
        size: pairs per batch.
    """

    size: Count = 32


@dataclass(frozen=True)
class Paraphrase(Recipe, kind="paraphrase"):
    """Captions of one image as paraphrases.

    Attributes:
        embedding_dim: size of the embedding.
        text: the text tower.
        batches: how pairs become batches.
    """

    evaluation: ClassVar[str] = "paraphrase"

    embedding_dim: Size = 64
    text: Text = field(default_factory=Text)
    batches: Batches = field(default_factory=Batches)

    def open_data(self, path: str | os.PathLike[str]) -> StoredDataset:
        return StoredDataset.open(path)

    def prepare(self, data: Any, out: Path, inputs: Mapping[str, Any]) -> ParaphraseJob:
        return ParaphraseJob(self, data)

    def build(self, vocabulary_size: int, info: Mapping[str, Any], dtype: str) -> ParaphraseModel:
        keras.utils.set_random_seed(self.training.seed)
        model = ParaphraseModel(self.text.build(self.embedding_dim, vocabulary_size, info, dtype))
        model.build()
        return model


class ParaphraseJob(Job):
    """What the task makes of a dataset."""

    unit, monitor = "images", "val_paraphrase"

    def __init__(self, recipe: Paraphrase, dataset: StoredDataset) -> None:
        self.recipe, self.dataset = recipe, dataset
        self.train, self.val = (dataset.split(name) for name in ("train", "val"))
        self.vocabulary = recipe.text.tokenizer.learn(self.train.captions)
        self.info = described(dataset)

    def keep(self, folder: Path) -> None:
        self.recipe.text.tokenizer.keep(self.dataset, folder)

    def batches(self) -> ParaphraseBatches:
        size, seed = self.recipe.batches.size, self.recipe.training.seed
        return ParaphraseBatches(self.train, self.tokenizer, batch_size=size, seed=seed)

    def model(self, recipe: Any, dtype: str) -> ParaphraseModel:
        return recipe.build(len(self.vocabulary), self.info, dtype)

    def loss(self, steps_per_epoch: int) -> PairwiseRanking:
        return PairwiseRanking(margin=0.2)

    def validation(self) -> ParaphraseValidation:
        return ParaphraseValidation(self.val, self.tokenizer)


PARAPHRASE = {
    "default": Paraphrase(
        name="paraphrase",
        embedding_dim=16,
        optimizer=Adam(learning_rate=0.01),
        batches=Batches(size=8),
        training=Training(epochs=2),
    ).with_overrides(["text.encoder.units=16", "text.encoder.words.dim=16", "text.encoder.pooling=mean"])
}
