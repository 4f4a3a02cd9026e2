"""Captions checked against the ground truth: those written are true, and of changed scenes they are not."""

from __future__ import annotations

import dataclasses
import functools
import random
from collections.abc import Iterator
from typing import Any

import pytest

from vsemb.data import synthetic as scenes
from vsemb.data.records import ImageRecord
from vsemb.data.synthetic import render, world
from vsemb.systems.captions.scene_truth import background_of, is_true

SIDE = 64
Objects = list[dict[str, Any]]
SIZE_WORDS = {"small", "little", "medium", "large", "big"}


def item(shape: str, colour: str, size: str, box: list[int]) -> dict[str, Any]:
    centre = [box[0] + box[2] / 2, box[1] + box[3] / 2]
    return {"shape": shape, "colour": colour, "size": size, "box": box, "centre": centre}


#: A large red star in the middle, small blue rings in the top left corner and on the right.
OBJECTS = [
    item("star", "red", "large", [20, 18, 26, 26]),
    item("ring", "blue", "small", [4, 3, 12, 12]),
    item("ring", "blue", "small", [50, 26, 12, 12]),
]


@pytest.mark.parametrize("image_size", [16, 64, 96])
@pytest.mark.parametrize("zero_shot", [False, True])
def test_every_caption_of_the_grammar_is_true(image_size: int, zero_shot: bool) -> None:
    images = {"train": 60, "test": 40} if zero_shot else {"train": 60, "compositional": 60}
    options: dict[str, Any] = {"image_size": image_size, "class_zero_shot_splits": zero_shot}
    for record in scenes.generate(images, seed=image_size, **options):
        background = background_of(record.image)
        for caption in record.captions:
            told = f"{caption!r} of {record.objects}"
            assert is_true(caption, record.objects, image_size, background) is True, told


@pytest.mark.parametrize(
    ("caption", "expected"),
    [
        ("A red star and two blue rings on a white background.", True),
        ("a star", True),
        ("three shapes", True),
        ("two rings", True),
        ("two small blue hoops with a big star", True),
        ("a ring and a ring", True),
        ("a blue ring right of another blue ring", True),
        ("the red star is left of a blue ring", True),
        ("the red star is right of a blue ring", True),
        ("a blue ring left of a red star", True),
        ("a little ring above the star", True),
        ("the star is large and red", True),
        ("in the top left corner there is a blue ring", True),
        ("a ring on the right side", True),
        ("a red star in the centre", True),
        ("a star near the middle", True),
        ("a star larger than a ring", True),
        ("an object on the left", True),
        ("the star is in the middle on a white background", True),
        ("two shapes", False),
        ("four shapes", False),
        ("two stars", False),
        ("a ring and a ring and a ring", False),
        ("a star and another star", False),
        ("the ring is small and blue", False),
        ("the blue ring is right of the red star", False),
        ("a red star below a blue ring on a black background", False),
        ("the star is small and red", False),
        ("a red star at the top", False),
        ("a star smaller than a ring", False),
        ("a ring larger than another ring", False),
        ("a blue ring at the bottom", False),
        ("three shapes of different colours", False),
        ("three shapes of the same colour", False),
        ("three different shapes", False),
        ("two rings of the same colour", True),
        ("a green star", False),
        ("", None),
        ("a", None),
        ("star", None),
        ("a orange star", None),
        ("an red star", None),
        ("a stars", None),
        ("two star", None),
        ("a red", None),
        ("a star red", None),
        ("a red large star", None),
        ("a star and", None),
        ("and a star", None),
        ("a star left", None),
        ("a star left of", None),
        ("left of a star", None),
        ("a star of the same colour", None),
        ("two different rings", None),
        ("two rings on the left", None),
        ("two rings above a star", None),
        ("there is two rings", None),
        ("there are a star", None),
        ("there is the star", None),
        ("another star", None),
        ("a red star and another blue ring", None),
        ("a star on a blue background", None),
        ("a star on a white", None),
        ("a star on a white background and a ring", None),
        ("a star is", None),
        ("the star is red", None),
        ("the star is small and", None),
        ("the red star is small and red", None),
        ("at the top a star", None),
        ("a dog runs on the grass", None),
        ("a star star", None),
        ("five shapes", None),
        ("a white star", None),
    ],
)
def test_by_hand(caption: str, expected: bool | None) -> None:
    assert is_true(caption, OBJECTS, SIDE, "white") is expected


@functools.cache
def generated(seed: int) -> list[ImageRecord]:
    return list(scenes.generate({"train": 150}, seed=seed))


