"""The demonstration of a run of regions."""

from __future__ import annotations

import pytest

from tests.raising import raises_argument
from tests.searched import search_run
from vsemb.demo.answers import Demo
from vsemb.demo.page import Cards
from vsemb.demo.pictures import DatasetPictures, open_source
from vsemb.errors import DataError
from vsemb.runs.inputs import Query


@pytest.mark.slow
def test_sets_are_searched_and_compared_and_not_added(region_run, region_scenes):
    demo = Demo(region_run, DatasetPictures(region_scenes, "val"), report=lambda line: None)
    part = region_scenes.split("val")
    assert not demo.has_arithmetic and not demo.has_order and demo.dim == 16 and len(demo.pictures) == 12
    by_text, by_image = demo.by_text("two shapes", 5), demo.by_image(part.keys[3], 5)
    for results, query, options in (
        (by_text.images, Query("two shapes"), {}),
        (by_image.images, Query(image=part.keys[3]), {}),
        (by_image.captions, Query(image=part.keys[3]), {"captions": True}),
    ):
        wanted = search_run(region_run, region_scenes, query, k=5, split="val", **options)
        assert [(result.item.key, result.score) for result in results] == [
            (result.item.key, pytest.approx(result.score, rel=1e-4, abs=1e-4)) for result in wanted
        ]
    dropped = demo.by_image(part.read_image(3), 11)
    assert part.keys[3] not in {result.item.key for result in dropped.images}
    comparison = demo.compare(part.keys[3], ["two shapes", "a red circle"])
    scores = {each.text: each.score for each in comparison.sentences}
    (own,) = [r.score for r in demo.by_text("two shapes", 12).images if r.item.key == part.keys[3]]
    assert scores["two shapes"] == pytest.approx(own, rel=1e-4, abs=1e-4)
    with raises_argument("plus"):
        demo.arithmetic(part.keys[3], [], ["red"], 3)
    assert Cards(demo.pictures).answer(by_text).count("<figure>") == 5
    demo.close()


@pytest.mark.slow
def test_image_files_are_refused(region_run, tmp_path):
    (tmp_path / "photo.jpg").write_bytes(b"")
    with pytest.raises(DataError, match="one vector per image"):
        open_source(region_run, images=[tmp_path])
