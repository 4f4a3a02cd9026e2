"""The report of a run that reads the names of classes."""

from __future__ import annotations

import json
import shutil

from tests.html_tree import Page
from tests.raising import raises_argument
from vsemb import Run, write_report
from vsemb.systems.zero_shot.recognition import ZeroShotTask


def test_a_run_on_classes_names_classes(flowers, sje_run, tmp_path) -> None:
    run = Run.open(shutil.copytree(sje_run("attributes").path, tmp_path / "run"))
    made = write_report(run, data=flowers, split="val")
    out, measured = made.path, made.measured
    assert out == run.path / "report.html" and measured["images"] == 16
    root = Page(out.read_text(encoding="utf-8")).root
    part = flowers.split("val")
    names = dict(zip(part.keys, part.class_names, strict=True))
    data = json.loads(str(root.one("script", id="data").inside[0]))
    assert set(data["texts"]) == set(part.class_names) and data["unknown"] == {}
    for text, rank, known, found, _ in data["byText"]:
        right = [names[data["keys"][image]] == data["texts"][text] for image in found]
        assert known == 0 and any(right) and right.index(True) == min(rank, 6) - 1
        assert [data["texts"][text] in (data["texts"][own] for own in data["own"][image]) for image in found] == right
    assert len(data["byImage"]) == len(part)
    for image, rank, _, found, _ in data["byImage"]:
        own = data["own"][image]
        assert [data["texts"][text] for text in own] == [names[data["keys"][image]]]
        assert found.index(own[0]) == min(rank, 6) - 1
    assert {"arithmetic", "plane"}.isdisjoint(n.attributes.get("id") for n in root.all("section"))
    measured = ZeroShotTask(run, flowers, "val").measure()
    cells = [cell.text.split()[0] for cell in root.one("section", id="recognition").all("td")]
    assert cells == [f"{value:.1f}" for value in (measured.top1, measured.top1_images, measured.average_precision)]
    # Two images of a class share their text, of which neither could come first.
    assert not root.all("section", id="recall")
    assert root.one("h1").text.endswith(" % of images are recognized among 8 classes; chance 12 %")
    assert any(chart.text.startswith("Zero-shot") for chart in root.all("figcaption"))
    with raises_argument("arithmetic"):
        write_report(run, data=flowers, split="val", out=tmp_path / "r.html", arithmetic=[(part.keys[0], "a", "b")])
