"""Trains under JAX where TensorFlow cannot be imported: as a whole, interrupted, and on two devices.

KERAS_BACKEND=jax python -m tests.runs.jax_trainings DATA OUT "RECIPE [VARIANT] [FIELD=VALUE ...]"
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

# Stands in for a machine without TensorFlow: importing it fails.
sys.modules["tensorflow"] = None  # type: ignore[assignment]

from tests.tiny import tiny  # noqa: E402
from vsemb import recipes  # noqa: E402
from vsemb.runs.train import train  # noqa: E402
from vsemb.training.resume import TrainingState  # noqa: E402
from vsemb.training.strategies import open_distribution  # noqa: E402


def main(data: str, out: str, name: str) -> None:
    # Before JAX runs, which then has two devices.
    devices = open_distribution("mirrored", 2)
    words = name.split()
    settings = [word for word in words if "=" in word]
    recipe = tiny(recipes.get(*(word for word in words if word not in settings)), *settings)
    train(recipe, data, Path(out) / "whole")
    train(recipe, data, Path(out) / "two", strategy=devices)
    on_train_batch_end, steps = TrainingState.on_train_batch_end, iter(range(1 << 30))

    def interrupt(self: TrainingState, batch: int, logs: dict | None = None) -> None:
        if next(steps) in (2, 6):
            os.kill(os.getpid(), signal.SIGINT)
        on_train_batch_end(self, batch, logs)

    TrainingState.on_train_batch_end = interrupt  # type: ignore[method-assign]
    interrupted = 0
    while not (Path(out) / "parts" / "done").exists():
        try:
            train(recipe, data, Path(out) / "parts")
            (Path(out) / "parts" / "done").touch()
        except KeyboardInterrupt:
            interrupted += 1
    assert interrupted, "The training was too short."


if __name__ == "__main__":
    main(*sys.argv[1:])
