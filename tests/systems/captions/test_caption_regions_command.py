"""`vsemb caption-regions`."""

from __future__ import annotations

import dataclasses
import json

import pytest
from PIL import Image

from vsemb import Dataset
from vsemb.cli.__main__ import main
from vsemb.drawing.pictures import save_picture


@pytest.fixture(scope="module")
def key(region_caption_run) -> str:
    return Dataset.open(region_caption_run.data_path).split("val").keys[0]


@pytest.mark.slow
def test_a_table_a_picture_and_json(region_caption_run, key, opened, tmp_path, capsys):
    opened(region_caption_run)
    out, report = tmp_path / "regions.png", tmp_path / "regions.json"
    # An earlier picture of vsemb is replaced.
    save_picture(Image.new("RGB", (8, 8)), out)
    arguments = ["caption-regions", str(region_caption_run.path), key, "--most", "2", "--beam", "3"]
    assert main([*arguments, "--out", str(out), "--json", str(report)]) == 0
    lines = capsys.readouterr().out.splitlines()
    written = json.loads(report.read_text())
    assert written["image"] == key and 1 <= len(written["captions"]) <= 2
    assert lines[0].split()[:2] == ["caption", "log-prob"] and lines[-2:] == ["", str(out)]
    for line, caption in zip(lines[1:-2], written["captions"], strict=True):
        assert line.startswith(caption["text"] + "  ")
        end = f"{caption['score']:.2f}  {caption['region']:>6}  {' '.join(map(str, caption['box']))}"
        assert line.endswith(end)
    with Image.open(out) as picture:
        assert picture.format == "PNG" and picture.width > 512


@pytest.mark.slow
def test_a_file_that_is_no_image_of_the_dataset(region_caption_run, opened, tmp_path, capsys):
    """No dataset is needed, and bytes that are no text do no harm."""
    run = region_caption_run.path
    moved = dataclasses.replace(region_caption_run, info=region_caption_run.info | {"data": str(tmp_path / "gone")})
    opened(moved)
    image, out = str(tmp_path / "wide\udcff.jpg"), tmp_path / "out.jpg"
    Image.new("CMYK", (300, 100)).save(image)
    assert main(["caption-regions", str(run), image, "--parts", "--out", str(out)]) == 0
    with Image.open(out) as picture:
        assert picture.format == "JPEG"
    assert main(["caption-regions", str(run), "val/000000.png"]) == 1
    error = capsys.readouterr().err
    assert "`data`" in error and "gone" in error and error.count("\n") == 1
    # A picture never takes the place of what it is drawn from.
    for option in ("--out", "--json"):
        assert main(["caption-regions", str(run), image, option, image]) == 1
        assert "wide" in capsys.readouterr().err


@pytest.mark.slow
def test_mistakes_are_one_line(region_caption_run, caption_run, region_run, key, capsys):
    run = str(region_caption_run.path)
    for arguments, said in (
        ([run, "missing.png"], "missing.png"),
        ([run, key, "--most", "0"], "`most`"),
        ([run, key, "--beam", "0"], "`beam`"),
        ([run, key, "--overlap", "2"], "`overlap`"),
        ([run, key, "--out", "a.gif"], ".png, .jpg"),
        ([run, key, "--data", "nowhere"], "nowhere"),
        ([run, key, "--boxes", "nowhere.json"], "`boxes`"),
        ([str(caption_run.path), key], "multimodal-rnn-regions"),
        ([str(region_run.path), key], "'dvsa'"),
        (["nowhere", key], "nowhere"),
    ):
        assert main(["caption-regions", *arguments]) == 1
        error = capsys.readouterr().err
        assert said in error and error.count("\n") == 1, arguments
