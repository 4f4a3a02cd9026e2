"""The task of entailment: training an encoder of sentence pairs, and measuring it.

Vendrov et al. 2016, section 5; the paper's settings are in `vsemb.systems.entailment.recipe`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import keras
import numpy as np

from vsemb.encoders.text_encoder import TextCorpus
from vsemb.errors import DataError, invalid_argument
from vsemb.evaluation.binary import find_threshold
from vsemb.losses.max_margin import MaxMargin, MaxMarginSettings
from vsemb.parts import Seed, Size
from vsemb.recipes.schema import Job, Recipe
from vsemb.recipes.towers import Text
from vsemb.runs.run import Run
from vsemb.similarities import OrderViolation, Similarity
from vsemb.systems.entailment.data import EntailmentData, EntailmentSplit, PairBatching, SentencePairBatches
from vsemb.systems.entailment.metrics import EnergyMeasure, EntailmentMetrics, EntailmentValidation, evaluate_entailment
from vsemb.systems.entailment.model import EntailmentModel


@dataclass(frozen=True)
class Entailment(Recipe, kind="entailment"):
    """An encoder of sentences in a partial order, trained on labelled pairs.

    Attributes:
        embedding_dim: size of the embedding.
        text: the encoder of both sentences.
        similarity: how embeddings are compared; the energy of a pair is the best score minus its score.
        loss: max-margin over energies.
        batches: how pairs become batches.
        split_seed: decides the splits of data that name none.
    """

    evaluation: ClassVar[str] = "entailment"
    run_fields: ClassVar[tuple[str, ...]] = ("protocol",)

    embedding_dim: Size = 1024
    text: Text = field(default_factory=Text)
    similarity: Similarity = field(default_factory=OrderViolation)
    loss: MaxMarginSettings = field(default_factory=MaxMarginSettings)
    batches: PairBatching = field(default_factory=PairBatching)
    split_seed: Seed = 0

    def check(self) -> None:
        super().check()
        if self.similarity.self_score is None:
            allowed = "one with a best score, such as order or cosine"
            raise invalid_argument("similarity", self.similarity.kind, allowed)
        if self.text.encoder.produces != "vector":
            raise invalid_argument("text.encoder", self.text.encoder.kind, "an encoder of one vector per text")
        if self.text.tokenizer.produces != "ids":
            raise invalid_argument("text.tokenizer", self.text.tokenizer.kind, "a tokenizer of sentences")

    def open_data(self, path: str | os.PathLike[str]) -> EntailmentData:
        return EntailmentData.open(path, self.split_seed)

    def check_data(self, data: Any, info: Mapping[str, Any]) -> None:
        if data.fingerprint != info["dataset"]:
            raise DataError(
                f"{data.path} must be as it was when the run was trained ({info['dataset'][:12]}); it is "
                f"{data.fingerprint[:12]}. Restore it, or name other pairs with --data."
            )

    def prepare(self, data: Any, out: Path, inputs: Mapping[str, Any]) -> EntailmentJob:
        if data.grouped and data.split_seed != self.split_seed:
            fix = f"Set split_seed={data.split_seed}."
            raise invalid_argument("split_seed", self.split_seed, f"{data.split_seed}, as the data were opened", fix)
        return EntailmentJob(self, data)

    def build(self, vocabulary_size: int, info: Mapping[str, Any], dtype: str) -> EntailmentModel:
        keras.utils.set_random_seed(self.training.seed)
        encoder = self.text.build(self.embedding_dim, vocabulary_size, info, dtype)
        model = EntailmentModel(encoder, self.similarity)
        model.build()
        return model

    def summary(self, info: Mapping[str, Any], out: str, data: str) -> list[str]:
        return [
            f"splits       {info['protocol']}",
            f"best epoch   {info['best_epoch'] + 1}, validation accuracy {100 * info['best_accuracy']:.1f} %",
            f"next         vsemb evaluate {out} --split test",
        ]


class EntailmentJob(Job):
    """What `Entailment` makes of sentence pairs.

    Args:
        recipe: the recipe.
        data: with splits `train` and `val`.
    """

    unit = "pairs"
    monitor = "val_accuracy"

    def __init__(self, recipe: Entailment, data: EntailmentData) -> None:
        self.recipe = recipe
        self.data = data
        self.vocabulary = recipe.text.tokenizer.learn(data.texts("train"))
        self.info = {
            "dataset": data.fingerprint,
            "dataset_name": data.path.name,
            "data": str(data.path.resolve()),
            "protocol": data.protocol,
        }

    @cached_property
    def splits(self) -> dict[str, EntailmentSplit]:
        """The splits `train` and `val` as token ids; `info` counts their pairs from here on.

        Raises:
            DataError: if one has pairs of one class only.
        """
        splits = self.data.encode(self.tokenizer, ("train", "val"))
        for name, split in splits.items():
            if len(np.unique(split.labels)) < 2:
                raise DataError(
                    f"{self.data.path}: the split {name!r} has pairs of one class only. Expected: entailed and others."
                )
        self.info["pairs"] = {name: len(split) for name, split in splits.items()}
        self.info["dropped"] = {name: split.dropped for name, split in splits.items()}
        counts = ", ".join(f"{count:,} {name}" for name, count in self.info["pairs"].items())
        dropped = sum(self.info["dropped"].values())
        print(f"pairs        {counts} ({dropped:,} without gold label dropped)", file=sys.stderr)
        print(f"splits       {self.data.protocol}", file=sys.stderr)
        return splits

    def batches(self) -> SentencePairBatches:
        """Returns the training batches."""
        recipe = self.recipe
        return SentencePairBatches(self.splits["train"], batch_size=recipe.batches.size, seed=recipe.training.seed)

    def model(self, recipe: Any, dtype: str) -> EntailmentModel:
        """Builds the model and initializes it from the training sentences."""
        model = recipe.build(len(self.vocabulary), self.info, dtype)
        sides = [getattr(self.splits["train"], name) for name in ("premises", "hypotheses")]
        corpus = TextCorpus(
            self.vocabulary,
            np.concatenate([side.ids for side in sides]),
            np.cumsum([0, *np.concatenate([side.lengths for side in sides])]),
            recipe.text.tokenizer.whole_words,
            recipe.training.seed,
        )
        recipe.text.encoder.initialize(model.text_encoder, corpus)
        return model

    def loss(self, steps_per_epoch: int) -> MaxMargin:
        """Returns the loss."""
        return self.recipe.loss.build()

    def validation(self) -> EntailmentValidation:
        """Returns the callback that measures the split `val`."""
        return EntailmentValidation(self.splits["val"])


def evaluate_entailment_run(run: Run, data: EntailmentData, split: str = "test") -> EntailmentMetrics:
    """Measures a run on a split, at the threshold that is best on the data's validation split.

    Args:
        run: a run for entailment.
        data: the sentence pairs.
        split: name of the split.

    Raises:
        VsembError: if a split is not there or does not have both classes.
    """
    splits = data.encode(run.tokenizer, tuple(dict.fromkeys(("val", split))))
    measure = EnergyMeasure(run.model)
    threshold = find_threshold(measure(splits["val"]), splits["val"].labels)
    return evaluate_entailment(measure(splits[split]), splits[split].classes, threshold)
