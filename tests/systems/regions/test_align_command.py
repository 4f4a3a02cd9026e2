"""`vsemb align`."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest
from PIL import Image

from vsemb.cli.__main__ import main
from vsemb.data.store import StoredDataset
from vsemb.drawing.pictures import pixel_box, save_picture
from vsemb.systems.regions.image_tower import regions_of

# Commands on one run take one graph: tracing it takes two seconds.
pytestmark = pytest.mark.usefixtures("opened_once")


@pytest.fixture(scope="module")
def val(region_run):
    return StoredDataset.open(region_run.data_path).split("val")


@pytest.mark.slow
def test_a_table_a_picture_and_json(region_run, val, tmp_path, capsys):
    out, report = tmp_path / "aligned.png", tmp_path / "aligned.json"
    # An earlier picture of vsemb is replaced.
    save_picture(Image.new("RGB", (8, 8)), out)
    arguments = ["align", str(region_run.path), val.keys[0], val.captions[0], "--affinity", "1000"]
    assert main([*arguments, "--out", str(out), "--json", str(report)]) == 0
    lines = capsys.readouterr().out.splitlines()
    content = json.loads(report.read_text())
    assert content["image"] == val.keys[0] and content["affinity"] == 1000
    # With so much affinity the sentence is one phrase.
    (phrase,) = content["phrases"]
    assert phrase["words"] == content["words"] and set(content["regions"]) == {phrase["region"]}
    assert lines[0].split()[:2] == ["phrase", "region"] and lines[2:] == ["", str(out)]
    assert lines[1].startswith(" ".join(content["words"]))
    assert f"  {phrase['region']}  {' '.join(map(str, phrase['box']))}  " in lines[1]
    with Image.open(out) as picture:
        assert picture.format == "PNG" and picture.width == 512


@pytest.mark.slow
def test_it_is_what_is_served_and_what_was_cached(region_run, val, tmp_path, capsys):
    """Boxes are those of the cache, and each word has the region that fits it best."""
    report = tmp_path / "aligned.json"
    assert main(["align", str(region_run.path), val.keys[1], val.captions[5], "--json", str(report)]) == 0
    content = json.loads(report.read_text())
    dataset = StoredDataset.open(region_run.data_path)
    store = regions_of(region_run, dataset)
    (boxes,) = store.boxes(val.ids[[1]])
    real = np.flatnonzero(np.any(boxes != 0, axis=1))
    size = (content["width"], content["height"])
    assert content["boxes"] == {str(row): list(pixel_box(boxes[row], size)) for row in real}
    images = region_run.model.encode_images(store.rows(val.ids[[1]]))
    texts = region_run.model.encode_texts(region_run.tokenizer([val.captions[5]]))
    scores = region_run.model.similarity.word_region_scores(images, texts).numpy()[0][:, real]
    # Features of the cache are float16, which is 3 digits.
    np.testing.assert_allclose(content["scores"], scores.max(axis=1), rtol=5e-3, atol=5e-3)


@pytest.mark.slow
def test_a_file_that_is_no_image_of_the_dataset(region_run, tmp_path, capsys):
    """No dataset is needed, and bytes of a name that are no text do no harm."""
    run = shutil.copytree(region_run.path, tmp_path / "run")
    info = json.loads((run / "run.json").read_text())
    (run / "run.json").write_text(json.dumps(info | {"data": str(tmp_path / "gone")}))
    image, report, out = str(tmp_path / "wide\udcff.jpg"), tmp_path / "found.json", tmp_path / "out.jpg"
    Image.new("CMYK", (300, 100)).save(image)
    arguments = ["align", str(run), image, "a red circle"]
    assert main([*arguments, "--out", str(out), "--json", str(report)]) == 0
    content = json.loads(report.read_text())
    assert content["image"].endswith("wide?.jpg") and (content["width"], content["height"]) == (300, 100)
    assert len(capsys.readouterr().out.splitlines()) == len(content["phrases"]) + 3
    with Image.open(out) as picture:
        assert picture.format == "JPEG"
    # A key of the dataset that is gone cannot be found, and what helps is said.
    assert main(["align", str(run), "val/000000.png", "a red circle"]) == 1
    error = capsys.readouterr().err
    assert "`data`" in error and "gone" in error and error.count("\n") == 1
    # A picture never takes the place of what it is drawn from.
    with open(image, "rb") as file:
        before = file.read()
    for option in ("--out", "--json"):
        assert main([*arguments, option, image]) == 1
        assert "would replace" in capsys.readouterr().err
    with open(image, "rb") as file:
        assert file.read() == before


def test_mistakes_are_one_line(region_run, val, tmp_path, capsys):
    key = val.keys[0]
    (tmp_path / "bad.png").write_bytes(b"\x89PNG nothing")
    for arguments, said in (
        (["missing.png", "a circle"], "missing.png"),
        ([str(tmp_path / "bad.png"), "a circle"], "unreadable"),
        ([key, "zyzzyva"], "zyzzyva"),
        ([key, ""], "`sentence`"),
        ([key, "a red \udcff circle"], "`sentence`"),
        ([key, "a circle", "--affinity", "-1"], "`affinity`"),
        ([key, "a circle", "--affinity", "nan"], "`affinity`"),
        ([key, "a circle", "--fade", "-1"], "`fade`"),
        ([key, "a circle", "--out", "a.gif"], ".png, .jpg"),
        ([key, "a circle", "--out", "a.png", "--json", "a.png"], "`json`"),
        ([key, "a circle", "--data", "nowhere"], "nowhere"),
        ([key, "a circle", "--boxes", "nowhere.json"], "proposes its own regions"),
    ):
        assert main(["align", str(region_run.path), *arguments]) == 1
        error = capsys.readouterr().err
        assert said in error and error.count("\n") == 1, arguments


def test_a_run_without_regions(tiny_run, scenes, capsys):
    assert main(["align", str(tiny_run.path), scenes.split("val").keys[0], "a circle"]) == 1
    error = capsys.readouterr().err
    assert "vsemb train dvsa" in error and error.count("\n") == 1
