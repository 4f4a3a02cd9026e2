"""Traversal from an image to the root: the nearest texts on the way, from specific to general (MERU)."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from keras import ops
from PIL import Image

from vsemb.data.store import StoredDataset
from vsemb.drawing.pictures import read_picture, with_picture
from vsemb.errors import DataError, invalid_argument, printable
from vsemb.evaluation import Embedder
from vsemb.ops.lorentz import MIN_RADIUS, cone_violation_matrix, lorentz_distance_matrix
from vsemb.printing import table
from vsemb.results import Result
from vsemb.runs.images import find_key, read_image_file
from vsemb.runs.inputs import text_lines
from vsemb.runs.run import Run
from vsemb.systems.hyperbolic.drawing import draw_traversal
from vsemb.systems.hyperbolic.similarity import Lorentz
from vsemb.text.coverage import coverage

#: Text of the root, which entails everything.
ROOT = "[ROOT]"


@dataclass(frozen=True)
class TraversedText:
    """A text on the way from an image to the root.

    Attributes:
        text: the text, or `[ROOT]`.
        step: first step at which it is the nearest, from 1.
        at: distance of this step to the root.
        radius: distance of the text to the root.
        distance: distance of the text to the step.
    """

    text: str
    step: int
    at: float
    radius: float
    distance: float


@dataclass(frozen=True, eq=False, repr=False)
class Traversal(Result):
    """The texts on the way from an image to the root, the most specific first.

    Attributes:
        image: file or key of the image.
        radius: distance of the image to the root.
        steps: number of points on the way.
        pool: number of texts that were compared.
        texts: the texts, each once, in the order of the steps.
        picture: the image.
        out: file of the drawing, if there is one.
    """

    image: str
    radius: float
    steps: int
    pool: int
    texts: tuple[TraversedText, ...]
    picture: Image.Image
    out: str | None = None

    def drawn(self) -> Image.Image:
        """Draw the image, and the texts at their distances to the root."""
        return draw_traversal(self.picture, self.radius, [(each.at, each.text) for each in self.texts])

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        return {
            "image": printable(self.image),
            "radius": self.radius,
            "steps": self.steps,
            "pool": self.pool,
            "texts": [dataclasses.asdict(each) for each in self.texts],
        }

    def __str__(self) -> str:
        rows = [
            [str(each.step), *(f"{value:.3f}" for value in (each.at, each.distance, each.radius)), each.text]
            for each in self.texts
        ]
        about = f"{printable(self.image)}, {self.radius:.3f} from the root; {self.pool:,} texts"
        header = ["step", "to the root", "to the text", "text to the root", "text"]
        return with_picture(f"{about}\n{table(header, rows, text=(4,))}", self.out)


def cone_radius(run: Run) -> float:
    """Return K of the entailment cones of a run in hyperbolic space: of its loss, or the paper's without such a loss.

    Raises:
        InvalidArgumentError: for a run with another similarity.
    """
    similarity = run.recipe.similarity
    if not isinstance(similarity, Lorentz):
        received = f"{run.path}, of similarity {similarity.kind!r}"
        fix = "The recipe meru has it, or train another with --set similarity=lorentz."
        raise invalid_argument("run", received, f"a run with the similarity {Lorentz.kind!r}", fix)
    return getattr(run.recipe.loss, "min_radius", MIN_RADIUS)


def nearest_on_the_way(
    image: np.ndarray,
    texts: np.ndarray,
    steps: int = 50,
    *,
    entailing: bool = False,
    min_radius: float = MIN_RADIUS,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Find the nearest text at each point on the way from an image to the root.

    The points are evenly spaced on the geodesic. Their tangent vectors are the image's, multiplied by numbers from 1 to
    0.

    Args:
        image: (dim,) float, tangent vector at the root.
        texts: (n, dim) float, tangent vectors at the root.
        steps: number of points, at least 2; the first is the image and the last the root.
        entailing: whether a text whose cone does not contain the point is left out.
        min_radius: K of the cones.

    Returns:
        nearest: (steps,) int64, row of the nearest text, or n for the root.
        distances: (steps,) float32, distance of the point to the nearest text.
        radii: (steps,) float32, distance of the point to the root.

    Example: the text at half of the image's distance is passed on the way.

    >>> nearest, _, radii = nearest_on_the_way(np.array([2.0, 0.0]), np.array([[1.0, 0.0], [0.0, 1.0]]), steps=5)
    >>> nearest.tolist(), radii.round(2).tolist()
    ([0, 0, 0, 0, 2], [2.0, 1.5, 1.0, 0.5, 0.0])
    """
    points = np.linspace(1.0, 0.0, steps, dtype=np.float32)[:, None] * np.asarray(image, np.float32)
    pool = np.concatenate([np.asarray(texts, np.float32), np.zeros((1, points.shape[1]), np.float32)])
    distances = ops.convert_to_numpy(lorentz_distance_matrix(points, pool))
    if entailing:
        outside = ops.convert_to_numpy(cone_violation_matrix(points, pool, min_radius)) > 0
        # A text at the point itself entails it: the angle of two equal points is not defined.
        distances = np.where(outside & (distances > 0), np.inf, distances)
    nearest = distances.argmin(axis=1)
    return nearest, distances[np.arange(steps), nearest], np.linalg.norm(points, axis=1)


