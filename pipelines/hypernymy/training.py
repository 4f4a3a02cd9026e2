"""Training of a `HypernymModel`, one epoch per graph loop.

Keras' `fit` updates the row of every concept at every step. Here a step updates only the rows of its own pairs
(`adam="lazy"`, the default), and the loop returns to Python once per epoch.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from pipelines.hypernymy.metrics import pair_energies
from pipelines.hypernymy.model import HypernymModel
from pipelines.hypernymy.wordnet import PairSet, corrupt
from vsemb.console import progress
from vsemb.errors import DataError, unknown_name
from vsemb.evaluation.binary import accuracy, find_threshold
from vsemb.losses.max_margin import MaxMargin
from vsemb.ops.tensorflow import tf
from vsemb.parts import Count, Positive, Seed, require
from vsemb.training.optimizers import adam_step, adam_step_of_rows

Tensor = Any

ADAMS = ("lazy", "dense")

# Betas and epsilon of Keras' Adam.
_CONSTANTS = _BETA_1, _BETA_2, _ = 0.9, 0.999, 1e-7


class EpochLoop:
    """Adam steps on batches of true and corrupted pairs, one epoch per call.

    Args:
        model: the model; its vectors and comparison are trained in place.
        adam: `"lazy"` updates moments and vectors of the batch's concepts only. `"dense"` updates all concepts, as
            Keras and the paper do: momentum then moves vectors of concepts outside the batch. Other variables are
            always dense. Default `"lazy"`.
        margin: margin of the loss; None for the comparison's own.

    Raises:
        InvalidArgumentError: if `adam` is unknown, or `margin` is not positive.
    """

    def __init__(self, model: HypernymModel, adam: str = "lazy", margin: float | None = None) -> None:
        if adam not in ADAMS:
            raise unknown_name("adam", adam, ADAMS)
        self.steps = 0
        self._lazy = adam == "lazy"
        self._compare = model.comparison
        self._loss = MaxMargin(model.comparison.margin if margin is None else margin)
        self._vectors = model.vectors.value
        self._others = [variable.value for variable in model.comparison.trainable_variables]
        self._moments = {
            variable.ref(): (tf.Variable(tf.zeros_like(variable)), tf.Variable(tf.zeros_like(variable)))
            for variable in [self._vectors, *self._others]
        }
        self._epoch = tf.function(self._loop, autograph=False, reduce_retracing=True)

    def run(self, true: np.ndarray, false: np.ndarray, batch: int, learning_rates: np.ndarray) -> float:
        """Train on each pair once, in the given order.

        Args:
            true: (pairs, 2) int32.
            false: (pairs, 2) int32.
            batch: true pairs per step, and the same number of false pairs; the last step may be smaller.
            learning_rates: (steps,) learning rate of each step.

        Returns:
            Mean over steps of the loss, which a step computes before its update.
        """
        numbers = np.arange(1, len(learning_rates) + 1, dtype=np.float64) + self.steps
        corrected = learning_rates * np.sqrt(1 - _BETA_2**numbers) / (1 - _BETA_1**numbers)
        self.steps += len(corrected)
        total = self._epoch(
            tf.constant(true, tf.int32),
            tf.constant(false, tf.int32),
            tf.constant(batch, tf.int32),
            tf.constant(corrected, tf.float32),
        )
        return float(total) / len(corrected)

    def _loop(self, true: Tensor, false: Tensor, batch: Tensor, rates: Tensor) -> Tensor:
        def step(number: Tensor, total: Tensor) -> tuple[Tensor, Tensor]:
            part = slice(number * batch, (number + 1) * batch)
            loss = self._step(true[part], false[part], rates[number])
            return number + 1, total + loss

        steps = tf.shape(rates)[0]
        # Each step depends on the one before it, so parallel iterations only cost time.
        return tf.while_loop(
            lambda number, _: number < steps,
            step,
            (tf.constant(0), tf.constant(0.0)),
            parallel_iterations=1,
        )[1]

    def _step(self, true: Tensor, false: Tensor, rate: Tensor) -> Tensor:
        specific, general = tf.unstack(tf.concat([true, false], 0), axis=1)
        labels = tf.range(tf.size(specific)) < tf.shape(true)[0]
        ids = tf.concat([specific, general], 0)
        if self._lazy:
            concepts, place = tf.unique(ids)
            vectors = tf.gather(self._vectors, concepts)
            low, high = tf.split(tf.gather(vectors, place), 2)
        else:
            low, high = tf.gather(self._vectors, specific), tf.gather(self._vectors, general)
        with tf.GradientTape() as tape:
            tape.watch([low, high])
            loss = tf.reduce_sum(self._loss.call(labels, self._compare(low, high)))
        gradients = tape.gradient(loss, [low, high, *self._others])
        by_row = tf.concat(gradients[:2], 0)
        if self._lazy:
            gradient = tf.math.unsorted_segment_sum(by_row, place, tf.size(concepts))
            moments = self._moments[self._vectors.ref()]
            adam_step_of_rows(self._vectors, moments, concepts, gradient, rate, *_CONSTANTS, vectors=vectors)
        else:
            gradient = tf.math.unsorted_segment_sum(by_row, ids, self._vectors.shape[0])
            adam_step(self._vectors, self._moments[self._vectors.ref()], gradient, rate, *_CONSTANTS)
        for variable, its_gradient in zip(self._others, gradients[2:], strict=True):
            adam_step(variable, self._moments[variable.ref()], its_gradient, rate, *_CONSTANTS)
        return loss


@dataclass
class HypernymHistory:
    """History of `train_hypernymy`, one entry per epoch.

    Attributes:
        dev_accuracy: accuracy on dev at its best threshold, in [0, 1].
        loss: mean loss per batch.
        seconds: duration in seconds, including sampling of corrupted pairs, excluding measurement on dev.
        best_epoch: epoch of the final weights, from 0.
    """

    dev_accuracy: list[float] = field(default_factory=list)
    loss: list[float] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    best_epoch: int = 0


def train_hypernymy(
    model: HypernymModel,
    train: np.ndarray,
    dev_pairs: np.ndarray,
    dev_labels: np.ndarray,
    *,
    known: PairSet | None = None,
    epochs: int = 50,
    batch: int = 500,
    learning_rate: float = 0.01,
    decay: bool = False,
    adam: str = "lazy",
    margin: float | None = None,
    patience: int | None = None,
    seed: int = 0,
    name: str = "training",
) -> HypernymHistory:
    """Train on true pairs, and on corrupted pairs sampled every epoch; keep the weights that are best on dev.

    Vendrov et al. 2016, section 3.3: 500 true and 500 false pairs per batch, Adam with learning rate 0.01, 30 to 50
    epochs, early stopping.

    Args:
        model: trained in place; ends with the weights of the best epoch.
        train: (pairs, 2) int true pairs.
        dev_pairs: (dev, 2) int, true and corrupted.
        dev_labels: (dev,) 1 or 0.
        known: true pairs that are never sampled as corrupted pairs, see `corrupt`; None as in the paper.
        epochs: maximum epochs; default 50.
        batch: true pairs per batch, and the same number of corrupted pairs; default 500.
        learning_rate: learning rate of Adam; default 0.01.
        decay: whether the learning rate decreases linearly to 0 at the last epoch.
        adam: `"lazy"` or `"dense"`, see `EpochLoop`; default `"lazy"`.
        margin: margin of the loss; None for the comparison's own.
        patience: epochs without a better dev accuracy before early stopping; None to train all epochs.
        seed: seed of the pairs' order and corruption.
        name: label of the progress bar.

    Raises:
        InvalidArgumentError: if an argument is out of range.
        DataError: if `train` is empty, or the loss is not finite.
    """
    counts = {"epochs": epochs, "batch": batch, "patience": patience}
    for argument, value in counts.items():
        require(argument, value, Count | None)
    require("learning_rate", learning_rate, Positive)
    require("seed", seed, Seed)
    if not len(train):
        raise DataError("`train` must have at least one true pair; got 0.")
    loop, history = EpochLoop(model, adam, margin), HypernymHistory()
    steps = -(-len(train) // batch)
    rates = learning_rate * (1 - np.arange(epochs * steps) / (epochs * steps) * decay)
    best, weights = -np.inf, model.get_weights()
    bar = progress(range(epochs), desc=name, unit="epoch", leave=False)
    for epoch in bar:
        started = time.perf_counter()
        generator = np.random.default_rng([seed, epoch])
        true = np.asarray(train, np.int32)[generator.permutation(len(train))]
        false = corrupt(true, model.concepts, generator, known)
        loss = loop.run(true, false, batch, rates[epoch * steps : (epoch + 1) * steps])
        history.seconds.append(time.perf_counter() - started)
        if not np.isfinite(loss):
            raise DataError(f"The loss must be finite; got {loss} in epoch {epoch + 1}. Use a smaller learning rate.")
        energies = pair_energies(model, dev_pairs)
        score = accuracy(energies, dev_labels, find_threshold(energies, dev_labels))
        history.loss.append(loss)
        history.dev_accuracy.append(score)
        bar.set_postfix(loss=f"{loss:.4g}", dev=f"{100 * score:.2f}%")
        if score > best:
            best, weights, history.best_epoch = score, model.get_weights(), epoch
        if patience is not None and epoch - history.best_epoch >= patience:
            break
    model.set_weights(weights)
    return history
