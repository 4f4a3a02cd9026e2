"""Results of the demonstration's tabs, and their HTML; no page."""

from __future__ import annotations

import io
import re
import shutil
from html import unescape
from types import SimpleNamespace

import numpy as np
import pytest
from PIL import Image

from tests.raising import raises_argument
from tests.searched import search_run
from vsemb.demo import server
from vsemb.demo.answers import Answer, Demo, _shares
from vsemb.demo.page import Cards, failure, hint, notes
from vsemb.demo.pictures import DatasetPictures, examples
from vsemb.demo.tabs import label
from vsemb.demo.thumbnails import Thumbnails
from vsemb.errors import DataError, InvalidArgumentError
from vsemb.runs.inputs import Query
from vsemb.runs.run import Run


@pytest.fixture(scope="module")
def run(tiny_pixel_run, tmp_path_factory):
    return Run.open(shutil.copytree(tiny_pixel_run.path, tmp_path_factory.mktemp("demo") / "run"))


@pytest.fixture(scope="module")
def demo(run, scenes):
    return Demo(run, DatasetPictures(scenes, "val"), report=lambda line: None)


def found(results):
    return [(result.item.key, pytest.approx(result.score, abs=1e-5)) for result in results]


@pytest.mark.slow
def test_answers_are_those_of_the_search_command(demo, run, scenes):
    key = scenes.split("val").keys[3]
    cases = [
        (demo.by_text("two shapes", 5).images, Query("two shapes"), {}),
        (demo.by_image(key, 5).images, Query(image=key), {}),
        (demo.by_image(key, 5).captions, Query(image=key), {"captions": True}),
        (demo.arithmetic(key, ["red"], ["blue"], 5).images, Query(None, key, ("red",), ("blue",)), {}),
        (
            demo.arithmetic(key, ["red"], ["blue"], 5, resort=True).images,
            Query(None, key, ("red",), ("blue",)),
            {"resort": 20},
        ),
    ]
    for results, query, options in cases:
        wanted = search_run(run, scenes, query, k=5, split="val", report=lambda line: None, **options)
        assert [(result.item.key, result.score) for result in results] == found(wanted)
        assert [result.rank for result in results] == [1, 2, 3, 4, 5]


def test_a_dropped_image_is_not_its_own_answer(demo, scenes):
    val = scenes.split("val")
    by_bytes, by_key = demo.by_image(val.read_image(2), 11), demo.by_image(val.keys[2], 11)
    assert val.keys[2] not in {result.item.key for result in by_bytes.images}
    assert [(r.item.key, r.score) for r in by_bytes.images] == found(by_key.images)


def test_unknown_words_are_named(demo):
    assert demo.by_text("a red zyzzyva circle", 3).notes == ("Not known to the run: zyzzyva.",)
    assert demo.by_text("a red circle", 3).notes == ()
    with pytest.raises(InvalidArgumentError, match="^No word of “zyzzyva” is in the vocabulary"):
        demo.by_text("zyzzyva", 3)
    with pytest.raises(InvalidArgumentError, match="^Type a sentence first"):
        demo.by_text("  ", 3)


def test_what_cannot_be_answered_is_refused(demo, scenes):
    key = scenes.split("val").keys[0]
    for image, message in (
        (b"", "empty"),
        (b"no image", "known format"),
        (b"\xff\xd8\xff\xe0", "unreadable"),
    ):
        with pytest.raises(DataError, match=message):
            demo.by_image(image, 3)
    with pytest.raises(
        InvalidArgumentError, match=f"^scenes has no image named .no-such.*{re.escape(demo.pictures.items[0].key)}"
    ):
        demo.by_image("no-such", 3)
    for k in (0, 49):
        with pytest.raises(InvalidArgumentError, match="“Results” must be a number from 1 to 48"):
            demo.by_text("a circle", k)
    with pytest.raises(InvalidArgumentError, match="^Type 1 to 20 sentences"):
        demo.compare(key, [])
    with raises_argument("operation"):
        demo.of_texts("compose", ["a circle", "a square"], 3)
    assert "nearest images" in demo.arithmetic(key, [], [], 3).notes[0]


def test_compared_sentences_are_scored_by_the_similarity(demo, run, scenes):
    key = scenes.split("val").keys[1]
    texts = ["a red circle", "zyzzyva", "a blue square on a black background"]
    comparison = demo.compare(key, texts)
    assert comparison.notes == ("Skipped, because no word is known: zyzzyva",)
    (result,) = [r for r in demo.by_text(texts[0], 12).images if r.item.key == key]
    scores = {each.text: each.score for each in comparison.sentences}
    assert scores[texts[0]] == pytest.approx(result.score, abs=1e-5)
    assert list(scores.values()) == sorted(scores.values(), reverse=True) and len(scores) == 2
    with pytest.raises(InvalidArgumentError, match="zyzzyva"):
        demo.compare(key, ["zyzzyva"])


