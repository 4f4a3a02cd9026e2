"""Zero-shot recognition and retrieval of a run (Reed et al. 2016, section 5), and a plot of its classes.

The plot (figure 6) shows an image per class, positioned by t-SNE (van der Maaten and Hinton 2008) of the classes' mean
text embeddings.
"""

from __future__ import annotations

import os
import random
import string
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from vsemb.data.store import StoredDataset
from vsemb.drawing.pictures import read_picture, save_picture
from vsemb.errors import DataError, invalid_argument, needs_extra
from vsemb.evaluation import Embedder
from vsemb.parts import Probability, require
from vsemb.recipes.info import untyped
from vsemb.runs.indexing import require_single_vector
from vsemb.runs.run import Run
from vsemb.systems.zero_shot.attributes import ClassAttributes
from vsemb.systems.zero_shot.class_names import ClassNames, ClassTokenizer
from vsemb.systems.zero_shot.metrics import Seed, ZeroShotMetrics, class_means, evaluate_zero_shot, text_curve


class ZeroShotTask:
    """Recognition of a split's images among its classes, described by texts.

    Images are embedded once for all measurements.

    Args:
        run: the run.
        dataset: the dataset; each image has a class.
        split: name of the split.
        seen: whether to allow training classes, for ordinary classification; default False.

    Attributes:
        names: the c classes, in alphabetical order.
        image_classes: (n,) int64.
        texts: m texts: captions, or class names for a run on attributes.
        text_classes: (m,) int64.
        seen: whether a class is a training class; None if unknown, for a run trained on images without classes.

    Raises:
        DataError: for an image without a class, or a training class with `seen=False`.
        InvalidArgumentError: for an unknown split.

    Example:

        task = ZeroShotTask(Run.open("runs/ds-sje"), Dataset.open("data/cub"), "test")
        print([task.measure(corrupt=share).top1 for share in (0.0, 0.1)])
    """

    def __init__(self, run: Run, dataset: StoredDataset, split: str, *, seen: bool = False) -> None:
        self.run = run
        self._dataset = dataset
        self._part = dataset.split(split)
        self.names, self.image_classes = self._part.class_ids()
        self.seen = _seen(run, dataset, split, self.names, seen)
        _check_attributes(run, dataset)
        self.texts, rows = run.texts_of(self._part)
        self.text_classes = self.image_classes[rows]
        self._embedder = Embedder(run.model)

    @cached_property
    def images(self) -> np.ndarray:
        """Embeddings of the images: (n, dim) float32."""
        return self._embedder.images(self.run.images_of(self._dataset, self._part), len(self._part))

    @cached_property
    def text_embeddings(self) -> np.ndarray:
        """Embeddings of the texts: (m, dim) float32."""
        return self._embed(self.texts)

    def _embed(self, texts: Sequence[str]) -> np.ndarray:
        return self._embedder.texts(*self.run.encode(texts))

    def measure(
        self,
        *,
        curve: bool = False,
        corrupt: float = 0.0,
        top: int = 50,
        seed: int = 0,
    ) -> ZeroShotMetrics:
        """Measure recognition and retrieval.

        Args:
            curve: whether to measure also with 1, 2, 4, ..., 128 texts per class, ten draws each.
            corrupt: share of mistyped characters, see `mistyped`.
            top: number of ranked images per class, K of AP@K; default 50.
            seed: seed of the draws and the typing errors.

        Raises:
            InvalidArgumentError: for numbers out of range, or typing errors for a run on attributes.
            DataError: for an embedding that is not finite.
        """
        require("seed", seed, Seed)
        if corrupt and isinstance(self.run.tokenizer, ClassTokenizer):
            raise invalid_argument(
                "corrupt",
                corrupt,
                "0 for a run on attributes",
                "It reads no text, so there is nothing to mistype.",
            )
        texts = self.text_embeddings
        if corrupt:
            texts = self._embed(mistyped(self.run.shown_texts_of(self._part), corrupt, seed))
        similarity = self.run.model.similarity

        def measured(rows: np.ndarray) -> ZeroShotMetrics:
            embedded = (self.images, self.image_classes, texts[rows], self.text_classes[rows])
            return evaluate_zero_shot(*embedded, similarity, names=self.names, top=top)

        metrics = measured(np.arange(len(texts)))
        if not curve:
            return metrics
        return replace(metrics, curve=tuple(text_curve(measured, self.text_classes, seed=seed)))

    def check_drawable(self, path: str | os.PathLike[str]) -> None:
        """Check the arguments of `draw` before any measurement.

        Args:
            path: the file.

        Raises:
            DataError: as `draw`.
            MissingExtraError: without scikit-learn.
        """
        instead = "Leave --picture out."
        require_single_vector(self.run, "A picture of classes by their mean embeddings", instead)
        check_picture(path, len(self.names))
        self._part.read_image(0)

    def draw(self, path: str | os.PathLike[str], *, seed: int = 0) -> None:
        """Write a PNG plot of the classes by their mean text embeddings, with the first image of each.

        Args:
            path: the file, replaced atomically.
            seed: seed of the layout.

        Raises:
            DataError: for fewer than four classes, a multi-vector run, a dataset without image bytes, or an unwritable
                file.
            MissingExtraError: without scikit-learn.
        """
        self.check_drawable(path)
        means = class_means(self.text_embeddings, self.text_classes, len(self.names))
        points = class_points(means, seed)
        first = np.unique(self.image_classes, return_index=True)[1]
        picture = draw_classes(points, self.names, [self._part.read_image(int(row)) for row in first])
        save_picture(picture, path)


