"""`vsemb search-regions`."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest
from PIL import Image

from vsemb.cli.__main__ import main
from vsemb.data.store import StoredDataset
from vsemb.drawing.pictures import MOST_TILES
from vsemb.systems.regions.image_tower import regions_of


def test_a_table_a_sheet_and_json(region_run, tmp_path, capsys):
    out, report = tmp_path / "found.png", tmp_path / "found.json"
    arguments = ["search-regions", str(region_run.path), "red circle", "--split", "val", "-k", "3"]
    assert main([*arguments, "--out", str(out), "--json", str(report)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split()[:5] == ["rank", "score", "key", "split", "region"] and len(lines) == 6
    content = json.loads(report.read_text())
    assert content["query"] == "red circle"
    assert [result["key"] for result in content["results"]] == [line.split()[2] for line in lines[1:4]]
    with Image.open(out) as sheet:
        assert sheet.width > 300


@pytest.mark.parametrize("parts", [False, True])
def test_against_every_region_by_itself(region_run, parts, tmp_path, capsys):
    dataset, report = StoredDataset.open(region_run.data_path), tmp_path / "found.json"
    options = ["--all-regions", "-k", "20", "--split", "test", "--json", str(report)]
    arguments = [*options, *(["--parts"] if parts else [])]
    assert main(["search-regions", str(region_run.path), "a red circle", *arguments]) == 0
    split, store = dataset.split("test"), regions_of(region_run, dataset)
    (words,) = region_run.model.encode_texts(region_run.tokenizer(["a red circle"])).numpy()
    wanted = []
    for key, number in zip(split.keys, split.ids, strict=True):
        (regions,) = region_run.model.encode_images(store.rows(np.array([number]))).numpy()
        (boxes,) = store.boxes(np.array([number]))
        for place, (region, box) in enumerate(zip(regions, boxes, strict=True)):
            if box.any() and not (parts and place == 0):
                wanted.append((float((words @ region).sum()), key, place))
    wanted.sort(reverse=True)
    found = json.loads(report.read_text())["results"]
    np.testing.assert_allclose([each["score"] for each in found], [w[0] for w in wanted[:20]], rtol=1e-4)
    named = {(key, place): score for score, key, place in wanted}
    for each in found:
        assert named[each["key"], each["region"]] == pytest.approx(each["score"], rel=1e-4, abs=1e-5)


def test_mistakes_are_one_line(region_run, capsys):
    for arguments, said in (
        (["zyzzyva"], "zyzzyva"),
        ([""], "`text`"),
        (["red \udcff"], "`query`"),
        (["red", "-k", "0"], "`k`"),
        (["red", "--split", "vall"], "Did you mean 'val'"),
        (["red", "--data", "nowhere"], "nowhere"),
        (["red", "--out", "sheet.pdf"], ".png, .jpg"),
        (["red", "--out", "sheet.png", "--json", "./sheet.png"], "`json`"),
    ):
        assert main(["search-regions", str(region_run.path), *arguments]) == 1
        error = capsys.readouterr().err
        assert said in error and error.count("\n") == 1, arguments


def test_help_says_how_many_are_drawn(capsys):
    for command in ("search", "search-regions", "analyze"):
        with pytest.raises(SystemExit):
            main([command, "--help"])
        assert f"{MOST_TILES} at most" in " ".join(capsys.readouterr().out.split())


def test_no_regions(region_run, tiny_run, tmp_path, capsys):
    assert main(["search-regions", str(tiny_run.path), "red"]) == 1
    error = capsys.readouterr().err
    assert "vsemb train dvsa" in error and error.count("\n") == 1
    ignored = shutil.ignore_patterns("regions")
    copy = shutil.copytree(region_run.data_path, tmp_path / "data", ignore=ignored)
    assert main(["search-regions", str(region_run.path), "red", "--data", str(copy)]) == 1
    error = capsys.readouterr().err
    assert "vsemb regions" in error and error.count("\n") == 1
