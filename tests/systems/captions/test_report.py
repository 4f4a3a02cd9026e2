"""The report of a run that writes captions."""

from __future__ import annotations

import numpy as np
import pytest

import vsemb
from tests.html_tree import Page
from tests.raising import raises_argument
from vsemb import write_report
from vsemb.errors import missing_extra
from vsemb.systems.captions import report as module
from vsemb.systems.captions.caption_metrics import evaluate_captions
from vsemb.systems.captions.captioning import caption_split
from vsemb.systems.captions.training_captions import TrainingCaptions


@pytest.fixture(scope="module")
def written(caption_run, scenes):
    return caption_split(caption_run, scenes, "val")


@pytest.fixture(scope="module")
def reported(caption_run, scenes, tmp_path_factory):
    pytest.importorskip("pycocoevalcap", reason="the extra captions is not installed")
    out = tmp_path_factory.mktemp("report") / "report.html"
    made = write_report(caption_run, data=scenes, split="val", out=out, shown=4, seed=1)
    assert made.path == out and "CIDEr" in str(made)
    return Page(out.read_text(encoding="utf-8")).root, made.measured, out


@pytest.mark.slow
def test_numbers_are_those_of_the_captions(reported, written, caption_run, scenes) -> None:
    page, measured, _ = reported
    part = scenes.split("val")
    best = [captions[0][0] for captions in written]
    references = list(part.caption_lists())
    train = TrainingCaptions(scenes.split("train").captions)
    wanted = evaluate_captions(best, references, train=train, meteor=False)
    # The same images in another order: sums differ in their rounding alone.
    assert measured["CIDEr"] == pytest.approx(wanted.cider, rel=1e-6) and measured["novel"] == wanted.novelty
    cells = page.one("section", id="metrics").one("tbody").all("td")
    assert [cell.text for cell in cells][:4] == [f"{value:.1f}" for value in wanted.bleu]
    facts = dict(zip([n.text for n in page.all("dt")], [n.text for n in page.all("dd")], strict=True))
    perplexity = 2 ** -caption_run.info["best_log2_likelihood"]
    assert facts["Recipe"].startswith("multimodal-rnn") and facts["Perplexity on val"] == f"{perplexity:.2f}"
    assert (
        caption_run.fingerprint in page.one("footer").text
        and facts["Images"] == "precomputed features of an unknown network"
    )
    assert "Perplexity on validation" in page.one("section", id="training").text


def test_each_image_stands_with_its_captions_and_references(reported, written, scenes) -> None:
    page, measured, _ = reported
    part = scenes.split("val")
    shown = page.one("section", id="captions").all("div", kind="captioned")
    rows = np.random.default_rng(1).permutation(len(part))
    assert [each.attributes["data-key"] for each in shown] == [part.keys[row] for row in rows[:4]]
    train = TrainingCaptions(scenes.split("train").captions)
    for each, row in zip(shown, rows, strict=False):
        lines = [line.text for line in each.one("ol", kind="written").all("li")]
        assert lines == [f"{text} {log_prob:.2f}" for text, log_prob in written[row]]
        near = train.nearest([written[row][0][0]]).rows[0]
        assert train.captions[near] in each.one("div", kind="nearest").text
        people = [line.text for line in each.one("div", kind="references").all("li")]
        assert people == [" ".join(text.split()) for text in part.captions_of(row)]
    best = [written[row][0][0] for row in rows]
    references = [list(part.captions_of(row)) for row in rows]
    scores = evaluate_captions(best, references, train=train, meteor=False).per_image["cider"]
    worst = page.one("section", id="worst").all("div", kind="captioned")
    wanted = np.argsort(scores, kind="stable")[:2]
    assert [each.attributes["data-key"] for each in worst] == [part.keys[rows[place]] for place in wanted]


def test_the_page_loads_nothing_and_is_the_same_again(reported, caption_run, scenes, tmp_path) -> None:
    _, _, out = reported
    text = out.read_text(encoding="utf-8")
    assert (
        "http:" not in text
        and "https:" not in text
        and "script-src 'sha256-" in text
        and 'src="data:image/jpeg;base64,' in text
    )
    write_report(caption_run, data=scenes, split="val", out=tmp_path / "again.html", shown=4, seed=1)
    again = (tmp_path / "again.html").read_text(encoding="utf-8")
    assert again == text


def test_without_the_extra_captions_are_shown_and_not_measured(caption_run, scenes, tmp_path, monkeypatch) -> None:
    def refused(*_, **__):
        raise missing_extra("pycocoevalcap", "captions")

    monkeypatch.setattr(module, "evaluate_captions", refused)
    out = tmp_path / "report.html"
    made = write_report(caption_run, data=scenes, split="val", out=out, shown=2, limit=3)
    page = Page(out.read_text(encoding="utf-8")).root
    said = page.one("section", id="metrics").text
    assert (
        made.measured == {}
        and str(made).startswith("Not measured")
        and "vsemb[captions]" in said
        and "3 of the 12 images" in said
    )
    assert not page.all("section", id="worst") and len(page.all("div", kind="captioned")) == 2


@pytest.mark.parametrize("options", [{"shown": 0}, {"limit": 0}, {"seed": -1}])
def test_numbers_out_of_range(caption_run, options, tmp_path) -> None:
    with raises_argument(next(iter(options))):
        vsemb.write_report(caption_run, out=tmp_path / "report.html", **options)
    with raises_argument("out"):
        vsemb.write_report(caption_run, out=tmp_path)


def test_options_for_captions_are_refused_for_other_runs(tiny_run, tmp_path) -> None:
    with raises_argument("limit"):
        vsemb.write_report(tiny_run, out=tmp_path / "report.html", limit=3)


@pytest.mark.slow
def test_a_run_on_regions_shows_captions_of_them(region_caption_run, region_scenes, tmp_path) -> None:
    pytest.importorskip("pycocoevalcap", reason="the extra captions is not installed")
    out = tmp_path / "report.html"
    write_report(region_caption_run, data=region_scenes, split="val", out=out, shown=2, limit=2)
    page = Page(out.read_text(encoding="utf-8")).root
    shown = [each.attributes["data-key"] for each in page.one("section", id="captions").all("div", kind="captioned")]
    figures = page.one("section", id="regions").all("figure")
    assert [each.attributes["data-key"] for each in figures] == shown
    assert all("captions of its regions" in each.one("img").attributes["alt"] for each in figures)
