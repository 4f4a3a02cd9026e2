"""Entailment from the command line: training, exact resume, measuring, exporting, and its refusals."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from tests.raising import raises_argument
from tests.systems.entailment.conftest import SMALL
from tests.systems.entailment.entailment_files import rows, write_jsonl, write_plain, write_snli
from tests.training.test_resume import check_same_training, metrics, position
from vsemb import Run, recipes
from vsemb.cli.__main__ import main
from vsemb.errors import DataError
from vsemb.runs.train import train
from vsemb.similarities import Cosine, OrderViolation
from vsemb.systems.entailment.data import EntailmentData
from vsemb.systems.entailment.metrics import PairValidation
from vsemb.systems.entailment.recipe import ENTAILMENT

LINEAR = (
    *(one for one in SMALL if not one.startswith("text.encoder.units")),
    "training.epochs=1",
    "text.encoder=linear",
)
# Everything random that a step can have.
RESUMED = (
    *LINEAR,
    "training.epochs=2",
    "text.encoder.words.word_dropout=0.2",
    "text.encoder.words.dropout=0.1",
)


def command(data: Path, out: Path, *settings: str, variant: str = "order") -> list[str]:
    chosen = [f"--set={setting}" for setting in settings]
    return ["train", "entailment", "--variant", variant, "--data", str(data), "--out", str(out), *chosen]


def complaint(capfd) -> str:
    """The one line that a command which failed wrote."""
    (line,) = capfd.readouterr().err.splitlines()
    return line


def test_what_a_run_holds(tiny_entailment_run, snli_path: Path) -> None:
    run = tiny_entailment_run
    names = {path.name for path in run.path.iterdir()}
    assert names == {"recipe.json", "run.json", "vocabulary.txt", "metrics.jsonl", "checkpoints", "logs"}
    stored = {path.name for path in (run.path / "checkpoints").iterdir()}
    assert stored == {"best.weights.h5", "state.npz", "lock"}
    info = run.info
    assert info["dataset"] == EntailmentData.open(snli_path).fingerprint
    assert (info["pairs"], info["dropped"]) == ({"train": 144, "val": 36}, {"train": 0, "val": 0})
    assert info["protocol"].startswith("the splits of snli_1.0_train.jsonl")
    found = metrics(run.path)
    assert [row["epoch"] for row in found] == [0, 1]
    assert info["best_accuracy"] == max(row["val_accuracy"] for row in found)
    assert {"loss", "val_average_precision", "val_roc_auc"} < set(found[0])
    # What validation measured is what the stored weights give.
    again = run.recipe.measure(Run.open(run.path), run.open_data(), "val")
    assert again.accuracy == pytest.approx(info["best_accuracy"])


def test_it_learns_and_the_threshold_comes_from_validation(snli_path: Path, tmp_path: Path, capsys) -> None:
    out, report = tmp_path / "run", tmp_path / "report.json"
    assert main([*command(snli_path, out, *SMALL, "training.epochs=12", "batches.size=16")]) == 0
    said = capsys.readouterr()
    assert "144 train, 36 val (0 without gold label dropped)" in said.err
    assert "vsemb evaluate" in said.out and "validation accuracy" in said.out
    assert main(["evaluate", str(out), "--split", "test", "--json", str(report)]) == 0
    table = capsys.readouterr().out
    content = json.loads(report.read_text())
    assert content["pairs"] == 36 and content["entailed"] == 12
    assert f"{100 * content['accuracy']:.1f}" in table and "66.7" in table and "the splits of" in table
    # Two of three pairs are not entailed; the rule of the pairs is learned.
    assert content["majority"] == pytest.approx(2 / 3) and content["accuracy"] > 0.9
    run = Run.open(out)
    on_val = run.recipe.measure(run, run.open_data(), "val")
    assert content["threshold"] == on_val.threshold


CLASSES = (*(one for one in SMALL if not one.startswith("loss.")), "units=16", "dropout=0.1")


def test_three_classes(snli_path: Path, tmp_path: Path, capfd) -> None:
    out, report = tmp_path / "run", tmp_path / "report.json"
    settings = (*CLASSES, "training.epochs=15", "batches.size=16")
    assert main(command(snli_path, out, *settings, variant="classes")) == 0
    assert "validation accuracy" in capfd.readouterr().out
    assert main(["evaluate", str(out), "--split", "test", "--json", str(report)]) == 0
    table, found = capfd.readouterr().out, json.loads(report.read_text())
    assert "accuracy, three classes" in table and f"{100 * found['accuracy']:.1f} %" in table
    # Each class has a third of the pairs; the rules of the three are learned.
    assert found["pairs"] == 36 and found["majority"] == pytest.approx(1 / 3)
    assert found["accuracy"] > 0.8 and found["two_class_accuracy"] >= found["accuracy"]
    assert main(["export", str(out), str(tmp_path / "served")]) == 1
    assert "got a classifier of pairs" in complaint(capfd) and not (tmp_path / "served").exists()


@pytest.mark.slow
def test_interrupted_equals_uninterrupted(snli_path: Path, tmp_path: Path, monkeypatch, capfd) -> None:
    # Killed processes are in tests/training/test_resume.py.
    whole, out = tmp_path / "whole", tmp_path / "run"
    assert main(command(snli_path, whole, *RESUMED)) == 0
    measure = PairValidation.on_epoch_end

    def stop(self, epoch: int, logs=None) -> None:
        if epoch == 1:
            raise KeyboardInterrupt
        measure(self, epoch, logs)

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(PairValidation, "on_epoch_end", stop)
        recipe = recipes.get("entailment", "order").with_overrides(RESUMED)
        train(recipe, snli_path, out, checkpoint_steps=7)
    # The last state before the second epoch of 18 steps was measured is that of its step 14 or later.
    epoch, step = position(out)
    assert epoch == 1 and 0 < step < 18
    capfd.readouterr()
    arguments = command(snli_path, out, *RESUMED)
    assert main(arguments) == 0
    assert f"Resuming at epoch {epoch + 1}, step {step} of 18" in capfd.readouterr().err
    check_same_training(out, whole)
    # And a finished run is left alone.
    before = (out / "run.json").stat().st_mtime_ns
    assert main(arguments) == 0
    assert "finished" in capfd.readouterr().err and (out / "run.json").stat().st_mtime_ns == before


@pytest.mark.slow
@pytest.mark.parametrize("variant", [name for name in ENTAILMENT if name != "order"])  # `order` is tiny_entailment_run.
def test_every_variant_takes_a_step(variant: str, snli_path: Path, tmp_path: Path) -> None:
    # Its sizes cut down and nothing else.
    small = ["embedding_dim=8", "text.encoder.words.dim=8", "training.epochs=1"]
    # Like `order` but for what it compares by, so that a small encoder does for `symmetric`.
    small += ["text.encoder=linear"] if variant == "symmetric" else ["text.encoder.units=8"]
    recipe = recipes.get("entailment", variant).with_overrides(small)
    run = train(recipe, EntailmentData.open(snli_path), tmp_path / "run")
    if variant != "classes":
        assert run.model.similarity == (Cosine() if variant == "symmetric" else OrderViolation())
    assert run.info["best_epoch"] == 0


@pytest.mark.slow
def test_words_start_from_vectors_and_bags_from_rarities(snli_path: Path, tmp_path: Path) -> None:
    vectors = tmp_path / "vectors.txt"
    vectors.write_text("dog" + " 0.25" * 16 + "\n")
    sequence = "text.encoder.sequence"
    settings = [*(one for one in SMALL if not one.startswith("text")), "text.encoder=sequence-and-bag"]
    settings += ["training.epochs=1", "batches.size=48"]
    settings += [f"{sequence}.units=16", f"{sequence}.words.vectors={vectors}", f"{sequence}.words.trainable=false"]
    settings += [f"{sequence}.words.dim=16"]
    recipe = recipes.get("entailment").with_overrides(settings)
    run = train(recipe, EntailmentData.open(snli_path), tmp_path / "run")
    encoder, number = run.model.text_encoder, run.vocabulary.tokens.index("dog")
    np.testing.assert_array_equal(encoder.sequence.words.table[number], np.full(16, 0.25, np.float32))
    rarity = encoder.bag.rarity.numpy()
    tokens = run.vocabulary.tokens
    # Every sentence has an a, one in three premises and none else has a given number.
    assert rarity[tokens.index("a")] < rarity[tokens.index("the")] < rarity[tokens.index("11")]


def test_a_single_file_is_split_by_premise(tmp_path: Path, capsys) -> None:
    data, out = write_plain(tmp_path / "pairs.tsv", rows(300)), tmp_path / "run"
    assert main(command(data, out, *LINEAR)) == 0
    said = capsys.readouterr()
    run = Run.open(out)
    assert run.info["protocol"] in said.out and run.info["protocol"] in said.err
    assert "80/10/10 by premise (SHA-256, seed 0)" in run.info["protocol"]
    assert main(["evaluate", str(out)]) == 0
    assert "by premise" in capsys.readouterr().out


@pytest.mark.slow
def test_export_has_text_alone(tiny_entailment_run, tmp_path: Path, capsys) -> None:
    assert main(["export", str(tiny_entailment_run.path), str(tmp_path / "served")]) == 0
    assert "no encode_image: the run embeds no images" in capsys.readouterr().out
    loaded = tf.saved_model.load(str(tmp_path / "served" / "1"))
    assert set(loaded.signatures) == {"serving_default", "encode_text", "describe"}
    outputs = loaded.signatures["encode_text"](text=tf.constant(["A dog runs.", ""]))
    assert outputs["valid"].numpy().tolist() == [True, False]
    run = tiny_entailment_run
    expected = run.model.encode_texts(run.tokenizer(tf.constant(["A dog runs."])))
    np.testing.assert_allclose(outputs["embedding"][:1], expected, atol=1e-5)
    assert np.min(outputs["embedding"]) >= 0


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("kind=retrieval", "recipe field"),
        ("similarity=dot", "best score, such as order or cosine"),
        ("similarity.reversed=true", "recipe field"),
        ("image.dropout=0.5", "recipe field"),
        ("loss.negatives=hardest", "recipe field"),
        ("batches.captions=one", "recipe field"),
        ("initialization=cca", "recipe field"),
        ("loss.name=ranking", "recipe field"),
        ("loss.margin=0", "loss.margin"),
        ("loss.reduction=max", "one of sum, mean"),
        ("slots=8", "recipe field"),
        ("training.precision=float16", "float32"),
        ("text.encoder=recurent", "Did you mean 'recurrent'"),
        ("text.encoder.cell=grru", "Did you mean 'gru'"),
    ],
)
def test_bad_settings_are_one_line_and_leave_nothing(
    setting: str, message: str, snli_path: Path, tmp_path: Path, capfd
) -> None:
    assert main(command(snli_path, tmp_path / "run", *SMALL, setting)) == 1
    lines = [line for line in capfd.readouterr().err.splitlines() if not line.startswith(("pairs", "splits"))]
    assert len(lines) == 1 and lines[0].startswith("vsemb train: ") and re.search(message, lines[0])
    assert not (tmp_path / "run").exists()


def test_bad_lines_are_named(snli_path: Path, tmp_path: Path, capfd) -> None:
    folder = Path(shutil.copytree(snli_path, tmp_path / "snli"))
    file = folder / "snli_1.0_dev.jsonl"
    file.write_text(file.read_text().replace("neutral", "maybe", 1))
    assert main(command(folder, tmp_path / "run", *SMALL)) == 1
    line = complaint(capfd)
    assert f"{file}, line 2: the label must be entailment" in line and "got 'maybe'" in line
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        # The first row says whether rows name their split.
        ([{"split": "train"}, {}], "line 2: the split must be one of"),
        ([{}, {"split": "train"}], "line 2: all rows or no rows must have a split"),
        # No threshold and no area can be found on these.
        (
            [{"split": "train"}, {"split": "train", "label": 1}, {"split": "val"}],
            "'val' must have entailed and other pairs",
        ),
        (
            [{"split": "train"}, {"split": "val"}, {"split": "val", "label": 1}],
            "'train' must have entailed and other pairs",
        ),
    ],
)
def test_splits_that_do_not_do(tmp_path: Path, capfd, rows: list[dict], message: str) -> None:
    pairs = [{"premise": f"word {number}", "hypothesis": "word", "label": 0} for number in range(len(rows))]
    file = tmp_path / "pairs.jsonl"
    lines = [json.dumps(pair | row) + "\n" for pair, row in zip(pairs, rows, strict=True)]
    file.write_text("".join(lines))
    assert main(command(file, tmp_path / "run", *SMALL)) == 1
    assert message in complaint(capfd)
    assert not (tmp_path / "run").exists()


def test_the_wrong_command_says_what_is_needed(
    tiny_entailment_run, tiny_run, snli_path: Path, scenes_path: Path, tmp_path: Path, capfd
) -> None:
    run = str(tiny_entailment_run.path)
    out = ["--out", str(tmp_path / "run")]
    pairs = str(snli_path / "snli_1.0_dev.jsonl")
    cases = [
        (["search", run, "a dog"], "entailment"),
        (["index", run], "entailment"),
        (["train", "kiros2014", "--data", pairs, *out], "vsemb prepare"),
        (["train", "kiros2014", "--data", str(snli_path), *out], "vsemb prepare"),
        (["train", "entailment", "--data", str(scenes_path), *out], "snli_1.0_train"),
        (["train", "entailment", "--data", pairs, "--fine-tune", *out], "fine_tune"),
        (
            ["train", "entailment", "--data", str(snli_path), "--set", "text.tokenizer=classes", *out],
            "text.tokenizer",
        ),
        (["evaluate", run, "--folds", "5"], "`folds`"),
        (["evaluate", run, "--bootstrap", "10"], "`bootstrap`"),
        (["evaluate", run, "--recalls", "20"], "`recalls`"),
        (["evaluate", run, "--pairs"], "`pairs`"),
        (["evaluate", run, "--split", "tests"], "'test'"),
        (["evaluate", run, "--data", str(scenes_path)], "snli_1.0_train"),
        (["evaluate", str(tiny_run.path), "--data", str(snli_path)], "vsemb prepare"),
        (["train", "vsepp", "--data", str(scenes_path), "--out", run], "recipe"),
        (command(snli_path, tiny_run.path), "recipe"),
    ]
    for arguments, message in cases:
        assert main(arguments) == 1, arguments
        line = complaint(capfd)
        assert line.startswith(f"vsemb {arguments[0]}: ") and message in line, line
    with pytest.raises(DataError, match="entailment"):
        Run.open(tiny_run.path, "entailment")
    with pytest.raises(DataError, match="retrieval"):
        Run.open(run, "retrieval")


def test_changed_data_are_noticed(tmp_path: Path, capfd) -> None:
    folder, out = write_snli(tmp_path / "snli"), tmp_path / "run"
    settings = LINEAR
    assert main(command(folder, out, *settings)) == 0
    write_jsonl(folder / "snli_1.0_test.jsonl", rows(6))
    capfd.readouterr()
    assert main(["evaluate", str(out)]) == 1
    assert "must be unchanged since training" in complaint(capfd)
    assert main(["evaluate", str(out), "--split", "test", "--data", str(folder)]) == 0
    assert "6 pairs" in capfd.readouterr().out
    assert main(command(folder, out, *settings)) == 1
    assert "another dataset" in complaint(capfd)
    shutil.rmtree(folder)
    assert main(["evaluate", str(out)]) == 1
    assert "Name it as `data`" in complaint(capfd)


def test_a_model_follows_from_the_seed() -> None:
    recipe = recipes.get("entailment").with_overrides(SMALL)
    first, second = (recipe.build(20, {}, "float32").get_weights() for _ in range(2))
    assert all(np.array_equal(a, b) for a, b in zip(first, second, strict=True))


def test_the_seed_of_the_splits_is_the_recipes(tmp_path: Path) -> None:
    data = write_plain(tmp_path / "pairs.tsv", rows(300))
    recipe = recipes.get("entailment").with_overrides([*LINEAR, "split_seed=7"])
    with raises_argument("split_seed"):
        train(recipe, EntailmentData.open(data), tmp_path / "run")
    run = train(recipe, data, tmp_path / "run")
    assert run.open_data().split_seed == 7 and "seed 7" in run.info["protocol"]


def test_a_data_service_is_refused(snli_path: Path, tmp_path: Path) -> None:
    recipe = recipes.get("entailment").with_overrides(SMALL)
    with raises_argument("data_service"):
        train(recipe, snli_path, tmp_path / "run", data_service="grpc://localhost:1")