def _seen(run: Run, dataset: StoredDataset, split: str, names: list[str], allowed: bool) -> bool | None:
    trained = run.info.get("classes")
    if trained is None:
        # Without classes in the training data, the overlap is unknown.
        return None
    shared = sorted(set(names) & set(trained))
    if shared and not allowed:
        raise DataError(
            f"Zero-shot evaluation must use unseen classes; {shared[0]!r} of the split {split!r} of {dataset.path} is "
            f"one of the {len(trained)} training classes of {run.path}. For ordinary classification pass --seen "
            "(seen=True)."
        )
    return bool(shared)


def _check_attributes(run: Run, dataset: StoredDataset) -> None:
    """Check that a dataset's class attributes equal the run's.

    Raises:
        DataError: for other attributes.
    """
    attributes: ClassAttributes | None = dataset.annotation("attributes")
    if run.recipe.text.tokenizer.produces != ClassNames.produces or attributes is None:
        return
    if attributes.fingerprint != untyped(run.info)["attributes"]:
        raise DataError(
            f"The class attributes of {dataset.path} must equal the training attributes of {run.path}. Pass the "
            "original dataset with --data."
        )


def mistyped(texts: Sequence[str], share: float, seed: int = 0) -> list[str]:
    """Add random typing errors to texts.

    Each character is changed independently with probability `share`. With equal probability it is replaced by another
    lower-case letter, deleted, doubled, or swapped with the next character (the last one with the previous). A text
    that would become empty is unchanged. The errors of a text depend on the seed, its position and the text.

    Args:
        texts: the texts.
        share: share of changed characters, from 0 to 1.
        seed: seed of the errors.

    Raises:
        InvalidArgumentError: for a share outside [0, 1].

    Example:

    >>> mistyped(["a small bird with a red head"], 0.15, seed=3)
    ['a smmall bird with a red had']
    """
    require("share", share, Probability)
    if not share:
        return list(texts)
    return [_mistyped(text, share, random.Random(f"{seed}/{place}")) for place, text in enumerate(texts)]


def _mistyped(text: str, share: float, chance: random.Random) -> str:
    characters = list(text)
    last = len(text) - 1
    # A position that an earlier swap changed may be changed again.
    for place in range(len(text)):
        if chance.random() >= share:
            continue
        error = chance.choice(("replace", "delete", "double", "swap"))
        now = characters[place]
        if error == "replace":
            characters[place] = chance.choice([letter for letter in string.ascii_lowercase if letter != now])
        elif error == "delete":
            characters[place] = ""
        elif error == "double":
            characters[place] = now + now
        elif last:
            other = place + 1 if place < last else place - 1
            characters[place], characters[other] = characters[other], now
    return "".join(characters) or text


#: Sides of the plot and of an image in it, in pixels.
SIDE, THUMBNAIL = 1200, 72
_EDGE, _FONT, _INK = 24, 13, "#222222"
_FEWEST = 4
# Half the usual perplexity, for tens of classes.
_PERPLEXITY = 15.0


