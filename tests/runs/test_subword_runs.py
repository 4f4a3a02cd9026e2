"""Runs on subwords with a Transformer: trained, reopened, resumed, exported, and what is refused."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tests.runs.stop_at import stopped
from tests.training.test_resume import check_same_training
from vsemb import recipes, registry
from vsemb.cli.__main__ import main
from vsemb.encoders import TransformerSentenceEncoder
from vsemb.errors import DataError, InvalidArgumentError
from vsemb.evaluation import Embedder
from vsemb.recipes.retrieval import RetrievalJob
from vsemb.runs.measure import evaluate_run
from vsemb.runs.run import Run
from vsemb.runs.searching import embed_text
from vsemb.runs.serve import export_run
from vsemb.runs.train import train
from vsemb.text.subwords import BPETokenizer, UnigramTokenizer, WordPieceTokenizer

KINDS = {"wordpiece": WordPieceTokenizer, "sentencepiece": UnigramTokenizer, "bpe": BPETokenizer}
TRANSFORMER = (
    *("text.encoder=transformer", "text.encoder.units=16", "text.encoder.words.dim=16", "text.encoder.heads=2"),
    *("text.encoder.layers=1", "text.encoder.pooling=mean", "text.encoder.dropout=0.1"),
)


def recipe_of(tiny_recipe: Any, tokenizer: str) -> Any:
    sizes = ("text.tokenizer.vocabulary_size=60", "text.tokenizer.max_length=24")
    return tiny_recipe.with_overrides([f"text.tokenizer={tokenizer}", *sizes, *TRANSFORMER])


@pytest.fixture(scope="module")
def unigram_run(scenes, tiny_recipe, trained) -> Run:
    """A run of two epochs; its vocabulary holds scores too. Treat it as read-only."""
    return trained("sentencepiece", recipe_of(tiny_recipe, "sentencepiece"), scenes)


@pytest.fixture(
    scope="module", params=["sentencepiece", *(pytest.param(k, marks=pytest.mark.slow) for k in ("wordpiece", "bpe"))]
)
def subword_run(request, unigram_run, scenes, tiny_recipe, trained) -> Run:
    """A run with each tokenizer; treat it as read-only."""
    if request.param == "sentencepiece":
        return unigram_run
    return trained(request.param, recipe_of(tiny_recipe, request.param), scenes)


@pytest.mark.slow
def test_trained_and_reopened(subword_run: Run, scenes) -> None:
    run = Run.open(subword_run.path)
    assert isinstance(run.tokenizer, KINDS[run.recipe.text.tokenizer.kind])
    assert isinstance(run.model.text_encoder, TransformerSentenceEncoder)
    assert 20 < len(run.vocabulary.words) <= 60
    ids, offsets = run.tokenizer.encode(scenes.split("train").captions)
    # Every character is a subword; and subwords are more than words.
    assert ids.min() > 1 and np.diff(offsets).max() <= 24
    metrics = evaluate_run(run, scenes, "val")
    np.testing.assert_allclose(metrics.recall_sum, run.info["best_recall_sum"], atol=1e-6)
    assert run.reader.knows("hexagons") and run.reader(["a circle"]) == ["a circle"]


@pytest.mark.slow
def test_searched_as_trained(subword_run: Run, capsys) -> None:
    said = []
    typed, clean = (embed_text(subword_run, text, "text", said.append) for text in ("A RED circle!", "a red circle"))
    np.testing.assert_array_equal(typed, clean)
    assert not said
    embed_text(subword_run, "a red 犬", "text", said.append)
    assert said == ["Warning: not known to the run: 犬."]
    with pytest.raises(InvalidArgumentError, match="at least one subword"):
        embed_text(subword_run, "?!", "text", said.append)


@pytest.mark.slow
def test_served_as_trained(subword_run: Run, scenes, tmp_path: Path) -> None:
    captions = [*scenes.split("val").captions[:20], "Unbelievably REDDISH octagons!"]
    expected = Embedder(subword_run.model).texts(*subword_run.encode(captions))
    path = export_run(subword_run, tmp_path / "model")
    found = tf.saved_model.load(str(path)).signatures["encode_text"](text=tf.constant(captions))
    assert found["valid"].numpy().all()
    np.testing.assert_allclose(found["embedding"], expected, atol=1e-5)


@pytest.mark.slow
def test_stopped_and_resumed(unigram_run: Run, scenes, tmp_path, monkeypatch, capfd) -> None:
    # The unigram model's scores are what a run could lose.
    recipe, out = unigram_run.recipe, tmp_path / "run"
    with stopped(monkeypatch):
        train(recipe, scenes, out, checkpoint_steps=2)
    capfd.readouterr()
    train(recipe, scenes, out)
    assert "Resuming at epoch 2, step" in capfd.readouterr().err
    check_same_training(out, unigram_run.path)


@pytest.mark.slow
def test_another_vocabulary_is_refused(subword_run: Run, tmp_path: Path) -> None:
    path = Path(shutil.copytree(subword_run.path, tmp_path / "run")) / "vocabulary.txt"
    lines = path.read_text(encoding="utf-8").split("\n")
    # A piece less likely, or two pieces changed.
    changed = [*lines[:2], lines[3], lines[2], *lines[4:]]
    if "\t" in lines[2]:
        changed = [*lines[:2], lines[2].split("\t")[0] + "\t-99.5", *lines[3:]]
    path.write_text("\n".join(changed), encoding="utf-8")
    with pytest.raises(DataError, match="must be the vocabulary that the run was trained with"):
        _ = Run.open(path.parent).tokenizer


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["text.tokenizer=wordpieces"], "`text.tokenizer` must be .*wordpiece.*; got 'wordpieces'"),
        (
            ["text.tokenizer=bpe", "text.tokenizer.vocabulary_size=5"],
            "`vocabulary_size` must be .*; got 5.*Every character",
        ),
        (
            ["text.tokenizer=bpe", "text.encoder.words.vectors=glove.txt"],
            "`words.vectors` must be .*of subwords.*; got .glove.txt",
        ),
        ([*TRANSFORMER, "text.encoder.heads=3"], "`heads` must be a divisor of .*; got 3"),
        (["text.encoder=transformer", "text.encoder.layers=0"], "`text.encoder.layers` must be .*; got 0"),
        (["text.encoder=transformer", "text.encoder.pooling=first"], "pooling` must be .*; got 'first'"),
    ],
)
def test_one_line_for_what_does_not_work(overrides, message, scenes_path, tmp_path, capsys) -> None:
    out = tmp_path / "run"
    command = ["train", "vsepp", "--variant", "paper", "--data", str(scenes_path), "--out", str(out)]
    for each in ("embedding_dim=16", "batches.size=8", *overrides):
        command += ["--set", each]
    assert main(command) == 1
    line = capsys.readouterr().err.splitlines()[-1]
    assert line.startswith("vsemb train: ") and re.search(message, line)
    assert not out.exists()


@pytest.mark.parametrize(
    ("changes", "kind"),
    [
        (["text.encoder=sequence-and-bag", "text.encoder.sequence=transformer"], "SequenceAndBagEncoder"),
        (["text.encoder=projection-mlp", "text.encoder.encoder=transformer"], "ProjectionMLP"),
        (
            [
                *("text.encoder=projection-mlp", "text.encoder.encoder=transformer"),
                "text.encoder.encoder.pooling=mean+max",
            ],
            "ProjectionMLP",
        ),
    ],
    ids=["bag", "mlp", "mlp-mean-max"],
)
def test_goes_with_the_other_parts(changes, kind) -> None:
    if changes[0].split("=")[1] not in registry.kinds("text encoder"):
        pytest.skip("its system is not there")
    inner = changes[1].split("=")[0]
    sizes = [f"{inner}.units=8", f"{inner}.heads=2", f"{inner}.words.dim=6", "embedding_dim=10"]
    recipe = recipes.get("vsepp", "paper").with_overrides([*changes, *sizes])
    model = recipe.build(9, {"feature_dim": 7}, "float32")
    assert model.encode_texts(np.array([[2, 3, 0], [4, 5, 6]])).shape == (2, 10)
    assert type(model.text_encoder).__name__ == kind


def test_vectors_of_subwords_from_captions(scenes, tiny_recipe) -> None:
    settings = ("text.encoder=recurrent", "text.encoder.words.vectors=captions", "text.encoder.words.dim=16")
    recipe = recipe_of(tiny_recipe, "wordpiece").with_overrides(list(settings))
    model = RetrievalJob(recipe, scenes).model(recipe, "float32")
    assert tf.math.reduce_std(model.text_encoder.words.table) > 0
