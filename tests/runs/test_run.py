"""The run directory: what is in it, what it refuses, and what is noticed when it is changed."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
import tensorflow as tf

from tests.raising import raises_argument
from vsemb import recipes
from vsemb.cli.__main__ import main
from vsemb.data import synthetic as generator
from vsemb.data.features.compute import write_precomputed
from vsemb.data.features.store import FeatureStore
from vsemb.data.store import StoredDataset
from vsemb.data.writing.writer import write_dataset
from vsemb.errors import DataError
from vsemb.files import locked
from vsemb.recipes.retrieval import Retrieval, RetrievalJob
from vsemb.runs import run as run_module
from vsemb.runs.measure import evaluate_run
from vsemb.runs.run import Run, enter_run
from vsemb.runs.train import train
from vsemb.text.vocabulary import Vocabulary


@pytest.fixture
def run_copy(tiny_run, tmp_path: Path) -> Path:
    return Path(shutil.copytree(tiny_run.path, tmp_path / "run"))


def test_what_a_run_holds(tiny_run, tiny_recipe) -> None:
    names = {path.name for path in tiny_run.path.iterdir()}
    assert names == {"recipe.json", "run.json", "vocabulary.txt", "metrics.jsonl", "checkpoints", "logs"}
    stored = {path.name for path in (tiny_run.path / "checkpoints").iterdir()}
    assert stored == {"best.weights.h5", "state.npz", "lock"}
    assert list((tiny_run.path / "logs").rglob("events.out.tfevents.*"))
    assert tiny_run.recipe == tiny_recipe
    assert tiny_run.info["status"] == "finished"
    rows = [json.loads(line) for line in (tiny_run.path / "metrics.jsonl").read_text().splitlines()]
    assert [row["epoch"] for row in rows] == [0, 1]
    best = max(rows, key=lambda row: row["val_recall_sum"])
    assert tiny_run.info["best_epoch"] == best["epoch"]
    # The recall sum is that of the six recalls.
    recalls = [best[f"val_{side}_R@{k}"] for side in ("i2t", "t2i") for k in (1, 5, 10)]
    np.testing.assert_allclose(best["val_recall_sum"], sum(recalls))
    assert tiny_run.info["best_recall_sum"] == best["val_recall_sum"]


def test_evaluation_gives_what_training_measured(tiny_run, scenes, tmp_path, capsys) -> None:
    metrics = evaluate_run(Run.open(tiny_run.path), scenes, "val")
    # Training may have taken other batches; ranks of so few images do not notice.
    np.testing.assert_allclose(metrics.recall_sum, tiny_run.info["best_recall_sum"], atol=1e-6)
    assert (metrics.images, metrics.texts) == (12, 60)
    out = tmp_path / "metrics.json"
    assert main(["evaluate", str(tiny_run.path), "--split", "val", "--json", str(out)]) == 0
    written = json.loads(out.read_text())
    assert written == json.loads(json.dumps(metrics.to_json()))
    assert set(written["image_to_text"]) == {"R@1", "R@5", "R@10", "median_rank", "mean_rank"}
    assert "R@1" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--split", "vall"], "Did you mean 'val'"),
        (["--folds", "0"], "folds"),
        (["--folds", "13"], "folds"),
        (["--bootstrap", "-1"], "bootstrap"),
        (["--data", "/nowhere"], "/nowhere"),
    ],
)
def test_bad_evaluations_are_one_line(tiny_run, arguments, message: str, capfd) -> None:
    assert main(["evaluate", str(tiny_run.path), *arguments]) == 1
    (line,) = capfd.readouterr().err.splitlines()
    assert line.startswith("vsemb evaluate: ") and message in line


def test_a_run_of_another_recipe_is_refused(tiny_run, tiny_recipe, scenes) -> None:
    before = (tiny_run.path / "recipe.json").read_bytes()
    other = tiny_recipe.with_overrides(["text.encoder.units=17", "loss.margin=0.3"])
    with pytest.raises(DataError, match=r"loss.margin is 0.2 there and 0.3 now \(1 more differ\)"):
        train(other, scenes, tiny_run.path)
    assert (tiny_run.path / "recipe.json").read_bytes() == before


def test_a_training_that_lost_its_metrics_ends(tiny_run, tiny_recipe, scenes, tmp_path, monkeypatch) -> None:
    out = shutil.copytree(tiny_run.path, tmp_path / "run")
    (out / "metrics.jsonl").unlink()
    # The best epoch stays one of those without a row.
    worse = {"val_recall_sum": 0.0, "val_i2t_R@1": 0.0, "val_t2i_R@1": 0.0}
    monkeypatch.setattr("vsemb.training.RetrievalValidation.metrics", lambda validation: worse)
    run = train(tiny_recipe.with_overrides(["training.epochs=3"]), scenes, out)
    assert run.info["status"] == "finished" and run.info["best_epoch"] < 2 and run.info["validation"] == {}


@pytest.mark.slow
def test_a_finished_run_continues_for_more_epochs(tiny_run, tiny_recipe, scenes, tmp_path, capfd) -> None:
    out = tmp_path / "run"
    first = train(tiny_recipe.with_overrides(["training.epochs=1"]), scenes, out)
    assert first.info["status"] == "finished"
    with locked(out / "checkpoints", "busy"), pytest.raises(DataError, match="Another process is training .*run; wait"):
        train(tiny_recipe, scenes, out)
    # As one that was trained for two epochs at once.
    continued = train(tiny_recipe, scenes, out)
    rows = [
        [json.loads(line) for line in (run.path / "metrics.jsonl").read_text().splitlines()]
        for run in (continued, tiny_run)
    ]
    assert [{**row, "seconds": 0} for row in rows[0]] == [{**row, "seconds": 0} for row in rows[1]]
    assert continued.recipe == tiny_recipe and continued.info["status"] == "finished"
    assert "Resuming at epoch 2, step 0" in capfd.readouterr().err
    with pytest.raises(DataError, match="`epochs` must be at least 2, for which .* was trained; got 1"):
        train(tiny_recipe.with_overrides(["training.epochs=1"]), scenes, out)


def test_a_finished_run_without_its_state_is_not_trained_anew(run_copy, tiny_recipe, scenes) -> None:
    (run_copy / "checkpoints/state.npz").unlink()
    before = {path: path.read_bytes() for path in run_copy.rglob("*") if path.is_file()}
    with pytest.raises(DataError, match="state.npz"):
        train(tiny_recipe.with_overrides(["training.epochs=3"]), scenes, run_copy)
    assert {path: path.read_bytes() for path in before if path.is_file()} == before


def test_a_finished_run_without_its_weights_names_them(run_copy) -> None:
    (run_copy / "checkpoints/best.weights.h5").unlink()
    with pytest.raises(DataError, match="best.weights.h5"):
        Run.open(run_copy)


def test_only_the_data_of_the_training_is_read_unless_other_data_is_named(run_copy, scenes, tmp_path, capfd) -> None:
    data = Path(shutil.copytree(scenes.path, tmp_path / "data"))
    status = json.loads((run_copy / "run.json").read_text())
    (run_copy / "run.json").write_text(json.dumps(status | {"data": str(data)}))
    # Later features are no part of the training data, nor is its place.
    dataset, ids = StoredDataset.open(data), scenes.ids
    write_precomputed(dataset, ids, np.ones((len(ids), 3), np.float32))
    assert Run.open(run_copy).open_data().path == data
    assert Run.open(run_copy).open_data(scenes.path).fingerprint == scenes.fingerprint
    assert capfd.readouterr().err == ""
    # One other caption, under the same name and at the same place.
    records = list(generator.generate({"train": 48, "val": 12, "test": 12}, seed=5, image_size=32))
    records[0] = replace(records[0], captions=("a green square", *records[0].captions[1:]))
    source = {"format": "scenes", "path_name": "x", "sha256": {}, "options": {}}
    shutil.rmtree(data)
    replaced = write_dataset(records, data, name="scenes", source=source)
    for command in (
        ["evaluate", str(run_copy)],
        ["report", str(run_copy)],
        ["search", str(run_copy), "two shapes"],
        ["index", str(run_copy)],
        ["demo", str(run_copy), "--port", "0"],
        ["compare", str(run_copy), str(run_copy)],
        ["projector", str(run_copy)],
        ["analyze", "lengths", str(run_copy)],
    ):
        assert main(command) == 1, command
        said = capfd.readouterr().err
        assert said.count("\n") == 1, said
        assert replaced.fingerprint[:12] in said and scenes.fingerprint[:12] in said, said
    named = Run.open(run_copy).open_data(replaced)
    assert named is replaced and replaced.fingerprint[:12] in capfd.readouterr().err


def test_files_that_a_run_keeps_are_those_of_the_training(run_copy, tmp_path, tiny_recipe, scenes) -> None:
    def keep(folder: Path) -> None:
        (folder / "parser").mkdir()
        (folder / "parser" / "words.txt").write_text("a dog")

    job = RetrievalJob(tiny_recipe, scenes)
    digests = enter_run(tiny_recipe, job.info, tmp_path / "new", job.vocabulary, keep)["files"]
    assert list(digests) == ["parser/words.txt"]
    keep(run_copy)
    outside = {"../run.json": "0", str(tmp_path / "new" / "run.json"): "0"}
    status = json.loads((run_copy / "run.json").read_text())
    (run_copy / "run.json").write_text(json.dumps(status | {"files": digests | outside}))
    assert Run.open(run_copy).info["files"]
    (run_copy / "parser" / "words.txt").write_text("a fog")
    with pytest.raises(DataError, match="words.txt"):
        Run.open(run_copy)
    # A run without the parser reads captions that are parsed already.
    shutil.rmtree(run_copy / "parser")
    assert Run.open(run_copy)


def test_an_unfinished_run_is_measured_with_a_notice(run_copy, capfd) -> None:
    status = json.loads((run_copy / "run.json").read_text())
    (run_copy / "run.json").write_text(json.dumps(status | {"status": "running"}))
    assert main(["evaluate", str(run_copy)]) == 0
    assert f"The training of {run_copy} is not finished" in capfd.readouterr().err
    assert main(["evaluate", str(run_copy), "--quiet", "--json", "-"]) == 0
    printed = capfd.readouterr()
    assert printed.err == "" and json.loads(printed.out)["image_to_text"]["R@10"] > 0


@pytest.mark.slow
def test_few_images_of_validation_are_worth_a_warning(tiny_recipe, tmp_path, capfd) -> None:
    source = {"format": "scenes", "path_name": "x", "sha256": {}, "options": {}}
    records = generator.generate({"train": 3, "val": 2}, seed=6, image_size=32)
    dataset = write_dataset(records, tmp_path / "few", name="few", source=source)
    write_precomputed(dataset, np.arange(5), np.random.default_rng(0).normal(size=(5, 16)).astype(np.float32))
    recipe = tiny_recipe.with_overrides(["training.epochs=1", "batches.size=128"])
    train(recipe, dataset, tmp_path / "run")
    said = capfd.readouterr().err
    assert "warning: the split val has 2 images" in said
    assert "The batch size is lowered from 128 to 15" in said


def another_dataset(path: Path, words: str = "") -> StoredDataset:
    """Scenes of another seed, with features of the same size."""
    source = {"format": "scenes", "path_name": "x", "sha256": {}, "options": {}}
    records = generator.generate({"train": 48, "val": 12}, seed=6, image_size=32)
    dataset = write_dataset(records, path, name="scenes", source=source)
    features = np.random.default_rng(0).normal(size=(60, 16)).astype(np.float32)
    write_precomputed(dataset, np.arange(60), features)
    return dataset


def test_a_run_of_another_dataset_is_refused(run_copy, tiny_recipe, tmp_path) -> None:
    with pytest.raises(DataError, match="another dataset"):
        train(tiny_recipe, another_dataset(tmp_path / "other"), run_copy)


def test_other_features_are_refused(run_copy, tiny_recipe, scenes_copy) -> None:
    old = FeatureStore.find(scenes_copy)
    shutil.rmtree(old.directory)
    generator = np.random.default_rng(0)
    write_precomputed(scenes_copy, old.ids, generator.normal(size=(len(old.ids), 16)).astype(np.float32))
    with pytest.raises(DataError, match="other features"):
        train(tiny_recipe, scenes_copy, run_copy)
    # Measured on the run's own dataset, the features must be those of the training.
    with pytest.raises(DataError, match="No features"):
        evaluate_run(Run.open(run_copy), scenes_copy, "val")


@dataclass(frozen=True)
class Heard(Retrieval, kind="heard"):
    """A task of one's own, which reads sounds too."""

    made_of: ClassVar[Mapping[str, str]] = {"sounds": "other sounds"}


