"""The report: numbers, marks, pictures, self-containedness, accessibility."""

from __future__ import annotations

import base64
import builtins
import hashlib
import io
import json
import os
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from tests.forgetful import forgetful
from tests.html_tree import Node, Page
from tests.raising import raises_argument
from vsemb import write_report
from vsemb.errors import InvalidArgumentError, MissingExtraError
from vsemb.evaluation import Embedder, evaluate_retrieval
from vsemb.evaluation.retrieval import RetrievalMetrics, retrieval_ranks
from vsemb.files import locked, read_json, write_json
from vsemb.report import queries as queries_module
from vsemb.report.page import training_state
from vsemb.report.queries import NOTHING, PARTLY, WHOLE, Gallery
from vsemb.report.retrieval import _chance, _headline
from vsemb.report.space import Space
from vsemb.report.words import FAMILIES
from vsemb.runs.measure import evaluate_run
from vsemb.runs.run import RECIPE, STATE, STATUS, Run
from vsemb.text.coverage import Coverage

SCRIPT = '<script>alert("1")</script> & a "red" circle'


@pytest.fixture(scope="module")
def path(tiny_run, scenes, tmp_path_factory) -> Path:
    """A report on the 48 images of train, so that words have images enough."""
    out = tmp_path_factory.mktemp("report") / "report.html"
    assert write_report(tiny_run, data=scenes, split="train", out=out, shown=6, seed=1).path == out
    return out


@pytest.fixture(scope="module")
def page(path) -> Node:
    return Page(path.read_text(encoding="utf-8")).root


@pytest.fixture(scope="module")
def data(page) -> dict[str, Any]:
    return data_of(page)


def data_of(page: Node) -> dict[str, Any]:
    """The queries of a page, as its script reads them."""
    return json.loads(page.one("script", id="data").inside[0])


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
    assert re.fullmatch(r"finished after 2 epochs, \d{1,2} \w+ 20\d\d", facts["Training"])
    assert facts["Text encoder"] == "gru over words"
    assert tiny_run.fingerprint in page.one("footer").text and scenes.fingerprint in page.one("footer").text
    assert facts["Selected epoch"] == f"{tiny_run.info['best_epoch'] + 1} of 2"
    assert facts["Parameters"].replace(",", "") == str(tiny_run.model.count_params())
    assert facts["Measured on"] == "scenes, train: 48 images, 240 captions"


def test_queries_have_their_best_results(data, embedded, tiny_run) -> None:
    part, images, texts = embedded
    ranks = retrieval_ranks(images, texts, part.ids, part.ids[part.caption_rows], tiny_run.model.similarity)
    scores = images @ texts.T
    for name, lines, own_ranks, right in (
        ("byImage", scores, ranks[0], lambda row: part.caption_rows == row),
        ("byText", scores.T, ranks[1], lambda row: np.arange(len(part)) == part.caption_rows[row]),
    ):
        assert sorted(query[0] for query in data[name]) == list(range(len(lines)))
        for row, rank, known, found, said in data[name]:
            assert rank == own_ranks[row] + 1 and known == WHOLE
            np.testing.assert_allclose(lines[row, found[:5]], np.sort(lines[row])[::-1][:5], atol=1e-6)
            np.testing.assert_allclose(lines[row, found], np.array(said, float), atol=6e-3)
            # The right result is always there, and comes last where it is not among the first.
            assert right(row)[found].any() and len(found) == (5 if rank <= 5 else 6)
            assert rank <= 5 or right(row)[found].tolist() == [False] * 5 + [True]
    assert data["texts"] == list(part.captions) and data["keys"] == list(part.keys)
    assert [[data["texts"][text] for text in own] for own in data["own"]] == list(part.caption_lists())


def test_the_worst_queries_come_first(data) -> None:
    for name in ("byImage", "byText"):
        ranks = [query[1] for query in data[name]]
        assert ranks[:6] == sorted(ranks, reverse=True)[:6]


