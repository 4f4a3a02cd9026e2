"""Alignment of the words of a sentence with the regions of an image, by the served function."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from PIL import Image

from vsemb.data.store import Split, StoredDataset
from vsemb.drawing.pictures import box_text, decimals, pixel_box, read_picture, with_picture
from vsemb.errors import DataError, invalid_argument, printable
from vsemb.ops.tensorflow import tf
from vsemb.printing import table
from vsemb.results import Result
from vsemb.runs.images import find_key, read_image_file
from vsemb.runs.run import Run
from vsemb.runs.searching import read_text
from vsemb.systems.regions.alignment import AlignedWords, Phrase
from vsemb.systems.regions.detections import read_detections_of_one
from vsemb.systems.regions.drawing import FADE, draw_alignment
from vsemb.systems.regions.image_tower import kept_regions, regions_of, require_regions
from vsemb.text.normalize import split_words


@dataclass(frozen=True, eq=False, repr=False)
class Alignment(AlignedWords, Result):
    """A sentence aligned with an image: one region per word.

    Attributes:
        name: file or key of the image.
        picture: the decoded image.
        sentence: the sentence as the model reads it, a result of `read_text`.
        affinity: bonus for two neighbouring words on one region.
        out: file of the drawn alignment, if there is one.
    """

    name: str
    picture: Image.Image
    sentence: str
    affinity: float
    out: str | None = None

    @property
    def phrases(self) -> list[Phrase]:
        """Runs of words on one region, in the order of the sentence; boxes are in pixels."""
        size = self.picture.size
        return [replace(phrase, box=pixel_box(phrase.box, size)) for phrase in super().phrases]

    def drawn(self, fade: float = FADE, side: int | None = None) -> Image.Image:
        """Draw the alignment, see `vsemb.systems.regions.drawing.draw_alignment`."""
        return draw_alignment(self.picture, self.boxes, self.words, self.regions, self.scores, fade=fade, side=side)

    def to_json(self) -> dict[str, Any]:
        """Return plain values; boxes are in pixels."""
        rows = np.flatnonzero(np.any(self.boxes != 0, axis=1)).tolist()
        return {
            "image": printable(self.name),
            "width": self.picture.width,
            "height": self.picture.height,
            "sentence": self.sentence,
            "affinity": self.affinity,
            "words": list(self.words),
            "regions": self.regions.tolist(),
            "scores": self.scores.tolist(),
            "phrases": [
                {"words": list(phrase.words), "region": phrase.region, "box": phrase.box, "score": phrase.score}
                for phrase in self.phrases
            ],
            "boxes": {str(row): pixel_box(self.boxes[row], self.picture.size) for row in rows},
        }

    def __str__(self) -> str:
        digits = decimals(self.scores)
        rows = []
        for phrase in self.phrases:
            scores = " ".join(f"{score:.{digits}f}" for score in phrase.scores)
            where = [str(phrase.region), box_text(phrase.box)]
            rows.append([phrase.text, *where, f"{phrase.score:.{digits}f}", scores])
        header = ["phrase", "region", "box (x y w h)", "score", "of its words"]
        return with_picture(table(header, rows, text=(0, 2, 4)), self.out)


def align_image(
    run: Run,
    image: str,
    sentence: str,
    dataset: StoredDataset | None = None,
    *,
    affinity: float = 0.0,
    boxes: str | os.PathLike[str] | None = None,
    report: Callable[[str], None] = print,
) -> Alignment:
    """Find the region of each word of a sentence, with the served function.

    Args:
        run: run on regions.
        image: image file, or key of an image of the dataset.
        sentence: sentence about the image.
        dataset: dataset of the keys; image files are resized as in its preparation. None: files only, not resized.
        affinity: bonus for two neighbouring words on one region (beta of Karpathy and Fei-Fei 2015, equation 12). At 0
            each word takes its best region; larger values give longer phrases.
        boxes: file with candidate boxes of this image, for a run that does not propose regions from pixels: results of
            a detector in COCO's format, in pixels.
        report: receives one-line notes about unknown words, or too many words.

    Raises:
        InvalidArgumentError: if no word of the sentence is known, the affinity is not a number >= 0, or boxes
            are given to a run that proposes regions.
        DataError: if the run has no regions, the image or the boxes cannot be read, or a score is not finite.

    Example:

        aligned = align_image(Run.open("runs/dvsa"), "dog.jpg", "a brown dog chases a child")
        aligned.drawn().save("aligned.png")
    """
    require_regions(run)
    if not 0 <= affinity < math.inf:
        raise invalid_argument("affinity", affinity, "a number >= 0")
    text = read_text(run, sentence, "sentence", report)
    # Invalid inputs are reported before the network is built.
    opened = GivenImage.of(image, dataset)
    candidates = candidate_boxes(run, opened, dataset, boxes, report)
    inputs = [tf.constant([opened.encoded]), text, tf.constant([affinity], tf.float32)]
    if candidates is not None:
        inputs.append(tf.constant(candidates[None], tf.float32))
    outputs = {name: values.numpy()[0] for name, values in run.encoders().functions["align"](*inputs).items()}
    if not outputs["valid"]:
        raise DataError(f"The image {image!r} does not decode as JPEG or PNG.")
    words = np.flatnonzero(outputs["regions"] >= 0)
    if not np.isfinite(outputs["scores"][words]).all():
        raise DataError("The scores hold NaN or infinity. The model is broken; nothing was aligned.")
    limit = run.tokenizer.max_length
    if len(words) == limit and int(split_words(text).row_lengths()[0]) > limit:
        report(f"Warning: the run reads the first {limit} words.")
    return Alignment(
        tuple(word.decode(errors="replace") for word in outputs["words"][words].tolist()),
        outputs["regions"][words],
        outputs["scores"][words],
        outputs["boxes"],
        image,
        opened.picture,
        text.numpy()[0].decode(),
        affinity,
    )


@dataclass(frozen=True, eq=False)
class GivenImage:
    """The image argument of a command.

    Attributes:
        name: file or key.
        encoded: image bytes as a dataset stores them.
        picture: the decoded image.
        pixels: width and height before shrinking, in pixels.
        row: split and row of a key; None for a file.
    """

    name: str
    encoded: bytes
    picture: Image.Image
    pixels: tuple[float, float]
    row: tuple[Split, int] | None

    @classmethod
    def of(cls, image: str, dataset: StoredDataset | None) -> GivenImage:
        """Read an image file, or an image of a dataset by its key.

        Raises:
            DataError: if the image cannot be read.
        """
        place = find_key(dataset, image)
        if place is not None:
            split, row = place
            encoded = split.read_image(row)
            picture = read_picture(encoded, image)
            return cls(image, encoded, picture, picture.size, place)
        stored = read_image_file(image, dataset)
        across, down = stored.scale
        pixels = (stored.width / across, stored.height / down)
        return cls(image, stored.encoded, read_picture(stored.encoded, image), pixels, None)


def candidate_boxes(
    run: Run,
    image: GivenImage,
    dataset: StoredDataset | None,
    boxes: str | os.PathLike[str] | None,
    report: Callable[[str], None],
) -> np.ndarray | None:
    """Return the candidate boxes that a run on regions needs for an image.

    Args:
        run: run on regions.
        image: the image.
        dataset: dataset for keys.
        boxes: file with results of a detector for this image; None for the boxes of its key, or proposed boxes.
        report: receives one-line notes.

    Returns:
        (n, 4) float fractions of the image's width and height, best first; None for a run that proposes boxes in graph.

    Raises:
        InvalidArgumentError: if boxes are given to a run that proposes them in graph.
        DataError: if required boxes are missing or cannot be read, or the run cannot read new images.
    """
    regions = kept_regions(run.path)
    if regions.candidates.in_graph:
        if boxes is not None:
            raise invalid_argument("boxes", os.fspath(boxes), "omitted for a run that proposes its own regions")
        return None
    if boxes is not None:
        detected, notes = read_detections_of_one(boxes, image.pixels)
        for note in notes:
            report(note)
        return detected
    if image.row is not None and dataset is not None:
        split, row = image.row
        try:
            cached = regions_of(run, dataset).boxes(split.ids[[row]])[0]
            # The extractor adds the whole image again.
            return cached[1:][np.any(cached[1:] != 0, axis=1)]
        except DataError:
            if regions.candidates.detected:
                raise
    fix = "Name its results as `boxes`, or give"
    return regions.candidates.propose(np.asarray(image.picture), image.name, fix)
