"""Training what writes captions: on images, on pixels, on regions; stopped and resumed; its refusals."""

from __future__ import annotations

import dataclasses
import functools
import json
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import keras
import numpy as np
import pytest

from tests.conftest import TINY_CAPTIONS
from tests.raising import raises_argument
from tests.tiny import tiny
from tests.training.test_resume import check_same_training
from vsemb import Run, recipes
from vsemb.cli.__main__ import main
from vsemb.errors import DataError
from vsemb.runs.fine_tune import with_backbone
from vsemb.runs.train import train
from vsemb.systems.captions import recipe as captions_recipe
from vsemb.systems.captions import snippets
from vsemb.systems.captions.sentences import Sentences, sentence_batches
from vsemb.systems.captions.task import NextWordJob
from vsemb.systems.captions.validation import PerplexityValidation


class StopAt(keras.callbacks.Callback):
    """Interrupts training in the middle of the second epoch."""

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.steps = max(batch + 1, getattr(self, "steps", 0))
        if int(self.model.optimizer.iterations) == int(1.5 * self.steps) > self.steps:
            raise KeyboardInterrupt


def stopped_and_resumed(monkeypatch: pytest.MonkeyPatch, capfd: Any, train: Any) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(NextWordJob, "checks", lambda job, batch_size: [StopAt()])
        with pytest.raises(KeyboardInterrupt):
            train(checkpoint_steps=2)
    capfd.readouterr()
    train()
    assert "Resuming at epoch 2, step" in capfd.readouterr().err


def test_a_run_knows_the_words_and_what_it_was_selected_on(scenes, caption_run: Run) -> None:
    run = Run.open(caption_run.path)
    split = scenes.split("val")
    images = run.images_of(scenes, split)
    encoded = run.tokenizer.encode(split.captions)
    batches = sentence_batches(Sentences(*encoded, images=images, image_rows=split.caption_rows), batch_size=7)
    validation = PerplexityValidation(batches)
    run.model.compile()
    validation.set_model(run.model)
    assert validation.measure().log2_likelihood == pytest.approx(run.info["best_log2_likelihood"], rel=1e-5)
    rows = [json.loads(line) for line in (run.path / "metrics.jsonl").read_text().splitlines()]
    assert [round(2 ** -row["val_log2_likelihood"], 3) for row in rows] == [
        round(row["val_perplexity"], 3) for row in rows
    ]
    # Some two words are possible at each place of a scene's captions; 30 are known.
    assert rows[-1]["val_perplexity"] < rows[0]["val_perplexity"] < len(run.vocabulary) / 2
    assert not run.multi_vector and images.gather(np.arange(2)).shape == (2, 16)


@pytest.mark.slow
def test_stopped_and_resumed(scenes, caption_recipe, caption_run, tmp_path, monkeypatch, capfd) -> None:
    out = tmp_path / "run"
    stopped_and_resumed(monkeypatch, capfd, functools.partial(train, caption_recipe, scenes, out))
    check_same_training(out, caption_run.path)
    before = (out / "run.json").stat().st_mtime_ns
    train(caption_recipe, scenes, out)
    assert "finished" in capfd.readouterr().err and (out / "run.json").stat().st_mtime_ns == before


@pytest.mark.slow
def test_regions(region_scenes, region_run: Run, region_caption_run: Run, tmp_path) -> None:
    run, out = region_caption_run, tmp_path / "run"
    assert run.info["alignment"] == region_run.fingerprint
    # A whole image is the first of its regions.
    split = region_scenes.split("val")
    images = run.images_of(region_scenes, split).gather(np.arange(3))
    np.testing.assert_array_equal(images, run.features_of(region_scenes).rows(split.ids[:3])[:, 0])
    assert run.model.start({"image": images})["image"].shape == (3, 4 * 16)
    shutil.copytree(run.path, out)
    # The snippets are kept, and what goes on needs no alignment.
    before = (out / "run.json").stat().st_mtime_ns
    assert train(run.recipe, region_scenes, out).info["alignment"] == region_run.fingerprint
    assert (out / "run.json").stat().st_mtime_ns == before
    # Another alignment cuts other snippets.
    for status in ("running", "finished"):
        info = json.loads((out / "run.json").read_text()) | {"alignment": "c0ffee", "status": status}
        (out / "run.json").write_text(json.dumps(info))
        with pytest.raises(DataError, match="c0ffee"):
            train(run.recipe, region_scenes, out, inputs={"alignment": region_run})


@pytest.mark.slow
def test_regions_stopped_and_resumed(
    region_scenes, region_run: Run, region_caption_run: Run, tmp_path, monkeypatch, capfd
) -> None:
    recipe, out = region_caption_run.recipe, tmp_path / "run"
    again = functools.partial(train, recipe, region_scenes, out, inputs={"alignment": region_run})
    stopped_and_resumed(monkeypatch, capfd, again)
    check_same_training(out, region_caption_run.path)


