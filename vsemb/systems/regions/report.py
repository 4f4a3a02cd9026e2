"""What words describe: images with the regions that the words of their best caption chose."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby
from typing import Any

import numpy as np
import tensorflow as tf
from keras import ops

from vsemb.data.store import Dataset
from vsemb.recipes.retrieval import Retrieval
from vsemb.report.page import EXPLAINED, Section, View
from vsemb.report.space import Picture, Space
from vsemb.runs.pictures import data_uri, read_picture
from vsemb.runs.templates import page_template
from vsemb.systems.regions.drawing import draw_alignment
from vsemb.systems.regions.image_tower import regions_of
from vsemb.systems.regions.similarities import item_mask
from vsemb.systems.regions.viterbi import best_chain

#: Longer side of an image in a picture, in pixels, and the number of these.
SIDE, SHOWN = 320, 6


@dataclass(frozen=True)
class Aligned:
    """An image and its caption that fits best, each word with its region.

    Attributes:
        picture: the image with its boxes, and the words below it.
        caption: the caption.
        score: of the two.
    """

    picture: Picture
    caption: str
    score: float


def sections(view: View) -> list[Section]:
    """Returns the section about alignments, see `vsemb.report.page.SectionMaker`."""
    recipe = view.run.recipe
    if not isinstance(recipe, Retrieval) or not recipe.similarity.multi_vector:
        return []
    space = view.space
    view.step("alignments")
    alignments = align(space, view.dataset, SHOWN, view.seed)
    template = page_template(__package__, "report.html.jinja")
    return [Section(EXPLAINED, template.render(alignments=alignments))]


def align(space: Space, dataset: Dataset, count: int, seed: int) -> list[Aligned]:
    """Draws images at random, and their words on the regions that these choose.

    The words are those of the image's own caption that scores best with it; each takes its best region.

    Args:
        space: the split, embedded as sets of vectors.
        dataset: the dataset.
        count: images wanted; none where the dataset has no image bytes.
        seed: of the draw.
    """
    if not space.part.has_images:
        return []
    rows = np.random.default_rng(seed).permutation(len(space.part))[:count]
    boxes = regions_of(space.run, dataset).boxes(space.part.ids[rows])
    return [_aligned(space, int(row), of_image) for row, of_image in zip(rows, boxes, strict=True)]


def _aligned(space: Space, row: int, boxes: np.ndarray) -> Aligned:
    own = np.flatnonzero(space.text_rows == row)
    scores = space.scores(space.images[[row]], space.texts[own])[0]
    best = int(own[scores.argmax()])
    words = _words(space, best)
    regions, fits = _chain(space, row, best, len(words))
    caption, key = space.text_list[best], space.part.keys[row]
    drawn = draw_alignment(read_picture(space.part.read_image(row), key), boxes, words, regions, fits, side=SIDE)
    alt = f"The image with the regions of these words: {_said(words, regions)}"
    return Aligned(Picture(row, key, alt, data_uri(drawn), *drawn.size), caption, float(scores.max()))


def _words(space: Space, text: int) -> list[str]:
    """The words of a text as the model reads them."""
    read = tf.constant(space.run.reader([space.text_list[text]]))
    return [word.decode() for word in space.run.tokenizer.pieces(read).flat_values.numpy()]


def _chain(space: Space, row: int, text: int, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns the region of each of `count` words, and its score there."""
    images, texts = (ops.convert_to_tensor(each) for each in (space.images[[row]], space.texts[[text]]))
    similarity: Any = space.run.model.similarity
    unaries = similarity.word_region_scores(images, texts)[:, :count]  # (1, words, regions)
    is_word = ops.ones(unaries.shape[:2], "bool")
    path = ops.convert_to_numpy(best_chain(unaries, is_word, item_mask(images), 0.0)[0])[0]
    return path, ops.convert_to_numpy(unaries)[0, np.arange(len(path)), path]


def _said(words: list[str], regions: np.ndarray) -> str:
    phrases = []
    for region, places in groupby(range(len(words)), key=lambda place: int(regions[place])):
        where = f"region {region}" if region else "the whole image"
        phrases.append(f"“{' '.join(words[place] for place in places)}” {where}")
    return ", ".join(phrases)
