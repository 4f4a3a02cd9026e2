"""Runs of language models: what they hold, exact resume, the kept encoder, tags, and refusals."""

from __future__ import annotations

import dataclasses
import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest

from tests.conftest import TINY_LANGUAGE
from tests.raising import raises_argument
from tests.tiny import tiny
from tests.training.test_resume import check_same_training, metrics, position
from vsemb import Run, recipes
from vsemb.cli.__main__ import main
from vsemb.errors import DataError
from vsemb.files import write_json
from vsemb.runs.train import train
from vsemb.systems.captions.sentences import sentence_batches
from vsemb.systems.captions.validation import LikelihoodMeasure, PerplexityValidation
from vsemb.systems.language.additive import Additive
from vsemb.systems.language.conditioning import (
    check_encoder,
    encoder_of,
    keep_encoder,
    read_sentences,
    require_encoder,
    tag_ids,
    tag_names,
    tags_of,
)
from vsemb.systems.language.log_bilinear import LogBilinear
from vsemb.systems.language.multiplicative import Multiplicative
from vsemb.systems.language.structure_content import StructureContent


def test_what_a_run_holds(language_run, tagged_scenes, kiros_run) -> None:
    run = Run.open(language_run.path)
    assert {path.name for path in (run.path / "checkpoints").iterdir()} == {"best.weights.h5", "state.npz", "lock"}
    assert (run.path / "encoder").is_dir() and (run.path / "generation").is_dir()
    assert run.info["encoder"] == kiros_run.fingerprint and run.info["content_dim"] == 16
    assert tags_of(run) == ("CC", "DT", "IN", "NN", "VBZ", "<unk>")
    assert isinstance(run.model, StructureContent) and run.model.tags == 6 and run.model.factors == 8
    logs = metrics(run.path)
    best = max(row["val_log2_likelihood"] for row in logs)
    assert run.info["best_log2_likelihood"] == best
    assert logs[1]["val_perplexity"] == pytest.approx(2 ** -logs[1]["val_log2_likelihood"])
    # What validation measured is what the stored weights and the kept encoder give.
    sentences = read_sentences(tagged_scenes.split("val"), run.tokenizer, encoder=encoder_of(run), names=tags_of(run))
    assert LikelihoodMeasure(run.model)(sentence_batches(sentences)).log2_likelihood == pytest.approx(best)
    source = encoder_of(run).images_of(tagged_scenes, tagged_scenes.split("val"))
    assert source.gather(np.arange(2)).shape == (2, 16)


def test_the_encoder_needs_no_other_directory(language_run, kiros_run, tmp_path: Path) -> None:
    run = Run.open(shutil.copytree(language_run.path, tmp_path / "moved"))
    encoder = encoder_of(run)
    assert encoder is not None and encoder.path == run.path / "encoder"
    ids = kiros_run.tokenizer(["a red square"])
    np.testing.assert_array_equal(encoder.model.encode_texts(ids), kiros_run.model.encode_texts(ids))
    assert run.fingerprint == language_run.fingerprint
    # Another one in its place is noticed.
    recipe = json.loads((run.path / "encoder" / "recipe.json").read_text())
    recipe["training"]["seed"] = 99
    (run.path / "encoder" / "recipe.json").unlink()
    write_json(run.path / "encoder" / "recipe.json", recipe)
    with pytest.raises(DataError, match=re.escape(str(run.path / "encoder"))):
        encoder_of(Run.open(run.path))
    with pytest.raises(DataError, match="another encoder"):
        train(run.recipe, run.open_data(), run.path, inputs={"encoder": Run.open(run.path / "encoder")})


def test_the_kept_encoder_is_complete(kiros_run, tmp_path: Path) -> None:
    source = Run.open(shutil.copytree(kiros_run.path, tmp_path / "source"))
    (source.path / "backbone").mkdir()
    (source.path / "backbone" / "backbone.weights.h5").write_bytes(b"w" * 8)
    (tmp_path / "out").mkdir()
    keep_encoder(source, tmp_path / "out")
    kept = Run.open(tmp_path / "out" / "encoder")
    assert kept.fingerprint == source.fingerprint
    assert (kept.path / "backbone" / "backbone.weights.h5").read_bytes() == b"w" * 8
    assert not (kept.path / "checkpoints" / "state.npz").exists() and not (kept.path / "logs").exists()
    shutil.rmtree(source.path)
    assert Run.open(kept.path).model is not None


