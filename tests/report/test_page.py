"""The report: numbers, marks, pictures, self-containedness, accessibility."""

from __future__ import annotations

import base64
import builtins
import io
import os
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.browser import SCHEMES, axe_violations, emulate, headless_chromium
from tests.forgetful import forgetful
from tests.html_tree import Node, Page
from vsemb.errors import InvalidArgumentError, MissingExtraError
from vsemb.evaluation import Embedder, evaluate_retrieval
from vsemb.evaluation.retrieval import RetrievalMetrics, retrieval_ranks
from vsemb.report import report_run
from vsemb.report.retrieval import _chance, _headline
from vsemb.report.space import Failures, Gallery, Space
from vsemb.report.words import FAMILIES
from vsemb.runs.measure import evaluate_run
from vsemb.runs.run import Run
from vsemb.text.coverage import Coverage

SCRIPT = '<script>alert("1")</script> & a "red" circle'


@pytest.fixture(scope="module")
def path(tiny_run, scenes, tmp_path_factory) -> Path:
    """A report on the 48 images of train, so that words have images enough."""
    out = tmp_path_factory.mktemp("report") / "report.html"
    assert report_run(tiny_run, scenes, "train", out, shown=6, seed=1).path == out
    return out


@pytest.fixture(scope="module")
def page(path) -> Node:
    return Page(path.read_text(encoding="utf-8")).root


@pytest.fixture(scope="module")
def embedded(tiny_run, scenes):
    part, embedder = scenes.split("train"), Embedder(tiny_run.model)
    images = embedder.images(tiny_run.images_of(scenes, part), len(part))
    return part, images, embedder.texts(*tiny_run.tokenizer.encode(part.captions))


@pytest.mark.slow
def test_numbers_are_those_of_evaluate(page, embedded, tiny_run, scenes) -> None:
    metrics = evaluate_run(tiny_run, scenes, "train")
    part, images, texts = embedded
    ids = part.ids, part.ids[part.caption_rows]
    bounds = evaluate_retrieval(images, texts, *ids, tiny_run.model.similarity, bootstrap=1000, seed=1).intervals_95
    rows = page.one("section", id="recall").one("tbody").all("tr")
    sides = ("text_to_image", "image_to_text")
    for row, key in zip(rows, metrics.image_to_text, strict=True):
        for cell, side in zip(row.all("td"), sides, strict=True):
            value, (low, high) = getattr(metrics, side)[key], bounds[side][key]
            assert cell.text.partition(" chance ")[0] == f"{value:.1f} {low:.1f}–{high:.1f}"
    # One of 48 images is right; of 240 sentences five: 1 - (235 · … · 231) / (240 · … · 236) = 10.07 %.
    assert [cell.text.rpartition(" chance ")[2] for cell in rows[1].all("td")] == ["10.4", "10.1"]
    facts = dict(zip([n.text for n in page.all("dt")], [n.text for n in page.all("dd")], strict=True))
    reached = metrics.text_to_image["R@10"]
    assert page.one("h1").text == f"{reached:.0f} % of sentences find their image among the first ten; chance 21 %"
    assert facts["Recipe"] == "vsepp (paper)" and facts["Trained on"] == "scenes: 48 images, 240 captions"
    assert re.fullmatch(r"\d{1,2} \w+ 20\d\d", facts["Training finished"]) and facts["Text encoder"] == "gru over words"
    assert tiny_run.fingerprint in page.one("footer").text and scenes.fingerprint in page.one("footer").text
    assert facts["Selected epoch"] == f"{tiny_run.info['best_epoch'] + 1} of 2"
    assert facts["Parameters"].replace(",", "") == str(tiny_run.model.count_params())
    assert facts["Measured on"] == "scenes, train: 48 images, 240 captions"


