"""Measuring a run by zero-shot recognition and retrieval (Reed et al. 2016, section 5), and a picture of its classes.

In the picture (figure 6) near classes are near each other, an image of each in its place: t-SNE (van der Maaten and
Hinton 2008) of the mean text embedding of each class.
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

from vsemb.data.store import Dataset
from vsemb.errors import DataError, invalid_argument, needs_extra
from vsemb.evaluation import Embedder
from vsemb.parts import Probability, require
from vsemb.runs.indexing import require_single_vector
from vsemb.runs.pictures import read_picture, save_picture
from vsemb.runs.run import Run
from vsemb.systems.zero_shot.attributes import ClassAttributes
from vsemb.systems.zero_shot.class_names import ClassNames, ClassTokenizer
from vsemb.systems.zero_shot.metrics import Seed, ZeroShotMetrics, class_means, evaluate_zero_shot, text_curve


class ZeroShotTask:
    """A split's images, each to be recognised among the split's classes by their texts.

    Images are embedded once, whatever is measured.

    Args:
        run: the run.
        dataset: the dataset; its images have classes.
        split: name of the split.
        seen: whether classes that the run was trained on are allowed. To recognise these is ordinary
            classification.

    Attributes:
        names: the c classes, by alphabet.
        image_classes: (n,) int64.
        texts: m texts: captions, or the names of their classes for a run on attributes.
        text_classes: (m,) int64.
        seen: whether a class has the name of one trained on; None where that is not known, because the run
            was trained on images without classes.

    Raises:
        DataError: if an image has no class, or a class was trained on and `seen` is false.
        InvalidArgumentError: if there is no such split.

    Example:

        task = ZeroShotTask(Run.open("runs/ds-sje"), Dataset.open("data/cub"), "test")
        print([task.measure(corrupt=share).top1 for share in (0.0, 0.1)])
    """

    def __init__(self, run: Run, dataset: Dataset, split: str, *, seen: bool = False) -> None:
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

    def _embed(self, texts: list[str]) -> np.ndarray:
        return self._embedder.texts(*self.run.encode(texts))

    def measure(
        self,
        *,
        curve: bool = False,
        corrupt: float = 0.0,
        top: int = 50,
        seed: int = 0,
    ) -> ZeroShotMetrics:
        """Measures recognition and retrieval.

        Args:
            curve: whether to measure with 1, 2, 4, ..., 128 texts a class too, ten draws each.
            corrupt: share of the characters of the texts with a typing error, see
                `mistyped`.
            top: images looked at for each class, K of AP@K.
            seed: of the draws and the typing errors.

        Raises:
            InvalidArgumentError: for numbers out of range, or typing errors for a run that reads no text.
            DataError: if an embedding is not finite.
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

        def measured(rows: np.ndarray) -> ZeroShotMetrics:
            given = (self.images, self.image_classes, texts[rows], self.text_classes[rows])
            return evaluate_zero_shot(*given, self.run.model.similarity, names=self.names, top=top)

        metrics = measured(np.arange(len(texts)))
        if not curve:
            return metrics
        return replace(metrics, curve=tuple(text_curve(measured, self.text_classes, seed=seed)))

    def check_drawable(self, path: str | os.PathLike[str]) -> None:
        """Refuses what `draw` cannot draw, before anything is measured.

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
        """Draws the classes by their mean text embeddings, with the first image of each, as a PNG file.

        Args:
            path: the file, replaced whole.
            seed: of the layout.

        Raises:
            DataError: for fewer than four classes, a run whose embeddings are sets, a dataset without image
                bytes, or a file that cannot be written.
            MissingExtraError: without scikit-learn.
        """
        self.check_drawable(path)
        means = class_means(self.text_embeddings, self.text_classes, len(self.names))
        points = class_points(means, seed)
        first = np.unique(self.image_classes, return_index=True)[1]
        picture = draw_classes(points, self.names, [self._part.read_image(int(row)) for row in first])
        save_picture(picture, path)


def _seen(run: Run, dataset: Dataset, split: str, names: list[str], allowed: bool) -> bool | None:
    trained = run.info.get("classes")
    if trained is None:
        # Classes of another dataset, or none: nothing is known of what the captions were about.
        return None
    shared = sorted(set(names) & set(trained))
    if shared and not allowed:
        raise DataError(
            f"This is not zero-shot: the class {shared[0]!r} of the split {split!r} of {dataset.path} is one "
            f"of the {len(trained)} that {run.path} was trained on. To measure ordinary classification, of "
            "classes seen in training: --seen (seen=True)."
        )
    return bool(shared)


def _check_attributes(run: Run, dataset: Dataset) -> None:
    """Checks that a dataset's classes are those whose attributes the run knows.

    Raises:
        DataError: if they have other attributes.
    """
    attributes: ClassAttributes | None = dataset.annotation("attributes")
    if run.recipe.text.tokenizer.produces != ClassNames.produces or attributes is None:
        return
    if attributes.fingerprint != run.info["attributes"]:
        raise DataError(
            f"The classes of {dataset.path} have other attributes than those that {run.path} was trained "
            "with, and it knows no others."
        )


def mistyped(texts: Sequence[str], share: float, seed: int = 0) -> list[str]:
    """Returns the texts with typing errors in them.

    Each character is hit with probability `share`, whatever happens to its neighbours. What is hit is, with
    equal chances, replaced by another lower-case letter, left out, written twice, or swapped with the
    character behind it (the last one with the one before it). A text of which nothing would be left stays
    as it is. What happens to a text depends on the seed, its place and itself alone.

    Args:
        texts: the texts.
        share: of the characters that are hit, from 0 to 1; with 0 the texts stay as they are.
        seed: other seed, other errors.

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
    # Where the character stands that an earlier swap has moved is of no interest: places are hit.
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


