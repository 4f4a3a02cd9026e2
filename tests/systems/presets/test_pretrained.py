"""Runs of pretrained dual encoders give keras-hub's own numbers, and are ordinary runs."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import h5py
import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

from tests.raising import raises_argument
from tests.systems.presets.preset_files import write_clip
from tests.systems.presets.texts import photographs
from vsemb import recipes
from vsemb.cli.__main__ import main
from vsemb.errors import DataError
from vsemb.runs.fine_tune import with_backbone
from vsemb.runs.run import BEST, Run
from vsemb.runs.train import train
from vsemb.systems.presets.api import import_preset
from vsemb.systems.presets.files import DUAL
from vsemb.systems.presets.pretrained import pretrained_run

TEXTS = [
    "A red circle above a blue square",
    "two dogs: running on the beach",
    "a photo of 12 cats, and a dog's ball!",
    "the quick brown fox jumped over the lazy dog " * 3,
]
PIXELS = np.random.default_rng(0).integers(0, 256, (3, 32, 32, 3)).astype(np.float32)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["CLIP", "MetaCLIP2", "SigLIP"])
def test_embeddings_and_logits_are_those_of_keras_hub(kind: str, preset_path, tmp_path: Path) -> None:
    """The oracle: keras-hub's backbone behind its own preprocessor, at the network's own size.

    Of float32 vectors of length 1, and logits of up to 100; the texts are padded to another length here, and
    so summed in another order.
    """
    import keras_hub

    path = shutil.copytree(preset_path(kind.lower()), tmp_path / "preset")
    theirs = getattr(keras_hub.models, f"{kind}Backbone").from_preset(str(path))
    preprocessor = getattr(keras_hub.models, DUAL[f"{kind}Backbone"]).from_preset(str(path))
    given = preprocessor({"prompts": TEXTS, "images": PIXELS})
    logits = np.array(theirs({key: given[key] for key in ("images", "token_ids")})["vision_logits"])
    wanted = theirs.get_text_embeddings(given["token_ids"]), theirs.get_vision_embeddings(given["images"])
    pretrained_run(str(path), tmp_path / "run")
    # All that the run needs is in it.
    shutil.rmtree(path)
    run = Run.open(tmp_path / "run")
    texts = run.model.encode_texts(run.tokenizer(tf.constant(TEXTS)))
    images = run.model.encode_images(PIXELS)
    for embedded, theirs_of in zip((texts, images), wanted, strict=True):
        unit = np.array(theirs_of) / np.linalg.norm(theirs_of, axis=1, keepdims=True)
        np.testing.assert_allclose(embedded, unit, atol=2e-6)
        assert unit.std(axis=0).max() > 1e-2, "the embeddings do not depend on what is embedded"
    # Images of other sizes, from their bytes.
    pictures, rows = photographs()
    converted = np.concatenate([np.asarray(preprocessor.image_converter(picture[None])) for picture in pictures])
    other = np.array(theirs.get_vision_embeddings(converted))
    embedded = np.array(run.model.encode_images(run.image_input(tf.constant(rows))[0]))
    cosines = (embedded * other).sum(axis=1) / np.linalg.norm(other, axis=1)
    assert cosines.min() >= 0.9995
    scores = run.model.logit_scale(run.model.similarity.scores(images, texts))
    np.testing.assert_allclose(scores, logits, atol=2e-4)
    assert run.info["preset"] == f"hub:{path}"


@pytest.fixture(scope="module")
def siglip(preset_path, tmp_path_factory) -> Run:
    """A run of SigLIP; read-only."""
    return pretrained_run(str(preset_path("siglip")), tmp_path_factory.mktemp("siglip") / "run")


@pytest.mark.slow
def test_the_commands_need_a_dataset(siglip, preset_path, scenes_path, capsys) -> None:
    run = str(siglip.path)
    # The run is there already.
    assert main(["import", str(preset_path("siglip")), "--out", run]) == 0
    printed = capsys.readouterr().out
    assert "117.3 times the cosine, and -12.9" in printed and "16 dimensions" in printed
    assert main(["evaluate", run, "--data", str(scenes_path), "--split", "test"]) == 0
    assert main(["evaluate", run]) == 1
    assert "Name one as `data`" in capsys.readouterr().err


@pytest.mark.slow
def test_it_is_searched_and_exported_as_any_run(siglip, scenes_path, tmp_path: Path) -> None:
    run, models = str(siglip.path), tmp_path / "models"
    assert main(["search", run, "a red circle", "--data", str(scenes_path), "--split", "test"]) == 0
    assert main(["export", run, str(models / "tiny")]) == 0
    assert "not trained here: it is the preset" in (models / "contracts" / "tiny.md").read_text()
    loaded = tf.saved_model.load(str(models / "tiny" / "1")).signatures["encode_text"]
    answer = loaded(text=tf.constant(["a red circle", ""]))
    texts = siglip.model.encode_texts(siglip.tokenizer(tf.constant(["a red circle"])))
    np.testing.assert_allclose(answer["embedding"][:1], texts, atol=1e-6)
    assert answer["valid"].numpy().tolist() == [True, False]


def test_commands_take_a_name_in_place_of_a_run(preset_path, scenes_path, tmp_path: Path, capsys) -> None:
    name, picture = f"hub:{preset_path('clip')}", tmp_path / "0.png"
    Image.fromarray(PIXELS[0].astype(np.uint8)).save(picture)
    index = str(tmp_path / "index")
    for command in (
        ["info", name],
        ["search", name, "a red circle", "--data", str(scenes_path), "--split", "test"],
        ["embed", name, "--texts", "a red circle", "--out", str(tmp_path / "texts.npy")],
        ["index", name, "--images", str(picture), "--out", index],
        ["search", index, "a red circle", "--run", name],
        # A directory needs no name.
        ["info", str(preset_path("clip"))],
        ["search", str(preset_path("clip")), "a red circle", "--data", str(scenes_path), "--split", "test"],
    ):
        assert main(command) == 0, capsys.readouterr().err
    # A name is looked up where it is needed, not where arguments are checked.
    assert main(["search", "hub:", "a red circle", "--split", "test", "--data", str(scenes_path)]) == 1
    assert "hub:" in capsys.readouterr().err


def weights_of(run: Path) -> dict[str, np.ndarray]:
    weights = {}
    with h5py.File(run / BEST) as file:
        file.visititems(lambda name, part: weights.update({name: part[()]}) if isinstance(part, h5py.Dataset) else None)
    return weights


@pytest.mark.slow
def test_random_weights_are_drawn_from_the_seed(preset_path, tmp_path: Path, monkeypatch) -> None:
    name = str(preset_path("clip"))
    with monkeypatch.context() as patch:
        patch.setattr(Run, "open", lambda path: path)  # Opening a run builds its network again.
        first, second, other = (
            weights_of(pretrained_run(name, tmp_path / str(number), weights=None, seed=seed))
            for number, seed in enumerate((1, 1, 2))
        )
    assert first.keys() == second.keys() == other.keys() and len(first) > 20
    for key, values in first.items():
        np.testing.assert_array_equal(values, second[key])
    assert sum(np.abs(values - other[key]).max() > 1e-3 for key, values in first.items()) > 10
    # What is there is opened, what is something else is refused.
    opened = pretrained_run(name, tmp_path / "0", weights=None, seed=1)
    assert opened.info["status"] == "finished" and opened.model.encode_images(PIXELS).shape == (3, 12)
    with pytest.raises(DataError, match=re.escape(str(tmp_path / "0"))):
        pretrained_run(name, tmp_path / "0", weights=None, seed=2)


def test_one_tower_is_no_dual_encoder(preset_path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="vsemb features DATA --backbone hub:"):
        pretrained_run(str(preset_path("vit")), tmp_path / "run")
    with raises_argument("weights"):
        import_preset(str(preset_path("clip")), tmp_path / "run", weights="imagenet")
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_training_starts_from_both_towers_and_opens_without_the_preset(scenes, tmp_path: Path) -> None:
    path = write_clip(tmp_path / "preset")
    name = f"hub:{path}"
    recipe = with_backbone(recipes.get("contrastive"), scenes, name).with_overrides(
        [
            *("text.tokenizer=preset", "text.encoder=preset", "text.encoder.weights=preset"),
            *(f"text.tokenizer.name={name}", f"text.encoder.name={name}"),
            *("image.projection=none", "embedding_dim=null", "loss.temperature=0.01"),
            *("batches.size=8", "training.epochs=1", "training.precision=float32"),
        ]
    )
    assert recipe.image.weights == "preset"
    start = pretrained_run(str(path), tmp_path / "start")
    trained = train(recipe, scenes, tmp_path / "run")
    assert trained.embedding_dim == 12
    shutil.rmtree(path)
    again = Run.open(tmp_path / "run")
    ids = again.tokenizer(tf.constant(TEXTS))
    moved = np.abs(again.model.encode_texts(ids) - start.model.encode_texts(ids)).max()
    assert 0 < moved < 0.5, "one short epoch moves the preset's embeddings, and not far"


def test_text_weights_are_a_field_of_presets() -> None:
    with raises_argument("recipe field"):
        recipes.get("contrastive").with_overrides(["text.encoder.weights=preset"])
