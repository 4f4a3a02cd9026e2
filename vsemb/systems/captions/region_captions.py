"""Captions of the regions of an image (Karpathy and Fei-Fei 2015, section 4.3 and figure 7)."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf
from PIL import Image

from vsemb.data.store import Dataset
from vsemb.errors import DataError, invalid_argument, printable
from vsemb.runs.pictures import Rectangle, pixel_box
from vsemb.runs.run import Run
from vsemb.systems.captions.captioner import CaptionOptions
from vsemb.systems.captions.captioning import captioner_of, written_of
from vsemb.systems.captions.drawing_captions import draw_captions
from vsemb.systems.captions.region_recipe import RegionCaptioning
from vsemb.systems.regions.aligning import GivenImage, candidate_boxes
from vsemb.systems.regions.image_tower import kept_extractor
from vsemb.systems.regions.signature import find_regions
from vsemb.text.normalize import split_words

#: Boxes that overlap a better one by more than this are left out, in intersection over union.
OVERLAP = 0.5


@dataclass(frozen=True)
class RegionCaption:
    """What was written of one region.

    Attributes:
        text: the caption.
        log_prob: natural logarithm of its probability.
        score: the same for each of its words and its end, on average: what regions are compared by.
        region: the row of the region among the image's, 0 for the whole image.
        box: x, y, width and height in pixels.
    """

    text: str
    log_prob: float
    score: float
    region: int
    box: Rectangle


@dataclass(frozen=True, eq=False)
class RegionCaptions:
    """An image and what was written of its regions.

    Attributes:
        name: the image's file or key.
        picture: the image.
        captions: best first.
    """

    name: str
    picture: Image.Image
    captions: tuple[RegionCaption, ...]

    def drawn(self, side: int | None = None) -> Image.Image:
        """Returns the picture that `vsemb.systems.captions.drawing_captions.draw_captions` makes of it."""
        boxes = [caption.box for caption in self.captions]
        return draw_captions(self.picture, boxes, [caption.text for caption in self.captions], side=side)

    def to_json(self) -> dict[str, Any]:
        """Returns plain values; boxes are in pixels."""
        return {
            "image": printable(self.name),
            "width": self.picture.width,
            "height": self.picture.height,
            "captions": [dataclasses.asdict(caption) for caption in self.captions],
        }


def caption_regions(
    run: Run,
    image: str,
    dataset: Dataset | None = None,
    *,
    most: int = 5,
    beam: int | None = None,
    parts: bool = False,
    overlap: float = OVERLAP,
    boxes: str | os.PathLike[str] | None = None,
    report: Callable[[str], None] = print,
) -> RegionCaptions:
    """Writes a caption of each region of an image, and keeps the likeliest that show different things.

    Args:
        run: a run of `multimodal-rnn-regions`.
        image: an image file, or the key of an image of the dataset.
        dataset: where keys are looked up; files are shrunk as it was prepared. None for neither.
        most: captions wanted.
        beam: hypotheses of the beam search; None for the recipe's.
        parts: whether the whole image, which is the first region, is left out.
        overlap: see `choose_regions`.
        boxes: a file with candidate boxes of this image, where the run's regions are not proposed from its
            pixels: a detector's results as COCO writes them, in pixels.
        report: called with a line worth showing.

    Raises:
        InvalidArgumentError: for a number out of range, or boxes for a run that proposes its own.
        DataError: if the run is one of whole images or cannot look at images, the image or the boxes cannot
            be read, or a score is not finite.

    Example:

        found = caption_regions(Run.open("runs/regions"), "dog.jpg", most=3)
        found.drawn().save("regions.png")
    """
    if most < 1:
        raise invalid_argument("most", most, "an integer >= 1")
    if not 0 <= overlap <= 1:
        raise invalid_argument("overlap", overlap, "a number from 0 to 1")
    require_region_captions(run)
    captioner = captioner_of(run, CaptionOptions(beam=beam, n_best=1))
    # What is wrong with the inputs is said before the network is built.
    given = GivenImage.of(image, dataset)
    candidates = candidate_boxes(run, given, dataset, boxes, report)
    asked = None if candidates is None else tf.constant(candidates[None], tf.float32)
    found = find_regions(kept_extractor(run.path), tf.constant([given.encoded]), asked)
    if not found.valid.numpy()[0]:
        raise DataError(f"The image {image!r} does not decode as JPEG or PNG.")
    real = np.flatnonzero(np.any(found.boxes.numpy()[0] != 0, axis=1))
    if parts:
        real = real[real != 0]
    rectangles = found.boxes.numpy()[0, real]  # (regions, 4)
    written = [captions[0] for captions in written_of(captioner(tf.gather(found.features[0], real)))]
    texts, log_probs = [text for text, _ in written], np.array([each for _, each in written])
    scores = log_probs / (split_words(tf.constant(texts, tf.string)).row_lengths().numpy() + 1)
    chosen = choose_regions(rectangles, scores, texts, most, overlap)
    return RegionCaptions(
        image,
        given.picture,
        tuple(
            RegionCaption(
                texts[row],
                written[row][1],
                float(scores[row]),
                int(real[row]),
                pixel_box(rectangles[row], given.picture.size),
            )
            for row in chosen
        ),
    )


def require_region_captions(run: Run) -> None:
    """Refuses a run that captions whole images.

    Raises:
        DataError: naming the recipe that captions regions.
    """
    if not isinstance(run.recipe, RegionCaptioning):
        raise DataError(
            f"{run.path} must be a run that captions regions; its recipe is {run.recipe.name!r}. Train one with: "
            "vsemb train multimodal-rnn-regions"
        )


def choose_regions(
    boxes: np.ndarray,
    scores: Sequence[float] | np.ndarray,
    texts: Sequence[str],
    most: int,
    overlap: float = OVERLAP,
) -> list[int]:
    """Chooses regions that differ in place and text, greedily: the best one first.

    Args:
        boxes: (regions, 4) [x, y, width, height].
        scores: of each region, larger is better; of equal ones the first is better.
        texts: of each; a region without is never chosen.
        most: regions to choose.
        overlap: a region is left out whose intersection over union with a chosen one is larger than this.

    Returns:
        Their rows, best first.

    Example: the second overlaps the first, the third says the same.

    >>> boxes = np.array([[0, 0, 4, 4], [0, 0, 4, 3], [5, 5, 2, 2], [7, 5, 2, 2]])
    >>> choose_regions(boxes, [-1.0, -1.5, -2.0, -3.0], ["a dog", "a cat", "a dog", "a ball"], 5)
    [0, 3]
    """
    low, sides = np.asarray(boxes, np.float64)[:, :2], np.asarray(boxes, np.float64)[:, 2:]
    areas = sides.prod(axis=1)
    chosen: list[int] = []
    for row in np.argsort(-np.asarray(scores, np.float64), kind="stable").tolist():
        if len(chosen) == most:
            break
        if not texts[row] or any(texts[row] == texts[other] for other in chosen):
            continue
        ends = np.minimum(low[row] + sides[row], low[chosen] + sides[chosen])
        common = np.maximum(ends - np.maximum(low[row], low[chosen]), 0.0).prod(axis=1)
        if np.all(common <= overlap * (areas[row] + areas[chosen] - common)):
            chosen.append(row)
    return chosen
