"""Captions of the regions of an image (Karpathy and Fei-Fei 2015, section 4.3 and figure 7)."""

from __future__ import annotations

import dataclasses
import functools
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from vsemb.data.store import StoredDataset
from vsemb.drawing.pictures import (
    PAPER,
    Font,
    Rectangle,
    box_text,
    cut_text,
    drawable,
    pixel_box,
    with_picture,
)
from vsemb.errors import DataError, invalid_argument, printable
from vsemb.ops.tensorflow import tf
from vsemb.parts import Count, Probability, require
from vsemb.printing import table
from vsemb.results import Result
from vsemb.runs.run import Run
from vsemb.systems.captions.captioner import CaptionOptions
from vsemb.systems.captions.captioning import written_of
from vsemb.systems.captions.recipe import RegionCaptioning
from vsemb.systems.regions.aligning import GivenImage, candidate_boxes
from vsemb.systems.regions.drawing import COLOURS, draw_outlines, scaled_for_drawing
from vsemb.systems.regions.extractor import RegionExtractor
from vsemb.systems.regions.image_tower import kept_extractor
from vsemb.systems.regions.pointing import box_iou
from vsemb.systems.regions.signature import find_regions
from vsemb.text.normalize import split_words

#: Boxes with a larger intersection over union with a better box are left out.
OVERLAP = 0.5


@dataclass(frozen=True)
class RegionCaption:
    """The caption of one region.

    Attributes:
        text: the caption.
        log_prob: natural logarithm of its probability.
        score: `log_prob` / (number of words + 1), where 1 is the end; regions are compared by it.
        region: row of the region among the regions of the image, 0 for the whole image.
        box: x, y, width and height in pixels.
    """

    text: str
    log_prob: float
    score: float
    region: int
    box: Rectangle


@dataclass(frozen=True, eq=False, repr=False)
class RegionCaptions(Result):
    """An image and the captions of its regions.

    Attributes:
        name: file or key of the image.
        picture: the image.
        captions: best first.
        out: file of the drawn captions, if there is one.
    """

    name: str
    picture: Image.Image
    captions: tuple[RegionCaption, ...]
    out: str | None = None

    def drawn(self, side: int | None = None) -> Image.Image:
        """Draw the image with its boxes and captions, see `draw_captions`."""
        boxes = [caption.box for caption in self.captions]
        return draw_captions(self.picture, boxes, [caption.text for caption in self.captions], side=side)

    def to_json(self) -> dict[str, Any]:
        """Return plain values; boxes are in pixels."""
        return {
            "image": printable(self.name),
            "width": self.picture.width,
            "height": self.picture.height,
            "captions": [dataclasses.asdict(caption) for caption in self.captions],
        }

    def __str__(self) -> str:
        rows = []
        for caption in self.captions:
            numbers = [f"{caption.log_prob:.2f}", f"{caption.score:.2f}", str(caption.region)]
            rows.append([printable(caption.text), *numbers, box_text(caption.box)])
        header = ["caption", "log-prob", "per word", "region", "box (x y w h)"]
        return with_picture(table(header, rows, text=(0, 4)), self.out)


