"""What commands say to language models."""

from __future__ import annotations

import json

import pytest

from vsemb import recipes
from vsemb.cli.__main__ import main


@pytest.mark.parametrize("recipe", ["sc-nlm", "log-bilinear"])
def test_commands_that_search_refuse_language_models(recipe, tmp_path, capsys):
    (tmp_path / "recipe.json").write_text(json.dumps(recipes.get(recipe).to_json()))
    for command, *others in (["search", "a dog"], ["index"], ["projector", "--out", "out"]):
        assert main([command, str(tmp_path), *others]) == 1
        error = capsys.readouterr().err
        assert "must be a run for retrieval" in error and "which is for language." in error and error.count("\n") == 1


@pytest.mark.slow
@pytest.mark.parametrize(
    "command", [["caption", "dog.jpg"], ["report"], ["demo", "--port", "0"]], ids=lambda command: command[0]
)
def test_language_models_that_see_no_image_are_refused(command, bilinear_run, capsys):
    assert main([command[0], str(bilinear_run.path), *command[1:]]) == 1
    error = capsys.readouterr().err
    assert str(bilinear_run.path) in error and error.count("\n") == 1