def test_what_a_task_of_ones_own_is_made_of_is_compared(tmp_path: Path) -> None:
    info = {"dataset": "d", "sounds": "one", "number": 1}

    def enter(**changes: object) -> None:
        enter_run(Heard(), info | changes, tmp_path / "run", Vocabulary(["a"]), lambda folder: None)

    enter()
    enter(number=2)
    with pytest.raises(DataError, match=r"other sounds .one there, two now"):
        enter(sounds="two")
    # What the base knows of a run stays.
    with pytest.raises(DataError, match="another dataset"):
        enter(dataset="e")


@pytest.mark.parametrize(
    ("name", "names"),
    [
        ("vsepp", set()),
        ("tree-twin", {"parses"}),
        ("da-sje-attributes", {"attributes"}),
        ("sc-nlm", {"encoder", "tags", "sentences"}),
        ("multimodal-rnn-regions", {"alignment"}),
    ],
)
def test_what_runs_are_made_of(name: str, names: set[str]) -> None:
    if name not in recipes.names():
        pytest.skip("its system is not there")
    assert set(run_module._made_of(recipes.get(name))) == {"dataset", "features", "vocabulary"} | names


def test_a_directory_that_is_no_run_is_refused(tmp_path, tiny_recipe, scenes) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("years of work")
    with pytest.raises(DataError, match="must be a run directory"):
        train(tiny_recipe, scenes, tmp_path / "mine")
    assert [path.name for path in (tmp_path / "mine").iterdir()] == ["thesis.txt"]
    with pytest.raises(DataError, match="must be a run directory"):
        Run.open(tmp_path / "mine")
    with pytest.raises(DataError, match="must be a run directory"):
        Run.open(tmp_path / "nowhere")


