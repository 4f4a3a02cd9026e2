"""Classifying images with any run, from the names of classes and prompt templates.

A class is the texts that its name makes with the templates, and scores an image by the mean of their
scores: the expectation of Reed et al. 2016, equation 3. The mean embedding is not brought to unit length
again. With a run whose embeddings are sets the score of a prompt is a sum over its words, so that classes of
as many words each compare best.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from tqdm import tqdm

from vsemb.data.readers.source import text_lines
from vsemb.data.store import Dataset, Split
from vsemb.errors import DataError, invalid_argument, one_line
from vsemb.evaluation import Embedder
from vsemb.exporting import ServedModel, Signature, TextInput
from vsemb.exporting.served_model import Outputs, score_scale
from vsemb.parts import Count, require
from vsemb.runs.images import embed_image
from vsemb.runs.run import Run
from vsemb.runs.serve import run_encoders
from vsemb.similarities import Similarity
from vsemb.systems.zero_shot.metrics import class_scores, recognised


class ClassNamesInput(TextInput):
    """Names of classes, of which the model knows what is stored of them, in place of sentences."""

    @property
    def takes(self) -> str:
        return f"names of {len(self.tokenizer.vocabulary.words)} classes"

    def limits(self) -> list[str]:
        return [
            f"Of a text, what is behind {self.max_bytes:,} bytes is not read.",
            f"A text is one of the {self.takes}, written as in training.",
            "A text that is none of the names of classes is valid too, and embedded as an unknown class.",
        ]


@dataclass(frozen=True, eq=False)
class ClassPrompts:
    """Classes to tell images apart by, each the same number of prompts made from its name.

    Attributes:
        names: c names, in the order in which scores are given.
        embeddings: (c, prompts, dim) float32 text embeddings in the geometry of the model's similarity;
            (c, prompts, words, dim) where these are sets.

    Example:

    >>> prompts = ClassPrompts(("dog", "cat"), np.zeros((2, 1, 4), np.float32))
    """

    names: tuple[str, ...]
    embeddings: np.ndarray

    def __post_init__(self) -> None:
        if self.embeddings.ndim not in (3, 4) or len(self.embeddings) != len(self.names):
            allowed = f"a shape ({len(self.names)}, prompts, dim)"
            raise invalid_argument("embeddings", self.embeddings.shape, allowed)

    def scores(self, images: tf.Tensor, similarity: Similarity) -> tf.Tensor:
        """Scores images against the classes by the mean of the scores of their prompts, in graph.

        Args:
            images: (n, dim) float32 embeddings.
            similarity: the model's.

        Returns:
            (n, c) float32.
        """
        if similarity.linear:
            means = self.embeddings.mean(axis=1, dtype=np.float64).astype(np.float32)
            return similarity.scores(images, tf.constant(means))
        # Not `scores`: an order's is compiled for the shapes at hand, which a served graph does not know.
        prompts = tf.constant(self.embeddings)
        each = [
            similarity.pair_scores(images[:, None], prompts[None, :, number])
            for number in range(self.embeddings.shape[1])
        ]
        return tf.add_n(each) / float(len(each))

    def signature(self, served: ServedModel) -> Signature:
        """Returns the signature `classify`, for `extras` of a served model.

        `image_bytes` string (batch,) -> {"classes" string (batch, c), the names in the order given, "scores" float32
        (batch, c), "valid" bool (batch,)}.

        Args:
            served: the model.

        Raises:
            InvalidArgumentError: where images cannot be embedded, or become sets of vectors.
        """
        names = list(self.names)
        images = served.image
        if images is None:
            fix = "A run on precomputed features, or one for sentences alone, holds no image network."
            raise invalid_argument("classes", names, "none where images cannot be embedded", fix)
        if served.multi_vector:
            allowed = "no classes, since a served class is one vector, and the model embeds images as sets of vectors"
            raise invalid_argument("classes", names, allowed, "Classify with the run: vsemb classify RUN")

        def rows(image_bytes: tf.Tensor) -> Outputs:
            outputs = images.rows(image_bytes=image_bytes)
            scores = self.scores(outputs["embedding"], served.model.similarity)
            scores = tf.where(outputs["valid"][:, None], scores, 0.0)
            classes = tf.tile(tf.constant([self.names], tf.string), [tf.shape(scores)[0], 1])
            return {"classes": classes, "scores": scores, "valid": outputs["valid"]}

        scale = partial(score_scale, images, self.embeddings)
        return Signature("classify", images.inputs, rows, images.examples, scale)


PLACE = "{}"
_UNKNOWN = 1
# Of what is not known, so much is shown.
_SHOWN = 10


def class_prompts(classes: Sequence[str], templates: Sequence[str] = ()) -> list[list[str]]:
    """Puts the name of each class into each template.

    Args:
        classes: names, one or more, each once.
        templates: texts with one `{}` for the name each; without any, the name alone is the prompt.

    Returns:
        For each class its prompts, in the order of the templates.

    Raises:
        InvalidArgumentError: for no class, an empty name, one that comes twice, or a template without
            exactly one `{}`.

    Example:

    >>> class_prompts(["dog", "cat"], ["a photo of a {}", "a drawing of a {}"])[1]
    ['a photo of a cat', 'a drawing of a cat']
    """
    names = [name.strip() for name in classes]
    if not names:
        raise invalid_argument("classes", list(classes), "one class or more")
    if not all(names):
        raise invalid_argument("classes", list(classes), "names that are not empty")
    twice = [name for place, name in enumerate(names) if name in names[:place]]
    if twice:
        raise invalid_argument("classes", twice[0], "each class once")
    for template in templates:
        if template.count(PLACE) != 1:
            fix = "For example: 'a photo of a {}'."
            raise invalid_argument("template", template, f"a text with exactly one {PLACE} for the class", fix)
    return [[template.replace(PLACE, name) for template in templates or (PLACE,)] for name in names]


def embed_classes(
    run: Run, classes: Sequence[str], templates: Sequence[str] = (), report: Callable[[str], None] = print
) -> ClassPrompts:
    """Embeds classes by their prompts, with the text tower that is served.

    Args:
        run: the run.
        classes, templates: as for `class_prompts`.
        report: called with a line worth showing: what the run does not know in the names.

    Raises:
        InvalidArgumentError: as `class_prompts`, for a prompt of which the run knows nothing, or for two
            classes whose prompts it cannot tell apart.

    Example:

        prompts = embed_classes(Run.open("runs/vsepp"), ["dog", "cat"], ["a photo of a {}"])
    """
    prompts = class_prompts(classes, templates)
    flat = [prompt for texts in prompts for prompt in texts]
    read = tf.constant(run.reader(flat))
    ids = run.tokenizer(read).numpy()
    has_known = np.any(run.tokenizer.word_ids(ids) > _UNKNOWN, axis=1)
    for prompt, known in zip(flat, has_known.tolist(), strict=True):
        if not known:
            allowed = "a text with something in it that the run was trained with"
            fix = "The run's vocabulary.txt lists what it knows."
            raise invalid_argument("prompt", prompt, allowed, fix)
    names = [name.strip() for name in classes]
    _check_distinct(names, ids.reshape(len(names), -1))
    unheard = _unheard(run, names)
    if unheard:
        more = f" and {len(unheard) - _SHOWN} more" if len(unheard) > _SHOWN else ""
        report(f"Warning: not known to the run: {', '.join(unheard[:_SHOWN])}{more}.")
    if run.multi_vector:
        _warn_of_lengths(ids.reshape(len(names), -1), names, report)
    embedded = run_encoders(run, images=False).encode_text(read)["embedding"].numpy()
    return ClassPrompts(tuple(names), embedded.reshape(len(names), len(prompts[0]), *embedded.shape[1:]))


def _warn_of_lengths(ids: np.ndarray, names: Sequence[str], report: Callable[[str], None]) -> None:
    """Says where a class has more words than another, (classes, tokens), since scores are sums over words."""
    words = np.count_nonzero(ids, axis=1)
    if words.min() < words.max():
        longest, shortest = names[int(words.argmax())], names[int(words.argmin())]
        report(
            f"Warning: the run adds up the scores of words, so {longest!r}, which has more of them than "
            f"{shortest!r}, has an advantage or a handicap. Names of as many words each compare best."
        )


def _check_distinct(names: Sequence[str], ids: np.ndarray) -> None:
    """Refuses two classes of which the model reads the same, (classes, tokens): they would always tie."""
    first: dict[bytes, str] = {}
    for name, row in zip(names, ids, strict=True):
        other = first.setdefault(row.tobytes(), name)
        if other != name:
            raise invalid_argument(
                "classes",
                [other, name],
                "classes that the run can tell apart",
                "Both become the same tokens; upper case and unknown words make no difference.",
            )


def _unheard(run: Run, names: Sequence[str]) -> list[str]:
    """Returns names without a token that is known, and of the others the tokens that are not."""
    texts = tf.constant(run.reader(names))
    tokens = run.tokenizer.pieces(texts).to_list()
    ragged = run.tokenizer.ragged(texts)
    ids = ragged.with_flat_values(run.tokenizer.word_ids(ragged.flat_values)).to_list()
    found: dict[str, None] = {}
    for name, pieces, numbers in zip(names, tokens, ids, strict=True):
        unknown = [piece.decode() for piece, number in zip(pieces, numbers, strict=True) if number == _UNKNOWN]
        found |= dict.fromkeys([name] if len(unknown) == len(pieces) else unknown)
    return list(found)


@dataclass(frozen=True, eq=False)
class Classified:
    """One image.

    Attributes:
        image: the file or key.
        scores: class -> score, the best first; empty where there is an error.
        error: why it could not be classified, else None.
    """

    image: str
    scores: dict[str, float]
    error: str | None = None

    def to_json(self) -> dict[str, Any]:
        """Returns plain values."""
        if self.error is not None:
            return {"image": self.image, "error": self.error}
        return {"image": self.image, "scores": self.scores}


def classify_images(
    run: Run, images: Sequence[str], prompts: ClassPrompts, dataset: Dataset | None = None, *, top: int = 5
) -> list[Classified]:
    """Classifies images one by one; one that cannot be embedded does not stop the others.

    Args:
        run: the run.
        images: image files, or keys of images of the dataset.
        prompts: from `embed_classes`.
        dataset: where keys are looked up; files are shrunk as it was prepared.
        top: classes kept for each image.

    Raises:
        InvalidArgumentError: for top < 1.

    Example:

        (found,) = classify_images(run, ["dog.jpg"], embed_classes(run, ["dog", "cat"]))
        print(found.scores)
    """
    require("top", top, Count)
    encoders = run_encoders(run)
    embedded: dict[int, np.ndarray] = {}
    errors: dict[int, str] = {}
    for place, image in enumerate(tqdm(images, desc="images", unit="image", disable=None, leave=False)):
        try:
            embedded[place], _ = embed_image(run, dataset, encoders, image)
        except DataError as error:
            errors[place] = one_line(error)
    best: dict[int, dict[str, float]] = {}
    if embedded:
        for place, scores in zip(embedded, _scores(run, np.stack(list(embedded.values())), prompts), strict=True):
            order = np.argsort(-scores, kind="stable")[:top]
            best[place] = {prompts.names[number]: float(scores[number]) for number in order}
    return [Classified(image, best.get(place, {}), errors.get(place)) for place, image in enumerate(images)]


def _scores(run: Run, images: np.ndarray, prompts: ClassPrompts) -> np.ndarray:
    classes, templates, *sizes = prompts.embeddings.shape
    texts = prompts.embeddings.reshape(-1, *sizes)
    return class_scores(images, texts, np.repeat(np.arange(classes), templates), run.model.similarity)


@dataclass(frozen=True)
class SplitClassification:
    """A whole split.

    Attributes:
        split: its name.
        images: number of images.
        counts: class -> images that it scores best.
        labelled: images whose class, in the dataset, is among the classes.
        accuracy: of these, the mean of the per-class accuracies, in percent; None without any.
        accuracy_images: of these, accuracy, in percent; None without any.
    """

    split: str
    images: int
    counts: dict[str, int]
    labelled: int
    accuracy: float | None
    accuracy_images: float | None


def classify_split(run: Run, dataset: Dataset, split: str, prompts: ClassPrompts) -> SplitClassification:
    """Classifies all images of a split.

    An image is right where its class scores higher than every other, as in zero-shot recognition.

    Args:
        run: the run.
        dataset: the dataset.
        split: name of the split.
        prompts: from `embed_classes`.

    Raises:
        VsembError: if run and dataset do not fit, or the split is not there.

    Example:

        found = classify_split(run, dataset, "test", embed_classes(run, ["dog", "cat"]))
        print(found.counts, found.accuracy)
    """
    part = dataset.split(split)
    images = Embedder(run.model).images(run.images_of(dataset, part), len(part))
    scores = _scores(run, images, prompts)
    best = np.bincount(scores.argmax(axis=1), minlength=len(prompts.names))
    counts = dict(zip(prompts.names, best.tolist(), strict=True))
    rows, classes = _labels(part, prompts.names)
    accuracy = accuracy_images = None
    if len(rows):
        right = recognised(scores[rows], classes)
        accuracy_images = 100 * float(right.mean())
        accuracy = 100 * float(np.mean([right[classes == label].mean() for label in np.unique(classes)]))
    return SplitClassification(split, len(part), counts, len(rows), accuracy, accuracy_images)


def _labels(part: Split, names: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
    """Returns the rows of the images whose class is among the names, and its number."""
    numbers = {name: number for number, name in enumerate(names)}
    found = [(row, numbers[name]) for row, name in enumerate(part.class_names) if name in numbers]
    rows, classes = np.array(found, np.int64).reshape(-1, 2).T
    return rows, classes


def read_classes(path: str | os.PathLike[str]) -> list[str]:
    """Reads the names of classes from a file, one per line; empty lines do not count.

    Raises:
        DataError: if the file cannot be read.
    """
    return [line.strip() for line in text_lines(Path(path)) if line.strip()]