def text_pool(
    run: Run, dataset: StoredDataset | None, split: str, file: str | os.PathLike[str] | None
) -> tuple[Sequence[str], np.ndarray]:
    """Embed the texts of a file, or the captions of a split, each text once.

    Args:
        run: the run.
        dataset: the dataset of the split; None for a file.
        split: name of the split.
        file: file with one text per line; None for captions.

    Returns:
        The texts, and their embeddings, (n, dim) float32. Texts without a known word are left out.

    Raises:
        DataError: if all texts lack a known word, or the file cannot be read.
    """
    if file is not None:
        shown: Sequence[str] = text_lines(file)
        ids, offsets = run.encode(shown)
    else:
        assert dataset is not None
        part = dataset.split(split)
        shown, (ids, offsets, _) = run.shown_texts_of(part), run.encoded_texts_of(part)
    known = coverage(run.tokenizer, ids, offsets, shown).known > 0
    first = {text: row for row, text in reversed(list(enumerate(shown))) if known[row]}
    rows = np.sort(np.fromiter(first.values(), np.int64, len(first)))
    if not len(rows):
        where = f"The split {split}" if file is None else printable(os.fspath(file))
        raise DataError(f"{where} must have a text with a word that {run.path} was trained with; it has none.")
    return [shown[row] for row in rows], Embedder(run.model).texts(ids, offsets)[rows]


def traverse_image(
    image: str,
    embedding: np.ndarray,
    picture: Image.Image,
    texts: tuple[Sequence[str], np.ndarray],
    steps: int,
    **cones: Any,
) -> Traversal:
    """Find the texts on the way from an image to the root.

    Args:
        image: file or key of the image.
        embedding: (dim,) float32, of the image.
        picture: the decoded image.
        texts: texts and embeddings from `text_pool`.
        steps: number of points on the way, at least 2.
        **cones: `entailing` and `min_radius` of `nearest_on_the_way`.
    """
    names, embeddings = texts
    nearest, distances, radii = nearest_on_the_way(embedding, embeddings, steps, **cones)
    places = np.append(np.linalg.norm(embeddings, axis=1), 0.0)
    passed: dict[int, TraversedText] = {}
    for step, row in enumerate(nearest.tolist()):
        if row not in passed:
            text = ROOT if row == len(names) else names[row]
            at, radius, distance = (float(value) for value in (radii[step], places[row], distances[step]))
            passed[row] = TraversedText(text, step + 1, at, radius, distance)
    return Traversal(image, float(radii[0]), steps, len(names), tuple(passed.values()), picture)


def picture_of(dataset: StoredDataset | None, image: str) -> Image.Image:
    """Decode an image file, or the image of a key of a dataset.

    Raises:
        DataError: if it cannot be read.
    """
    place = find_key(dataset, image)
    encoded = read_image_file(image, dataset).encoded if place is None else place[0].read_image(place[1])
    return read_picture(encoded, image)
