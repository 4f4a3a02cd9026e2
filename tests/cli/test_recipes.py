"""`vsemb recipes`."""

from __future__ import annotations

import json
import subprocess
import sys

from vsemb import recipes
from vsemb.cli.__main__ import main


def test_lists_every_variant(capsys, tmp_path):
    assert main(["recipes", "--json", str(tmp_path / "all.json")]) == 0
    out = capsys.readouterr().out
    listed = json.loads((tmp_path / "all.json").read_text())
    assert [(row["name"], row["variant"]) for row in listed] == [
        (name, variant) for name, variants in recipes.RECIPES.items() for variant in variants
    ]
    # A line a recipe, with all of its variants.
    assert len(out.splitlines()) == 1 + len(recipes.RECIPES) and "arXiv:1411.2539" in out
    for (name, variants), line in zip(recipes.RECIPES.items(), out.splitlines()[1:], strict=True):
        assert line.startswith(f"{name} ") and ", ".join(variants) in line


def test_prints_one_with_its_deviations(capsys, tmp_path):
    path = tmp_path / "recipe.json"
    assert main(["recipes", "kiros2014", "--variant", "released", "--json", str(path)]) == 0
    out = capsys.readouterr().out
    assert "| equation | what | where |" in out and "Deviations" in out
    recipe = recipes.get("kiros2014", "released")
    assert json.loads(out[out.index("\n{") :]) == json.loads(path.read_text()) == recipe.to_json()


def test_mistakes_are_one_line(capsys):
    for arguments, said in (
        (["vsep"], "Did you mean 'vsepp'"),
        (["vsepp", "--variant", "papr"], "papr"),
        (["--variant", "paper"], "the name of a recipe"),
    ):
        assert main(["recipes", *arguments]) == 1
        error = capsys.readouterr().err
        assert said in error and error.count("\n") == 1


def test_needs_neither_keras_nor_tensorflow():
    code = "import sys; from vsemb.cli import __main__ as m; m.main(['recipes']); print('keras' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.splitlines()[-1] == "False"