def test_bars_are_a_cosine_or_relative():
    # -1 .. -3 span 2: the best is whole, the worst empty, -2 half.
    assert _shares(np.array([-2.0, -1.0, -3.0]), False).tolist() == [0.5, 1.0, 0.0]
    assert _shares(np.array([-2.0, -2.0]), False).tolist() == [1.0, 1.0]
    assert _shares(np.array([0.25, -0.5]), True).tolist() == [0.25, 0.0]


def test_an_order_has_composition_and_abstraction(scenes, tmp_path, tiny_order_run):
    trained = Run.open(shutil.copytree(tiny_order_run.path, tmp_path / "order"))
    demo = Demo(trained, DatasetPictures(scenes, "val"), report=lambda line: None)
    assert demo.has_order
    texts = ("a red circle", "a blue square")
    for operation in ("compose", "abstract"):
        wanted = search_run(trained, scenes, Query(**{operation: texts}), k=5, split="val", report=lambda line: None)
        got = demo.of_texts(operation, texts, 5).images
        assert [(result.item.key, result.score) for result in got] == found(wanted)
    with pytest.raises(InvalidArgumentError, match="^Type two or more texts"):
        demo.of_texts("compose", texts[:1], 3)
    # Its features are precomputed: a new image cannot be embedded, one of the dataset's can.
    assert not demo.takes_files
    with pytest.raises(DataError, match="cannot embed images"):
        demo.by_image(scenes.split("train").read_image(0), 3)
    assert len(demo.by_image(scenes.split("val").keys[0], 3).images) == 3


def test_cards_show_the_image_they_name(demo, scenes):
    cards, thumbnails = Cards(demo.pictures), Thumbnails(demo.pictures)
    answer = demo.by_text("a red circle", 4)
    html = cards.answer(answer)
    places = [int(place) for place in re.findall(r'src="pictures/(\d+)"', html)]
    assert len(places) == 4
    split = scenes.split("val")
    for place, result in zip(places, answer.images, strict=True):
        shown = np.asarray(Image.open(io.BytesIO(thumbnails.small(place))), np.float32)
        row = split.keys.index(result.item.key)
        # The page shows a small image larger, by the same filter.
        image = Image.open(io.BytesIO(split.read_image(row))).convert("RGB")
        stored = np.asarray(image.resize(shown.shape[1::-1], Image.Resampling.LANCZOS), np.float32)
        assert shown.shape == stored.shape and np.abs(shown - stored).mean() < 12
        assert result.item.key in html and f"{result.score:.3f}" in html
    assert "Nearest captions" not in html
    assert re.findall('data-key="([^"]+)"', html) == [result.item.key for result in answer.images]
    assert html.count("<li>") == 0 and cards.answer(demo.by_image(split.keys[0], 3)).count("<li>") == 3
    assert split.keys[0] in cards.preview(split.keys[0])


def test_text_never_becomes_markup():
    for text in ("<script>alert(1)</script>", '"><img src=x onerror=alert(1)>', "a & b"):
        for html in (notes([text]), hint(text), failure(text)):
            inner = html[html.index(">") + 1 : html.rindex("</p>")]
            assert "<" not in inner and unescape(inner) == text
    assert notes([]) == "" and Answer().images == ()


def test_a_button_holds_the_beginning_of_a_long_caption():
    assert label("a red  circle") == "a red circle"
    assert label("a " + "b" * 3000) == "a " + "b" * 23 + "…"
    long = label("a red circle " * 99)
    assert len(long) <= 60 and long.endswith("…")


def test_examples_are_short_where_enough_captions_are():
    short = [f"a circle {number}" for number in range(9)]
    assert examples(["a " + "long " * 20, *short, *short]) == short[::2][:4]
    assert examples(["a " + "long " * 20, "b" * 60, "c"]) == ["c", "b" * 60, "a " + "long " * 20]


def test_warming_up_runs_every_encoder_and_bears_what_cannot_be_read(demo, run, scenes, monkeypatch):
    asked = []
    encoders = run.encoders(images=False)
    real = encoders.encode_text
    monkeypatch.setattr(demo, "by_image", lambda image, k: asked.append(image))
    monkeypatch.setattr(encoders, "encode_text", lambda texts: asked.append(len(texts)) or real(texts))
    demo.warm_up()
    # With the sample as a query, if a word of it is known, and without.
    assert asked == [scenes.split("val").read_image(0), 1, 1]
    monkeypatch.undo()
    monkeypatch.setattr(demo, "_first", lambda: b"no image")
    demo.warm_up()


def test_the_model_is_warm_before_the_address_is_announced(monkeypatch):
    done = []
    shown = SimpleNamespace(pictures=None, warm_up=lambda: done.append("warm"), close=lambda: done.append("closed"))
    for name, fake in {
        "_import_gradio": lambda: None,
        "open_tabs": lambda *_: shown,
        "build_page": lambda *_: None,
        "_application": lambda *_: None,
        "_serve": lambda application, listener, started, access: started(),
    }.items():
        monkeypatch.setattr(server, name, fake)
    with pytest.raises(KeyboardInterrupt):
        server.serve_page(None, None, port=0, report=done.append)
    assert done[0] == "warm" and done[1].startswith("The demonstration is at http://127.0.0.1:") and done[2] == "closed"
