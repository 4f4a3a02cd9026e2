"""Fine-grained scenes: pictures of flowers whose 60 classes differ in details of their parts alone.

A class is a combination of petal colour, number, shape and marking, centre colour and size, and leaf shape.
Every image has ten descriptions, each of which tells of some of the parts and leaves out others, and every
class an attribute vector: a stand-in, made from a seed alone, for the birds and flowers that Reed et al. 2016
describe. The splits share no class.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping

import numpy as np

from vsemb.data.records import ImageRecord
from vsemb.data.synthetic.world import requested, whole
from vsemb.errors import unknown_name
from vsemb.systems.zero_shot.attributes import ClassAttributes
from vsemb.systems.zero_shot.flowers.grammar import COUNT, captions
from vsemb.systems.zero_shot.flowers.render import box, draw, encode, visible
from vsemb.systems.zero_shot.flowers.world import CLASSES, PARTS, Flower, Parts, classes, sample_flower

__all__ = [
    "CLASSES",
    "COUNT",
    "IMAGES",
    "PARTS",
    "VERSION",
    "Flower",
    "attributes",
    "captions",
    "classes",
    "draw",
    "encode",
    "flower_at",
    "generate",
    "visible",
]

VERSION = 1
"""Version of the generator: raised when the same seed gives other images or descriptions."""

IMAGES: Mapping[str, int] = {split: 40 * count for split, count in CLASSES.items()}
"""Images a split, by default: 40 of each class."""


def generate(images: Mapping[str, int] | None = None, *, seed: int = 0, image_size: int = 64) -> Iterator[ImageRecord]:
    """Generates flowers, one at a time, the classes of a split taking turns.

    An image depends on the seed, its split, its index there and its size alone: asking for more images of one
    split changes no other image.

    Args:
        images: split -> number of images; `IMAGES` by default.
        seed: an integer; another seed gives other classes and other images.
        image_size: side of the images in pixels, 16 to 1024; below 64, details of the parts are lost.

    Returns:
        an iterator of records: `image` is PNG bytes, RGB; `class_name` is of the form "flower 07";
        `captions` are ten different descriptions; `objects` holds one flower with `label`, `box`
        `[x, y, w, h]` of its petals in pixels, and `parts`, those that can be seen.

    Raises:
        InvalidArgumentError: for an unknown split, or a number or size out of range. Raised at once, not at
            the first record.

    Example:

    >>> record = next(generate({"test": 1}))
    >>> record.class_name, record.objects[0]["parts"]["petal colour"]
    ('flower 49', 'orange')
    >>> record.captions[0]
    'slender and orange petals and a tiny white centre can be seen on this flower seen from the front'
    """
    known = classes(whole("seed", seed))
    wanted = requested(IMAGES if images is None else images, known, image_size)
    return (_record(split, index, seed, image_size, known[split]) for split, index in wanted)


def attributes(seed: int = 0) -> ClassAttributes:
    """Returns what the classes of a seed are made of, as one vector of zeros and ones for each.

    Args:
        seed: as given to `generate`.

    Returns:
        31 attributes, one for each value of each part, of 60 classes.

    Example:

    >>> known = attributes()
    >>> known.names[0], len(known.names), int(known.values["flower 01"].sum())
    ('petal colour: white', 31, 7)
    """
    pairs = [(part, value) for part, values in PARTS.items() for value in values]
    return ClassAttributes(
        tuple(f"{part}: {value}" for part, value in pairs),
        {
            name: np.array([parts[part] == value for part, value in pairs], np.float32)
            for group in classes(whole("seed", seed)).values()
            for name, parts in group.items()
        },
    )


def flower_at(split: str, index: int, *, seed: int = 0) -> Flower:
    """Returns the flower behind one image of `generate`, for changing it and drawing it again.

    Args:
        split: the split.
        index: the index of the image in its split, from 0.
        seed: as given to `generate`.

    Raises:
        InvalidArgumentError: for an unknown split.

    Example:

    >>> import dataclasses
    >>> flower = flower_at("train", 0)
    >>> red = dataclasses.replace(flower, parts={**flower.parts, "petal colour": "red"})
    >>> encode(red)[1:4]
    b'PNG'
    """
    known = classes(whole("seed", seed))
    if split not in known:
        raise unknown_name("split", split, known)
    return _flower(split, index, seed, known[split])[1]


def _flower(split: str, index: int, seed: int, known: Mapping[str, Parts]) -> tuple[str, Flower]:
    name = tuple(known)[index % len(known)]
    return name, sample_flower(random.Random(f"{seed}/flowers/{split}/{index}/flower"), known[name])


def _record(split: str, index: int, seed: int, image_size: int, known: Mapping[str, Parts]) -> ImageRecord:
    name, flower = _flower(split, index, seed, known)
    seen = visible(flower)
    # Descriptions have a generator of their own, so that a new way to say it leaves the images as they are.
    written = captions(seen, random.Random(f"{seed}/flowers/{split}/{index}/captions"))
    return ImageRecord(
        key=f"{split}/{index:06d}.png",
        captions=written,
        split=split,
        image=encode(flower, image_size),
        class_name=name,
        objects=({"label": "flower", "box": box(flower, image_size), "parts": seen},),
    )