def caption_regions(
    run: Run,
    image: str,
    dataset: StoredDataset | None = None,
    *,
    most: int = 5,
    beam: int | None = None,
    parts: bool = False,
    overlap: float = OVERLAP,
    boxes: str | os.PathLike[str] | None = None,
    report: Callable[[str], None] = print,
) -> RegionCaptions:
    """Write a caption of each region of an image, and keep the most probable ones of different regions.

    Args:
        run: a run of `multimodal-rnn-regions`.
        image: an image file, or the key of an image of the dataset.
        dataset: dataset of the keys; image files are resized as in its preparation. None: files only, not resized.
        most: maximum number of captions; default 5.
        beam: hypotheses of the beam search; None for the recipe's.
        parts: whether the whole image, which is the first region, is left out.
        overlap: see `choose_regions`.
        boxes: file with candidate boxes of this image, in pixels: a detector's results in COCO format. Only for runs
            whose regions are not proposed from pixels.
        report: function called with progress messages, one line each.

    Raises:
        InvalidArgumentError: if a number is out of range, or boxes are given for a run that proposes its own.
        DataError: if the run captions whole images or has no image network, the image or the boxes cannot be read, or
            a score is not finite.

    Example:

        regions = caption_regions(Run.open("runs/regions"), "dog.jpg", most=3)
        regions.drawn().save("regions.png")
    """
    require("most", most, Count)
    require("overlap", overlap, Probability)
    if not isinstance(run.recipe, RegionCaptioning):
        raise DataError(
            f"{run.path} must be a run that captions regions; its recipe is {run.recipe.name!r}. Train one with: "
            "vsemb train multimodal-rnn-regions"
        )
    captioner = run.recipe.captioner(run, CaptionOptions(beam=beam, n_best=1))
    # Invalid inputs are reported before the network is built.
    opened = GivenImage.of(image, dataset)
    candidates = candidate_boxes(run, opened, dataset, boxes, report)
    proposals = None if candidates is None else tf.constant(candidates[None], tf.float32)
    extractor = _extractor(run.path, run.info.get("features"))
    regions = find_regions(extractor, tf.constant([opened.encoded]), proposals)
    if not regions.valid.numpy()[0]:
        raise DataError(f"The image {image!r} does not decode as JPEG or PNG.")
    numbers = np.flatnonzero(np.any(regions.boxes.numpy()[0] != 0, axis=1))
    if parts:
        numbers = numbers[numbers != 0]
    rectangles = regions.boxes.numpy()[0, numbers]  # (regions, 4)
    inputs = run.recipe.region_inputs(regions.features.numpy()[0])[numbers]
    best = [captions[0] for captions in written_of(captioner(tf.constant(inputs)))]
    texts = [text for text, _ in best]
    words = split_words(tf.constant(texts, tf.string)).row_lengths().numpy()
    scores = np.array([log_prob for _, log_prob in best]) / (words + 1)
    described = []
    for row in choose_regions(rectangles, scores, texts, most, overlap):
        box = pixel_box(rectangles[row], opened.picture.size)
        described.append(RegionCaption(*best[row], float(scores[row]), int(numbers[row]), box))
    return RegionCaptions(image, opened.picture, tuple(described))


@functools.lru_cache(maxsize=1)  # Without a cache, its graph would be traced again for each image, in seconds.
def _extractor(path: Path, features: str | None) -> RegionExtractor:
    return kept_extractor(path)


def choose_regions(
    boxes: np.ndarray,
    scores: Sequence[float] | np.ndarray,
    texts: Sequence[str],
    most: int,
    overlap: float = OVERLAP,
) -> list[int]:
    """Choose regions with different places and texts, greedily, best first.

    Args:
        boxes: (regions, 4) [x, y, width, height].
        scores: (regions,) scores, larger is better; ties select the first.
        texts: text of each region; a region with an empty text is never chosen.
        most: maximum number of regions.
        overlap: maximum intersection over union with a chosen region; default 0.5.

    Returns:
        Rows of the chosen regions, best first.

    Example: the second region overlaps the first, the third has the same text.

    >>> boxes = np.array([[0, 0, 4, 4], [0, 0, 4, 3], [5, 5, 2, 2], [7, 5, 2, 2]])
    >>> choose_regions(boxes, [-1.0, -1.5, -2.0, -3.0], ["a dog", "a cat", "a dog", "a ball"], 5)
    [0, 3]
    """
    boxes = np.asarray(boxes, np.float64)
    chosen: list[int] = []
    for row in np.argsort(-np.asarray(scores, np.float64), kind="stable").tolist():
        if len(chosen) == most:
            break
        if not texts[row] or any(texts[row] == texts[other] for other in chosen):
            continue
        if np.all(box_iou(boxes[[row]], boxes[chosen]) <= overlap):
            chosen.append(row)
    return chosen


