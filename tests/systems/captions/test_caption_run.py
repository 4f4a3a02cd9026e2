"""Training what writes captions: on images, on pixels, on regions; stopped and resumed; its refusals."""

from __future__ import annotations

import dataclasses
import functools
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import keras
import numpy as np
import pytest

from tests.training.test_resume import check_same_training
from vsemb import recipes
from vsemb.cli.__main__ import main
from vsemb.errors import DataError, InvalidArgumentError
from vsemb.runs.loop import fit_run
from vsemb.runs.run import Run
from vsemb.systems.captions import caption_run as module
from vsemb.systems.captions import cut_snippets as snippets
from vsemb.systems.captions.caption_run import CaptionRun, build_caption_model, train_captions
from vsemb.systems.captions.validation import PerplexityValidation, likelihood_batches


class StopAt(keras.callbacks.Callback):
    """Interrupts training in the middle of the second epoch."""

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        if int(self.model.optimizer.iterations) == int(1.5 * self.params["steps"]):
            raise KeyboardInterrupt


def stopped_and_resumed(monkeypatch: pytest.MonkeyPatch, capfd: Any, train: Any) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(module, "fit_run", functools.partial(fit_run, checks=[StopAt()]))
        with pytest.raises(KeyboardInterrupt):
            train(checkpoint_steps=2)
    capfd.readouterr()
    train()
    assert "going on at epoch 2, step" in capfd.readouterr().err


def test_a_run_knows_the_words_and_what_it_was_selected_on(scenes, caption_run: CaptionRun) -> None:
    run = CaptionRun.open(caption_run.path)
    split = scenes.split("val")
    images = run.images_of(scenes, split)
    batches = likelihood_batches(images.gather, split.caption_rows, *run.tokenizer.encode(split.captions), batch_size=7)
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
    assert not run.multi_vector
    features = np.ones((2, 16), np.float32)
    assert run.model_rows(features) is features


def test_stopped_and_resumed(scenes, caption_recipe, caption_run, tmp_path, monkeypatch, capfd) -> None:
    out = tmp_path / "run"
    stopped_and_resumed(monkeypatch, capfd, functools.partial(train_captions, caption_recipe, scenes, out))
    check_same_training(out, caption_run.path)
    before = (out / "run.json").stat().st_mtime_ns
    train_captions(caption_recipe, scenes, out)
    assert "finished" in capfd.readouterr().err and (out / "run.json").stat().st_mtime_ns == before


def test_regions(region_scenes, region_run: Run, region_caption_run: CaptionRun, tmp_path, monkeypatch, capfd) -> None:
    run, out = region_caption_run, tmp_path / "run"
    assert run.info["alignment"] == region_run.fingerprint
    assert run.multi_vector
    regions = run.images_of(region_scenes, region_scenes.split("val")).gather(np.arange(3))
    np.testing.assert_array_equal(run.model_rows(regions), regions[:, 0])
    assert run.model.start({"image": run.model_rows(regions)})["image"].shape == (3, 4 * 16)
    train = functools.partial(train_captions, run.recipe, region_scenes, out, alignment=region_run)
    stopped_and_resumed(monkeypatch, capfd, train)
    check_same_training(out, run.path)
    # Another alignment cuts other snippets.
    for status in ("running", "finished"):
        info = json.loads((out / "run.json").read_text()) | {"alignment": "c0ffee", "status": status}
        (out / "run.json").write_text(json.dumps(info))
        with pytest.raises(DataError, match="another alignment \\(c0ffee there"):
            train()


def test_an_alignment_is_asked_for_where_there_are_regions(
    scenes, region_scenes, region_run, caption_recipe, tmp_path
) -> None:
    snippet_recipe = recipes.get("multimodal-rnn-regions")
    with pytest.raises(InvalidArgumentError, match="--alignment RUN"):
        train_captions(snippet_recipe, region_scenes, tmp_path / "run")
    with pytest.raises(InvalidArgumentError, match="alignment.*none"):
        train_captions(caption_recipe, scenes, tmp_path / "run", alignment=region_run)
    with pytest.raises(InvalidArgumentError, match="cider"):
        recipe = snippet_recipe.with_overrides(["training.select=cider"])
        train_captions(recipe, region_scenes, tmp_path / "run", alignment=region_run)
    assert not (tmp_path / "run").exists()