def test_contents_lists_the_sections(page) -> None:
    sections = [section.attributes["id"] for section in page.one("main").all("section")]
    links = page.one("nav").all("a")
    assert [link.attributes["href"] for link in links] == [f"#{name}" for name in sections]
    assert [link.text for link in links] == [heading.text for heading in page.all("h2")]
    assert sections == ["recall", "queries", "arithmetic", "plane", "training", "about"]


def test_many_images_are_sampled_with_the_worst_first(tiny_run, scenes, monkeypatch) -> None:
    monkeypatch.setattr(queries_module, "IMAGES", 20)
    space = Space(tiny_run, scenes, "train")
    gallery = Gallery(space, 2, 0)
    assert len(gallery.images) == len(gallery.by_image) <= 20
    chosen = set(gallery.images)
    assert 2 < len(gallery.by_text) < len(space.text_list)
    assert all(row in chosen for query in gallery.by_text for row, _ in query.found)
    for found, ranks in zip((gallery.by_image, gallery.by_text), gallery.ranks, strict=True):
        assert [query.rank for query in found[:2]] == [rank + 1 for rank in sorted(ranks, reverse=True)[:2]]
    known = json.loads(gallery.data())
    assert len(known["keys"]) == len(known["pictures"]) == len(known["own"]) == len(chosen)


def test_pictures_get_smaller_until_they_fit(tiny_run, scenes, monkeypatch) -> None:
    def sides(characters: int) -> set[int]:
        monkeypatch.setattr(queries_module, "_CHARACTERS", characters)
        pictures = json.loads(Gallery(space, 2, 0).data())["pictures"]
        assert len(pictures) == 12
        return {max(Image.open(io.BytesIO(base64.b64decode(one.partition(",")[2]))).size) for one in pictures}

    space = Space(tiny_run, scenes, "val")
    assert [sides(characters) for characters in (100_000, 1)] == [{320}, {96}]


def test_sentences_without_words_are_no_sentences_with_unknown_words(tiny_run, scenes) -> None:
    space = Space(tiny_run, scenes, "val")
    lengths, known = np.full((2, len(space.text_list)), 3)
    lengths[4], known[[4, 7]] = 0, (0, 1)
    space.coverage = Coverage(lengths, known, known)
    queries = {query[0]: query[2] for query in json.loads(Gallery(space, 3, 0).data())["byText"]}
    assert (queries[4], queries[7], queries[8]) == (NOTHING, PARTLY, WHOLE)


def test_queries_with_unknown_words_are_marked_and_are_no_failures_of_the_model(tiny_run, scenes, tmp_path) -> None:
    part = scenes.split("val")
    # Almost all words are rare: no image is left without an unknown word, and few sentences.
    run = forgetful(tiny_run, set(part.captions[0].lower().split()), tmp_path / "run")
    metrics = evaluate_run(run, scenes, "val")
    assert metrics.all_words_known is not None
    assert 0 < metrics.all_words_known.texts < len(part.captions)
    write_report(run, data=scenes, split="val", out=tmp_path / "report.html", seed=1)
    page = Page((tmp_path / "report.html").read_text(encoding="utf-8")).root
    remedies = str(page.one("div", id="groups").attributes["data-remedies"])
    # The run keeps rare words already.
    assert run.recipe.word_remedies and all(remedy in remedies for remedy in run.recipe.word_remedies)
    assert "min_count" not in remedies
    data = data_of(page)
    texts = {text: kind for text, _, kind, *_ in data["byText"]}
    assert sum(kind == WHOLE for kind in texts.values()) == metrics.all_words_known.texts
    for text, kind in texts.items():
        words = data["texts"][text].lower().split()
        unknown = [word for word in dict.fromkeys(words) if not run.reader.knows(word)]
        assert data["unknown"].get(str(text), []) == unknown
        assert kind == (NOTHING if len(unknown) == len(set(words)) else PARTLY if unknown else WHOLE)
    for image, _, kind, *_ in data["byImage"]:
        assert kind == min(texts[text] for text in data["own"][image])


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


