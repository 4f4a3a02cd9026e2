"""An outsider's package, and an outsider's file: trained, measured, exported, verified, searched and served."""

from __future__ import annotations

import importlib
import io
import json
import shutil
import sys
from collections.abc import Iterator
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from tests.contract import check_layer, check_padding
from vsemb import registry

HERE = Path(__file__).parent


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The package `outsider` on the path with the entry point of its pyproject.toml, as pip would install it."""
    site = tmp_path_factory.mktemp("site")
    shutil.copytree(HERE / "outsider" / "outsider", site / "outsider")
    described = site / "outsider-1.0.dist-info"
    described.mkdir()
    (described / "METADATA").write_text("Metadata-Version: 2.1\nName: outsider\nVersion: 1.0\n")
    (described / "entry_points.txt").write_text("[vsemb.systems]\noutsider = outsider:SYSTEM\n")
    sys.path.insert(0, str(site))
    importlib.invalidate_caches()
    registry.forget()
    yield site
    sys.path.remove(str(site))
    registry.forget()


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Forty pictures of one colour, each with a text file of two captions."""
    folder = tmp_path_factory.mktemp("photos")
    colours = {"red": (200, 30, 30), "green": (30, 180, 40), "blue": (30, 40, 210), "grey": (128, 128, 128)}
    for number in range(40):
        name, colour = list(colours.items())[number % 4]
        Image.new("RGB", (40, 40), colour).save(folder / f"{number:02}.png")
        captions = f"a {name} square number {number}\nthe square {number} is {name}\n"
        (folder / f"{number:02}.cap").write_text(captions)
    return folder


def vsemb(*words: object) -> str:
    """Runs a command line and returns what it prints."""
    from vsemb.cli.__main__ import main

    shown = io.StringIO()
    with redirect_stdout(shown):
        assert main([str(word) for word in words]) == 0
    return shown.getvalue()


@pytest.fixture(scope="module")
def data(installed: Path, photos: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The dataset that the package's own reader makes of `photos`, with an option of its own."""
    out = tmp_path_factory.mktemp("data") / "photos"
    vsemb("prepare", photos, "--format", "sidecar", "--suffix", ".cap", "--out", out)
    return out


def test_the_package_is_listed(installed: Path) -> None:
    assert {"outsider", "paraphrase"} <= {line.split()[0] for line in vsemb("recipes").splitlines() if line}
    shown = vsemb("recipes", "outsider")
    for line in ("text.encoder = gated-mean", "similarity = euclidean", "loss.sharpness = 4"):
        assert line in shown, shown


def test_the_encoder_passes_the_checks_of_ours(installed: Path, tmp_path: Path) -> None:
    from vsemb.encoders.text_encoder import WordEmbedding

    encoder = importlib.import_module("outsider.gated_mean").GatedMeanEncoder

    def make(dtype: str = "float32") -> Any:
        return encoder(WordEmbedding(9, 6, dtype=dtype), 4, dtype=dtype)

    ids = np.array([[3, 4, 5], [8, 0, 0], [0, 0, 0]], np.int32)
    check_layer(make, [ids], tmp_path)
    check_padding(make(), ids)


@pytest.mark.slow
def test_parts_of_a_package_from_training_to_search(data: Path, tmp_path: Path) -> None:
    run, model = tmp_path / "run", tmp_path / "models" / "outsider"
    vsemb("train", "outsider", "--data", data, "--out", run, "--set", "text.encoder.dropout=0.2")
    kept = json.loads((run / "recipe.json").read_text())
    assert kept["text"]["encoder"]["dropout"] == 0.2 and kept["similarity"] == {"kind": "euclidean", "scale": 2.0}
    assert "image" in vsemb("evaluate", run, "--json", tmp_path / "metrics.json")
    assert 0 <= json.loads((tmp_path / "metrics.json").read_text())["image_to_text"]["R@1"] <= 100
    assert ".png" in vsemb("search", run, "a red square", "--data", data, "--split", "val")
    check_search(run, data, tmp_path)
    vsemb("export", run, model)
    vsemb("verify", model)
    from vsemb.serving import Client
    from vsemb.serving.server import Server

    with Server({"outsider": model}, port=0, rest_port=0, poll=0) as server:
        client = Client(f"http://127.0.0.1:{server.rest_port}", "outsider")
        found = client.encode_text(["a red square", "the blue one"])
    assert found.embedding.shape == (2, 16) and np.isfinite(found.embedding).all()


def check_search(run: Path, data: Path, folder: Path) -> None:
    """The scores of an index are those of the run's own similarity, whose scale is not the default."""
    from vsemb.evaluation import Embedder
    from vsemb.runs.indexing import open_indexed

    vsemb("index", run, "--data", data, "--split", "val", "--out", folder / "index")
    vsemb("search", folder / "index", "a red square", "-k", 3, "--json", folder / "found.json")
    index, opened, _ = open_indexed(folder / "index")
    assert index.source.similarity == {"kind": "euclidean", "scale": 2.0}
    text = Embedder(opened.model).texts(*opened.encode(["a red square"]))
    scores = np.array(opened.model.similarity.scores(np.array(index.embeddings), text))[:, 0]
    found = json.loads((folder / "found.json").read_text())["results"]
    np.testing.assert_allclose([one["score"] for one in found], np.sort(scores)[::-1][:3], rtol=1e-4)


@pytest.mark.slow
def test_a_task_of_a_package(data: Path, tmp_path: Path) -> None:
    run, model = tmp_path / "run", tmp_path / "models" / "paraphrase"
    assert "best epoch" in vsemb("train", "paraphrase", "--data", data, "--out", run)
    assert "paraphrase" in vsemb("evaluate", run)
    vsemb("export", run, model)
    vsemb("verify", model)


@pytest.mark.slow
def test_a_recipe_in_a_file(
    scenes_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    # Set and taken back, so that what the command adds to the environment does not outlast the test.
    monkeypatch.setenv(registry.VARIABLE, "")
    run = tmp_path / "run"
    vsemb("train", HERE / "my_recipe.py", "--data", scenes_path, "--out", run)
    assert "R@1" in vsemb("evaluate", run)
    assert json.loads((run / "recipe.json").read_text())["similarity"] == {"kind": "squashed-dot"}


def test_a_run_whose_parts_are_not_there_says_where_to_name_them(scenes_path: Path, tmp_path: Path) -> None:
    from vsemb.errors import DataError
    from vsemb.runs.run import read_recipe

    (tmp_path / "recipe.json").write_text('{"kind": "retrieval", "similarity": {"kind": "nowhere"}}')
    with pytest.raises(DataError, match="VSEMB_SYSTEMS"):
        read_recipe(tmp_path)
