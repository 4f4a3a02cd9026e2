"""Kind `flowers` of `vsemb.scenes`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from vsemb.data.scenes import FORMAT, Generated, Scenes
from vsemb.parts import Whole

if TYPE_CHECKING:
    from vsemb.systems.zero_shot.attributes import ClassSource


@dataclass(frozen=True)
class Flowers(Scenes, kind="flowers"):
    """Images of flowers of 60 classes that differ in details, with ten descriptions per image.

    Classes have attributes. Train, val and test share no class. The dataset stands in for CUB and Flowers-102.

    Attributes:
        train: images of train.
        val: images of val.
        test: images of test.
    """

    train: Whole = 1600
    val: Whole = 320
    test: Whole = 480

    title: ClassVar[str] = "flowers"

    def generate(self, seed: int, size: int) -> ClassSource:
        from vsemb.systems.zero_shot import flowers
        from vsemb.systems.zero_shot.attributes import ClassSource

        images = {split: count for split, count in self.arguments().items() if count}
        options = {"seed": seed, "image_size": size}
        return ClassSource(
            FORMAT,
            flowers.__name__,
            Generated(flowers.generate, images, options),
            options={**options, "fine_grained": True, "images": images, "generator": flowers.VERSION},
            attributes=flowers.attributes(seed),
        )
