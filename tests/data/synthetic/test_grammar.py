"""Captions, read by a checker that knows the ground truth and the pixels but not the generator's grammar."""

from __future__ import annotations

import io
import random
import re
from typing import Any, NamedTuple

import pytest
from PIL import Image

from vsemb.data import synthetic as scenes
from vsemb.data.records import ImageRecord
from vsemb.data.synthetic import grammar
from vsemb.data.synthetic.world import Scene, SceneObject

SIDE = 64
COUNT_OF = {"a": 1, "an": 1, "the": 1, "another": 1, "one": 1, "two": 2, "three": 3, "four": 4}
SIZE_OF = {"small": "small", "little": "small", "medium": "medium", "large": "large", "big": "large"}
COLOURS = ("red", "orange", "yellow", "green", "turquoise", "blue", "purple", "pink")
SHAPE_OF = {name: name for name in ("circle", "square", "triangle", "star", "heart", "diamond", "cross", "ring")}
SHAPE_OF |= {"disc": "circle", "hoop": "ring", "shape": "", "object": ""}
PLURAL = {("crosses" if name == "cross" else name + "s"): meaning for name, meaning in SHAPE_OF.items()}

NOUN = re.compile(
    rf"\b(?P<count>{'|'.join(COUNT_OF)})(?P<different> different)?"
    rf"(?: (?P<size>{'|'.join(SIZE_OF)}))?(?: (?P<colour>{'|'.join(COLOURS)}))?"
    rf" (?P<head>{'|'.join((*PLURAL, *SHAPE_OF))})\b"
)
RELATION = r"left of|to the left of|right of|to the right of|above|below|under|larger than|smaller than"
PLACE = (
    r"in the (?:top|bottom) (?:left|right) corner|on the (?:left|right)(?: side)?|at the (?:top|bottom)"
    r"|(?:in|near) the (?:middle|centre)"
)


class Noun(NamedTuple):
    """A noun phrase: what it says, and which objects its words are aligned with."""

    match: re.Match[str]
    objects: tuple[int, ...]


def _fits(noun: re.Match[str], item: dict[str, Any]) -> bool:
    shape = SHAPE_OF.get(noun["head"], PLURAL.get(noun["head"]))
    return (
        shape in ("", item["shape"])
        and noun["colour"] in (None, item["colour"])
        and SIZE_OF.get(noun["size"]) in (None, item["size"])
    )


def _holds(how: str, one: dict[str, Any], other: dict[str, Any]) -> bool:
    order = ("small", "medium", "large")
    (x1, y1, w1, h1), (x2, y2, w2, h2) = one["box"], other["box"]
    return {
        "left of": x1 + w1 <= x2,
        "right of": x2 + w2 <= x1,
        "above": y1 + h1 <= y2,
        "below": y2 + h2 <= y1,
        "under": y2 + h2 <= y1,
        "larger than": order.index(one["size"]) > order.index(other["size"]),
        "smaller than": order.index(one["size"]) < order.index(other["size"]),
    }[how.removeprefix("to the ")]


def _lies(where: str, item: dict[str, Any]) -> bool:
    x, y = item["centre"][0] / SIDE, item["centre"][1] / SIDE
    if re.search("middle|centre", where):
        reach = 0.1 if where.startswith("in ") else 0.15
        return abs(x - 0.5) < reach and abs(y - 0.5) < reach
    sides = {"left": x < 0.37, "right": x > 0.63, "top": y < 0.37, "bottom": y > 0.63}
    named = [holds for side, holds in sides.items() if side in where.split()]
    return bool(named) and all(named)


def _background(record: ImageRecord) -> str:
    with Image.open(io.BytesIO(record.image)) as image:  # type: ignore[arg-type]
        brightness = sum(image.getpixel((0, 0))) / 3
    return "black" if brightness < 80 else "grey" if brightness < 200 else "white"


def _nouns(text: str, alignment: dict[int, tuple[int, ...]], record: ImageRecord) -> list[Noun]:
    """Reads the noun phrases, checks counts, articles and alignment; takes their words out of `alignment`."""
    nouns: list[Noun] = []
    for match in NOUN.finditer(text):
        start = text[: match.start()].count(" ")
        words = match.group().split()
        telling = [index for index, word in enumerate(words, start) if word not in COUNT_OF and word != "different"]
        named = {alignment.pop(index) for index in telling}
        assert len(named) == 1, f"the words of {match.group()!r} name different objects"
        (objects,) = named
        fitting = tuple(index for index, item in enumerate(record.objects) if _fits(match, item))
        assert set(objects) <= set(fitting)
        assert len(objects) == COUNT_OF[match["count"]]
        assert (match["head"] in PLURAL) == (len(objects) > 1)
        if match["count"] not in ("a", "an", "another"):
            assert objects == fitting, f"{match.group()!r} is not exact"
        if match["count"] in ("a", "an"):
            assert (match["count"] == "an") == (words[1][0] in "aeiou")
        if match["count"] == "another":
            assert objects != nouns[-1].objects
            assert record.objects[objects[0]]["label"] == record.objects[nouns[-1].objects[0]]["label"]
        if match["different"]:
            assert len({item["shape"] for item in record.objects}) == len(objects)
        nouns.append(Noun(match, objects))
    return nouns