def test_an_alignment_that_does_not_work_leaves_no_run(
    region_scenes, region_run, region_caption_run, tmp_path, monkeypatch
) -> None:
    recipe = region_caption_run.recipe
    out, broken = tmp_path / "run", dataclasses.replace(region_run)  # With a model of its own.
    broken.model.set_weights([np.full_like(value, np.nan) for value in broken.model.get_weights()])
    with pytest.raises(DataError, match="NaN"):
        train_captions(recipe, region_scenes, out, alignment=broken)
    assert not out.exists()
    # Before any caption is cut.
    monkeypatch.setattr(snippets, "find_snippets", None)
    monkeypatch.setattr(Run, "regions_of", lambda run, dataset: SimpleNamespace(fingerprint="c0ffee"))
    with pytest.raises(DataError, match="of the regions c0ffee, not of.*--set image.features=c0ffee"):
        train_captions(recipe, region_scenes, out, alignment=region_run)
    assert not out.exists()


def test_from_pixels_selected_by_cider(scenes, pixel_caption_run) -> None:
    run = pixel_caption_run
    row = json.loads((run.path / "metrics.jsonl").read_text())
    assert run.info["best_cider"] == row["val_cider"] >= 0
    assert row["val_perplexity"] > 1
    assert run.images_of(scenes, scenes.split("val")).gather(np.arange(2)).shape == (2, 32, 32, 3)


@pytest.mark.parametrize("variant", ["tuned", "paper"])  # `attention` is in test_attention.py
def test_every_variant_takes_a_step(variant: str, scenes, tmp_path: Path) -> None:
    # Its sizes cut down and nothing else.
    small = ["caption.units=8", "text.word_dim=8", "training.epochs=1", "text.min_count=1"]
    recipe = recipes.get("multimodal-rnn", variant).with_overrides(small)
    run = train_captions(recipe, scenes, tmp_path / "run")
    assert run.model.cell == recipe.caption.decoder
    assert run.info["best_epoch"] == 0


def test_the_model_is_that_of_the_recipe(caption_recipe) -> None:
    model = build_caption_model(caption_recipe, 30, 16)
    again = build_caption_model(caption_recipe, 30, 16)
    for one, other in zip(model.get_weights(), again.get_weights(), strict=True):
        np.testing.assert_array_equal(one, other)
    low = build_caption_model(
        caption_recipe.with_overrides(["training.precision=mixed_bfloat16", "caption.image_steps=all"]),
        30,
        16,
    )
    inputs = {"image": np.ones((2, 16), np.float32), "text": np.ones((2, 3), np.int32)}
    assert low(inputs).dtype == "float32"
    assert low.recurrent.compute_dtype == "bfloat16"
    assert low.image_steps == "all"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("text.tokenizer=characters", "text.tokenizer"),
        ("caption.decoder=sc-nlm", "caption.decoder"),
        ("training.precision=float16", "training.precision"),
        ("training.select=recall", "training.select"),
        ("text.units=3", "text.units.*does not read"),
        ("embedding_dim=3", "embedding_dim.*does not read"),
        ("caption.context=3", "caption.context.*does not read"),
        ("caption.affinity=3", "caption.affinity.*does not read"),
        ("loss.margin=3", "loss.margin.*does not read"),
        ("image.most_regions=3", "image.most_regions.*does not read"),
        ("optimizer.name=rmsporp", "Did you mean 'rmsprop'"),
    ],
)
def test_a_recipe_that_does_not_work_leaves_no_run(change, message, scenes, caption_recipe, tmp_path) -> None:
    with pytest.raises(InvalidArgumentError, match=message):
        train_captions(caption_recipe.with_overrides([change]), scenes, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_from_the_command_line(scenes_path: Path, tmp_path: Path, capsys) -> None:
    small = ["caption.units=8", "text.word_dim=8", "training.epochs=1", "batches.size=16"]
    arguments = ["train", "multimodal-rnn", "--data", str(scenes_path), "--out", str(tmp_path / "run")]
    assert main([*arguments, *(f"--set={each}" for each in small)]) == 0
    said = capsys.readouterr().out
    assert "validation perplexity" in said and "--captions" in said
    assert main([*arguments, "--alignment", "nowhere"]) == 1
    assert "alignment" in capsys.readouterr().err