def test_the_plane_shows_words_and_their_images(page, data) -> None:
    plane = page.one("section", id="plane").one("div", kind="plane")
    words = [node.text for node in plane.all("b")]
    assert any(set(words) <= set(family) for family in FAMILIES.values())
    points = plane.all("button", kind="point")
    assert len(points) > 8
    for point in points:
        image, word = int(str(point.attributes["data-image"])), str(point.attributes["class"]).split()[1]
        assert data["keys"][image] == point.attributes["aria-label"]
        said = " ".join(data["texts"][text] for text in data["own"][image])
        assert set(words) & set(said.split()) == {words[int(word[1:])]}
    places = [node.attributes["style"] for node in (*plane.all("b"), *points)]
    numbers = [float(n) for place in places for n in re.findall(r"[\d.]+", str(place))]
    assert len(numbers) == 2 * len(places) and 0 < min(numbers) < 10 and 90 < max(numbers) < 100


def test_needs_nothing_but_itself(path, page, data) -> None:
    text = path.read_text(encoding="utf-8")
    assert len(text) < 1_000_000
    assert not re.search(r"https?:|@import|url\(|(?<![\w<])//", re.sub(r'"data:[^"]*"', "", text))
    assert not page.all("link") and all("src" not in script.attributes for script in page.all("script"))
    script = page.all("script")[-1].inside[0]
    assert isinstance(script, str)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = str(page.all("meta")[2].attributes["content"])
    assert policy.startswith("default-src 'none';") and policy.endswith(f"script-src 'sha256-{digest}'")
    assert all(str(link.attributes["href"]).startswith("#") for link in page.all("a"))
    for picture in data["pictures"]:
        head, _, body = picture.partition(",")
        assert head == "data:image/webp;base64"
        with Image.open(io.BytesIO(base64.b64decode(body, validate=True))) as shown:
            assert max(shown.size) == 320
    images = page.all("img")
    assert len(images) == 30
    for image in images:
        assert image.attributes["alt"]
        head, _, body = str(image.attributes["src"]).partition(",")
        assert head == "data:image/jpeg;base64"
        with Image.open(io.BytesIO(base64.b64decode(body, validate=True))) as shown:
            shown.load()
            size = (int(str(image.attributes[side])) for side in ("width", "height"))
            assert shown.size == tuple(size) and max(shown.size) == 160
    for head in page.one("table").all("th"):
        assert head.attributes["scope"] in ("col", "row")


def test_the_same_again_is_the_same_page(path, tiny_run, scenes, tmp_path) -> None:
    # A copy's files are newer than what it was copied from.
    copy = shutil.copytree(tiny_run.path, tmp_path / tiny_run.path.name, copy_function=shutil.copyfile)
    for file in copy.rglob("*.h5"):
        os.utime(file, (0, 0))
    again = write_report(Run.open(copy), data=scenes, split="train", out=tmp_path / "again.html", shown=6, seed=1).path
    assert again.read_bytes() == path.read_bytes()


def test_captions_are_text(tiny_run, scenes_copy, tmp_path) -> None:
    split = scenes_copy.split("val")
    split.captions, split.keys = [SCRIPT] * len(split.captions), [SCRIPT] * len(split)
    out = write_report(tiny_run, data=scenes_copy, split="val", out=tmp_path / "report.html").path
    root = Page(out.read_text(encoding="utf-8")).root
    # The data and the page's own script, neither of which a text ends.
    assert len(root.all("script")) == 2
    assert set(data_of(root)["texts"]) == set(data_of(root)["keys"]) == {SCRIPT}
    assert all(node.attributes["alt"] == SCRIPT for node in root.all("img"))