def tamper(path: Path, how: str) -> None:
    lines = path.read_text(encoding="utf-8").splitlines()
    if how == "swapped":
        lines[2], lines[3] = lines[3], lines[2]
    elif how == "added":
        lines.append("zebra")
    elif how == "doubled":
        lines.append(lines[-1])
    elif how == "cut":
        lines = lines[:1]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


@pytest.mark.parametrize("how", ["swapped", "added", "doubled", "cut"])
def test_a_tampered_vocabulary_is_noticed(run_copy, scenes, how: str) -> None:
    tamper(run_copy / "vocabulary.txt", how)
    with pytest.raises(DataError, match="vocabulary"):
        evaluate_run(Run.open(run_copy), scenes, "val")


@pytest.mark.parametrize("name", ["recipe.json", "run.json", "checkpoints/best.weights.h5", "vocabulary.txt"])
@pytest.mark.parametrize("content", [None, b"", b"{", b"[]"])
def test_missing_and_broken_files_are_clear_errors(run_copy, scenes, name: str, content, capfd) -> None:
    if content is None:
        (run_copy / name).unlink()
    else:
        (run_copy / name).write_bytes(content)
    assert main(["evaluate", str(run_copy), "--data", str(scenes.path)]) == 1
    (line,) = capfd.readouterr().err.splitlines()
    assert line.startswith("vsemb evaluate: ") and str(run_copy) in line


