"""Fine-grained scenes: images of flowers in 60 classes that differ only in details of their parts.

A class is a combination of petal colour, number, shape and marking, centre colour and size, and leaf shape. Every image
has ten descriptions, each of some of the parts, and every class an attribute vector. The seed determines everything.
The data replaces the birds and flowers of Reed et al. 2016. Splits have disjoint classes.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping

import numpy as np

from vsemb.data.records import ImageRecord
from vsemb.data.synthetic.render import png
from vsemb.data.synthetic.world import requested, whole
from vsemb.systems.zero_shot.attributes import ClassAttributes
from vsemb.systems.zero_shot.flowers.grammar import captions
from vsemb.systems.zero_shot.flowers.render import box, draw, visible
from vsemb.systems.zero_shot.flowers.world import PARTS, Parts, classes, sample_flower

VERSION = 1
"""Version of the generator; it increases when a seed gives other images or descriptions."""


def generate(images: Mapping[str, int], *, seed: int = 0, image_size: int = 64) -> Iterator[ImageRecord]:
    """Generate flowers lazily, cycling through the classes of a split.

    An image depends only on the seed, its split, its index and its size, so more images of one split do not change
    others.

    Args:
        images: split -> number of images.
        seed: an integer; determines classes and images.
        image_size: side of the images in pixels, 16 to 1024; default 64. Below 64, details of the parts are lost.

    Returns:
        Iterator of records: `image` is PNG bytes, RGB; `class_name` has the form "flower 07"; `captions` are ten
        distinct descriptions; `objects` holds one flower with `label`, `box` `[x, y, w, h]` of its petals in pixels,
        and its visible `parts`.

    Raises:
        InvalidArgumentError: for an unknown split, or a number or size out of range; raised by the call, before the
            first record.

    Example:

    >>> record = next(generate({"test": 1}))
    >>> record.class_name, record.objects[0]["parts"]["petal colour"]
    ('flower 49', 'orange')
    >>> record.captions[0]
    'slender and orange petals and a tiny white centre can be seen on this flower seen from the front'
    """
    of_split = classes(whole("seed", seed))
    wanted = requested(images, of_split, image_size)
    return (_record(split, index, seed, image_size, of_split[split]) for split, index in wanted)


def attributes(seed: int = 0) -> ClassAttributes:
    """Return the parts of the classes of a seed, as one binary vector per class.

    Args:
        seed: the seed of `generate`.

    Returns:
        31 attributes of 60 classes, one attribute per value of a part.

    Example:

    >>> flowers = attributes()
    >>> flowers.names[0], len(flowers.names), int(flowers.values["flower 01"].sum())
    ('petal colour: white', 31, 7)
    """
    pairs = [(part, value) for part, values in PARTS.items() for value in values]
    vectors = {}
    for group in classes(whole("seed", seed)).values():
        for name, parts in group.items():
            vectors[name] = np.array([parts[part] == value for part, value in pairs], np.float32)
    return ClassAttributes(tuple(f"{part}: {value}" for part, value in pairs), vectors)


def _record(split: str, index: int, seed: int, image_size: int, of_split: Mapping[str, Parts]) -> ImageRecord:
    name = tuple(of_split)[index % len(of_split)]
    flower = sample_flower(random.Random(f"{seed}/flowers/{split}/{index}/flower"), of_split[name])
    seen = visible(flower)
    # Descriptions have a separate generator, so that a change of wording does not change the images.
    written = captions(seen, random.Random(f"{seed}/flowers/{split}/{index}/captions"))
    return ImageRecord(
        key=f"{split}/{index:06d}.png",
        captions=written,
        split=split,
        image=png(draw(flower, image_size)),
        class_name=name,
        objects=({"label": "flower", "box": box(flower, image_size), "parts": seen},),
    )