def test_marks_agree_with_the_scores(page, embedded) -> None:
    part, images, texts = embedded
    scores = images @ texts.T
    queries = page.one("section", id="text-to-image").all("div", kind="by-text")
    assert len(queries) == 6
    for query in queries:
        text = part.captions.index(query.one("q").text)
        own = part.caption_rows[text]
        places = query.one("ol").all("li")
        best = np.argsort(-scores[:, text], kind="stable")
        rank = int(np.sum(scores[:, text] >= scores[own, text] - 1e-6))
        assert query.one("span", kind="rank").text == f"rank {rank}"
        shown = [part.keys.index(str(place.attributes["data-key"])) for place in places]
        np.testing.assert_allclose(scores[shown[:5], text], scores[best[:5], text], atol=1e-6)
        for place, row in zip(places, shown, strict=True):
            right = row == own
            assert place.attributes["class"].split()[0] == ("right" if right else "wrong")
            assert place.one("span", kind="mark").text.startswith("✓ right" if right else "✗ wrong")
            assert place.one("img").attributes["alt"] in part.captions_of(row)
            assert place.one("span", kind="file").text == part.keys[row]
            assert float(place.one("span", kind="score").text) == pytest.approx(scores[row, text], abs=6e-3)
        # The right image is always there, and comes apart where it is not among the first.
        assert own in shown and len(places) == (5 if rank <= 5 else 6)
    queries = page.one("section", id="image-to-text").all("div", kind="by-image")
    assert len(queries) == 6
    for query in queries:
        row = part.keys.index(str(query.attributes["data-key"]))
        own = set(part.captions_of(row))
        lines = query.one("ol").all("li")
        assert any(line.attributes["class"] == "right" for line in lines)
        for line in lines:
            sign, text, score = (span.text for span in line.inside if isinstance(span, Node))
            # Another image may have a caption of the same words.
            assert line.attributes["class"] == "wrong" or text in own
            assert sign.startswith("✓" if line.attributes["class"] == "right" else "✗")
            best = max(scores[row, place] for place, caption in enumerate(part.captions) if caption == text)
            assert float(score) == pytest.approx(best, abs=6e-3)


def test_the_worst_are_the_worst(page, embedded, tiny_run) -> None:
    part, images, texts = embedded
    ids = part.ids, part.ids[part.caption_rows]
    of_images, of_texts = retrieval_ranks(images, texts, *ids, tiny_run.model.similarity)
    worst = page.one("section", id="worst")
    for kind, ranks in (("by-text", of_texts), ("by-image", of_images)):
        shown = [q.one("span", kind="rank").text for q in worst.all("div", kind=kind)]
        assert shown == [f"rank {rank + 1}" for rank in sorted(ranks, reverse=True)[:3]]


def test_contents_lists_the_sections_with_failures_before_examples(page) -> None:
    sections = [section.attributes["id"] for section in page.one("main").all("section")]
    links = page.one("nav").all("a")
    assert [link.attributes["href"] for link in links] == [f"#{name}" for name in sections]
    assert [link.text for link in links] == [heading.text for heading in page.all("h2")]
    assert sections[:3] == ["recall", "worst", "text-to-image"] and sections[-2:] == ["training", "about"]


def test_what_found_its_own_first_did_not_fail(tiny_run, scenes) -> None:
    gallery = Gallery(Space(tiny_run, scenes, "val"))
    ranks = np.zeros(len(gallery.space.part), np.int64)
    ranks[2] = 7
    worst = gallery.worst(ranks, np.zeros(len(gallery.space.text_list), np.int64), 3)
    assert worst.texts == [] and [query.picture.row for query in worst.images if query.picture] == [2]


def test_sentences_without_words_are_no_sentences_with_unknown_words(tiny_run, scenes) -> None:
    gallery = Gallery(Space(tiny_run, scenes, "val"))
    lengths, known = np.full((2, len(gallery.space.text_list)), 3)
    lengths[4], known[[4, 7]] = 0, (0, 1)
    gallery.space.coverage = Coverage(lengths, known, known)
    ranks = np.ones(len(gallery.space.part), np.int64), np.ones(len(lengths), np.int64)
    worst, texts = gallery.worst(*ranks, 3), gallery.space.text_list
    assert [query.text for query in worst.unknown] == [texts[7]]
    assert [query.text for query in worst.wordless] == [texts[4]]


def test_sentences_with_unknown_words_are_marked_and_are_no_failures_of_the_model(tiny_run, scenes, tmp_path) -> None:
    part = scenes.split("val")
    run = forgetful(tiny_run, set(part.captions[0].lower().split()), tmp_path / "run")
    metrics = evaluate_run(run, scenes, "val")
    assert metrics.all_words_known is not None
    assert 0 < metrics.all_words_known.texts < len(part.captions)
    report_run(run, scenes, "val", tmp_path / "report.html", shown=200, seed=1)
    page = Page((tmp_path / "report.html").read_text(encoding="utf-8")).root
    known = {caption for caption in part.captions if not run.tokenizer.encode([caption])[0].tolist().count(1)}
    worst = page.one("section", id="worst")
    # The run keeps rare words already.
    assert run.recipe.word_remedies and all(remedy in worst.text for remedy in run.recipe.word_remedies)
    assert "min_count" not in worst.text
    marked = [bool(query.all("span", kind="unknown")) for query in worst.all("div", kind="by-text")]
    assert True in marked and marked == sorted(marked)  # Failures of the model come first.
    for query, is_marked in zip(worst.all("div", kind="by-text"), marked, strict=True):
        assert (query.one("q").text not in known) == is_marked
    for query in worst.all("div", kind="by-image"):
        assert known & set(part.captions_of(part.keys.index(str(query.attributes["data-key"]))))
    for query in page.one("section", id="text-to-image").all("div", kind="by-text"):
        assert bool(query.all("span", kind="unknown")) == (query.one("q").text not in known)