def test_an_alignment_is_asked_for_where_there_are_regions(
    scenes, region_scenes, region_run, caption_recipe, tmp_path
) -> None:
    snippet_recipe = recipes.get("multimodal-rnn-regions")
    with raises_argument("inputs.alignment"):
        train(snippet_recipe, region_scenes, tmp_path / "run")
    with raises_argument("alignment"):
        train(caption_recipe, scenes, tmp_path / "run", inputs={"alignment": region_run})
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_an_alignment_that_does_not_work_leaves_no_run(
    region_scenes, region_run, region_caption_run, tmp_path, monkeypatch
) -> None:
    recipe = region_caption_run.recipe
    out, broken = tmp_path / "run", dataclasses.replace(region_run)  # With a model of its own.
    broken.model.set_weights([np.full_like(value, np.nan) for value in broken.model.get_weights()])
    with pytest.raises(DataError, match="NaN"):
        train(recipe, region_scenes, out, inputs={"alignment": broken})
    assert not out.exists()
    # Before any caption is cut.
    monkeypatch.setattr(snippets, "find_snippets", None)
    monkeypatch.setattr(captions_recipe, "regions_of", lambda run, dataset: SimpleNamespace(fingerprint="c0ffee"))
    with pytest.raises(DataError, match="image.fingerprint=c0ffee"):
        train(recipe, region_scenes, out, inputs={"alignment": region_run})
    assert not out.exists()


@pytest.mark.slow
def test_from_pixels_selected_by_cider(scenes, pixel_caption_run) -> None:
    run = pixel_caption_run
    row = json.loads((run.path / "metrics.jsonl").read_text())
    assert run.info["best_cider"] == row["val_cider"] >= 0
    assert row["val_perplexity"] > 1
    assert run.images_of(scenes, scenes.split("val")).gather(np.arange(2)).shape == (2, 32, 32, 3)


@pytest.mark.slow
def test_the_variant_paper_takes_a_step(scenes, tmp_path: Path) -> None:
    # Its sizes cut down and nothing else. `tuned` is trained from the command line, `attention` as pixel_caption_run.
    small = ["decoder.units=8", "text.words.dim=8", "training.epochs=1", "text.tokenizer.min_count=1"]
    recipe = recipes.get("multimodal-rnn", "paper").with_overrides(small)
    run = train(recipe, scenes, tmp_path / "run")
    assert run.model.cell == recipe.decoder.cell
    assert run.info["best_epoch"] == 0


def test_the_model_is_that_of_the_recipe(caption_recipe, scenes) -> None:
    info = {"feature_dim": 16}
    model = caption_recipe.build(30, info, "float32")
    again = caption_recipe.build(30, info, "float32")
    for one, other in zip(model.get_weights(), again.get_weights(), strict=True):
        np.testing.assert_array_equal(one, other)
    low = caption_recipe.with_overrides(["decoder.image_steps=all"]).build(30, info, "mixed_bfloat16")
    inputs = {"image": np.ones((2, 16), np.float32), "text": np.ones((2, 3), np.int32)}
    assert low(inputs).dtype == "float32"
    assert low.recurrent.compute_dtype == "bfloat16"
    assert low.image_steps == "all"
    pixels = with_backbone(caption_recipe, scenes, "SmallConvNet").with_overrides(["image.size=32"])
    inputs["image"] = np.ones((2, 32, 32, 3), np.float32)
    assert pixels.build(30, {}, "float32")(inputs).shape == (2, 4, 30)


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ("text.tokenizer=characters", "text.tokenizer"),
        ("decoder.cell=sc-nlm", "decoder.cell"),
        ("training.precision=float16", "training.precision"),
        ("validation=recall", "validation"),
        ("image.projection=none", "image.projection"),
        ("image=snippet-regions", "image"),
        ("text.units=3", "recipe field"),
        ("embedding_dim=3", "recipe field"),
        ("decoder.context=3", "recipe field"),
        ("decoder.heads=3", "recipe field"),
        ("affinity=3", "recipe field"),
        ("loss.margin=3", "recipe field"),
        ("image.max_regions=3", "recipe field"),
        ("optimizer=rmsporp", "optimizer"),
    ],
)
def test_what_a_recipe_does_not_read_cannot_be_set(change: str, field: str, caption_recipe) -> None:
    with raises_argument(field):
        caption_recipe.with_overrides([change])


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ("validation=cider", "recipe field"),
        ("batches.captions=one", "recipe field"),
        ("image.max_regions=3", "recipe field"),
        ("decoder=attentive", "decoder"),
    ],
)
def test_what_regions_do_not_read_cannot_be_set(change: str, field: str) -> None:
    with raises_argument(field):
        tiny(recipes.get("multimodal-rnn-regions"), *TINY_CAPTIONS, change)


@pytest.mark.slow
def test_from_the_command_line(scenes_path: Path, tmp_path: Path, capsys) -> None:
    small = ["decoder.units=8", "text.words.dim=8", "training.epochs=1", "batches.size=16"]
    arguments = ["train", "multimodal-rnn", "--data", str(scenes_path), "--out", str(tmp_path / "run")]
    assert main([*arguments, *(f"--set={each}" for each in small)]) == 0
    said = capsys.readouterr().out
    assert "validation perplexity" in said and "vsemb evaluate" in said
    assert main([*arguments, "--inputs", f"alignment={tmp_path / 'run'}"]) == 1
    assert "alignment" in capsys.readouterr().err
