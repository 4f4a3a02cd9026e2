"""The precision `auto`: what a training computes in, and what is done with the run afterwards."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.raising import raises_argument
from vsemb import recipes
from vsemb.recipes import schema
from vsemb.recipes.retrieval import Retrieval
from vsemb.runs.run import Run
from vsemb.runs.train import train


@pytest.mark.parametrize("fast", [True, False])
def test_settled(fast: bool, monkeypatch) -> None:
    monkeypatch.setattr(schema, "multiplies_bfloat16", lambda: fast)
    training = recipes.get("vsepp", "tuned").training
    assert training.precision == "auto"
    assert training.training_dtype == ("mixed_bfloat16" if fast else "float32")
    assert training.dtype == "float32"
    for given in ("float32", "mixed_bfloat16"):
        chosen = recipes.get("vsepp", "tuned").with_overrides([f"training.precision={given}"]).training
        assert chosen.training_dtype == chosen.dtype == given


def test_another_precision_is_refused() -> None:
    with raises_argument("training.precision"):
        recipes.get("vsepp", "tuned").with_overrides(["training.precision=float16"])


@pytest.mark.slow
def test_training_is_in_bfloat16_and_the_run_in_float32(scenes, tiny_recipe, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(schema, "multiplies_bfloat16", lambda: True)
    built = []
    original = Retrieval.build

    def noted(self, vocabulary_size, info, dtype):
        built.append(dtype)
        return original(self, vocabulary_size, info, dtype)

    monkeypatch.setattr(Retrieval, "build", noted)
    recipe = tiny_recipe.with_overrides(["training.precision=auto", "training.epochs=1"])
    run = train(recipe, scenes, tmp_path / "run")
    assert run.model.text_encoder.dtype_policy.name == "float32"
    assert built == ["mixed_bfloat16", "float32"]
    assert Run.open(tmp_path / "run").recipe.training.precision == "auto"
