"""Pages about directories: what they say, and what damaged ones are answered with."""

from __future__ import annotations

import json
import shlex
import shutil

import pytest

from vsemb.acts import Fields
from vsemb.cli.__main__ import command_parser
from vsemb.errors import DataError
from vsemb.runs.describe import FEW_IMAGES, info
from vsemb.runs.indexing import build_index


def check_next(found):
    for line in found.next:
        _, name, *arguments = shlex.split(line, comments=True)
        command_parser(name).parse_args(arguments)


def test_a_run(tiny_run):
    found = info(tiny_run.path)
    check_next(found)
    assert found.kind == "run"
    assert found.facts["recipe"] == "vsepp, variant paper (retrieval)"
    assert found.facts["status"] == "finished, 2 of 2 epochs" and "scenes" in found.facts["dataset"]
    best = f"recall sum {tiny_run.info['best_recall_sum']:.4g}"
    assert best in found.facts["validation"] and "cosine" in found.facts["parts"]
    assert found.next[0] == f"vsemb evaluate {tiny_run.path}"


def test_an_unfinished_run(tiny_run, tmp_path):
    path = shutil.copytree(tiny_run.path, tmp_path / "my run")
    status = json.loads((path / "run.json").read_text())
    (path / "run.json").write_text(json.dumps({**status, "status": "running"}))
    (path / "metrics.jsonl").unlink()
    found = info(path)
    assert found.facts["status"] == "running, 0 of 2 epochs" and "validation" not in found.facts
    assert "vsemb train vsepp --variant paper" in found.next[0] and f"--out '{path}'" in found.next[0]
    check_next(found)


def test_a_dataset_and_an_index(tiny_run, scenes, tmp_path):
    found = info(scenes.path)
    assert found.facts["splits"].startswith("train 48 images, 240 captions; val 12 images")
    assert "precomputed, 16 numbers" in found.facts["features"]
    check_next(found)
    assert found.next == [f"vsemb train vsepp --data {scenes.path} --out runs/scenes"]
    shutil.copy(scenes.path / "manifest.json", tmp_path)
    assert [line.split(" --")[-1] for line in info(tmp_path).next] == ["fine-tune SmallConvNet"]
    manifest = json.loads((tmp_path / "manifest.json").read_text())
    (tmp_path / "manifest.json").write_text(json.dumps(manifest | {"source": {"format": "table"}}))
    assert [line.split(" --")[-1] for line in info(tmp_path).next] == ["backbone MobileNetV2"]
    assert "hub:" in info(tmp_path).facts["pretrained"]
    manifest["splits"]["train"]["images"] = FEW_IMAGES
    (tmp_path / "manifest.json").write_text(json.dumps(manifest | {"source": {"format": "table"}}))
    assert "pretrained" not in info(tmp_path).facts
    build_index(tiny_run, scenes, "val", out=tmp_path / "val").close()
    found = info(tmp_path / "val")
    assert found.facts["items"] == "12 images of val" and found.facts["similarity"] == "cosine"
    assert found.facts["run"] == str(tiny_run.path) and "vsemb search" in found.next[0]
    check_next(found)


@pytest.mark.parametrize("name", [kind for kind, each in Fields("reader").parts.items() if each.next_command])
def test_the_next_command_suits_what_was_prepared(scenes, tmp_path, name):
    manifest = json.loads((scenes.path / "manifest.json").read_text())
    (tmp_path / "manifest.json").write_text(json.dumps(manifest | {"source": {"format": name}}))
    found = info(tmp_path)
    check_next(found)
    assert str(tmp_path) in found.next[0] and " best " not in found.next[0]


def test_a_model_without_a_contract(tmp_path):
    for version in (9, 10):
        (tmp_path / "model" / str(version)).mkdir(parents=True)
        (tmp_path / "model" / str(version) / "saved_model.pb").touch()
    found = info(tmp_path / "model")
    assert found.facts["version"] == "10" and "without a contract" in found.facts["about"]
    assert found.next[0] == f"vsemb verify {tmp_path / 'model'}"
    check_next(found)


def test_what_is_nothing_or_damaged_is_one_sentence(tiny_run, tmp_path):
    with pytest.raises(DataError, match="must be the directory of a run, dataset, index or exported model"):
        info(tmp_path)
    path = shutil.copytree(tiny_run.path, tmp_path / "run")
    (path / "recipe.json").write_text("[]")
    with pytest.raises(DataError, match="The JSON files of the run .* are damaged"):
        info(path)
