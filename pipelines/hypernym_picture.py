"""Draw a part of WordNet as an order-embedding of two dimensions (Vendrov et al. 2016, figure 2).

    python -m pipelines.hypernym_picture [--wordnet DIR] [--out docs/pictures/hypernymy.png]

A concept is above another if none of its coordinates is larger. General concepts are near the origin, at the top left.
Arrows point to direct hypernyms: green for correct ones, green and dashed for ones missing in the embedding, pink for
spurious ones that are not in WordNet.
"""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from PIL import Image, ImageDraw, ImageFont
from tqdm import tqdm

from pipelines.running import main_of, parser_of
from vsemb.errors import DataError, invalid_argument
from vsemb.files import replacing

if TYPE_CHECKING:
    from pipelines.hypernymy.wordnet import WordNet

#: Concepts: first word and, because words have several senses, first word of a hypernym.
SUBSET = (
    ("entity", None),
    ("abstraction", "entity"),
    ("feeling", "abstraction"),
    ("event", "abstraction"),
    ("game", "event"),
    ("living_thing", "entity"),
    ("plant", "living_thing"),
    ("tree", "plant"),
    ("flower", "plant"),
    ("person", "living_thing"),
    ("woman", "person"),
    ("musician", "person"),
    ("animal", "living_thing"),
    ("bird", "animal"),
    ("owl", "bird"),
    ("insect", "animal"),
    ("bee", "insect"),
    ("mammal", "animal"),
    ("domestic_animal", "animal"),
    ("canine", "mammal"),
    ("dog", "canine"),
    ("wolf", "canine"),
    ("cat", "mammal"),
    ("artifact", "entity"),
    ("vehicle", "artifact"),
    ("bicycle", "vehicle"),
    ("boat", "vehicle"),
    ("musical_instrument", "artifact"),
    ("guitar", "musical_instrument"),
    ("furniture", "artifact"),
    ("chair", "furniture"),
)
SIDE, EDGE, FINENESS = 1000, 60, 3  # pixels; what is drawn is so many times larger at first
Box: TypeAlias = tuple[float, float, float, float]  # left, top, right, bottom
Font: TypeAlias = ImageFont.ImageFont | ImageFont.FreeTypeFont
TRUE, SPURIOUS, INK = "#1f9d55", "#f062a6", "#222222"
STARTS = 64
# Large steps move a concept past others in its way. True pairs are rare and have more weight.
_STEPS, _LEARNING_RATE, _TRUE_WEIGHT = 1000, 0.5, 4.0


@dataclass(frozen=True)
class Embedding:
    """Concepts in two dimensions.

    Attributes:
        points: (concepts, 2) float32 >= 0.
        pairs: (pairs, 2) int32, (specific, general) pairs classified as true.
        accuracy: share of all pairs of concepts with correct classification.
    """

    points: np.ndarray
    pairs: np.ndarray
    accuracy: float


@dataclass(frozen=True)
class Drawing:
    """Content of the picture.

    Attributes:
        labels: labels of the concepts.
        points: (concepts, 2) float32 >= 0.
        true: (pairs, 2) direct hypernyms in WordNet and in the embedding.
        missed: (pairs, 2) direct hypernyms missing in the embedding.
        spurious: (pairs, 2) direct hypernyms in the embedding but not in WordNet.
    """

    labels: list[str]
    points: np.ndarray
    true: np.ndarray
    missed: np.ndarray
    spurious: np.ndarray


def subset(wordnet: WordNet, chosen: Sequence[tuple[str, str | None]]) -> tuple[list[str], np.ndarray]:
    """Find concepts by their words; return their labels and the closure among them, renumbered.

    Raises:
        DataError: for a word without this sense.
    """
    from pipelines.hypernymy.wordnet import transitive_closure

    words = np.array(wordnet.words())
    closure = transitive_closure(wordnet.edges)
    below = np.bincount(closure[:, 1], minlength=len(words))
    concepts = []
    for word, above in chosen:
        senses = np.flatnonzero(words == word)
        if above is not None:
            senses = np.intersect1d(senses, closure[words[closure[:, 1]] == above, 0])
        if not len(senses):
            sense = f"{word} under {above}" if above else word
            raise DataError(f"WordNet has no {sense}.")
        # The sense with the most hyponyms is the common one.
        concepts.append(int(senses[np.argmax(below[senses])]))
    inside = closure[np.isin(closure, concepts).all(axis=1)]
    numbers = {concept: number for number, concept in enumerate(concepts)}
    pairs = np.array([[numbers[low], numbers[high]] for low, high in inside.tolist()], np.int32)
    return [word.replace("_", " ") for word, _ in chosen], pairs.reshape(-1, 2)


