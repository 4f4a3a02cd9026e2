"""Vendrov, Kiros, Fidler, Urtasun 2016: order-embeddings, textual entailment (arXiv:1511.06361, section 5).

| equation | content | code |
| --- | --- | --- |
| 2 | order violation E(p, h) = ‖max(0, f(h) - f(p))‖² | `vsemb.ops.order.order_violation` |
| 7 | E of true pairs + max(0, α - E) of false ones, summed | `vsemb.losses.max_margin.MaxMargin` |
| section 5.1 | one encoder f for both sides, unit length, absolute value | `EntailmentModel` |
| section 5.1 | f: the GRU of the caption task | `vsemb.encoders.RecurrentSentenceEncoder` |
| section 5.2 | neutral and contradiction are false pairs | `labels` |
| section 5.3 | threshold found on validation | `vsemb.systems.entailment.metrics.evaluate_entailment` |
| section 5.3 | network on two sentence vectors | `vsemb.systems.entailment.classifier.PairClassifier` |

Variants `order` (the default) and `symmetric` (cosine distance, no absolute value) are the paper's two rows: word
vectors of 300, GRU and embedding of 1024, batches of 128, Adam 1e-3, at most 10 epochs. Deviations, and choices that
the paper leaves open:

- The margin α is not given. It was selected on the validation pairs below. For `order` it is 0.05, selected from 0.02,
  0.05, 0.1, 0.2, 0.5 and 1. For `symmetric` it is 0.5, selected from 0.2, 0.5 and 1. Energies of `order` are at most 1,
  and most of them are much lower.
- "Early stopping": the epoch of the best validation accuracy is kept, and training ends after 3 epochs without a better
  one.
- Section 5 mentions unit length only. The absolute value is taken from the caption task, since the order is defined on
  non-negative vectors.
- An order gives one energy per pair, which does not tell contradictions from neutral pairs, so order-embeddings have no
  3-class accuracy in table 3. `vsemb evaluate` prints their accuracy on the pairs of each class.
- The skip-thought row of table 3 needs the vectors of Kiros et al. 2015, which are not available. Variant `classes` is
  the network of this row: two hidden layers of 1000 PReLU units and a dropout of 0.5 of the inputs of each
  layer, the output layer included, on [u, v, |u - v|]. Its sentence
  vectors u and v come from the encoder of `tuned`, which is trained with it. It has no batch normalization, which would
  depend on the number of devices. It is measured with three classes, and with two.
- The GRU resets its state after the recurrent matrix. `--set text.encoder.cell=gru-reset-before` is the GRU of Cho et
  al. 2014, which the paper cites.
- Every word of the training sentences has a vector. Pairs after the last full batch of an epoch are dropped.

Variant `tuned` is `order` with a GRU of 256 units, the maximum over its states in place of the last state, and a linear
map to 512. It was selected on validation: its accuracy is 77.6 % (SNLI pairs) and 88.3 % (SICK), and 73.5 % and 83.6 %
for `order` ¹. Dropout reduced the accuracy within 7 epochs.

The table gives two-class accuracy on the test split in percent, with one seed. SICK has its own splits (495 validation
pairs). SNLI's training pairs were not available, so its development pairs were split 80/10/10 by premise (7,833, 1,024
and 985 pairs). These figures cannot be compared with SNLI's own test set, for which the paper reports 88.6 and 79.3.

| test accuracy (average precision) | SICK | SNLI's development pairs |
| --- | --- | --- |
| majority class | 71.4 | 65.8 |
| `symmetric` ¹ | 83.1 (76.7) | 70.7 (57.3) |
| `order` ¹ | 84.2 (78.6) | 73.4 (61.5) |
| `symmetric` ¹ with `text.encoder.pooling=max` | 87.4 (85.2) | 74.7 (61.5) |
| `order` ¹ with `text.encoder.pooling=max` | 87.9 (85.8) | 77.1 (68.8) |
| `tuned` | 87.7 (86.7) | 76.4 (68.9) |

¹ With 128 units, 256 dimensions and 7 epochs: `--set text.encoder.units=128 --set embedding_dim=256 --set
training.epochs=7 --set training.patience=null`.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import keras
import numpy as np

from vsemb.console import say
from vsemb.encoders.recurrent import Recurrent
from vsemb.encoders.text_encoder import TextCorpus, WordVectors
from vsemb.errors import DataError, invalid_argument
from vsemb.evaluation.binary import find_threshold
from vsemb.losses.max_margin import MaxMargin
from vsemb.parts import Count, Part, Positive, Seed, Share, Size
from vsemb.recipes.info import untyped
from vsemb.recipes.schema import Job, Recipe, Training
from vsemb.recipes.towers import Text
from vsemb.similarities import Cosine, OrderViolation, Similarity
from vsemb.systems.entailment.classifier import PairClassifier
from vsemb.systems.entailment.data import (
    EntailmentData,
    EntailmentSplit,
    PairBatching,
    SentencePairBatches,
    Sentences,
)
from vsemb.systems.entailment.metrics import (
    ClassMetrics,
    EntailmentMetrics,
    PairMeasure,
    PairMetrics,
    PairValidation,
    evaluate_classes,
    evaluate_entailment,
)
from vsemb.systems.entailment.model import EntailmentModel
from vsemb.training.optimizers import Adam

if TYPE_CHECKING:
    from vsemb.exporting import Exportable
    from vsemb.recipes.info import RunInfo
    from vsemb.runs.run import Run


@dataclass(frozen=True)
class PairLoss(Part):
    """The loss of labelled pairs.

    Attributes:
        margin: energy of a false pair from which its loss is 0.
        reduction: over pairs, `sum` or `mean`; null for the paper's sum.
    """

    margin: Positive = 1.0
    reduction: Literal["sum", "mean"] | None = None

    def build(self) -> MaxMargin:
        """Build the Keras loss."""
        return MaxMargin(self.margin, reduction=self.reduction)


@dataclass(frozen=True)
class SentencePairs(Recipe):
    """A model of labelled sentence pairs; base of both kinds.

    Attributes:
        embedding_dim: size of the embedding.
        text: the encoder of both sentences.
        batches: batches of pairs.
        split_seed: seed of the splits of a source without splits.
    """

    evaluation: ClassVar[str] = "entailment"
    run_fields: ClassVar[tuple[str, ...]] = ("protocol",)

    embedding_dim: Size = 1024
    text: Text = field(default_factory=Text)
    batches: PairBatching = field(default_factory=PairBatching)
    split_seed: Seed = 0

    def check(self) -> None:
        super().check()
        if self.text.encoder.produces != "vector":
            raise invalid_argument("text.encoder", self.text.encoder.kind, "an encoder of one vector per text")
        if self.text.tokenizer.produces != "ids":
            raise invalid_argument("text.tokenizer", self.text.tokenizer.kind, "a tokenizer of sentences")

    def open_data(self, path: str | os.PathLike[str]) -> EntailmentData:
        return EntailmentData.open(path, self.split_seed)

    def prepare(self, data: Any, out: Path, inputs: Mapping[str, Run]) -> EntailmentJob:
        if data.grouped and data.split_seed != self.split_seed:
            fix = f"Set split_seed={data.split_seed}."
            raise invalid_argument("split_seed", self.split_seed, f"{data.split_seed}, as the data were opened", fix)
        return EntailmentJob(self, data)

    def build(self, vocabulary_size: int, info: RunInfo, dtype: str) -> keras.Model:
        keras.utils.set_random_seed(self.training.seed)
        model = self.model_of(self.text.build(self.embedding_dim, vocabulary_size, info, dtype))
        model.build()
        return model

    def model_of(self, encoder: keras.layers.Layer) -> keras.Model:
        """Build the model of pairs on an encoder of sentences."""
        raise NotImplementedError

    def build_loss(self) -> keras.losses.Loss:
        """Build the loss of pairs."""
        raise NotImplementedError

    def labels(self, split: EntailmentSplit) -> np.ndarray:
        """Return the labels for the loss, (pairs,) int."""
        raise NotImplementedError

    def evaluate(self, outputs: np.ndarray, classes: np.ndarray) -> PairMetrics:
        """Measure outputs of the validation split."""
        raise NotImplementedError

    def measure(self, run: Run, data: EntailmentData, split: str) -> PairMetrics:
        """Measure a run on a split."""
        raise NotImplementedError

    def summary(self, info: RunInfo, out: str) -> list[str]:
        return [
            f"splits       {untyped(info)['protocol']}",
            f"best epoch   {info['best_epoch'] + 1}, validation accuracy {100 * untyped(info)['best_accuracy']:.1f} %",
            f"next         vsemb evaluate {out} --split test",
        ]


@dataclass(frozen=True)
class Entailment(SentencePairs, kind="entailment"):
    """An encoder of sentences in a partial order: two classes, entailed or not.

    Attributes:
        similarity: similarity of embeddings; the energy of a pair is the best score minus its score.
        loss: max-margin over energies.
    """

    similarity: Similarity = field(default_factory=OrderViolation)
    loss: PairLoss = field(default_factory=PairLoss)

    def check(self) -> None:
        super().check()
        if self.similarity.self_score is None:
            allowed = "a similarity with a best score, such as order or cosine"
            raise invalid_argument("similarity", self.similarity.kind, allowed)

    def model_of(self, encoder: keras.layers.Layer) -> EntailmentModel:
        return EntailmentModel(encoder, self.similarity)

    def build_loss(self) -> MaxMargin:
        return self.loss.build()

    def labels(self, split: EntailmentSplit) -> np.ndarray:
        return split.labels

    def evaluate(self, outputs: np.ndarray, classes: np.ndarray) -> EntailmentMetrics:
        return evaluate_entailment(outputs, classes)

    def measure(self, run: Run, data: EntailmentData, split: str) -> EntailmentMetrics:
        # At the best threshold of the validation split.
        splits = data.encode(run.tokenizer, tuple(dict.fromkeys(("val", split))))
        energies = PairMeasure(run.model)
        threshold = find_threshold(energies(splits["val"]), splits["val"].labels)
        return evaluate_entailment(energies(splits[split]), splits[split].classes, threshold)


@dataclass(frozen=True)
class EntailmentClasses(SentencePairs, kind="entailment-classes"):
    """A feed-forward network on two sentence vectors: three classes.

    Attributes:
        units: units of a hidden layer.
        depth: number of hidden layers.
        dropout: share of the inputs of each layer dropped in training.
    """

    units: Size = 1000
    depth: Count = 2
    dropout: Share = 0.5

    def model_of(self, encoder: keras.layers.Layer) -> PairClassifier:
        return PairClassifier(encoder, units=self.units, depth=self.depth, dropout=self.dropout)

    def build_loss(self) -> keras.losses.Loss:
        return keras.losses.SparseCategoricalCrossentropy(from_logits=True)

    def labels(self, split: EntailmentSplit) -> np.ndarray:
        return split.classes.astype(np.int32)

    def evaluate(self, outputs: np.ndarray, classes: np.ndarray) -> ClassMetrics:
        return evaluate_classes(outputs, classes)

    def measure(self, run: Run, data: EntailmentData, split: str) -> ClassMetrics:
        (part,) = data.encode(run.tokenizer, (split,)).values()
        return evaluate_classes(PairMeasure(run.model)(part), part.classes)

    def served(self, run: Run, **options: Any) -> Exportable:
        fix = "Export a run of the variant order, symmetric or tuned."
        raise DataError(f"{run.path} must have embeddings to compare; got a classifier of pairs. {fix}")


class EntailmentJob(Job):
    """Job of `SentencePairs`.

    Args:
        recipe: the recipe.
        data: sentence pairs with splits `train` and `val`.
    """

    unit = "pairs"
    monitor = "val_accuracy"

    def __init__(self, recipe: SentencePairs, data: EntailmentData) -> None:
        self.recipe = recipe
        self.data = data
        self.vocabulary = recipe.text.tokenizer.learn(data.texts("train"))
        self.info = {
            "dataset": data.fingerprint,
            "dataset_name": data.path.name,
            "data": str(data.path.resolve()),
        }
        untyped(self.info)["protocol"] = data.protocol

    @cached_property
    def splits(self) -> dict[str, EntailmentSplit]:
        """The splits `train` and `val` as token ids. Also adds their sizes to `info`.

        Raises:
            DataError: if a split has pairs of one class only.
        """
        splits = self.data.encode(self.tokenizer, ("train", "val"))
        for name, split in splits.items():
            if len(np.unique(split.labels)) < 2:
                raise DataError(
                    f"{self.data.path}: split {name!r} must have entailed and other pairs; got one class only."
                )
        pairs = {name: len(split) for name, split in splits.items()}
        dropped = {name: split.dropped for name, split in splits.items()}
        untyped(self.info).update(pairs=pairs, dropped=dropped)
        counts = ", ".join(f"{count:,} {name}" for name, count in pairs.items())
        say(f"pairs        {counts} ({sum(dropped.values()):,} without gold label dropped)")
        say(f"splits       {self.data.protocol}")
        return splits

    def training_texts(self) -> Iterable[str]:
        return self.data.texts("train")

    def batches(self) -> SentencePairBatches:
        """Return the training batches."""
        recipe, split = self.recipe, self.splits["train"]
        labels = recipe.labels(split)
        return SentencePairBatches(split, labels, batch_size=recipe.batches.size, seed=recipe.training.seed)

    def model(self, recipe: Any, dtype: str) -> keras.Model:
        """Build the model and initialize it from the training sentences."""
        model = recipe.build(len(self.vocabulary), self.info, dtype)
        train = self.splits["train"]
        sentences = Sentences.joined([train.premises, train.hypotheses])
        whole_words, seed = recipe.text.tokenizer.whole_words, recipe.training.seed
        corpus = TextCorpus(self.vocabulary, sentences.ids, sentences.offsets, whole_words, seed)
        recipe.text.encoder.initialize(model.text_encoder, corpus)
        return model

    def loss(self, steps_per_epoch: int) -> keras.losses.Loss:
        """Return the loss."""
        return self.recipe.build_loss()

    def validation(self) -> PairValidation:
        """Return the callback that measures the split `val`."""
        return PairValidation(self.splits["val"], self.recipe.evaluate)


_ORDER = Entailment(
    name="entailment",
    variant="order",
    paper="Vendrov, Kiros, Fidler, Urtasun 2016, arXiv:1511.06361, section 5",
    embedding_dim=1024,
    similarity=OrderViolation(),
    text=Text(encoder=Recurrent(words=WordVectors(dim=300), cell="gru", units=1024)),
    loss=PairLoss(margin=0.05),
    optimizer=Adam(learning_rate=1e-3),
    batches=PairBatching(size=128),
    training=Training(epochs=10, patience=3),
)

ENTAILMENT = {
    "order": _ORDER,
    "symmetric": replace(_ORDER, variant="symmetric", similarity=Cosine(), loss=PairLoss(margin=0.5)),
    "tuned": replace(
        _ORDER,
        variant="tuned",
        embedding_dim=512,
        text=Text(encoder=Recurrent(words=WordVectors(dim=300), cell="gru", units=256, pooling="max")),
    ),
    "classes": EntailmentClasses(
        name="entailment",
        variant="classes",
        paper=_ORDER.paper,
        embedding_dim=512,
        text=Text(encoder=Recurrent(words=WordVectors(dim=300), cell="gru", units=256, pooling="max")),
        optimizer=Adam(learning_rate=1e-3),
        batches=PairBatching(size=128),
        training=Training(epochs=10, patience=3),
    ),
}
