"""Chunks and blocks on two logical CPU devices, run by `test_replicas_chunks.py` in a process of its own.

    python -m tests.models.replicas_chunks_script MODULE...

The cases are those of the modules' `CHUNKS`. Prints one JSON line: case -> {what: [one, two]}: one device computes
everything at once, two compute in chunks and blocks.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from typing import Any

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"

import keras
import numpy as np
import tensorflow as tf

from tests.models.replicas_script import DIM, ROWS, STEPS, WORDS, batches, cases_of, two_devices
from vsemb.encoders import ImageEncoder, LinearSentenceEncoder, PixelEncoder, WordEmbedding
from vsemb.losses import InBatchLoss, InfoNCE, PairwiseRanking, SigmoidLoss
from vsemb.models import DualEncoder, LogitScale, in_batch

# Of a replica's four rows a chunk takes three and leaves one.
SIZES = {"chunk_size": 3, "block_size": 3}

#: Name -> (loss, kind of batch, what computes it on two devices).
CHUNKS: dict[str, tuple[Callable[[], InBatchLoss], str, dict[str, int]]] = {
    "infonce-chunks": (lambda: InfoNCE(0.3), "", {"chunk_size": 3}),
    "infonce-blocks": (lambda: InfoNCE(0.3), "", {"block_size": 3}),
    "hardest": (lambda: PairwiseRanking(0.3, "hardest"), "sampled", SIZES),
    "sigmoid": (SigmoidLoss, "", SIZES),
    "sigmoid-sum": (lambda: SigmoidLoss(reduction="sum"), "", {"block_size": 2}),
    "sigmoid-sampled": (lambda: SigmoidLoss(0.5), "sampled", SIZES),
}


def make_model(loss: InBatchLoss, **options: Any) -> DualEncoder:
    keras.utils.set_random_seed(3)
    drop = options.pop("dropout", 0.0)
    images = ImageEncoder(DIM, dropout=drop)
    shape: tuple[int | None, ...] = (None, 5)
    if options.pop("statistics", False):
        inputs = keras.Input((1, 1, 5))
        outputs = keras.layers.BatchNormalization(momentum=0.5)(keras.layers.Flatten()(inputs))
        images = PixelEncoder(keras.Model(inputs, outputs), images, frozen_statistics=False)
        shape = (None, 1, 1, 5)
    words = WordEmbedding(WORDS, DIM, init_scale=1.0, dropout=drop)
    model = DualEncoder(
        images,
        LinearSentenceEncoder(words),
        logit_scale=LogitScale(5.0, bias=-2.0),
        image_weight=0.7,
        l2=0.1,
        **options,
    )
    model.build({"image": shape, "text": (None, None)})
    model.compile(keras.optimizers.SGD(0.05, momentum=0.5), loss=loss, jit_compile=False)
    return model


def run(model: DualEncoder, rows: dict[str, np.ndarray]) -> dict[str, list[float]]:
    data = tf.data.Dataset.from_tensor_slices(rows).batch(ROWS, drop_remainder=True)
    evaluated = model.evaluate(data, verbose=0)
    history = model.fit(data, epochs=2, shuffle=False, verbose=0)
    weights = np.concatenate([w.ravel() for w in model.get_weights()])
    return {"evaluate": [float(evaluated)], "fit": history.history["loss"], "weights": weights.tolist()}


def gathered_ranks() -> set[int]:
    """Notes from now on how many axes the tensors have that replicas gather for the loss."""
    ranks: set[int] = set()
    gather = in_batch.gather_across_replicas

    def noting(x: Any) -> Any:
        ranks.add(len(x.shape))
        return gather(x)

    in_batch.gather_across_replicas = noting
    return ranks


def main(modules: list[str]) -> int:
    strategy = two_devices()
    found: dict[str, Any] = {}
    ranks = gathered_ranks()
    for name, (loss, kind, sizes) in cases_of(modules, "CHUNKS").items():
        rows = batches(kind == "sampled", kind == "classes")
        one = run(make_model(loss()), rows)
        ranks.clear()
        with strategy.scope():
            two = run(make_model(loss(), **sizes), rows)
        found[name] = {what: [one[what], two[what]] for what in one} | {"gathered": sorted(ranks)}
    rows = batches(False)
    pixels = rows | {"image": rows["image"][:, None, None, :]}
    with strategy.scope():
        model = make_model(SigmoidLoss(), dropout=0.3, statistics=True, **SIZES)
        before = [keras.ops.convert_to_numpy(variable) for variable in model.non_trainable_variables]
        result = run(model, pixels)
    moved = [
        bool((keras.ops.convert_to_numpy(v) != b).any())
        for v, b in zip(model.non_trainable_variables, before, strict=True)
    ]
    seeds = [
        int(keras.ops.convert_to_numpy(v)[1])
        for v in model.non_trainable_variables
        if "seed" in v.path and v.shape == (2,)
    ]
    assert len(moved) >= 4 and STEPS == 3
    found["dropout"] = {"fit": result["fit"], "moved": moved, "seeds": seeds}
    print(json.dumps(found))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
