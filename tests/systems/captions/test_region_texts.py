"""Readers of region annotations: Visual Genome, COCO's form, and phrases of captions."""

from __future__ import annotations

import json

import numpy as np
import pytest

from vsemb.errors import DataError
from vsemb.systems.captions.region_texts import RegionTexts, named_region_texts, read_region_texts


def test_visual_genome_and_coco_say_the_same(region_scenes, tmp_path) -> None:
    part = region_scenes.split("val")
    first, third = part.keys[0], part.keys[2]
    regions = [(third, [8, 4, 16, 8], "a dog"), (first, [0, 0, 32, 16], "the sky"), ("unknown", [0, 0, 4, 4], "none")]
    sides = ("x", "y", "width", "height")
    genome = [
        {"id": key, "regions": [{"image_id": key, "phrase": text, **dict(zip(sides, box, strict=True))}]}
        for key, box, text in regions
    ]
    coco = {"annotations": [{"image_id": key, "bbox": box, "caption": text} for key, box, text in regions]}
    assert part.sizes[0].tolist() == [32, 32]
    for content in (genome, coco):
        path = tmp_path / "regions.json"
        path.write_text(json.dumps(content))
        annotations = read_region_texts(path, region_scenes, part)
        assert annotations.rows.tolist() == [0, 2] and annotations.texts == ["the sky", "a dog"]
        assert annotations.boxes.tolist() == [[0, 0, 1, 0.5], [0.25, 0.125, 0.5, 0.25]]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ([{"regions": [{"image_id": 1}]}], "regions.json"),
        ({"images": []}, "regions.json"),
        ({"annotations": [{"image_id": 1, "bbox": [0, 0, 2], "caption": "a"}]}, "annotation 0"),
        ({"annotations": [{"image_id": "no", "bbox": [0, 0, 2, 2], "caption": "a"}]}, "'val'"),
    ],
)
def test_other_files_are_refused(region_scenes, tmp_path, content, message: str) -> None:
    path = tmp_path / "regions.json"
    path.write_text(json.dumps(content))
    with pytest.raises(DataError, match=message):
        read_region_texts(path, region_scenes, region_scenes.split("val"))


class OneImage:
    """A split of one image of 20 x 10 pixels with two objects."""

    name = "val"
    sizes = np.array([[20, 10]])
    objects = ([{"box": [0, 0, 10, 10]}, {"box": [10, 5, 5, 5]}],)
    captions = ("a red ring above two stars", "the ring is large")
    # "two stars" are both objects, and "large" is a predicate.
    alignments = ([[(1, 0), (2, 0), (4, 0), (4, 1), (5, 0), (5, 1)], [(1, 0), (3, 0)]],)

    def __len__(self) -> int:
        return 1

    def captions_of(self, row: int) -> tuple[str, ...]:
        return self.captions


def test_phrases_name_one_object() -> None:
    phrases = named_region_texts(OneImage())  # type: ignore[arg-type]
    assert phrases.texts == ["red ring", "ring"] and phrases.rows.tolist() == [0, 0]
    assert phrases.boxes.tolist() == [[0, 0, 0.5, 1], [0, 0, 0.5, 1]]
    assert phrases.references() == [["red ring", "ring"], ["ring", "red ring"]]


def test_regions_of_other_images_are_others() -> None:
    boxes = np.tile(np.array([[0, 0, 1, 1]], np.float32), (2, 1))
    assert RegionTexts(np.array([0, 1]), boxes, ["a", "b"]).references() == [["a"], ["b"]]