def check_picture(path: str | os.PathLike[str], classes: int) -> None:
    """Check the arguments of a plot before anything is embedded.

    Args:
        path: the output file.
        classes: number of classes.

    Raises:
        InvalidArgumentError: for a file name without the suffix .png.
        DataError: for fewer than four classes.
        MissingExtraError: without scikit-learn.

    Example:

        check_picture("classes.png", len(names))
    """
    if Path(path).suffix.lower() != ".png":
        raise invalid_argument("picture", os.fspath(path), "a file whose name ends in .png")
    _check_classes(classes)
    _tsne()


def _check_classes(classes: int) -> None:
    if classes < _FEWEST:
        raise DataError(f"The number of classes in a plot must be at least {_FEWEST}; got {classes}.")


def _tsne() -> Any:
    with needs_extra("scikit-learn", "report"):
        from sklearn.manifold import TSNE
    return TSNE


def class_points(embeddings: np.ndarray, seed: int = 0) -> np.ndarray:
    """Compute two-dimensional positions of classes by t-SNE with cosine distances.

    Args:
        embeddings: (c, dim) float, one row per class, see `vsemb.systems.zero_shot.metrics.class_means`.
        seed: seed of t-SNE, from 0 to 2**32 - 1.

    Returns:
        (c, 2) float64; each axis spans [0, 1].

    Raises:
        InvalidArgumentError: for a seed out of range.
        DataError: for fewer than four classes, or non-finite embeddings.
        MissingExtraError: without scikit-learn.

    Example:

        points = class_points(class_means(texts, text_classes, len(names)))
    """
    require("seed", seed, Seed)
    _check_classes(len(embeddings))
    if not np.isfinite(embeddings).all():
        raise DataError("The embeddings of the classes must be finite; got NaN or infinity.")
    perplexity = min(_PERPLEXITY, (len(embeddings) - 1) / 3)
    # Lengths do not change the ranking of images, so directions are compared.
    directions = embeddings / np.maximum(np.linalg.norm(embeddings, axis=1, keepdims=True), 1e-12)
    # Random start, since principal axes are undefined for coinciding classes.
    tsne = _tsne()(perplexity=perplexity, init="random", random_state=seed, method="exact")
    points = np.asarray(tsne.fit_transform(directions.astype(np.float64)), np.float64)
    low = points.min(axis=0)
    return (points - low) / np.maximum(points.max(axis=0) - low, 1e-12)


def draw_classes(points: np.ndarray, names: Sequence[str], images: Sequence[bytes]) -> Image.Image:
    """Draw an image of each class at its position, with the name below.

    Args:
        points: (c, 2) in [0, 1] from `class_points`.
        names: c class names.
        images: c encoded images, JPEG or PNG.

    Returns:
        RGB, `SIDE` x `SIDE`. Later classes cover earlier ones.

    Example:

        draw_classes(points, ["cardinal", "crow"], [first, second]).save("classes.png")
    """
    picture = Image.new("RGB", (SIDE, SIDE), "white")
    pen = ImageDraw.Draw(picture)
    font = ImageFont.load_default(size=_FONT)
    room = np.array([SIDE - THUMBNAIL - 2 * _EDGE, SIDE - THUMBNAIL - 2 * _EDGE - _FONT])
    corners = np.rint(_EDGE + np.asarray(points) * room).astype(int)
    for (x, y), name, encoded in zip(corners.tolist(), names, images, strict=True):
        small = read_picture(encoded, name)
        small.thumbnail((THUMBNAIL, THUMBNAIL), Image.Resampling.LANCZOS)
        picture.paste(small, (x + (THUMBNAIL - small.width) // 2, y + (THUMBNAIL - small.height) // 2))
    # Names last, so that images do not cover them.
    for (x, y), name in zip(corners.tolist(), names, strict=True):
        left, _, right, _ = pen.textbbox((0, 0), name, font=font)
        begin = min(max(x + (THUMBNAIL - right + left) / 2, 2), SIDE - (right - left) - 2)
        place = (begin, y + THUMBNAIL)
        pen.text(place, name, fill=_INK, font=font, stroke_width=2, stroke_fill="white")
    return picture
