"""Structured joint embedding recipes: every encoder trains, is reopened, measured and asked."""

from __future__ import annotations

import copy
import dataclasses
import shutil

import numpy as np
import pytest

from tests.conftest import FEATURE_DIM
from tests.raising import raises_argument
from vsemb import Run, recipes
from vsemb.data.store import StoredDataset
from vsemb.data.writing.writer import write_dataset
from vsemb.errors import DataError
from vsemb.recipes.retrieval import Retrieval, RetrievalJob
from vsemb.runs.train import train
from vsemb.systems.zero_shot import flowers as generator
from vsemb.systems.zero_shot.attributes import ClassAttributes, write_attributes
from vsemb.systems.zero_shot.class_batches import ClassBatches, Classes
from vsemb.systems.zero_shot.class_names import ClassNames
from vsemb.systems.zero_shot.recognition import ZeroShotTask
from vsemb.systems.zero_shot.sje import ENCODERS, SJE
from vsemb.systems.zero_shot.structured_loss import StructuredJointEmbedding
from vsemb.systems.zero_shot.text_encoders import Convolutional, ConvolutionalSentenceEncoder

#: Those of another architecture each; the others train in `make test-all`.
QUICK = ("bow", "attributes")


@pytest.mark.parametrize(
    "encoder", [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in ENCODERS]
)
def test_every_encoder_trains_and_is_measured(encoder: str, flowers, sje_run) -> None:
    run = sje_run(encoder)
    assert run.info["status"] == "finished" and 0 <= run.info["best_zero_shot"] <= 100
    # The features are the embedding.
    assert run.recipe.embedding_dim is None and run.embedding_dim == FEATURE_DIM
    metrics = ZeroShotTask(run, flowers, "test").measure()
    assert (metrics.classes, metrics.images, metrics.chance) == (12, 24, pytest.approx(100 / 12))
    text = "flower 60" if encoder == "attributes" else "a flower with 5 red petals \N{ROSE}"
    embedded = run.encoders(images=False).encode_text(np.array([text, ""], dtype=object))
    assert embedded["valid"].numpy().tolist() == [True, False]
    assert np.abs(embedded["embedding"].numpy()[0]).max() > 0 and not embedded["embedding"].numpy()[1].any()


@pytest.mark.parametrize("encoder", [name for name in ENCODERS if name not in QUICK])
def test_every_encoder_builds(encoder: str, flowers, sje_recipe) -> None:
    job = RetrievalJob(sje_recipe(f"ds-sje-{encoder}"), flowers)
    model = job.model(job.recipe, "float32")
    tokens = (3, job.tokenizer.max_length)
    assert model.text_encoder.compute_output_shape(tokens) == (3, FEATURE_DIM)
    assert all(v.shape.is_fully_defined() for v in (w.value for w in model.trainable_variables))


def test_the_same_command_again_trains_nothing(flowers, sje_run, sje_recipe) -> None:
    run = sje_run("bow")
    assert train(sje_recipe("ds-sje-bow"), flowers, run.path).info == run.info


def test_variants_differ_in_their_loss_alone() -> None:
    reference = recipes.get("ds-sje-bow")
    weights = {}
    for name, variants in SJE.items():
        for variant, recipe in variants.items():
            assert (recipe.name, recipe.variant) == (name, variant)
            same = dataclasses.replace(recipe, name=reference.name, variant=reference.variant, loss=reference.loss)
            assert dataclasses.replace(same, text=reference.text) == reference
            weights[name[:6], variant] = recipe.loss.image_weight, recipe.loss.text_weight
    assert weights == {
        ("ds-sje", "released"): (1, 1),
        ("ds-sje", "paper"): (1, 1),
        ("da-sje", "released"): (1, 0),
        ("da-sje", "paper"): (1, 0),
        ("da-sje", "text-side"): (0, 1),
    }


