"""`vsemb.train` and `vsemb.export`."""

from __future__ import annotations

import os

import numpy as np
import pytest

import vsemb
from tests.raising import raises_argument
from vsemb import recipes
from vsemb.errors import DataError, InvalidArgumentError
from vsemb.parts import Typed
from vsemb.runs.start import with_values
from vsemb.searching.storage import read_index


def test_names_of_fields_are_ends_of_their_paths():
    recipe = with_values(
        recipes.get("vsepp", "paper"),
        {
            "epochs": 5,
            "learning_rate": np.float64(0.5),
            "batch_size": np.int64(7),
            "text_encoder": "transformer",
            "layers": 3,
            "encoder_dropout": 0.25,
            "optimizer.clipvalue": None,
            "seed": 4,
        },
    )
    assert (recipe.training.epochs, recipe.training.seed, recipe.batches.size) == (5, 4, 7)
    assert recipe.optimizer.learning_rate == 0.5 and recipe.optimizer.clipvalue is None
    assert recipe.text.encoder.kind == "transformer"
    assert recipe.text.encoder.layers == 3 and recipe.text.encoder.dropout == 0.25
    assert with_values(recipe, {}) == recipe


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"epoch": 3}, "Did you mean 'epochs'"),
        ({"bakbone": "x"}, "Did you mean 'backbone'"),
        ({"dropout": 0.1}, "`dropout` must name one recipe field; .* one of text_encoder_words_dropout, text_encoder"),
        ({"lr": 0.1}, "`vsemb recipes vsepp` lists all fields"),
        ({"epochs": -1}, "training.epochs"),
        ({"epochs": "many"}, "training.epochs"),
        ({"epochs": "3"}, "`training.epochs` must be an integer >= 1; got '3'"),
        ({"encoder": "transfomer"}, "Did you mean 'transformer'"),
        ({"optimizer": recipes.get("vsepp").optimizer}, "dataclasses.replace"),
    ],
)
def test_fields_that_do_not_fit(values, said):
    with pytest.raises(InvalidArgumentError, match=said):
        with_values(recipes.get("vsepp", "paper"), values, ["backbone"])


def test_text_of_a_command_line_is_parsed() -> None:
    recipe = recipes.get("vsepp", "paper")
    typed = {"text.encoder.projection": Typed("true"), "text.encoder": Typed("linear"), "epochs": Typed("4")}
    found = with_values(recipe, {"text.encoder": "linear", "training_epochs": 4, "encoder_projection": True})
    assert with_values(recipe, typed) == found != recipe


def test_training_takes_names_recipes_and_datasets(scenes, tiny_recipe, tiny_run, tmp_path, capsys):
    data = vsemb.Dataset.open(scenes.path)
    run = vsemb.train(tiny_recipe, data, tmp_path / "run", epochs=1)
    assert run.recipe.training.epochs == 1
    assert "best epoch: 1" in repr(run) and "vsepp (paper)" in repr(run)
    assert "<td>recipe</td><td>vsepp (paper)</td>" in run._repr_html_()
    # The same call finds the finished run.
    again = vsemb.train(tiny_recipe, scenes.path, tmp_path / "run", epochs=1)
    assert again.info == run.info


@pytest.mark.slow
def test_a_network_is_fine_tuned(scenes, tiny_recipe, tmp_path):
    values = {
        "epochs": 1,
        "image_pooling": "flat",
        "image_dropout": 0.25,
        "text_encoder": "linear",
        "text_encoder_projection": True,
    }
    run = vsemb.train(tiny_recipe, scenes.path, tmp_path / "run", fine_tune="SmallConvNet", **values)
    image = run.recipe.image
    assert (image.backbone, image.weights, image.pooling, image.dropout) == ("SmallConvNet", None, "flat", 0.25)
    assert run.recipe.text.encoder.kind == "linear" and run.recipe.training.epochs == 1
    with pytest.raises(InvalidArgumentError, match="`backbone` must be omitted with `fine_tune`.*; got 'MobileNetV2'"):
        vsemb.train(tiny_recipe, scenes.path, tmp_path / "none", fine_tune="SmallConvNet", backbone="MobileNetV2")
    with pytest.raises(InvalidArgumentError, match="Did you mean 'MobileNetV2'"):
        vsemb.train(tiny_recipe, scenes, tmp_path / "none", fine_tune="MobileNetV")
    with pytest.raises(DataError, match="name no backbone"):
        vsemb.train(tiny_recipe, scenes, tmp_path / "none", fine_tune=True)
    with pytest.raises(DataError, match="No weights file at gone.h5"):
        vsemb.train(tiny_recipe, scenes, tmp_path / "none", fine_tune="SmallConvNet", weights="gone.h5")