def test_arithmetic_is_marked_by_what_captions_say(page, embedded) -> None:
    part = embedded[0]
    said = {key: set(" ".join(own).split()) for key, own in zip(part.keys, part.caption_lists(), strict=True)}
    examples = page.one("section", id="arithmetic").all("div", kind="query")
    assert len(examples) == 6
    for example in examples:
        key = str(example.attributes["data-key"])
        minus, plus = (span.text for span in example.all("span", kind="word"))
        assert minus in said[key] and plus not in said[key]
        assert any({minus, plus} <= set(words) for words in FAMILIES.values())
        found = example.all("li")
        assert len(found) == 4 and key not in [place.attributes["data-key"] for place in found]
        for place in found:
            right = plus in said[str(place.attributes["data-key"])]
            assert place.attributes["class"] == ("right" if right else "wrong")
            assert place.one("span", kind="mark").text.endswith(f" {found.index(place) + 1}")


def test_the_plane_shows_words_and_their_images(page) -> None:
    plane = page.one("section", id="plane").one("div", kind="plane")
    words = [node.text for node in plane.all("b")]
    assert any(set(words) <= set(family) for family in FAMILIES.values())
    for image in plane.all("img"):
        assert len(set(words) & set(str(image.attributes["alt"]).split())) <= 1
    places = [node.attributes["style"] for node in (*plane.all("b"), *plane.all("img"))]
    numbers = [float(n) for place in places for n in re.findall(r"[\d.]+", str(place))]
    assert len(numbers) == 2 * len(places) and 0 < min(numbers) < 10 and 90 < max(numbers) < 100


def test_needs_nothing_but_itself(path, page) -> None:
    text = path.read_text(encoding="utf-8")
    assert len(text) < 1_000_000
    assert not re.search(r"https?:|@import|url\(|(?<![\w<])//", re.sub(r'"data:[^"]*"', "", text))
    assert not page.all("script") and not page.all("link")
    assert all(str(link.attributes["href"]).startswith("#") for link in page.all("a"))
    images = page.all("img")
    assert len(images) > 60
    for image in images:
        assert image.attributes["alt"]
        head, _, body = str(image.attributes["src"]).partition(",")
        assert head == "data:image/jpeg;base64"
        with Image.open(io.BytesIO(base64.b64decode(body, validate=True))) as shown:
            shown.load()
            if "width" in image.attributes:
                size = (int(str(image.attributes[side])) for side in ("width", "height"))
                assert shown.size == tuple(size) and max(shown.size) == 160
    for head in page.one("table").all("th"):
        assert head.attributes["scope"] in ("col", "row")


def test_the_same_again_is_the_same_page(path, tiny_run, scenes, tmp_path) -> None:
    # A copy's files are newer than what it was copied from.
    copy = shutil.copytree(tiny_run.path, tmp_path / tiny_run.path.name, copy_function=shutil.copyfile)
    for file in copy.rglob("*.h5"):
        os.utime(file, (0, 0))
    again = report_run(Run.open(copy), scenes, "train", tmp_path / "again.html", shown=6, seed=1).path
    assert again.read_bytes() == path.read_bytes()


def test_captions_are_text(tiny_run, scenes_copy, tmp_path) -> None:
    split = scenes_copy.split("val")
    split.captions, split.keys = [SCRIPT] * len(split.captions), [SCRIPT] * len(split)
    out = report_run(tiny_run, scenes_copy, "val", tmp_path / "report.html").path
    root = Page(out.read_text(encoding="utf-8")).root
    assert not root.all("script")
    assert {node.text for node in root.all("q")} == {SCRIPT}
    assert all(node.attributes["alt"] == SCRIPT for node in root.all("img"))


