"""`vsemb push` and `vsemb.load("hf://USER/NAME")`, against a server on this machine."""

from __future__ import annotations

import json
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import yaml

import vsemb
from tests.raising import raises_argument
from tests.runs.fake_hub import FakeHub
from vsemb.errors import DataError
from vsemb.runs.run import Run

NAME = "somebody/scenes"
HANDLE = f"hf://{NAME}"


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeHub]:
    with FakeHub() as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        template = server.url + "/{repo_id}/resolve/{revision}/{filename}"
        values = {"ENDPOINT": server.url, "HUGGINGFACE_CO_URL_TEMPLATE": template, "HF_HUB_OFFLINE": False}
        for name, value in values.items():
            monkeypatch.setattr(f"huggingface_hub.constants.{name}", value)
        monkeypatch.setenv("HF_TOKEN", "a-token")
        monkeypatch.setenv("VSEMB_CACHE", str(tmp_path / "cache"))
        yield server
        server.shutdown()


def front_matter(card: str) -> dict:
    return yaml.safe_load(card.split("---")[1])


def test_a_run_is_the_same_after_a_push(hub: FakeHub, tiny_pixel_run: Run, scenes, tmp_path: Path) -> None:
    run = Run.open(shutil.copytree(tiny_pixel_run.path, tmp_path / "run"))
    (run.path / "notes.txt").write_text("mine")
    pushed = vsemb.push(run, HANDLE, licence="cc-by-4.0", measure="val")
    assert pushed.handle == HANDLE and pushed.files == len(hub.repositories[NAME]) and NAME not in hub.private
    texts, picture = ["a red circle"], np.zeros((32, 32, 3), np.uint8)
    loaded, own = vsemb.load(HANDLE), vsemb.load(run)
    np.testing.assert_array_equal(loaded.encode_texts(texts), own.encode_texts(texts))
    np.testing.assert_array_equal(loaded.encode_images([picture]), own.encode_images([picture]))
    # An index of one is an index of the other.
    assert Run.open(HANDLE).fingerprint == run.fingerprint

    # Nothing of this machine, and no state of the training.
    files = hub.repositories[NAME]
    assert json.loads(files["run.json"])["data"] is None
    assert "notes.txt" not in files
    assert not any(str(tmp_path).encode() in content for content in files.values())
    assert [path for path in files if path.startswith(("checkpoints", "logs"))] == ["checkpoints/best.weights.h5"]


def test_the_card_has_the_form_of_the_hub(hub: FakeHub, tiny_pixel_run: Run, scenes) -> None:
    vsemb.push(tiny_pixel_run, HANDLE, licence="cc-by-4.0", measure="val")
    card = hub.repositories[NAME]["README.md"].decode()
    said = front_matter(card)
    assert said["license"] == "cc-by-4.0" and said["library_name"] == "vsemb"
    measured = vsemb.evaluate(tiny_pixel_run, split="val", bootstrap=1000)
    results = {
        metric["type"]: metric["value"]
        for each in said["model-index"][0]["results"]
        if "images" in each["dataset"]["name"]
        for metric in each["metrics"]
    }
    assert results["recall_sum"] == pytest.approx(measured.recall_sum, abs=1e-3)
    assert results["t2i_R@5"] == pytest.approx(measured.text_to_image["R@5"], abs=1e-3)
    low, high = measured.intervals_95["recall_sum"]
    assert f"| recall_sum | {measured.recall_sum:.4g} | {low:.4g} to {high:.4g} |" in card
    assert HANDLE in card and "encode_image " in card and "bytes" in card


def test_an_exported_model_is_the_same_after_a_push(hub: FakeHub, exported: Path) -> None:
    vsemb.push(exported, HANDLE, private=True)
    assert hub.private == {NAME}
    texts = ["a red circle"]
    np.testing.assert_array_equal(vsemb.load(HANDLE).encode_texts(texts), vsemb.load(exported).encode_texts(texts))
    assert front_matter(hub.repositories[NAME]["README.md"].decode())["tags"][0] == "vsemb"


def test_without_a_network_the_last_download_is_used(hub: FakeHub, tiny_run: Run) -> None:
    vsemb.push(tiny_run, HANDLE)
    first = vsemb.load(HANDLE).encode_texts(["a red circle"])
    hub.repositories.clear()
    np.testing.assert_array_equal(vsemb.load(HANDLE).encode_texts(["a red circle"]), first)


def test_what_cannot_be_pushed(hub: FakeHub, tiny_run: Run, exported: Path, tmp_path: Path) -> None:
    for handle in ("somebody/scenes", "hf://scenes", "hf://../../etc", "hf://../etc", "hf://somebody/.."):
        with raises_argument("repository"):
            vsemb.push(tiny_run, handle)
    with pytest.raises(DataError):
        vsemb.push(tmp_path, HANDLE)
    with raises_argument("measure"):
        vsemb.push(exported, HANDLE, measure="val")
    assert not hub.repositories


def test_a_run_of_features_keeps_its_network(hub: FakeHub, tiny_recipe, scenes, tmp_path: Path) -> None:
    data = shutil.copytree(scenes.path, tmp_path / "scenes", ignore=shutil.ignore_patterns("features"))
    options = {"backbone": "SmallConvNet", "weights": "random", "epochs": 1}
    run = vsemb.train(tiny_recipe, data, tmp_path / "run", **options)
    vsemb.push(run, HANDLE)
    picture = np.arange(32 * 32 * 3, dtype=np.uint8).reshape(32, 32, 3)
    first, again = (vsemb.load(each).encode_images([picture]) for each in (run, HANDLE))
    np.testing.assert_array_equal(first, again)


def test_an_upload_that_fails_is_one_line(hub: FakeHub, tiny_run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    hub.shutdown()
    hub.server_close()
    with pytest.raises(DataError) as raised:
        vsemb.push(tiny_run, HANDLE)
    assert "\n" not in str(raised.value) and HANDLE in str(raised.value)
