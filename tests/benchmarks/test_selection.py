"""How much selection flatters, on a tiny dataset."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.benchmarks.selection import divided, summarized, trained


def test_held_out_images_are_no_training_images(scenes: Any) -> None:
    rest, others = divided(scenes, 10, seed=1)
    train = scenes.split("train")
    assert len(others) == 10 and len(rest.split("train")) == len(train) - 10
    assert sorted([*others.ids, *rest.split("train").ids]) == train.ids.tolist()
    assert others.ids.tolist() != divided(scenes, 10, seed=2)[1].ids.tolist()
    assert rest.split("val").ids.tolist() == scenes.split("val").ids.tolist()


def test_the_best_epoch_elsewhere_flatters_by_nothing_or_more() -> None:
    epochs = [{"held out": 3.0, "val": 1.0}, {"held out": 2.0, "val": 4.0}]
    assert summarized(epochs) == {"held out": 3.0, "measured once": 1.0, "selected": 4.0, "flattered by": 3.0}
    assert summarized(epochs[:1])["flattered by"] == 0.0


@pytest.mark.slow
def test_every_epoch_is_measured_on_both(scenes: Any, tiny_recipe: Any) -> None:
    epochs = trained(scenes, tiny_recipe.with_overrides(["training.epochs=2"]), held_out=8)
    assert len(epochs) == 2
    assert all(np.isfinite(list(each.values())).all() and min(each.values()) > 0 for each in epochs)