def test_a_finished_run_is_left_alone_and_needs_no_encoder(language_run, tagged_scenes, capfd) -> None:
    before = (language_run.path / "run.json").stat().st_mtime_ns
    run = train(language_run.recipe, tagged_scenes, language_run.path)
    assert "finished already" in capfd.readouterr().err
    assert (language_run.path / "run.json").stat().st_mtime_ns == before
    assert run.fingerprint == language_run.fingerprint


@pytest.mark.slow
def test_interrupted_equals_uninterrupted(scenes, tmp_path: Path, monkeypatch, capfd) -> None:
    more = ["batches.size=8", "model.dropout=0.1", "model.word_dropout=0.2"]
    recipe = tiny(recipes.get("log-bilinear"), *TINY_LANGUAGE, *more)
    whole, out = tmp_path / "whole", tmp_path / "run"
    train(recipe, scenes, whole)
    measure = PerplexityValidation.on_epoch_end

    def stop(self, epoch: int, logs=None) -> None:
        if epoch == 1:
            raise KeyboardInterrupt
        measure(self, epoch, logs)

    monkeypatch.setattr(PerplexityValidation, "on_epoch_end", stop)
    with pytest.raises(KeyboardInterrupt):
        train(recipe, scenes, out, checkpoint_steps=7)
    monkeypatch.undo()
    # The last state before the second epoch of 30 steps was measured is that of its step 28 or later.
    epoch, step = position(out)
    assert epoch == 1 and 0 < step <= 30
    capfd.readouterr()
    train(recipe, scenes, out)
    assert f"Resuming at epoch 2, step {step} of 30" in capfd.readouterr().err
    check_same_training(out, whole)


def test_from_the_command_line(scenes_path: Path, tmp_path: Path, capsys) -> None:
    small = ("text.tokenizer.min_count=1", "training.epochs=2")
    settings = [f"--set={setting}" for setting in (*TINY_LANGUAGE, *small)]
    command = ["train", "log-bilinear", "--data", str(scenes_path), "--out", str(tmp_path / "run")]
    assert main([*command, *settings]) == 0
    said = capsys.readouterr().out
    assert "validation perplexity" in said and "vsemb evaluate" in said
    assert main(["train", "sc-nlm", *command[2:-1], str(tmp_path / "other")]) == 1
    assert "`inputs.encoder`" in capsys.readouterr().err
    # A training that went astray is told as any other: 2 to the power of this has no float.
    info = json.loads((tmp_path / "run" / "run.json").read_text())
    write_json(tmp_path / "run" / "run.json", info | {"best_log2_likelihood": -5000.0})
    assert main([*command, *settings]) == 0
    assert "validation perplexity inf" in capsys.readouterr().out


@pytest.mark.slow
def test_log_bilinear_has_no_encoder(bilinear_run, scenes, kiros_run) -> None:
    assert isinstance(bilinear_run.model, LogBilinear)
    assert (encoder_of(bilinear_run), tags_of(bilinear_run), bilinear_run.info["content_dim"]) == (None, (), None)
    assert not (bilinear_run.path / "encoder").exists() and not (bilinear_run.path / "generation").exists()
    with pytest.raises(DataError, match=re.escape(str(bilinear_run.path))):
        require_encoder(bilinear_run)
    with raises_argument("inputs.encoder"):
        train(bilinear_run.recipe, scenes, bilinear_run.path, inputs={"encoder": kiros_run})


@pytest.mark.slow
def test_content_helps(bilinear_run, language_run) -> None:
    assert language_run.info["best_log2_likelihood"] > bilinear_run.info["best_log2_likelihood"] - 0.5
    first = metrics(language_run.path)[0]["val_log2_likelihood"]
    assert metrics(language_run.path)[1]["val_log2_likelihood"] > first


INFO = {"content_dim": 12, "tag_names": ["DT", "NN", "VB", "<unk>"]}