@pytest.mark.parametrize(("name", "value"), [("data", 5), ("vocabulary", None), ("files", []), ("kept_epochs", 1)])
def test_a_field_of_another_type_is_named(run_copy, name: str, value: object) -> None:
    status = json.loads((run_copy / "run.json").read_text())
    (run_copy / "run.json").write_text(json.dumps(status | {name: value}))
    with pytest.raises(DataError, match=rf"run\.json.*\b{name}\b"):
        Run.open(run_copy)


def test_a_kill_while_the_run_is_made_can_be_repeated(tmp_path, scenes, tiny_recipe, monkeypatch) -> None:
    out = tmp_path / "run"
    job = RetrievalJob(tiny_recipe, scenes)

    class Killed(BaseException):
        pass

    real = run_module.write_json
    for fatal in (1, 2):
        calls = []

        def write(path, value, fatal=fatal, calls=calls) -> None:
            calls.append(path)
            if len(calls) == fatal:
                raise Killed
            real(path, value)

        monkeypatch.setattr(run_module, "write_json", write)
        with pytest.raises(Killed):
            enter_run(tiny_recipe, job.info, out, job.vocabulary, job.keep)
    monkeypatch.undo()
    assert enter_run(tiny_recipe, job.info, out, job.vocabulary, job.keep)["status"] == "running"