@pytest.mark.parametrize("variant", ["released", "paper"])
def test_what_is_built_is_what_the_recipe_says(variant: str, flowers) -> None:
    recipe = recipes.get("da-sje-bow", variant)
    job = RetrievalJob(recipe, flowers)
    batches = job.batches()
    assert isinstance(batches, ClassBatches) and batches.steps_per_epoch == 2
    loss = job.loss(10)
    assert isinstance(loss, StructuredJointEmbedding)
    assert (loss.negatives, loss.warmup_steps) == {"released": ("all", 0), "paper": ("hardest", 40)}[variant]
    model = job.model(recipe, "float32")
    assert (model.image_weight, model.text_weight) == (1, 0)
    # The image side has nothing to train.
    assert all("image" not in v.path for v in model.trainable_variables)


def test_fewer_captions_an_image(flowers) -> None:
    recipe = recipes.get("ds-sje-bow").with_overrides(["batches.captions_per_image=3"])
    split, job = flowers.split("train"), RetrievalJob(recipe, flowers)
    assert len(job.train.captions) == 3 * len(split)
    assert job.train.captions[3:6] == split.captions_of(1)[:3]
    # Validation and test read all of them.
    assert job.val.captions == flowers.split("val").captions


def test_every_recipe_is_declared() -> None:
    assert list(SJE) == [name for name in recipes.names() if "-sje-" in name]


def test_the_papers_encoders() -> None:
    values = {name: text.encoder for name, text in ENCODERS.items()}
    shapes = {
        name: (encoder.units, encoder.recurrent, encoder.stages, encoder.words.dim)
        for name, encoder in values.items()
        if isinstance(encoder, Convolutional)
    }
    assert shapes == {
        "char-cnn": (1024, None, "characters", 64),
        "char-cnn-rnn": (256, "rnn", "characters", 64),
        "word-cnn": (1024, None, "words", 300),
        "word-cnn-rnn": (256, "rnn", "words", 300),
    }
    assert [(values[name].cell, values[name].units, values[name].pooling) for name in ("char-lstm", "word-lstm")] == [
        ("lstm", 256, "mean"),
        ("lstm", 512, "mean"),
    ]
    assert not values["word2vec"].words.trainable and values["word2vec"].words.vectors == "captions"
    assert {name: text.tokenizer.length for name, text in ENCODERS.items()} == {
        name: 201 if name.startswith("char") else 1 if name == "attributes" else 30 for name in ENCODERS
    }
    tables = [encoder.words for encoder in values.values() if hasattr(encoder, "words")]
    assert len(tables) == 7 and all(words.dense_gradient for words in tables)


@pytest.mark.parametrize(("views", "advises"), [(0, True), (9, True), (10, False)])
def test_the_papers_crops_are_advised(views: int, advises: bool) -> None:
    advice = Classes().advice(views)
    assert (advice is not None) == advises
    assert advice is None or f"training on {max(views, 1)} view(s)" in advice


@pytest.fixture
def characters(tiny_recipe) -> Retrieval:
    """A recipe of another paper with this paper's encoder of characters."""
    encoder = ["text.encoder=convolutional", "text.encoder.stages=characters", "text.encoder.recurrent=gru"]
    return tiny_recipe.with_overrides(["text.tokenizer=characters", *encoder, "training.epochs=1"])


def test_encoders_of_characters_in_recipes_of_other_papers(scenes, characters) -> None:
    job = RetrievalJob(characters, scenes)
    assert len(job.vocabulary) == 2 + 69
    encoder = job.model(characters, "float32").text_encoder
    assert isinstance(encoder, ConvolutionalSentenceEncoder)
    assert encoder.compute_output_shape((3, 201)) == (3, 16)


@pytest.mark.slow
def test_they_train_too(scenes, characters, tmp_path) -> None:
    run = train(characters, scenes, tmp_path / "run")
    assert run.info["best_recall_sum"] > 0
    assert len(run.vocabulary) == 2 + 69