def different(count: int = 150) -> Iterator[tuple[ImageRecord, str, list[dict[str, Any]]]]:
    """Yields captions of scenes whose objects all differ in colour and shape."""
    for record in generated(3)[:count]:
        kinds = [{entry[name] for entry in record.objects} for name in ("colour", "shape")]
        if all(len(kind) == len(record.objects) for kind in kinds):
            for caption in record.captions:
                yield record, caption, [dict(entry) for entry in record.objects]


def truth(record: ImageRecord, caption: str, objects: Objects) -> bool | None:
    return is_true(caption, objects, SIDE, background_of(record.image))


def test_another_colour_makes_it_false() -> None:
    tried = 0
    for record, caption, objects in different():
        unused = next(colour for colour in world.COLOURS if colour not in {o["colour"] for o in objects})
        for entry in objects:
            if entry["colour"] in caption.split():
                changed = [{**each, "colour": unused} if each is entry else each for each in objects]
                assert truth(record, caption, changed) is False, caption
                tried += 1
    assert tried > 150


def test_another_shape_makes_it_false() -> None:
    words = {"circle": ("circle", "disc"), "ring": ("ring", "hoop")}
    tried = 0
    for record, caption, objects in different():
        unused = next(shape for shape in world.SHAPES if shape not in {o["shape"] for o in objects})
        for entry in objects:
            if set(words.get(entry["shape"], (entry["shape"],))) & set(caption.split()):
                changed = [{**each, "shape": unused} if each is entry else each for each in objects]
                assert truth(record, caption, changed) is False, caption
                tried += 1
    assert tried > 150


def test_other_sizes_make_it_false() -> None:
    other = {"small": "large", "medium": "small", "large": "medium"}
    tried = 0
    for record, caption, objects in different():
        if SIZE_WORDS & set(caption.split()):
            changed = [{**entry, "size": other[entry["size"]]} for entry in objects]
            assert truth(record, caption, changed) is False, caption
            tried += 1
    assert tried > 60


@pytest.mark.parametrize(("axis", "words"), [(0, {"left", "right"}), (1, {"above", "below", "under", "top", "bottom"})])
def test_mirrored_it_is_false(axis: int, words: set[str]) -> None:
    tried = 0
    for record, caption, objects in different():
        if words & set(caption.split()):
            for entry in objects:
                entry["box"], entry["centre"] = list(entry["box"]), list(entry["centre"])
                entry["box"][axis] = SIDE - entry["box"][axis] - entry["box"][axis + 2]
                entry["centre"][axis] = SIDE - entry["centre"][axis]
            assert truth(record, caption, objects) is False, caption
            tried += 1
    assert tried > 50


def test_counts_are_exact() -> None:
    tried = 0
    for record in generated(4):
        for caption, alignment in zip(record.captions, record.alignments, strict=True):
            first = caption.split().index
            for number in ("two", "three", "four"):
                if number not in caption.split():
                    continue
                # The word behind the number, or the one behind `different`, names what is counted.
                named = [thing for word, thing in alignment if word in (first(number) + 1, first(number) + 2)]
                fewer = [entry for index, entry in enumerate(record.objects) if index != named[0]]
                more = [*record.objects, record.objects[named[0]]]
                assert truth(record, caption, fewer) is False, caption
                assert truth(record, caption, more) is False, caption
                tried += 1
    assert tried > 100


def test_another_background_makes_it_false() -> None:
    tried = 0
    for _, caption, objects in different(100):
        if "background" in caption.split():
            said = caption.split()[-2]
            for background in world.BACKGROUNDS:
                assert is_true(caption, objects, SIDE, background) is (background == said)
                tried += 1
    assert tried > 100


def test_words_left_out_or_put_in_are_no_caption() -> None:
    generator = random.Random(0)
    for record, caption, objects in different(150):
        words = caption.split()
        at = generator.randrange(len(words) + 1)
        assert truth(record, " ".join([*words[:at], "very", *words[at:]]), objects) is None
        assert truth(record, f"{caption} {caption}", objects) is None
        if words[-1] != "side":
            assert truth(record, " ".join(words[:-1]), objects) is None, caption
        assert truth(record, " ".join(words[1:]), objects) is not True, caption


@pytest.mark.parametrize("image_size", [16, 64])
def test_background_of_any_shade(image_size: int) -> None:
    for background in world.BACKGROUNDS:
        for shade in (0.96, 1.04):
            corner = world.SceneObject("square", "red", "small", 0.13, 0.13, 0.2)
            scene = world.Scene(background, (corner,), shade)
            assert background_of(render.encode(scene, image_size)) == background
            moved = dataclasses.replace(corner, x=0.87, y=0.87)
            scene = dataclasses.replace(scene, objects=(corner, moved))
            assert background_of(render.encode(scene, image_size)) == background
