"""What the demonstration answers with a run that writes captions, alone and beside one that searches."""

from __future__ import annotations

import shutil

import pytest

from tests.raising import raises_argument
from vsemb import Run
from vsemb.demo.answers import Demo
from vsemb.demo.page import Cards, build_page, open_tabs
from vsemb.demo.pictures import DatasetPictures
from vsemb.demo.server import serve_page
from vsemb.errors import DataError, InvalidArgumentError
from vsemb.systems.captions.captioning import CaptionOptions, caption_images
from vsemb.systems.captions.demo import CaptionDemo


@pytest.mark.slow
def test_answers_are_those_of_the_caption_command(region_caption_run, region_scenes):
    demo = CaptionDemo(region_caption_run, DatasetPictures(region_scenes, "val"), CaptionOptions(n_best=2))
    part = region_scenes.split("val")
    assert len(demo.pictures) == 12 and demo.pictures.items[3].key == part.keys[3]
    (wanted,) = caption_images(region_caption_run, [part.keys[3]], region_scenes, CaptionOptions(n_best=2))
    assert demo.written(part.keys[3]) == wanted.captions and len(wanted.captions) == 2
    # Dropped, the same image is read by the served network: its features are those of the cache, rounded.
    dropped = demo.written(part.read_image(3))
    assert [text for text, _ in dropped] == [text for text, _ in wanted.captions]
    for image in (b"", b"no image"):
        with pytest.raises(DataError):
            demo.written(image)
    with pytest.raises(InvalidArgumentError, match="no-such"):
        demo.written("no-such")


@pytest.mark.slow
def test_captions_stand_above_what_is_found(tiny_run, caption_run, scenes, tmp_path):
    key = scenes.split("val").keys[2]
    searched = Run.open(shutil.copytree(tiny_run.path, tmp_path / "run"))
    pictures = DatasetPictures(scenes, "val")
    demo = Demo(searched, pictures, lambda line: None, CaptionDemo(caption_run, pictures))
    answer = demo.by_image(key, 3)
    (wanted,) = caption_images(caption_run, [key], scenes)
    assert answer.written == wanted.captions and demo.by_text("a red circle", 3).written is None
    html = Cards(demo.pictures).answer(answer)
    best = html.index(f">{wanted.captions[0][0]}</div>")
    assert html.index("Generated captions") < best < html.index("Nearest captions")
    assert "Generated captions" not in Cards(demo.pictures).answer(demo.by_text("a red circle", 3))
    demo.close()


def test_captions_never_become_markup(caption_run, scenes):
    cards = Cards(DatasetPictures(scenes, "val"))
    html = cards.written([("<script>alert(1)</script>", -1.5)])
    assert "<script>" not in html and "&lt;script&gt;" in html and "<b>-1.50</b>" in html
    assert "No caption was found" in cards.written([])


def test_the_page_writes_captions_of_a_key(caption_run, scenes):
    gradio = pytest.importorskip("gradio")
    blocks = build_page(gradio, caption_run, open_tabs(caption_run, lambda: DatasetPictures(scenes, "val")))
    key = scenes.split("val").keys[0]
    (wanted,) = caption_images(caption_run, [key], scenes)
    answers = [each.fn for each in blocks.fns.values() if len(each.inputs) == 2]
    # By the button, by a dropped image, and by another key.
    assert len(answers) == 3
    for answer in answers:
        assert wanted.captions[0][0] in answer(None, key)
        assert "Drop an image, or choose" in answer(None, None)


def test_a_second_run_that_writes_captions_is_refused(caption_run, scenes):
    pytest.importorskip("gradio", reason="the extra demo is not installed")
    with raises_argument("captions"):
        serve_page(caption_run, lambda: DatasetPictures(scenes), port=0, captioning=caption_run)