def draw_captions(
    image: Image.Image, boxes: Sequence[Rectangle], texts: Sequence[str], *, side: int | None = None
) -> Image.Image:
    """Draw an image with boxes, and to its right their texts in the colours of the boxes.

    A line leads from the centre of a box to its text (Karpathy and Fei-Fei 2015, figure 7). Texts are drawn beside the
    image, so that they are readable on any image. They have the order of the boxes from top to bottom. If they need
    more height than the image, the picture is higher.

    Args:
        image: RGB image.
        boxes: x, y, width and height of each box, in pixels of the image.
        texts: text of each box.
        side: longer side of the image in the picture, in pixels; None for its own, clipped to [512, 1280].

    Returns:
        RGB picture, of another size than the image.

    Raises:
        InvalidArgumentError: if the numbers of boxes and texts differ, or `side` < 64.

    Example:

    >>> black = Image.new("RGB", (64, 48))
    >>> draw_captions(black, [(4, 4, 20, 30)], ["a dog in the dark"]).size
    (716, 384)
    """
    if len(boxes) != len(texts):
        raise invalid_argument("texts", len(texts), f"as many as boxes ({len(boxes)})")
    scaled, side = scaled_for_drawing(image, side)
    size = max(14, side // 36) if side >= 256 else max(9, side // 18)
    font, line = ImageFont.load_default(size=size), max(2, size // 6)
    column, gap = side * 2 // 5, size // 2
    whole = np.tile(np.array(image.size, np.float64), 2)
    places = [pixel_box(np.array(box) / whole, scaled.size) for box in boxes]
    colours = [COLOURS[number % len(COLOURS)] for number in range(len(boxes))]
    blocks = [_wrapped(text, font, column - 3 * gap) for text in texts]
    heights = [round(1.3 * size) * len(block) for block in blocks]
    tops, bottom = stack_blocks([y + height // 2 for _, y, _, height in places], heights, scaled.height, gap)
    picture = Image.new("RGB", (scaled.width + column, max(scaled.height, bottom)), PAPER)
    draw_outlines(scaled, list(zip(places, colours, strict=True)), line)
    picture.paste(scaled, (0, 0))
    pen = ImageDraw.Draw(picture)
    left = scaled.width + 2 * gap
    for (x, y, width, height), colour, block, top, high in zip(places, colours, blocks, tops, heights, strict=True):
        centre, end = (x + width // 2, y + height // 2), (left - gap // 2, top + high // 2)
        for ground, thick in (("white", line + 2), (colour, line)):
            pen.line((centre, end), ground, thick)
            pen.circle(centre, 1.5 * thick, ground)
        for number, row in enumerate(block):
            pen.text((left, top + number * round(1.3 * size)), row, colour, font)
    return picture


def _wrapped(text: str, font: Font, width: float) -> list[str]:
    """Break a text into one or more lines of at most `width`; a wider word is cut."""
    lines: list[str] = []
    for word in drawable(text).split():
        longer = f"{lines[-1]} {word}" if lines else word
        if lines and font.getlength(longer) <= width:
            lines[-1] = longer
        else:
            lines.append(cut_text(word, font, width))
    return lines or [""]


def stack_blocks(centres: Sequence[int], heights: Sequence[int], limit: int, gap: int) -> tuple[list[int], int]:
    """Stack blocks without overlap, in order, near their preferred places.

    Args:
        centres: preferred vertical centre of each block, in pixels.
        heights: height of each block, in pixels.
        limit: bottom of the stack, if the blocks fit above it.
        gap: space between two blocks, above the first and below the last, in pixels.

    Returns:
        tops: top of each block.
        bottom: bottom of the stack.
    """
    order = np.argsort(centres, kind="stable").tolist()
    tops, bottom = [0] * len(order), gap
    for number in order:
        tops[number] = max(centres[number] - heights[number] // 2, bottom)
        bottom = tops[number] + heights[number] + gap
    # Blocks below the limit move up if there is space.
    room = sum(heights) + gap * (len(heights) + 1)
    end = max(min(bottom, limit), room)
    lowest = end
    for number in reversed(order):
        tops[number] = min(tops[number], lowest - gap - heights[number])
        lowest = tops[number]
    return tops, end