def test_examples_that_are_asked_for(tiny_run, scenes, tmp_path) -> None:
    key, out = scenes.split("val").keys[2], tmp_path / "report.html"
    write_report(tiny_run, data=scenes, split="val", out=out, shown=1, arithmetic=[(key, "a circle", "red")])
    example = Page(out.read_text(encoding="utf-8")).root.one("section", id="arithmetic").one("div", kind="query")
    assert example.attributes["data-key"] == key
    assert [span.text for span in example.all("span", kind="word")] == ["a circle", "red"]
    for wanted, said in (
        (("nothing.png", "red", "blue"), "nothing.png"),
        ((key, "zyx", "blue"), "zyx"),
        ((key, "red", " "), "' '"),
    ):
        with pytest.raises(InvalidArgumentError, match=re.escape(said)):
            write_report(tiny_run, data=scenes, split="val", out=tmp_path / "refused.html", arithmetic=[wanted])
    assert not (tmp_path / "refused.html").exists()


def test_another_page_is_not_replaced(tiny_run, scenes, tmp_path) -> None:
    (tmp_path / "notes.html").write_text("<title>My notes</title>")
    with raises_argument("out"):
        write_report(tiny_run, data=scenes, out=tmp_path / "notes.html")
    assert (tmp_path / "notes.html").read_text() == "<title>My notes</title>"


def test_without_jinja2_nothing_is_embedded(tiny_run, scenes, tmp_path, monkeypatch) -> None:
    real = builtins.__import__

    def refuse(name, *arguments, **keywords):
        if name == "jinja2":
            raise ImportError(name)
        return real(name, *arguments, **keywords)

    monkeypatch.setattr(builtins, "__import__", refuse)
    monkeypatch.setattr(Embedder, "images", lambda *arguments: pytest.fail("embedded"))
    with pytest.raises(MissingExtraError, match=r"vsemb\[report\]"):
        write_report(tiny_run, data=scenes, split="val", out=tmp_path / "report.html")
    assert not list(tmp_path.iterdir())


def test_without_curves_the_page_says_so(tiny_run, scenes, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr("vsemb.report.curves.read_metrics", lambda path: {})
    out = write_report(tiny_run, data=scenes, split="val", out=tmp_path / "report.html", shown=1).path
    root = Page(out.read_text(encoding="utf-8")).root
    assert "fewer than two epochs" in root.one("section", id="training").text


@pytest.mark.parametrize(
    ("rows", "epochs", "status", "said"),
    [
        (3, 3, "finished", "finished after 3 epochs, 1 May 2026"),
        (1, 1, "finished", "finished after 1 epoch, 1 May 2026"),
        (2, 3, "finished", "stopped early after epoch 2 of 3, 1 May 2026"),
        (1, 3, "running", "stopped after epoch 1 of 3"),
        (0, 3, "finished", "finished, 1 May 2026"),
    ],
)
def test_the_head_tells_the_state_of_the_training(tiny_run, tmp_path, rows, epochs, status, said) -> None:
    path = shutil.copytree(tiny_run.path, tmp_path / "run")
    (path / "metrics.jsonl").write_text("".join(f'{{"epoch": {row}, "loss": 1.0}}\n' for row in range(rows)))
    stored = {name: value for name, value in read_json(path / STATUS).items() if name != "finished"}
    finished = {"finished": "2026-05-01"} if status == "finished" else {}
    write_json(path / STATUS, {**stored, **finished, "status": status})
    recipe = read_json(path / RECIPE)
    recipe["training"]["epochs"] = epochs
    write_json(path / RECIPE, recipe)
    assert training_state(Run.open(path)) == said
    with locked((path / STATE).parent, "busy"):
        assert training_state(Run.open(path)) == said.replace("stopped after", "in progress, after")


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
    out = write_report(tiny_run, data=scenes_copy, split="train", out=tmp_path / "report.html", shown=2).path
    root = Page(out.read_text(encoding="utf-8")).root
    assert not root.all("img")
    keys = {node.text for node in root.all("div", kind="nothing")}
    assert keys and keys <= set(scenes_copy.split("train").keys)
    assert data_of(root)["pictures"] == [] and data_of(root)["keys"] == list(scenes_copy.split("train").keys)