#: Side of the picture and of an image in it, in pixels.
SIDE, THUMBNAIL = 1200, 72
_EDGE, _FONT, _INK = 24, 13, "#222222"
_FEWEST = 4
# Half the neighbours that t-SNE is used with elsewhere: classes are tens, not thousands.
_PERPLEXITY = 15.0


def check_picture(path: str | os.PathLike[str], classes: int) -> None:
    """Checks what can be known of a picture before anything is embedded.

    Args:
        path: the file to draw to.
        classes: the number of classes.

    Raises:
        InvalidArgumentError: if the file's name does not end in .png.
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
        raise DataError(f"A picture needs at least {_FEWEST} classes. Received: {classes}.")


def _tsne() -> Any:
    with needs_extra("scikit-learn", "report"):
        from sklearn.manifold import TSNE
    return TSNE


def class_points(embeddings: np.ndarray, seed: int = 0) -> np.ndarray:
    """Lays classes out in two dimensions by t-SNE, with cosine distances.

    Args:
        embeddings: (c, dim) float, one a class, as `vsemb.systems.zero_shot.metrics.class_means` returns
            them.
        seed: of t-SNE, from 0 to 2**32 - 1; the same seed gives the same points.

    Returns:
        (c, 2) float64 in [0, 1], each axis filled.

    Raises:
        InvalidArgumentError: for a seed out of range.
        DataError: for fewer than four classes, or embeddings that are not finite.
        MissingExtraError: without scikit-learn.

    Example:

        points = class_points(class_means(texts, text_classes, len(names)))
    """
    require("seed", seed, Seed)
    _check_classes(len(embeddings))
    if not np.isfinite(embeddings).all():
        raise DataError("The embeddings of the classes hold NaN or infinity; nothing was drawn.")
    perplexity = min(_PERPLEXITY, (len(embeddings) - 1) / 3)
    # Lengths are of no interest: a class scores all images higher by a longer embedding, not other ones.
    directions = embeddings / np.maximum(np.linalg.norm(embeddings, axis=1, keepdims=True), 1e-12)
    # Random and not the principal axes: these are undefined where classes coincide.
    tsne = _tsne()(perplexity=perplexity, init="random", random_state=seed, method="exact")
    points = np.asarray(tsne.fit_transform(directions.astype(np.float64)), np.float64)
    low = points.min(axis=0)
    return (points - low) / np.maximum(points.max(axis=0) - low, 1e-12)


def draw_classes(points: np.ndarray, names: Sequence[str], images: Sequence[bytes]) -> Image.Image:
    """Draws an image of each class at the class's place, its name below it.

    Args:
        points: (c, 2) in [0, 1] from `class_points`.
        names: of the c classes.
        images: c encoded images, JPEG or PNG.

    Returns:
        RGB, `SIDE` x `SIDE`. Where classes overlap, later ones lie above.

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
    # Names come last, so that no image hides one.
    for (x, y), name in zip(corners.tolist(), names, strict=True):
        left, _, right, _ = pen.textbbox((0, 0), name, font=font)
        begin = min(max(x + (THUMBNAIL - right + left) / 2, 2), SIDE - (right - left) - 2)
        place = (begin, y + THUMBNAIL)
        pen.text(place, name, fill=_INK, font=font, stroke_width=2, stroke_fill="white")
    return picture
