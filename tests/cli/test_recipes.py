"""`vsemb recipes`."""

from __future__ import annotations

import json
import subprocess
import sys

from vsemb import recipes
from vsemb.cli.__main__ import main


def test_lists_every_recipe(capsys, tmp_path):
    assert main(["recipes", "--json", str(tmp_path / "all.json")]) == 0
    out = capsys.readouterr().out
    listed = json.loads((tmp_path / "all.json").read_text())
    assert [row["name"] for row in listed] == recipes.names()
    # Below the line of their paper, which several share.
    lines = out.splitlines()
    assert ", ".join(recipes.names()) == ", ".join(line.strip(" ,") for line in lines if line.startswith("  "))
    assert len(lines) == len(set(lines)) and {row["summary"] for row in listed} < set(lines)
    assert "variants" in lines[-1] and max(map(len, lines)) <= 120


def test_only_the_functions_of_recipes_are_completed():
    assert [name for name in dir(recipes) if not name.startswith("__")] == ["explain", "get", "names", "variants"]


def test_explains_one_with_its_deviations_and_every_field(capsys, tmp_path):
    path = tmp_path / "recipe.json"
    assert main(["recipes", "kiros2014", "--variant", "released", "--json", str(path)]) == 0
    out = capsys.readouterr().out
    assert "| equation | content | code |" in out and "Deviations" in out
    recipe = recipes.get("kiros2014", "released")
    assert json.loads(path.read_text()) == recipe.to_json()
    assert f"variants: {', '.join(recipes.variants('kiros2014'))}" in out
    lines = out.splitlines()
    assert f"similarity = {recipe.similarity.kind}" in lines
    assert f"training.epochs = {recipe.training.epochs}" in lines
    below = lines[lines.index(f"similarity = {recipe.similarity.kind}") + 1]
    # What it is, and what could stand in its place.
    assert "the similarity of image and text embeddings" in below and "order" in below


def test_a_recipe_of_a_file_is_explained_too(capsys, tmp_path, monkeypatch):
    # Set by the command, for the processes that it starts.
    monkeypatch.setenv("VSEMB_SYSTEMS", "")
    path = tmp_path / "mine_to_explain.py"
    path.write_text('"""Mine."""\nfrom vsemb import recipes\nRECIPE = recipes.get("vsepp", "paper")\n')
    assert main(["recipes", str(path)]) == 0
    out = capsys.readouterr().out
    assert out.startswith("Mine.\n") and "loss.negatives = hardest" in out


def test_mistakes_are_one_line(capsys):
    for arguments, said in (
        (["vsep"], "Did you mean 'vsepp'"),
        (["vsepp", "--variant", "papr"], "papr"),
        (["--variant", "paper"], "`variant` must be given with the name of a recipe"),
    ):
        assert main(["recipes", *arguments]) == 1
        error = capsys.readouterr().err
        assert said in error and error.count("\n") == 1


def test_needs_neither_keras_nor_tensorflow():
    code = "import sys; from vsemb.cli import __main__ as m; m.main(['recipes']); print('keras' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.splitlines()[-1] == "False"