def test_fields_that_a_recipe_file_lacks_have_their_defaults(tmp_path, scenes, tiny_recipe) -> None:
    job, out = RetrievalJob(tiny_recipe, scenes), tmp_path / "run"
    enter_run(tiny_recipe, job.info, out, job.vocabulary, job.keep)
    stored = json.loads((out / "recipe.json").read_text())
    del stored["text"]["tokenizer"]["max_length"], stored["loss"]["text_weight"]
    (out / "recipe.json").write_text(json.dumps(stored))
    assert enter_run(tiny_recipe, job.info, out, job.vocabulary, job.keep)["status"] == "running"
    other = tiny_recipe.with_overrides(["loss.text_weight=0.5"])
    with pytest.raises(DataError, match="loss.text_weight is 1.0 there and 0.5 now"):
        enter_run(other, job.info, out, job.vocabulary, job.keep)


def test_a_diverging_training_says_so(tmp_path, scenes, tiny_recipe, capfd) -> None:
    settings = ["optimizer=sgd", "optimizer.learning_rate=1e30", "similarity=dot", "text.encoder=linear"]
    settings += ["embedding_dim=16", "text.encoder.words.dim=16", "batches.size=8", "training.epochs=2"]
    arguments = ["vsepp", "--variant", "paper", "--data", str(scenes.path), "--out", str(tmp_path / "r")]
    assert main(["train", *arguments, *(f"--set={setting}" for setting in settings)]) == 1
    complaint = capfd.readouterr().err.splitlines()[-1]
    assert complaint.startswith("vsemb train: ")
    assert "learning_rate" in complaint and "finite" in complaint


def test_a_split_that_is_not_there(tmp_path, tiny_recipe) -> None:
    source = {"format": "scenes", "path_name": "x", "sha256": {}, "options": {}}
    records = generator.generate({"train": 10}, seed=6, image_size=32)
    dataset = write_dataset(records, tmp_path / "data", name="scenes", source=source)
    with raises_argument("split"):
        train(tiny_recipe, dataset, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_no_features(tmp_path, tiny_recipe, scenes_copy) -> None:
    shutil.rmtree(scenes_copy.path / "features")
    with pytest.raises(DataError, match="vsemb features"):
        train(tiny_recipe, scenes_copy, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_graph_that_first_reads_a_run_gets_its_weights(tiny_pixel_run, scenes) -> None:
    run, texts = Run.open(tiny_pixel_run.path), tf.constant(["a red circle", "two stars"])
    images = tf.constant(scenes.split("val").read_image(0))[None]

    @tf.function(autograph=False)
    def embed(texts: tf.Tensor, images: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        return run.model.encode_texts(run.tokenizer(texts)), run.model.encode_images(run.image_input(images)[0])

    encoders = tiny_pixel_run.encoders()
    expected = encoders.encode_text(texts)["embedding"], encoders.encode_image(images)["embedding"]
    for found, wanted in zip(embed(texts, images), expected, strict=True):
        np.testing.assert_allclose(found, wanted, atol=1e-6)  # Another graph, so another order of additions.