@pytest.mark.parametrize("name", ["log-bilinear", "additive", "multiplicative", "sc-nlm"])
def test_every_variant_is_built(name: str) -> None:
    classes = {
        "log-bilinear": LogBilinear,
        "additive": Additive,
        "multiplicative": Multiplicative,
        "sc-nlm": StructureContent,
    }
    for recipe in recipes.variants(name).values():
        model = recipe.build(50, INFO, "float32")
        assert type(model) is classes[name]
        assert (model.dim, model.context) == (recipe.model.dim, recipe.model.context)


def test_the_seed_decides_the_first_weights() -> None:
    recipe = recipes.get("sc-nlm")
    first, second = (recipe.build(20, INFO, "float32").get_weights() for _ in range(2))
    for one, other in zip(first, second, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize(
    ("name", "setting", "field"),
    [
        ("log-bilinear", "model.factors=7", "recipe field"),
        ("log-bilinear", "model.writing.candidates=7", "recipe field"),
        ("multiplicative", "model.structure=1", "recipe field"),
        ("sc-nlm", "model.image_steps=all", "recipe field"),
        ("sc-nlm", "text.units=7", "recipe field"),
        ("sc-nlm", "model=lstm", "model"),
        ("sc-nlm", "validation=cider", "recipe field"),
        ("sc-nlm", "training.precision=float16", "training.precision"),
    ],
)
def test_fields_that_are_refused(name: str, setting: str, field: str) -> None:
    with raises_argument(field):
        recipes.get(name).with_overrides([setting])


def test_refusals_leave_nothing_behind(scenes, kiros_run, language_recipe, tmp_path: Path) -> None:
    out = tmp_path / "run"
    with raises_argument("inputs.encoder"):
        train(language_recipe, scenes, out)
    with pytest.raises(DataError, match="vsemb annotate"):
        train(language_recipe, scenes, out, inputs={"encoder": kiros_run})
    assert not out.exists()
    out.mkdir()
    (out / "mine.txt").write_text("x")
    with pytest.raises(DataError, match=re.escape(str(out))):
        train(language_recipe, scenes, out, inputs={"encoder": kiros_run})
    # A run of another task is called that, and not damaged.
    with pytest.raises(DataError, match=re.escape(str(kiros_run.path))):
        train(tiny(recipes.get("log-bilinear"), *TINY_LANGUAGE), scenes, kiros_run.path)


@pytest.mark.slow
def test_encoders_that_are_refused(kiros_run, region_run, bilinear_run) -> None:
    check_encoder(kiros_run)
    for tokenizer in ("characters", "wordpiece", "bpe"):
        other = kiros_run.recipe.with_overrides([f"text.tokenizer={tokenizer}"])
        with pytest.raises(DataError, match=tokenizer):
            check_encoder(dataclasses.replace(kiros_run, recipe=other))
    with pytest.raises(DataError, match=re.escape(str(region_run.path))):
        check_encoder(region_run)
    with pytest.raises(DataError, match=re.escape(str(bilinear_run.path))):
        check_encoder(bilinear_run)


def test_tags_have_ids(tagged_scenes, kiros_run, language_run) -> None:
    assert tag_names([["NN", "DT"], [], ["NN"]]) == ("DT", "NN", "<unk>")
    assert tag_ids([["NN", "FW"], []], ("DT", "NN", "<unk>")) == [[2, 3], []]
    split = tagged_scenes.split("val")
    sentences = read_sentences(split, language_run.tokenizer, names=tags_of(language_run))
    # Each word has the tag that it was given, DT for these two.
    words = np.array(language_run.vocabulary.tokens)[sentences.ids]
    np.testing.assert_array_equal(sentences.tags == 2, np.isin(words, ["a", "the"]))
    # Captions that are cut lose their tags too.
    tokenizer = type(language_run.tokenizer)(language_run.vocabulary, 3)
    short = read_sentences(split, tokenizer, names=tags_of(language_run))
    assert short.lengths.max() == 3 and len(short.tags) == len(short.ids)
    np.testing.assert_array_equal(short.tags[:3], sentences.tags[:3])
    vectors = read_sentences(split, tokenizer, encoder=kiros_run).content
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, rtol=1e-5)
