"""Run as a script by `test_replicas.py`: two logical CPU devices against one, in its own process.

A process can hold one MirroredStrategy only. Prints one JSON line: case -> {what: [one, two]}.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"

import keras
import numpy as np
import tensorflow as tf

from vsemb.encoders import ImageEncoder, LinearSentenceEncoder, WordEmbedding
from vsemb.losses import InfoNCE, PairwiseRanking
from vsemb.models import DualEncoder, LogitScale
from vsemb.similarities import OrderViolation
from vsemb.systems.captions.multimodal_rnn import MultimodalRNN
from vsemb.systems.captions.next_word import NextWordCrossEntropy
from vsemb.losses.max_margin import MaxMargin
from vsemb.systems.entailment.model import EntailmentModel
from vsemb.systems.regions.region_encoder import RegionEncoder
from vsemb.systems.regions.word_sequence import WordSequenceEncoder
from vsemb.systems.zero_shot.structured_loss import StructuredJointEmbedding
from vsemb.training import RisingMomentumSGD

ROWS, STEPS, WORDS, DIM = 8, 3, 9, 4

LOSSES = {
    "all": (lambda: PairwiseRanking(0.3), False),
    "hardest": (lambda: PairwiseRanking(0.3, "hardest"), False),
    "infonce": (lambda: InfoNCE(), True),
    "structured": (lambda: StructuredJointEmbedding(0.5), False),
    "structured-released": (lambda: StructuredJointEmbedding(0.5, "all"), False),
}


def batches(sampled: bool, classes: bool = False) -> dict[str, np.ndarray]:
    """Three batches, one behind the other; images repeat within a replica and across the two."""
    generator = np.random.default_rng(0)
    pictures = generator.normal(size=(6, 5)).astype(np.float32)
    count = STEPS * ROWS
    rows = np.tile([0, 1, 0, 2, 3, 0, 4, 3], STEPS)

    def some(name: str, rows: np.ndarray) -> dict[str, np.ndarray]:
        return {
            f"{name}image": pictures[rows],
            f"{name}image_id": rows + 2**24 - 2,
            f"{name}text": generator.integers(1, WORDS, (count, 3)).astype(np.int32),
        }

    result = some("", rows)
    if classes:
        # Classes have images on both replicas.
        result["class_id"] = (rows + 2**24 - 2) // 2
    if sampled:
        other = some("negative_", generator.integers(6, size=count))
        # The sampled texts show other images than the sampled images.
        other["negative_text_id"] = generator.integers(6, size=count) + 2**24 - 2
        result |= other
    return result


def make_model(loss: str, change: str) -> DualEncoder:
    keras.utils.set_random_seed(3)
    build_loss, learned = LOSSES[loss]
    model = DualEncoder(
        ImageEncoder(DIM),
        LinearSentenceEncoder(WordEmbedding(WORDS, DIM, init_scale=1.0)),
        logit_scale=LogitScale(5.0) if learned else None,
        image_weight=0.7,
        l2=0.3 if change == "l2" else 0.0,
    )
    model.build({"image": (None, 5), "text": (None, None)})
    if change == "regularised":
        model.image_encoder.affine.kernel.regularizer = keras.regularizers.L2(0.5)
    if change == "order":
        model.similarity = OrderViolation()
    clip = 1.0 if change == "clipped" else None
    optimizer = keras.optimizers.SGD(0.05, global_clipnorm=clip)
    if change == "momentum":
        optimizer = RisingMomentumSGD(0.05, 0.9, momentum_start=0.2, momentum_steps=3.0)
    model.compile(optimizer, loss=build_loss(), jit_compile=False)
    return model


def sets(sampled: bool, change: str) -> tuple[DualEncoder, dict[str, np.ndarray]]:
    """A model of regions and words, built, and its batches, of one number of regions and steps each.

    Images have one to three regions and sentences one to four words; a replica's share may have no long one.
    """
    keras.utils.set_random_seed(5)
    words = WordEmbedding(WORDS, 3, init_scale=1.0)
    model = DualEncoder(RegionEncoder(DIM), WordSequenceEncoder(words, DIM, units=6), "region-word")
    model.build({"image": (None, None, 5), "text": (None, None)})
    clip = 0.5 if change == "clipped" else None
    optimizer = keras.optimizers.SGD(0.01, momentum=0.9, clipvalue=clip)
    model.compile(optimizer, loss=PairwiseRanking(1.0), jit_compile=False)
    generator, rows = np.random.default_rng(2), batches(sampled)
    for name in ("", "negative_") if sampled else ("",):
        # Sampled images have other regions and sampled sentences other steps than those of the batch.
        regions, steps = (5, 6) if name else (3, 4)
        ids = rows[f"{name}image_id"] - 2**24 + 2
        pictures = generator.normal(size=(6, regions, 5)).astype(np.float32)
        for number, picture in enumerate(pictures):
            picture[1 + number % regions :] = 0
        text = generator.integers(1, WORDS, (len(ids), steps)).astype(np.int32)
        lengths = np.tile([1, 2, 1, 2, 3, 4, 1, 4], STEPS)
        text[np.arange(steps) >= lengths[:, None] + steps - 4] = 0
        rows |= {f"{name}image": pictures[ids], f"{name}text": text}
    return model, rows


def entailment() -> tuple[EntailmentModel, Any]:
    """An entailment model, built, and its pairs; it is compared with `fit` on inputs and labels."""
    keras.utils.set_random_seed(4)
    generator = np.random.default_rng(1)
    premise, hypothesis = generator.integers(1, WORDS, (2, STEPS * ROWS, 3)).astype(np.int32)
    model = EntailmentModel(LinearSentenceEncoder(WordEmbedding(WORDS, DIM, init_scale=1.0)))
    model.build()
    model.compile(keras.optimizers.SGD(0.05), loss=MaxMargin(0.3), jit_compile=False)
    return model, ({"premise": premise, "hypothesis": hypothesis}, generator.integers(2, size=STEPS * ROWS))


def captions(change: str) -> tuple[MultimodalRNN, dict[str, np.ndarray]]:
    """A network that writes captions, built, and its batches; replicas have sentences of other lengths."""
    keras.utils.set_random_seed(6)
    words = WordEmbedding(WORDS, 3, init_scale=1.0, dense_gradient=True)
    model = MultimodalRNN(ImageEncoder(4 * DIM), words, units=DIM, l2=0.1 if change == "l2" else 0.0)
    model.build({"image": (None, 5), "text": (None, None)})
    model.compile(keras.optimizers.SGD(0.02, momentum=0.9), loss=NextWordCrossEntropy(), jit_compile=False)
    rows = batches(False)
    text = np.concatenate([rows["text"], rows["text"][::-1]], axis=1)
    text[np.arange(6) >= np.tile([1, 2, 1, 2, 3, 6, 1, 4], STEPS)[:, None]] = 0
    return model, {"image": rows["image"], "text": text}


def run(loss: str, sampled: bool, change: str) -> dict[str, list[float]]:
    if loss == "entailment":
        model, rows = entailment()
    elif loss == "sets":
        model, rows = sets(sampled, change)
    elif loss == "captions":
        model, rows = captions(change)
    else:
        model, rows = make_model(loss, change), batches(sampled, loss.startswith("structured"))
    data = tf.data.Dataset.from_tensor_slices(rows).batch(ROWS, drop_remainder=True)
    evaluated = model.evaluate(data, verbose=0)
    evaluated = evaluated if np.isscalar(evaluated) else evaluated[0]
    history = model.fit(data, epochs=2, shuffle=False, verbose=0)
    weights = np.concatenate([w.ravel() for w in model.get_weights()])
    return {"evaluate": [float(evaluated)], "fit": history.history["loss"], "weights": weights.tolist()}


def main() -> int:
    devices = tf.config.list_physical_devices("CPU")
    tf.config.set_logical_device_configuration(devices[0], [tf.config.LogicalDeviceConfiguration()] * 2)
    strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    assert strategy.num_replicas_in_sync == 2
    cases = [(loss, sampled, "") for loss in ("all", "hardest", "infonce") for sampled in (False, True)]
    cases += [
        ("structured", False, ""),
        ("structured-released", False, ""),
        ("all", False, "regularised"),
        ("all", False, "l2"),
        ("hardest", False, "momentum"),
        ("all", False, "clipped"),
        ("all", True, "order"),
        ("entailment", False, ""),
        ("sets", False, ""),
        ("sets", True, ""),
        ("sets", False, "clipped"),
        ("captions", False, ""),
        ("captions", False, "l2"),
    ]
    found = {}
    for loss, sampled, change in cases:
        one = run(loss, sampled, change)
        with strategy.scope():
            two = run(loss, sampled, change)
        name = loss + ("-sampled" if sampled else "") + (f"-{change}" if change else "")
        found[name] = {what: [one[what], two[what]] for what in one}
    print(json.dumps(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
