"""Runs of the entailment task: training one and measuring it.

The run directory is that of `vsemb.runs.stored_run`; `run.json` says in addition how the pairs came to
their splits.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import keras
import numpy as np

from vsemb.errors import DataError, unknown_name
from vsemb.evaluation.binary import find_threshold
from vsemb.recipes.reading import check_read
from vsemb.recipes.schema import Recipe
from vsemb.runs import build, optimizers, texts
from vsemb.runs.initialization import start_word_vectors, text_parts
from vsemb.runs.loop import fit_run
from vsemb.runs.precision import check_precision, settled
from vsemb.runs.run_directory import check_out, enter_run
from vsemb.runs.stored_run import RECIPE, StoredRun
from vsemb.systems.entailment.batches import SentencePairBatches
from vsemb.systems.entailment.data import EntailmentData, EntailmentSplit
from vsemb.systems.entailment.max_margin import MaxMargin
from vsemb.systems.entailment.metrics import EnergyMeasure, EntailmentMetrics, evaluate_entailment
from vsemb.systems.entailment.model import EntailmentModel
from vsemb.systems.entailment.validation import EntailmentValidation
from vsemb.text.cooccurrence import document_frequencies
from vsemb.text.tokenizers import Tokenizer
from vsemb.training.strategies import DistributionContext, as_distribution

#: A recipe's similarity -> the model's comparison.
COMPARISONS = {"order": "order", "cosine": "symmetric"}

# The fields of a recipe that this task reads; the others are for images and must be as they are by default.
_READ = (
    *("name", "variant", "paper", "task", "embedding_dim", "similarity", "text.", "optimizer."),
    *("loss.name", "loss.margin", "loss.reduction", "batches.size"),
    *("training.epochs", "training.patience", "training.seed", "training.precision"),
)


@dataclass(frozen=True)
class EntailmentRun(StoredRun):
    """A trained entailment model.

    Example:

        run = EntailmentRun.open("runs/snli")
        embeddings = run.model.encode_texts(run.tokenizer(["a dog runs", "an animal moves"]))
        run.model.energies(embeddings[:1], embeddings[1:])
    """

    task: ClassVar[str] = "entailment"
    fields: ClassVar[tuple[str, ...]] = (*StoredRun.fields, "split_seed")

    @cached_property
    def model(self) -> EntailmentModel:
        """The model with the selected weights."""
        model = build_entailment_model(self.recipe, len(self.vocabulary))
        self._load_best(model)
        return model

    def open_data(self, path: str | os.PathLike[str] | None = None) -> EntailmentData:
        """Opens sentence pairs to measure the run on.

        Args:
            path: None for those that it was trained on.

        Raises:
            DataError: if those are not there any more or have changed.
        """
        data = EntailmentData.open(path or self.data_path, self.info["split_seed"] or 0)
        if path is None and data.fingerprint != self.info["dataset"]:
            raise DataError(
                f"{data.path} is not as it was when {self.path} was trained ({data.fingerprint[:12]}, not "
                f"{self.info['dataset'][:12]}). Restore it, or name other pairs with --data."
            )
        return data


def build_entailment_model(recipe: Recipe, vocabulary_size: int) -> EntailmentModel:
    """Builds the recipe's model, its weights drawn from the recipe's seed.

    Raises:
        InvalidArgumentError: for a field with a value that is not allowed, or that entailment does not
            read and that is not at its default.
    """
    check_read(recipe, _READ)
    if recipe.similarity not in COMPARISONS:
        raise unknown_name("similarity", recipe.similarity, COMPARISONS)
    check_precision(recipe)
    keras.utils.set_random_seed(recipe.training.seed)
    model = EntailmentModel(texts.build_text_encoder(recipe, vocabulary_size), COMPARISONS[recipe.similarity])
    model.build()
    return model


def _build_loss(recipe: Recipe) -> MaxMargin:
    loss = recipe.loss
    if loss.name != "max-margin":
        raise unknown_name("loss.name", loss.name, ["max-margin"])
    if loss.reduction not in build.REDUCTIONS:
        raise unknown_name("loss.reduction", str(loss.reduction), map(str, build.REDUCTIONS))
    return MaxMargin(loss.margin, reduction=build.REDUCTIONS[loss.reduction])


def train_entailment(
    recipe: Recipe,
    data: EntailmentData,
    out: str | os.PathLike[str],
    *,
    checkpoint_seconds: float = 60.0,
    checkpoint_steps: int | None = None,
    strategy: str | DistributionContext = "none",
) -> EntailmentRun:
    """Trains an entailment recipe; a training that was stopped goes on where it stopped.

    Args:
        recipe: what to train.
        data: with splits `train` and `val`.
        out: the run directory.
        checkpoint_seconds: time between stored states.
        checkpoint_steps: store after so many steps instead.
        strategy: `none`, `mirrored`, `multiworker`, or devices, see `vsemb.training.open_distribution`.

    Returns:
        The run, with the weights selected on validation.

    Raises:
        VsembError: for bad recipes, data or directories; nothing written before is lost.

    Example:

        run = train_entailment(recipes.get("entailment"), EntailmentData.open("data/snli_1.0"), "runs/snli")
    """
    out, devices = Path(out), as_distribution(strategy)
    devices.check_batch_size(recipe.batches.size)
    if not (out / RECIPE).exists():
        check_out(out)
    vocabulary = texts.build_vocabulary(recipe, data.texts("train"))
    info: dict[str, Any] = {
        "dataset": data.fingerprint,
        "dataset_name": data.path.name,
        "data": str(data.path.resolve()),
        "protocol": data.protocol,
        "split_seed": data.split_seed if data.grouped else None,
    }
    if (out / RECIPE).exists() and enter_run(recipe, info, out, vocabulary)["status"] == "finished":
        print(f"{out} is finished already.", file=sys.stderr)
        return EntailmentRun.open(out)
    tokenizer = texts.build_tokenizer(recipe, vocabulary)
    splits = data.encode(tokenizer, ("train", "val"))
    for name, split in splits.items():
        if len(np.unique(split.labels)) < 2:
            raise DataError(
                f"{data.path}: the split {name!r} has pairs of one class only. Expected: entailed and others."
            )
    info["pairs"] = {name: len(split) for name, split in splits.items()}
    info["dropped"] = {name: split.dropped for name, split in splits.items()}
    print(_described(info), file=sys.stderr)
    batches = SentencePairBatches(splits["train"], batch_size=recipe.batches.size, seed=recipe.training.seed)
    with devices.scope():
        model = build_entailment_model(settled(recipe), len(vocabulary))
        _start(recipe, model, tokenizer, splits["train"])
        model.compile(
            optimizer=optimizers.build_optimizer(recipe, batches.steps_per_epoch),
            loss=_build_loss(recipe),
            jit_compile=False,
        )
    # Only now, so that a recipe that does not work leaves no run behind.
    fit_run(
        recipe,
        model,
        batches,
        out,
        devices.first_worker_first(lambda: enter_run(recipe, info, out, vocabulary)),
        validation=EntailmentValidation(splits["val"]),
        monitor="val_accuracy",
        unit="pairs",
        devices=devices,
        checkpoint_seconds=checkpoint_seconds,
        checkpoint_steps=checkpoint_steps,
    )
    return EntailmentRun.open(out)


def _described(info: dict[str, Any]) -> str:
    counts = ", ".join(f"{count:,} {name}" for name, count in info["pairs"].items())
    dropped = sum(info["dropped"].values())
    return f"pairs        {counts} ({dropped:,} without gold label dropped)\nsplits       {info['protocol']}"


def _start(recipe: Recipe, model: EntailmentModel, tokenizer: Tokenizer, split: EntailmentSplit) -> None:
    """Sets word rarities and pretrained word vectors, where the recipe has them."""
    words, bag = text_parts(model)
    sides = (split.premises, split.hypotheses)
    ids = np.concatenate([side.ids for side in sides])
    offsets = np.cumsum([0, *np.concatenate([side.lengths for side in sides])])
    if bag is not None:
        counts = document_frequencies(ids, offsets, len(tokenizer.vocabulary))
        bag.set_document_frequencies(counts, 2 * len(split))
    if words is not None:
        start_word_vectors(recipe, words, tokenizer.vocabulary, ids, offsets)


def evaluate_entailment_run(run: EntailmentRun, data: EntailmentData, split: str = "test") -> EntailmentMetrics:
    """Measures a run on a split, at the threshold that is best on the data's validation split.

    Args:
        run: the run.
        data: the sentence pairs.
        split: name of the split.

    Raises:
        VsembError: if a split is not there or does not have both classes.
    """
    splits = data.encode(run.tokenizer, tuple(dict.fromkeys(("val", split))))
    measure = EnergyMeasure(run.model)
    threshold = find_threshold(measure(splits["val"]), splits["val"].labels)
    return evaluate_entailment(measure(splits[split]), splits[split].classes, threshold)
