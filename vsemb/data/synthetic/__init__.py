"""Scenes: a synthetic dataset of images, captions and complete ground truth, generated from a seed.

Each image shows 1 to 4 objects of 8 shapes, 8 colours and 3 sizes on a plain background. Its five captions
range from abstract ("two shapes on a grey background") to complete ("a large red circle above a small blue
square on a white background"). Boxes and word alignments are exact. The answer to image arithmetic can be computed:
`dataclasses.replace` an object's colour in a `Scene` and `encode` it again.

`vsemb.systems.zero_shot.flowers` generates fine-grained classes with descriptions and attributes instead.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from typing import Any

from vsemb.data.records import ImageRecord
from vsemb.data.synthetic import world
from vsemb.data.synthetic.grammar import captions
from vsemb.data.synthetic.render import box, encode
from vsemb.errors import invalid_argument

VERSION = 1
"""Version of the generator: raised when the same seed gives other images or captions."""

# Names of random streams that differ from the split's; they keep the images of generator version 1.
_STREAMS = {"compositional": "novel"}


def generate(
    images: Mapping[str, int],
    *,
    seed: int = 0,
    image_size: int = 64,
    class_zero_shot_splits: bool = False,
) -> Iterator[ImageRecord]:
    """Generate scenes, one at a time.

    An image depends only on the seed, its split, its index in the split and the options. More images of a split
    therefore change no other image.

    Args:
        images: split -> number of images.
        seed: an integer; another seed gives other images.
        image_size: side of the images in pixels, 16 to 1024.
        class_zero_shot_splits: whether train, val and test have disjoint classes (40, 8 and 16 of the 64
            combinations), for zero-shot recognition. By default, only `world.HOLD_OUT` is held out, for the split
            `compositional`.

    Returns:
        An iterator of records. `image` is PNG bytes, RGB. `class_name` is the colour and shape of the main
        object, the first and largest one. `captions` has five captions, in the order of `grammar.LEVELS`. Each of
        `objects` has `label`, `shape`, `colour`, `size`, `box` `[x, y, w, h]` and `centre` `[x, y]`, both in pixels.

    Raises:
        InvalidArgumentError: for an unknown split, a number or size out of range, or images of `compositional`
            with `class_zero_shot_splits`. It is raised by the call, not at the first record.

    Example:

    >>> record = next(generate({"train": 1}))
    >>> record.class_name, record.captions[3]
    ('orange circle', 'there is a turquoise ring above a purple cross')
    >>> record.alignments[3]  # "turquoise ring" is object 2, "purple cross" 1
    ((3, 2), (4, 2), (7, 1), (8, 1))
    """
    world.whole("seed", seed)
    pools = world.zero_shot_pools(seed) if class_zero_shot_splits else world.compositional_pools()
    if class_zero_shot_splits and "compositional" in images:
        raise invalid_argument("images", dict(images), "no images of 'compositional' with class-disjoint splits")
    wanted = world.requested(images, pools, image_size)
    return (_record(split, index, seed, image_size, pools[split]) for split, index in wanted)


def scene_at(split: str, index: int, seed: int, pools: world.Pools) -> world.Scene:
    """Return the scene of an image of `generate`, to change it and draw it again.

    Args:
        split: the split.
        index: the index of the image in its split, from 0.
        seed: the seed of `generate`.
        pools: pools of the split, see `compositional_pools` and `zero_shot_pools`.

    Example:

    >>> import dataclasses
    >>> scene = scene_at("train", 0, 0, world.compositional_pools()["train"])
    >>> main, *others = scene.objects
    >>> red = dataclasses.replace(scene, objects=(dataclasses.replace(main, colour="red"), *others))
    >>> encode(red)[1:4]
    b'PNG'
    """
    return world.sample_scene(random.Random(f"{seed}/{_STREAMS.get(split, split)}/{index}/scene"), pools)


def _record(split: str, index: int, seed: int, image_size: int, pools: world.Pools) -> ImageRecord:
    scene = scene_at(split, index, seed, pools)
    # Captions have a separate generator, so that new phrasings do not change the images.
    written = captions(scene, random.Random(f"{seed}/{_STREAMS.get(split, split)}/{index}/captions"))
    return ImageRecord(
        key=f"{split}/{index:06d}.png",
        captions=tuple(caption.text for caption in written),
        split=split,
        image=encode(scene, image_size),
        class_name=scene.objects[0].label,
        objects=tuple(_truth(item, image_size) for item in scene.objects),
        alignments=tuple(caption.alignment for caption in written),
    )


def _truth(item: world.SceneObject, image_size: int) -> dict[str, Any]:
    return {
        "label": item.label,
        "shape": item.shape,
        "colour": item.colour,
        "size": item.size,
        "box": box(item, image_size),
        "centre": [round(item.x * image_size, 2), round(item.y * image_size, 2)],
    }