def test_arguments_of_a_training_are_checked(scenes, tmp_path) -> None:
    out = tmp_path / "run"
    for name, value in {
        "epochs": "3",
        "seeds": 0,
        "devices": 0,
        "workers": 1,
        "strategy": "miror",
        "backend": "torch",
        "fine_tune": False,
        "checkpoint_seconds": -1,
        "backbon": "MobileNetV2",
        "units": "512",
    }.items():
        with pytest.raises(InvalidArgumentError) as raised:
            vsemb.train("vsepp", scenes, out, **{name: value})
        assert name in str(raised.value)
    with raises_argument("inputs.encoder"):
        vsemb.train("vsepp", scenes, out, inputs={"encoder": 3})
    with raises_argument("workers"):
        vsemb.train("vsepp", scenes, out, workers=2, strategy="mirrored")
    assert not out.exists()


def test_training_refuses_what_does_not_fit_before_it_begins(scenes, tiny_recipe, tmp_path):
    out = tmp_path / "run"
    with pytest.raises(InvalidArgumentError, match="Did you mean 'vsepp'"):
        vsemb.train("vsep", scenes, out)
    with raises_argument("variant"):
        vsemb.train(tiny_recipe, scenes, out, variant="paper")
    with raises_argument("variant"):
        vsemb.train("vsepp", scenes, out, variant="papers")
    data = vsemb.Dataset.from_pairs([np.zeros((8, 8, 3), np.uint8)], ["black"], splits="train")
    with pytest.raises(DataError, match="must have the split val"):
        vsemb.train(tiny_recipe, data, out)
    assert not out.exists()


def test_an_export_is_that_of_the_run_and_its_index(tiny_pixel_run, pixel_index, tmp_path, monkeypatch):
    asked = []

    def export_run(run, out, version, index, **_):
        asked.append((run.fingerprint, out, version, index and index.keys))
        return out / "1"

    monkeypatch.setattr("vsemb.runs.serve.export_run", export_run)
    monkeypatch.setattr("vsemb.exporting.servable.signature_table", lambda path: {})
    out, keys = tmp_path / "scenes", read_index(pixel_index).keys
    exported = vsemb.export(str(tiny_pixel_run.path), out)
    assert exported.path == out / "1" and os.fspath(exported) == str(out / "1")
    vsemb.export(tiny_pixel_run, out, version=3, index=pixel_index)
    assert asked == [(tiny_pixel_run.fingerprint, out, None, None), (tiny_pixel_run.fingerprint, out, 3, keys)]


def test_only_a_name_lets_the_size_of_the_data_choose(scenes, tmp_path, monkeypatch):
    suits = []

    def start(recipe, *args, suit, **kwargs):
        suits.append(suit)
        raise DataError("enough")

    monkeypatch.setattr("vsemb.runs.start.start", start)
    file = tmp_path / "own.py"
    file.write_text("from vsemb import recipes\n\nRECIPE = recipes.get('vsepp', 'tuned')\n")
    for recipe, variant in (("vsepp", "tuned"), (str(file), None), (file, None), (recipes.get("vsepp", "tuned"), None)):
        with pytest.raises(DataError):
            vsemb.train(recipe, scenes, tmp_path / "run", variant=variant)
    assert suits == [True, False, False, False]
