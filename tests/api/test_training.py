"""`vsemb.train`, `vsemb.evaluate`, `vsemb.export`."""

from __future__ import annotations

import html
import json

import numpy as np
import pytest

import vsemb
from vsemb import recipes
from vsemb.api.training import with_values
from vsemb.errors import DataError, InvalidArgumentError
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
        with_values(recipes.get("vsepp", "paper"), values)


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
    with pytest.raises(InvalidArgumentError, match="`backbone` must be omitted with --fine-tune.*; got 'MobileNetV2'"):
        vsemb.train(tiny_recipe, scenes.path, tmp_path / "none", fine_tune="SmallConvNet", backbone="MobileNetV2")
    with pytest.raises(InvalidArgumentError, match="Did you mean 'MobileNetV2'"):
        vsemb.train(tiny_recipe, scenes, tmp_path / "none", fine_tune="MobileNetV")
    with pytest.raises(DataError, match="name no backbone"):
        vsemb.train(tiny_recipe, scenes, tmp_path / "none", fine_tune=True)
    with pytest.raises(DataError, match="No weights file at gone.h5"):
        vsemb.train(tiny_recipe, scenes, tmp_path / "none", fine_tune="SmallConvNet", weights="gone.h5")
    with pytest.raises(InvalidArgumentError, match="`run` must be .*its directory.*; got 3"):
        vsemb.evaluate(3)


def test_training_refuses_what_does_not_fit_before_it_begins(scenes, tiny_recipe, tmp_path):
    out = tmp_path / "run"
    with pytest.raises(InvalidArgumentError, match="Did you mean 'vsepp'"):
        vsemb.train("vsep", scenes, out)
    with pytest.raises(InvalidArgumentError, match="variant"):
        vsemb.train(tiny_recipe, scenes, out, variant="paper")
    with pytest.raises(InvalidArgumentError, match="one of"):
        vsemb.train("vsepp", scenes, out, variant="papers")
    data = vsemb.Dataset.from_pairs([np.zeros((8, 8, 3), np.uint8)], ["black"], splits="train")
    with pytest.raises(DataError, match="must have the splits train and val; it has no val"):
        vsemb.train(tiny_recipe, data, out)
    assert not out.exists()


@pytest.mark.slow
def test_metrics_are_those_of_the_command(tiny_run, scenes, tmp_path, capsys):
    from vsemb.cli.__main__ import main

    found = vsemb.evaluate(tiny_run, split="test", bootstrap=5)
    path = tmp_path / "metrics.json"
    assert main(["evaluate", str(tiny_run.path), "--split", "test", "--bootstrap", "5", "--json", str(path)]) == 0
    assert found.to_json() == json.loads(path.read_text())
    assert vsemb.evaluate(str(tiny_run.path), scenes) == vsemb.evaluate(tiny_run, str(scenes.path), "val")
    lines = repr(found).splitlines()
    assert lines[0].startswith("Retrieval, 12 images and 60 texts") and lines[2].lstrip().startswith("image to text")
    assert len({len(line) for line in lines[1:4]}) == 1
    assert f"<td>{found.text_to_image['R@1']:.1f}</td>" in found._repr_html_()


@pytest.mark.slow
def test_other_tasks_are_measured_as_by_the_command(caption_run, tiny_run, tmp_path, capsys):
    from vsemb.cli.__main__ import main

    path = tmp_path / "metrics.json"
    for run, flags, options in (
        (caption_run, ["--perplexity"], {"protocol": "perplexity"}),
        (caption_run, ["--no-meteor", "--beam", "1", "--limit", "3"], {"no_meteor": True, "beam": 1, "limit": 3}),
    ):
        assert main(["evaluate", str(run.path), *flags, "--json", str(path)]) == 0
        printed = capsys.readouterr().out
        found = vsemb.evaluate(run, **options)
        assert found.to_json() == json.loads(path.read_text())
        assert repr(found) == printed.rstrip("\n") and f"<pre>{html.escape(repr(found))}</pre>" == found._repr_html_()
    assert found.to_json() == vsemb.evaluate(str(caption_run.path), caption_run.data_path, **options).to_json()
    for options, said in (
        ({"protocol": "captions"}, "--captions must be given with a run that it measures"),
        ({"protocol": "retrieval", "beam": 3}, "--beam must be used with --captions or with --region-captions"),
        ({"bootstraps": 3}, "Did you mean 'bootstrap'"),
        ({"protocol": "retrievals"}, "Did you mean 'retrieval'"),
    ):
        with pytest.raises(InvalidArgumentError, match=said):
            vsemb.evaluate(tiny_run, **options)


def test_an_export_is_that_of_the_run_and_its_index(tiny_pixel_run, pixel_index, tmp_path, monkeypatch):
    asked = []

    def export_run(run, out, version, index):
        asked.append((run.fingerprint, out, version, index and index.keys))
        return out / "1"

    monkeypatch.setattr("vsemb.api.training.export_run", export_run)
    out, keys = tmp_path / "scenes", read_index(pixel_index).keys
    assert vsemb.export(str(tiny_pixel_run.path), out) == out / "1"
    vsemb.export(tiny_pixel_run, out, version=3, index=pixel_index)
    assert asked == [(tiny_pixel_run.fingerprint, out, None, None), (tiny_pixel_run.fingerprint, out, 3, keys)]
