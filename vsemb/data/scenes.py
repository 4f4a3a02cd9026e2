"""Kinds of synthetic scenes that `vsemb.scenes` generates, as parts with their options as fields."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from vsemb.data.readers.source import Source
from vsemb.errors import invalid_argument
from vsemb.parts import Part, Whole

if TYPE_CHECKING:
    from vsemb.data.records import ImageRecord

#: Format of generated datasets, as manifests name it.
FORMAT = "scenes"
#: The command that usually follows the generation of scenes.
NEXT = "vsemb train contrastive --data {data} --out {out} --fine-tune SmallConvNet"


@dataclass(frozen=True)
class Scenes(Part, family="scenes"):
    """A kind of synthetic images with captions. The same seed always gives the same images.

    Its module imports nothing heavy outside functions, because `--help` shows its fields.

    Class attributes:
        title: name of the dataset.
    """

    title: ClassVar[str]

    def generate(self, seed: int, size: int) -> Source:
        """Return the images and captions, as a source of a dataset.

        Args:
            seed: determines the images.
            size: width and height of the images in pixels.
        """
        raise NotImplementedError


@dataclass(frozen=True)
class Generated:
    """Records of a generator; every iteration generates the same ones.

    Attributes:
        generator: function that starts the generation.
        images: split -> number of images.
        options: further keywords of the function.
    """

    generator: Callable[..., Iterator[ImageRecord]]
    images: Mapping[str, int]
    options: Mapping[str, Any]

    def __len__(self) -> int:
        return sum(self.images.values())

    def __iter__(self) -> Iterator[ImageRecord]:
        return self.generator(self.images, **self.options)


@dataclass(frozen=True)
class Shapes(Scenes, kind="shapes"):
    """Images of coloured shapes, five captions per image, and ground truth.

    The split `compositional` has combinations of colour and shape that no other split has.

    Attributes:
        train: images of train.
        val: images of val.
        test: images of test.
        compositional: images of compositional; default: 500, none with zero_shot.
        zero_shot: make train, val and test share no combination of colour and shape, which is the class.
    """

    train: Whole = 4000
    val: Whole = 500
    test: Whole = 500
    compositional: Whole | None = None
    zero_shot: bool = False

    title: ClassVar[str] = "scenes"

    def check(self) -> None:
        if self.zero_shot and self.compositional:
            raise invalid_argument("compositional", self.compositional, "omitted with zero_shot")

    def generate(self, seed: int, size: int) -> Source:
        from vsemb.data import synthetic

        compositional = self.compositional
        if compositional is None:
            compositional = 0 if self.zero_shot else 500
        images = {"train": self.train, "val": self.val, "test": self.test, "compositional": compositional}
        images = {split: count for split, count in images.items() if count}
        options = {"seed": seed, "image_size": size, "class_zero_shot_splits": self.zero_shot}
        described = {**options, "images": images, "generator": synthetic.VERSION}
        return Source(FORMAT, synthetic.__name__, Generated(synthetic.generate, images, options), options=described)
