"""Report section about alignments: images with the best region of each word of their best caption."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from keras import ops

from vsemb.data.store import StoredDataset
from vsemb.drawing.pictures import data_uri, read_picture
from vsemb.drawing.templates import page_template
from vsemb.ops.tensorflow import tf
from vsemb.recipes.retrieval import Retrieval
from vsemb.report.page import EXPLAINED, Section, View
from vsemb.report.space import Picture, Space
from vsemb.systems.regions.alignment import runs
from vsemb.systems.regions.drawing import draw_alignment
from vsemb.systems.regions.image_tower import regions_of
from vsemb.systems.regions.similarities import item_mask
from vsemb.systems.regions.viterbi import best_chain

#: Longer side of images in pixels, and number of images.
SIDE, SHOWN = 320, 6


@dataclass(frozen=True)
class Aligned:
    """An image and its own caption of the highest score, each word with its best region.

    Attributes:
        picture: the image with bounding boxes, and the words below it.
        caption: the caption.
        score: score of image and caption.
    """

    picture: Picture
    caption: str
    score: float


def sections(view: View) -> list[Section]:
    """Return the section about alignments, see `vsemb.report.page.SectionMaker`.

    Args:
        view: run, dataset and options.
    """
    recipe = view.run.recipe
    if not isinstance(recipe, Retrieval) or not recipe.similarity.multi_vector:
        return []
    space = view.space
    view.step("alignments")
    alignments = align(space, view.dataset, SHOWN, view.seed)
    html = page_template(__package__, "report.html.jinja").render(alignments=alignments)
    return [Section(EXPLAINED, "alignments", "Alignments", html)]


def align(space: Space, dataset: StoredDataset, count: int, seed: int) -> list[Aligned]:
    """Align random images with their own caption of the highest score; each word takes its best region.

    Args:
        space: the split, embedded as sets of vectors.
        dataset: the dataset. Without image bytes the result is empty.
        count: number of images.
        seed: random seed.
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
    """Return the words of a text after tokenization."""
    read = tf.constant(space.run.reader([space.text_list[text]]))
    return [word.decode() for word in space.run.tokenizer.pieces(read).flat_values.numpy()]


def _chain(space: Space, row: int, text: int, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the best region of each of `count` words, and its score."""
    images = ops.convert_to_tensor(space.images[[row]])
    texts = ops.convert_to_tensor(space.texts[[text]])
    similarity: Any = space.run.model.similarity
    unaries = similarity.word_region_scores(images, texts)[:, :count]  # (1, words, regions)
    is_word = ops.ones(unaries.shape[:2], "bool")
    path = ops.convert_to_numpy(best_chain(unaries, is_word, item_mask(images), 0.0)[0])[0]
    return path, ops.convert_to_numpy(unaries)[0, np.arange(len(path)), path]


def _said(words: list[str], regions: np.ndarray) -> str:
    phrases = []
    for region, start, length in runs(regions):
        where = f"region {region}" if region else "the whole image"
        phrases.append(f"“{' '.join(words[start : start + length])}” {where}")
    return ", ".join(phrases)