@pytest.mark.slow
def test_a_browser_shows_it_without_a_request(path, tmp_path) -> None:
    keys = pytest.importorskip("selenium.webdriver.common.keys", reason="the extra dev is not installed")
    with headless_chromium(tmp_path / "profile") as browser:
        browser.get(path.as_uri())
        widths = browser.execute_script("return [...document.images].map(one => one.naturalWidth)")
        assert len(widths) > 60 and min(widths) > 0
        assert (
            browser.execute_script(
                "return performance.getEntriesByType('resource').filter(one => !one.name.startsWith('data:')).length"
            )
            == 0
        )
        assert not browser.get_log("browser")
        for scheme, dark in zip(SCHEMES, (False, True), strict=True):
            emulate(browser, 1280, scheme)
            colour = browser.execute_script("return getComputedStyle(document.body).backgroundColor")
            assert (sum(map(int, re.findall(r"\d+", colour)[:3])) < 100) == dark
            assert axe_violations(browser) == []
            emulate(browser, 320, scheme)
            assert browser.execute_script("return document.documentElement.scrollWidth") == 320
            assert axe_violations(browser) == []
        # Images of a query stand beside each other, and the first key goes to the link past the contents.
        tops = browser.execute_script(
            "return [...document.querySelector('.by-text ol').children].map(one => one.offsetTop)"
        )
        assert tops[0] == tops[1] < tops[2]
        focused = "const it = document.activeElement; return [it.hash, getComputedStyle(it).outlineStyle]"
        for target in ("#content", "#recall"):
            browser.switch_to.active_element.send_keys(keys.Keys.TAB)
            assert browser.execute_script(focused) == [target, "solid"]


def test_examples_that_are_asked_for(tiny_run, scenes, tmp_path) -> None:
    key, out = scenes.split("val").keys[2], tmp_path / "report.html"
    report_run(tiny_run, scenes, "val", out, shown=1, arithmetic=[(key, "a circle", "red")])
    example = Page(out.read_text(encoding="utf-8")).root.one("section", id="arithmetic").one("div", kind="query")
    assert example.attributes["data-key"] == key
    assert [span.text for span in example.all("span", kind="word")] == ["a circle", "red"]
    for wanted, said in (
        (("nothing.png", "red", "blue"), "nothing.png"),
        ((key, "zyx", "blue"), "zyx"),
        ((key, "red", " "), "' '"),
    ):
        with pytest.raises(InvalidArgumentError, match=re.escape(said)):
            report_run(tiny_run, scenes, "val", tmp_path / "refused.html", arithmetic=[wanted])
    assert not (tmp_path / "refused.html").exists()


def test_without_jinja2_nothing_is_embedded(tiny_run, scenes, tmp_path, monkeypatch) -> None:
    real = builtins.__import__

    def refuse(name, *arguments, **keywords):
        if name == "jinja2":
            raise ImportError(name)
        return real(name, *arguments, **keywords)

    monkeypatch.setattr(builtins, "__import__", refuse)
    monkeypatch.setattr(Embedder, "images", lambda *arguments: pytest.fail("embedded"))
    with pytest.raises(MissingExtraError, match=r"vsemb\[report\]"):
        report_run(tiny_run, scenes, "val", tmp_path / "report.html")
    assert not list(tmp_path.iterdir())


def test_without_failures_and_curves_the_page_says_so(tiny_run, scenes, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(Gallery, "worst", lambda *_: Failures([], [], [], []))
    monkeypatch.setattr("vsemb.report.curves.read_metrics", lambda path: {})
    out = report_run(tiny_run, scenes, "val", tmp_path / "report.html", shown=1).path
    root = Page(out.read_text(encoding="utf-8")).root
    assert "every query has its own" in root.one("section", id="worst").text
    assert "fewer than two epochs" in root.one("section", id="training").text


def test_the_headline_is_never_trivially_true() -> None:
    side = {"R@1": 50.0, "R@5": 100.0, "R@10": 100.0}
    for images, said in (
        (1, "50 % of sentences find their image first; chance 100 %"),
        (5, "50 % of sentences find their image first; chance 20 %"),
        (10, "100 % of sentences find their image among the first five; chance 50 %"),
        (5000, "100 % of sentences find their image among the first ten; chance 0.2 %"),
    ):
        chance = _chance(np.repeat(np.arange(images), 5), images)
        assert _headline(RetrievalMetrics(side, side, images, 5 * images), chance) == said


def test_without_image_bytes_keys_stand_for_images(tiny_run, scenes_copy, tmp_path) -> None:
    scenes_copy.split("train").has_images = False
    out = report_run(tiny_run, scenes_copy, "train", tmp_path / "report.html", shown=2).path
    root = Page(out.read_text(encoding="utf-8")).root
    assert not root.all("img")
    keys = {node.text for node in root.all("div", kind="nothing")}
    assert keys and keys <= set(scenes_copy.split("train").keys)
    place = root.one("section", id="text-to-image").all("li")[0]
    assert place.one("div", kind="nothing").text == place.attributes["data-key"]
