"""Regions that fit a snippet: scores by hand, one or several an image, blocks, padding."""

from __future__ import annotations

import numpy as np
import pytest

from tests.raising import raises_argument
from tests.systems.regions.set_run import Images, Regions, SetRun
from vsemb.errors import DataError
from vsemb.systems.regions import region_search
from vsemb.systems.regions.image_tower import Regions as Tower
from vsemb.systems.regions.region_search import best_regions, region_sheet, search_regions

WORDS = {"red": [1.0, 0.0], "bus": [0.5, 1.0], "blue": [-1.0, 0.0]}
WHOLE, LEFT, RIGHT, NONE = [0, 0, 1, 1], [0, 0, 0.5, 1], [0.5, 0, 0.5, 1], [0, 0, 0, 0]

# Scores with "red bus", of which the vectors add up to (1.5, 1):
# image 0   whole 1.5 + 0 = 1.5   left 0 + 2 = 2     right 3 + 0 = 3
# image 1   whole 0 + 1 = 1       left -3            no third region
# image 2   whole 1.5 + 2 = 3.5   left 3 + 1 = 4     right 1.5 + 2 = 3.5
VECTORS = np.array([[[1, 0], [0, 2], [2, 0]], [[0, 1], [-2, 0], [9, 9]], [[1, 2], [2, 1], [1, 2]]], np.float32)
BOXES = np.array([[WHOLE, LEFT, RIGHT], [WHOLE, LEFT, NONE], [WHOLE, LEFT, RIGHT]])


@pytest.fixture
def images() -> Images:
    return Images(train=[["a"], ["b"]], val=[["c"]])


@pytest.fixture
def run() -> SetRun:
    return SetRun(WORDS, Regions(VECTORS, BOXES))


def found(results) -> list[tuple[str, int, float]]:
    assert [result.rank for result in results] == list(range(1, len(results) + 1))
    return [(result.key, result.region, result.score) for result in results]


def test_a_region_an_image(run, images) -> None:
    results = search_regions(run, images, "Red bus!")
    assert found(results) == [("2.png", 1, 4.0), ("0.png", 2, 3.0), ("1.png", 0, 1.0)]
    assert results[1].to_json() == {
        "rank": 2,
        "score": 3.0,
        "key": "0.png",
        "id": 0,
        "split": "train",
        "region": 2,
        "box": (10, 0, 10, 10),
    }


def test_several_an_image_and_ties_in_the_order_of_the_dataset(run, images) -> None:
    results = search_regions(run, images, "red bus", all_regions=True, k=5)
    assert found(results) == [
        ("2.png", 1, 4.0),
        ("2.png", 0, 3.5),
        ("2.png", 2, 3.5),
        ("0.png", 2, 3.0),
        ("0.png", 1, 2.0),
    ]
    # Padding is never found, though its vector would win.
    assert len(search_regions(run, images, "red bus", all_regions=True, k=100)) == 8


def test_a_run_on_few_regions_finds_none_that_it_never_read(run, images) -> None:
    run.recipe.image = Tower(max_regions=1)
    assert found(search_regions(run, images, "red bus")) == [
        ("2.png", 0, 3.5),
        ("0.png", 0, 1.5),
        ("1.png", 0, 1.0),
    ]


def test_parts_alone(run, images) -> None:
    assert found(search_regions(run, images, "red bus", parts=True)) == [
        ("2.png", 1, 4.0),
        ("0.png", 2, 3.0),
        ("1.png", 1, -3.0),
    ]
    assert search_regions(run, images, "blue", split="train", parts=True, k=1)[0].key == "1.png"


def test_one_split(run, images) -> None:
    assert [result.split for result in search_regions(run, images, "bus", split="val")] == ["val"]


@pytest.mark.parametrize("block", [1, 3, 6, 7])
@pytest.mark.parametrize("every", [False, True])
def test_blocks_change_nothing(run, images, block, every, monkeypatch) -> None:
    wanted = [search_regions(run, images, "red bus", all_regions=every, k=k) for k in (1, 2, 4)]
    monkeypatch.setattr(region_search, "_BLOCK", block)
    run.features_of(images).asked.clear()
    assert [search_regions(run, images, "red bus", all_regions=every, k=k) for k in (1, 2, 4)] == wanted
    assert max(run.features_of(images).asked) == max(1, min(2, block // 3))


def test_against_a_loop() -> None:
    generator = np.random.default_rng(3)
    vectors = generator.integers(-2, 3, (40, 4, 2)).astype(np.float32)
    boxes = np.tile(np.array([WHOLE, LEFT, RIGHT, [0.1, 0.1, 0.2, 0.2]]), (40, 1, 1))
    boxes[generator.random((40, 4)) < 0.3] = 0
    boxes[:, 0] = WHOLE
    run = SetRun(WORDS, Regions(vectors, boxes))
    images = Images(val=[["a"]] * 40)
    wanted = sorted(
        (-vectors[row, region].sum(), row, region)
        for row in range(40)
        for region in range(4)
        if boxes[row, region].any()
    )
    results = best_regions(run, images, ["val"], lambda regions: regions.sum(axis=2), 25, all_regions=True)
    assert [(-result.score, result.row, result.region) for result in results] == wanted[:25]


def test_words_that_are_not_known(run, images) -> None:
    said: list[str] = []
    with_unknown = search_regions(run, images, "red zyzzyva bus", report=said.append)
    # The vector of unknown words is zero here.
    assert found(with_unknown) == found(search_regions(run, images, "red bus"))
    assert said == ["Warning: not known to the run: zyzzyva."]
    for text in ("zyzzyva", "", "...", "red \udcff bus"):
        with raises_argument("query"):
            search_regions(run, images, text)


def test_what_is_refused(run, images, tiny_run, scenes) -> None:
    with raises_argument("k"):
        search_regions(run, images, "red", k=0)
    with pytest.raises(DataError, match="vsemb regions"):
        search_regions(SetRun(WORDS, None), images, "red")
    with pytest.raises(DataError, match="vsemb train dvsa"):
        search_regions(tiny_run, scenes, "red")


def test_scores_that_are_not_finite_find_nothing(images) -> None:
    broken = VECTORS.copy()
    broken[1, 1] = np.nan
    with pytest.raises(DataError, match="NaN"):
        best_regions(SetRun(WORDS, Regions(broken, BOXES)), images, ["train"], lambda each: each.sum(axis=2), 1)


def test_a_sheet_of_crops(run, images) -> None:
    results = search_regions(run, images, "red bus", all_regions=True, k=4)
    sheet = np.asarray(region_sheet(images, results, 100))
    # Image 2: its left half is of grey 30, and the right half of image 0 black.
    grey, black = (np.all(sheet == value, axis=2).sum() for value in (30, 0))
    assert grey > 100 * 100 and black > 100 * 100