def test_bad_combinations_are_refused(flowers, scenes, sje_recipe, tmp_path) -> None:
    def attempt(name: str, *changes: str, dataset=flowers) -> None:
        train(sje_recipe(name, *changes), dataset, tmp_path / "run")

    with pytest.raises(DataError, match="'train'"):
        attempt("ds-sje-bow", dataset=scenes)
    with pytest.raises(DataError, match="vsemb scenes"):
        attempt("ds-sje-attributes", "validation=recall", dataset=scenes)
    with pytest.raises(DataError, match="batches.size=40"):
        attempt("ds-sje-bow", "batches.size=41")
    for argument, name, *changes in (
        ("text.encoder", "ds-sje-attributes", "text.encoder=binary-bag-of-words"),
        ("text.encoder", "ds-sje-bow", "text.encoder=attributes"),
        ("text.encoder", "ds-sje-bow", "text.encoder=convolutionnal"),
        ("text.tokenizer", "ds-sje-bow", "text.tokenizer=syllables"),
        ("recipe field", "ds-sje-attributes", "text.encoder.words.vectors=captions"),
        ("recipe field", "ds-sje-bow", "batches.negatives=sampled"),
        ("batches.negatives", "ds-sje-bow", "batches=pairs", "batches.negatives=sampled"),
        ("validation", "ds-sje-bow", "validation=loss"),
        ("embedding_dim", "ds-sje-bow", "image=pixels"),
        ("length", "ds-sje-word-cnn", "text.encoder.stages=characters"),
    ):
        with raises_argument(argument):
            attempt(name, *changes)
    assert not (tmp_path / "run").exists()


def test_class_names_are_of_datasets_that_have_classes() -> None:
    with raises_argument("text.tokenizer"):
        ClassNames().learn(["flower 1"])


def with_attributes(source: StoredDataset, path, change) -> StoredDataset:
    """A copy of a dataset whose attributes of classes are others."""
    shutil.copytree(source.path, path)
    attributes = StoredDataset.open(path).annotation("attributes")
    assert attributes is not None
    write_attributes(path, ClassAttributes(attributes.names, change(attributes.values)))
    return StoredDataset.open(path)


def test_attributes_are_those_of_the_dataset_at_hand(flowers, sje_run, sje_recipe, tmp_path) -> None:
    recipe = sje_recipe("ds-sje-attributes")
    run = Run.open(shutil.copytree(sje_run("attributes").path, tmp_path / "run"))
    # The same images and names of classes, and the vectors of two classes exchanged.
    exchanged = with_attributes(
        flowers,
        tmp_path / "exchanged",
        lambda v: {**v, "flower 49": v["flower 50"], "flower 50": v["flower 49"]},
    )
    assert exchanged.fingerprint == flowers.fingerprint
    with pytest.raises(DataError, match="--data"):
        ZeroShotTask(run, exchanged, "test").measure()
    with pytest.raises(DataError, match="attributes"):
        train(recipe, exchanged, tmp_path / "run")
    # The names of the table's rows are as they were trained; one that is not among them is no zero vector.
    few = with_attributes(flowers, tmp_path / "few", lambda v: {k: x for k, x in v.items() if k != "flower 60"})
    with pytest.raises(DataError, match="'flower 60'"):
        train(recipe, few, tmp_path / "other")
    assert not (tmp_path / "other").exists()
    split = copy.copy(flowers.split("test"))
    split.class_names = ["flower 99", *split.class_names[1:]]
    with pytest.raises(DataError, match="'flower 99'"):
        run.texts_of(split)


def test_classes_that_were_trained_on_are_known_on_any_dataset(flowers, sje_run, tmp_path) -> None:
    run = sje_run("bow")
    assert run.info["classes"] == flowers.split("train").class_ids()[0]
    other = with_attributes(flowers, tmp_path / "other", lambda values: values)
    for dataset in (flowers, other):
        with pytest.raises(DataError, match=r"'flower 01'.*--seen"):
            ZeroShotTask(run, dataset, "train").measure()
        assert ZeroShotTask(run, dataset, "train", seen=True).measure().classes == 40


def test_one_class_of_validation_selects_nothing(sje_recipe, tmp_path) -> None:
    records = generator.generate({"train": 80, "val": 1, "test": 12}, image_size=32)
    source = {"format": "scenes", "path_name": "vsemb.data.synthetic", "sha256": {}, "options": {}}
    dataset = write_dataset(records, tmp_path / "data", name="flowers", source=source)
    with pytest.raises(DataError, match="'val'"):
        train(sje_recipe("ds-sje-bow"), dataset, tmp_path / "run")
