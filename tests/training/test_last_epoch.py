"""The validation `last`: nothing is measured, and the last epoch is kept."""

from __future__ import annotations

import copy

from tests.tiny import tiny
from vsemb import recipes
from vsemb.recipes.retrieval import RetrievalJob


def test_the_last_epoch_is_kept(trained, scenes) -> None:
    run = trained("last", tiny(recipes.get("kiros2014"), "validation=last"), scenes)
    epochs = run.recipe.training.epochs
    assert (run.info["best_epoch"], run.info["best_epochs"]) == (epochs - 1, epochs)
    assert "--split test" in run.recipe.summary(run.info, "runs/last")[1]
    assert run.recipe.validation.describe(run.info) == f"not measured: the last of {epochs} epochs"


def test_a_dataset_may_lack_val(scenes) -> None:
    """As after `vsemb prepare --val-to-train`."""
    dataset = copy.copy(scenes)
    dataset.splits = ("train", "test")
    assert RetrievalJob(tiny(recipes.get("kiros2014"), "validation=last"), dataset).val.name == "train"
    assert RetrievalJob(tiny(recipes.get("kiros2014")), scenes).val.name == "val"