def embed(closure: np.ndarray, concepts: int, *, starts: int = STARTS, seed: int = 0) -> Embedding:
    """Train a model of two dimensions on all pairs, from many initializations in parallel.

    The best one is returned, because in two dimensions most end with a concept on the wrong side of another.

    Args:
        closure: (pairs, 2) int, all (concept, ancestor) pairs.
        concepts: number of concepts.
        starts: number of copies of the concepts, trained in one model.
        seed: random seed of the initializations.
    """
    import keras

    from pipelines.hypernymy.metrics import pair_energies
    from pipelines.hypernymy.model import HypernymModel
    from pipelines.hypernymy.wordnet import PairSet
    from vsemb.evaluation.binary import accuracy, find_threshold
    from vsemb.losses.max_margin import MaxMargin

    every = np.argwhere(~np.eye(concepts, dtype=bool)).astype(np.int32)
    labels = PairSet(closure, concepts).contains(every).astype(np.float32)
    pairs = np.concatenate([every + start * concepts for start in range(starts)])
    batch = (pairs, np.tile(labels, starts), np.tile(1 + (_TRUE_WEIGHT - 1) * labels, starts))
    model = HypernymModel(starts * concepts, 2, scale=1.0, seed=seed)
    rate = keras.optimizers.schedules.CosineDecay(_LEARNING_RATE, _STEPS)
    model.compile(keras.optimizers.Adam(rate), loss=MaxMargin())
    for _ in tqdm(range(_STEPS), desc="embedding", unit="step", disable=None, leave=False):
        model.train_on_batch(*batch)
    energies = pair_energies(model, pairs).reshape(starts, -1)
    right = [accuracy(row, labels, find_threshold(row, labels)) for row in energies]
    best = int(np.argmax(right))
    points = np.abs(model.get_weights()[0]).reshape(starts, concepts, 2)[best]
    held = every[energies[best] <= find_threshold(energies[best], labels)]
    return Embedding(points, held, right[best])


def direct(pairs: np.ndarray, concepts: int) -> np.ndarray:
    """Return the pairs that are not implied by two others through transitivity: (direct, 2)."""
    above = np.zeros((concepts, concepts), bool)
    above[pairs[:, 0], pairs[:, 1]] = True
    by_way = (above.astype(int) @ above.astype(int)) > 0
    return np.argwhere(above & ~by_way)


def compare(labels: list[str], embedding: Embedding, closure: np.ndarray) -> Drawing:
    """Sort the direct edges of WordNet and of the embedding into true, missed and spurious ones."""
    real, own = direct(closure, len(labels)), direct(embedding.pairs, len(labels))
    held = _contains(embedding.pairs, real)
    spurious = own[~_contains(closure, own)]
    return Drawing(labels, embedding.points, real[held], real[~held], spurious)