def check(record: ImageRecord, level: int) -> None:
    """Fails unless the caption is fully understood, true of the image, and rightly aligned."""
    text = record.captions[level]
    alignment: dict[int, tuple[int, ...]] = {}
    for word, item in record.alignments[level]:
        alignment[word] = (*alignment.get(word, ()), item)
    nouns = _nouns(text, alignment, record)
    assert nouns

    def only(number: str) -> dict[str, Any]:
        (index,) = nouns[int(number)].objects
        return record.objects[index]

    numbers = iter(range(len(nouns)))
    rest = NOUN.sub(lambda _: f"N{next(numbers)}", text)
    said = [item for noun in nouns for item in noun.objects]
    colours = {record.objects[item]["colour"] for item in said}

    for one, how, other in re.findall(rf"N(\d)(?: is)? ({RELATION}) N(\d)", rest):
        assert _holds(how, only(one), only(other)), how
    rest = re.sub(rf"(N\d)(?: is)? (?:{RELATION}) (N\d)", r"\1 and \2", rest)
    for where, number in re.findall(rf"^({PLACE}) (?:is|there is) N(\d)$", rest):
        assert _lies(where, only(number)), where
    rest = re.sub(rf"^(?:{PLACE}) (?:is|there is) (N\d)$", r"\1", rest)
    for number, where in re.findall(rf"N(\d)(?: is)? ({PLACE})", rest):
        assert _lies(where, only(number)), where
    rest = re.sub(rf"(N\d)(?: is)? (?:{PLACE})", r"\1", rest)
    if match := re.fullmatch(rf"N0 is ({'|'.join(SIZE_OF)}) and ({'|'.join(COLOURS)})", rest):
        assert (SIZE_OF[match[1]], match[2]) == (only("0")["size"], only("0")["colour"])
        words = text.split()
        assert alignment.pop(words.index(match[1])) == alignment.pop(words.index(match[2])) == (0,)
        rest = "N0"
    if match := re.search(r" (?:on|against) a (\w+) background$", rest):
        assert match[1] == _background(record)
        rest = rest[: match.start()]
    if rest.endswith(" of the same colour"):
        assert len(colours) == 1
        rest = rest.removesuffix(" of the same colour")
    if rest.endswith(" of different colours"):
        assert len(colours) == len(said)
        rest = rest.removesuffix(" of different colours")
    if match := re.match(r"there (is|are) ", rest):
        assert (match[1] == "are") == (len(nouns[0].objects) > 1)
        rest = rest[match.end() :]
    rest = re.sub(r"^(?:an image|a picture) of ", "", rest)
    assert re.fullmatch(r"N0(?: (?:and|with) N\d)*", rest), f"not understood: {rest!r}"
    assert not alignment, f"words that name nothing are aligned: {alignment}"
    assert len(said) == len(set(said))
    if grammar.LEVELS[level] == "abstract":
        assert all(noun.match["head"].rstrip("s") in ("shape", "object") for noun in nouns)
    if grammar.LEVELS[level] in ("names", "complete"):
        assert set(said) == set(range(len(record.objects)))
    if grammar.LEVELS[level] == "complete":
        assert all(noun.match["size"] and noun.match["colour"] for noun in nouns)


@pytest.mark.slow
@pytest.mark.parametrize("zero_shot", [False, True])
def test_captions_are_true_and_aligned(zero_shot: bool) -> None:
    images = {"train": 1000, "test": 200} if zero_shot else {"train": 1500, "compositional": 300}
    for record in scenes.generate(images, seed=11, image_size=SIDE, class_zero_shot_splits=zero_shot):
        assert len(record.captions) == len(record.alignments) == len(grammar.LEVELS)
        assert len(set(record.captions)) == len(record.captions)
        for level, caption in enumerate(record.captions):
            try:
                check(record, level)
            except (AssertionError, KeyError, ValueError) as error:
                raise AssertionError(f"{caption!r} of {record.key}: {error!r}\n{record.objects}") from error


def test_the_checker_notices_a_lie() -> None:
    record = next(record for record in scenes.generate({"train": 50}) if " above " in record.captions[3])
    lie = record.captions[3].replace(" above ", " below ")
    captions = (*record.captions[:3], lie, record.captions[4])
    with pytest.raises(AssertionError, match="below"):
        check(
            ImageRecord(record.key, captions, "train", record.image, None, record.objects, record.alignments),
            3,
        )


@pytest.mark.parametrize(
    ("x", "y", "expected"),
    [
        (0.2, 0.2, "in the top left corner"),
        (0.8, 0.9, "in the bottom right corner"),
        (0.2, 0.5, "on the left"),
        (0.5, 0.8, "at the bottom"),
        (0.5, 0.5, "in the middle"),
        (0.61, 0.5, "near the middle"),
    ],
)
def test_places(x: float, y: float, expected: str) -> None:
    assert grammar.place(SceneObject("star", "red", "small", x, y, 0.19))[0] == expected


def test_relations() -> None:
    middle = SceneObject("star", "red", "small", 0.5, 0.5, 0.19)
    around = {"left": (0.1, 0.4), "right": (0.9, 0.6), "above": (0.4, 0.1), "below": (0.6, 0.9)}
    for expected, (x, y) in around.items():
        assert grammar.relation(SceneObject("ring", "blue", "small", x, y, 0.19), middle) == expected


def test_two_of_a_kind_are_counted_or_told_apart() -> None:
    twins = [SceneObject("star", "red", "small", x, 0.5, 0.19) for x in (0.2, 0.8)]
    big = SceneObject("cross", "orange", "medium", 0.5, 0.2, 0.3)
    written = [
        " | ".join(caption.text for caption in grammar.captions(Scene("grey", (big, *twins)), random.Random(str(n))))
        for n in range(200)
    ]
    assert any("a red star left of another red star" in text for text in written)
    assert all(re.search("two (small|little) red stars on a grey background$", text) for text in written)
    assert not any("a orange" in text for text in written)