def _contains(pairs: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """Return which wanted pairs are among the pairs: (wanted,) bool."""
    return (wanted[:, None] == pairs[None]).all(axis=2).any(axis=1)


def draw(drawing: Drawing) -> Image.Image:
    """Draw the embedding with the origin at the top left corner."""
    # Downscaling a large drawing gives smooth lines.
    side, edge = SIDE * FINENESS, EDGE * FINENESS
    picture = Image.new("RGB", (side, side), "white")
    pen = ImageDraw.Draw(picture)
    font = ImageFont.load_default(size=17 * FINENESS)
    scale = (side - 2 * edge) / drawing.points.max(axis=0)
    places = edge + drawing.points * scale
    taken: list[Box] = []
    for pairs, colour, dashed in (
        (drawing.true, TRUE, False),
        (drawing.missed, TRUE, True),
        (drawing.spurious, SPURIOUS, False),
    ):
        for low, high in pairs:
            taken += _arrow(pen, places[low], places[high], colour, dashed)
    for x, y in places:
        dot = 5 * FINENESS
        pen.ellipse((x - dot, y - dot, x + dot, y + dot), fill=INK)
        taken.append((x - dot, y - dot, x + dot, y + dot))
    _legend(pen, drawing, font)
    for label, place in zip(drawing.labels, places, strict=True):
        box = _free_box(pen, label, font, place, taken, side)
        taken.append(box)
        halo = 3 * FINENESS
        pen.text(box[:2], label, fill=INK, font=font, anchor="lt", stroke_width=halo, stroke_fill="white")
    return picture.resize((SIDE, SIDE), Image.Resampling.LANCZOS)


def _legend(pen: ImageDraw.ImageDraw, drawing: Drawing, font: Font) -> None:
    """Draw the legend of the arrows, in the corner of the largest coordinates."""
    lines = (
        (TRUE, False, f"direct hypernyms ({len(drawing.true)})"),
        (TRUE, True, f"missed ({len(drawing.missed)})"),
        (SPURIOUS, False, f"spurious ({len(drawing.spurious)})"),
    )
    for number, (colour, dashed, text) in enumerate(lines):
        x, y = (SIDE - 300) * FINENESS, (SIDE - 110 + 32 * number) * FINENESS
        _arrow(pen, np.array([x, y]), np.array([x + 70 * FINENESS, y]), colour, dashed)
        pen.text((x + 80 * FINENESS, y), text, fill=INK, font=font, anchor="lm")


def _arrow(pen: ImageDraw.ImageDraw, start: np.ndarray, end: np.ndarray, colour: str, dashed: bool) -> list[Box]:
    """Draw an arrow that ends just before its target; return boxes that cover it."""
    length = math.dist(start, end)
    if length < 1:
        return []
    along = (end - start) / length
    across = np.array([-along[1], along[0]])
    gap, head, width = 8 * FINENESS, 12 * FINENESS, 2 * FINENESS
    tip = end - gap * along
    step = 9 * FINENESS if dashed else length
    for begin in np.arange(gap, max(length - gap - head, gap + 1), 2 * step):
        stop = min(begin + step, length - gap - head / 2)
        pen.line([tuple(start + begin * along), tuple(start + stop * along)], fill=colour, width=width)
    base = tip - head * along
    sides = (base + head / 2.5 * across, base - head / 2.5 * across)
    pen.polygon([tuple(tip), *map(tuple, sides)], fill=colour)
    spots = [start + part * (tip - start) for part in np.linspace(0, 1, 2 + int(length / head))]
    # Hiding the head is worse than hiding a part of the line.
    sizes = [width] * (len(spots) - 2) + [head] * 2
    return [(x - r, y - r, x + r, y + r) for (x, y), r in zip(spots, sizes, strict=True)]


def _free_box(
    pen: ImageDraw.ImageDraw,
    label: str,
    font: Font,
    place: np.ndarray,
    taken: list[Box],
    side: int,
) -> Box:
    """Return the position of a label with the least overlap, of eight positions around its point."""
    left, top, right, bottom = pen.textbbox((0, 0), label, font=font, anchor="lt")
    width, height, gap = right - left, bottom - top, 9 * FINENESS
    # Offsets of the box before, around and after its point.
    across = {-1: -gap - width, 0: -width / 2, 1: gap}
    down = {-1: -gap - height, 0: -height / 2, 1: gap}
    boxes: list[Box] = []
    for dx, dy in ((1, 0), (-1, 0), (0, 1), (0, -1), (1, 1), (1, -1), (-1, 1), (-1, -1)):
        x, y = place[0] + across[dx], place[1] + down[dy]
        boxes.append((x, y, x + width, y + height))

    def cost(box: Box) -> float:
        outside = min(box) < 0 or max(box) > side
        return outside * 1e9 + sum(_shared_area(box, other) for other in taken)

    return min(boxes, key=cost)


def _shared_area(box: Box, other: Box) -> float:
    width = min(box[2], other[2]) - max(box[0], other[0])
    height = min(box[3], other[3]) - max(box[1], other[1])
    return max(0.0, width) * max(0.0, height)


def main(argv: Sequence[str] | None = None) -> int:
    """Draw the picture; return 0, or 1 after an error with one line on stderr."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    parser = parser_of("hypernym_picture", __doc__)
    parser.add_argument("--wordnet", type=Path, metavar="DIR", help="folder with data.noun")
    parser.add_argument("--out", type=Path, default=Path("docs/pictures/hypernymy.png"), help="(%(default)s)")
    arguments = parser.parse_args(argv)
    return main_of("hypernym_picture", lambda: _run(arguments.wordnet, arguments.out), resumes=False)


def _run(folder: Path | None, out: Path) -> int:
    if out.is_dir():
        raise invalid_argument("--out", str(out), "the name of a PNG file")
    from pipelines.hypernymy.wordnet import read_wordnet
    from vsemb.data.readers.wordnet import find_wordnet

    labels, closure = subset(read_wordnet(find_wordnet(folder)), SUBSET)
    drawing = compare(labels, embed(closure, len(labels)), closure)
    with replacing(out) as temporary:
        draw(drawing).save(temporary, format="PNG", optimize=True)
    print(
        f"{out}: {len(labels)} concepts, {len(drawing.true)} true direct edges, "
        f"{len(drawing.missed)} missed, {len(drawing.spurious)} spurious"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
