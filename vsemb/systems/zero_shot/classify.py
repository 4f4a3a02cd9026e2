"""Classification of images with any run, from class names and prompt templates.

The prompts of a class are its name in each template. The score of a class is the mean score of its prompts, the
expectation of Reed et al. 2016, equation 3; mean embeddings are not normalized. Probabilities are the softmax, over the
classes, of the scores times the run's logit scale. In a multi-vector run the score of a prompt is a sum over its words,
so classes should have equal numbers of words.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from vsemb.console import progress
from vsemb.data.readers.source import text_lines
from vsemb.data.store import Split, StoredDataset
from vsemb.errors import DataError, invalid_argument, one_line
from vsemb.evaluation import Embedder
from vsemb.exporting import ServedModel, Signature, TextInput
from vsemb.exporting.signatures import Outputs, score_scale
from vsemb.ops.tensorflow import tf
from vsemb.parts import Count, require
from vsemb.printing import table
from vsemb.results import Result
from vsemb.runs.image_results import ImageResults
from vsemb.runs.images import embed_image
from vsemb.runs.run import Run
from vsemb.similarities import Similarity
from vsemb.systems.zero_shot.metrics import class_scores, recognized
from vsemb.text.coverage import unknown_words

#: Place of the name in a template.
PLACE = "{}"


class ClassNamesInput(TextInput):
    """Text input of models that read class names in place of sentences."""

    @property
    def takes(self) -> str:
        return f"names of {len(self.tokenizer.vocabulary.words)} classes"

    def limits(self) -> list[str]:
        return [
            f"The first {self.max_bytes:,} bytes of a text are read.",
            f"A text must be one of the {self.takes}, spelled as in training; others are invalid.",
        ]


@dataclass(frozen=True, eq=False)
class ClassPrompts:
    """Embedded prompts of classes, for the classification of images.

    Attributes:
        names: c names, in the order of the scores.
        embeddings: (c, prompts, dim) float32 text embeddings in the geometry of the model's similarity;
            (c, prompts, words, dim) for a multi-vector similarity.
        scale: factor from scores to logits; probabilities are the softmax of the logits.
        skipped: names left out because none of their words is in the vocabulary.
        templates: the texts in which the names were inserted.

    Example:

    >>> prompts = ClassPrompts(("dog", "cat"), np.zeros((2, 1, 4), np.float32))
    """

    names: tuple[str, ...]
    embeddings: np.ndarray
    scale: float = 1.0
    skipped: tuple[str, ...] = ()
    templates: tuple[str, ...] = (PLACE,)

    def __post_init__(self) -> None:
        if self.embeddings.ndim not in (3, 4) or len(self.embeddings) != len(self.names):
            allowed = f"a shape ({len(self.names)}, prompts, dim)"
            raise invalid_argument("embeddings", self.embeddings.shape, allowed)

    def to_json(self) -> dict[str, Any]:
        """Return plain values, without the embeddings."""
        return {
            "classes": list(self.names),
            "skipped": list(self.skipped),
            "scale": self.scale,
            "templates": list(self.templates),
        }

    def scores(self, images: tf.Tensor, similarity: Similarity) -> tf.Tensor:
        """Score images against the classes, in graph: the mean of the scores of the prompts.

        Args:
            images: (n, dim) float32 embeddings.
            similarity: the model's.

        Returns:
            (n, c) float32.
        """
        if similarity.linear:
            means = self.embeddings.mean(axis=1, dtype=np.float64).astype(np.float32)
            return similarity.scores(images, tf.constant(means))
        # `OrderViolation.scores` is compiled for fixed shapes; a served graph has dynamic ones.
        prompts = tf.constant(self.embeddings)
        count = self.embeddings.shape[1]
        scores = [similarity.pair_scores(images[:, None], prompts[None, :, number]) for number in range(count)]
        return tf.add_n(scores) / float(count)

    def signature(self, served: ServedModel) -> Signature:
        """Return the signature `classify`, for `extras` of a served model.

        `image_bytes` string (batch,) -> {"classes" string (batch, c), the names in the order given, "scores" and
        "probabilities" float32 (batch, c), "valid" bool (batch,)}.

        Args:
            served: the model.

        Raises:
            InvalidArgumentError: for a model without images, or a multi-vector model.
        """
        names = list(self.names)
        images = served.image
        if images is None:
            fix = "Runs on precomputed features and runs on sentences hold no image network."
            raise invalid_argument("classes", names, "None for a run without an image network", fix)
        if served.multi_vector:
            allowed = "None for a multi-vector model, since a served class is one vector"
            raise invalid_argument("classes", names, allowed, "Classify with the run: vsemb classify RUN")

        def rows(image_bytes: tf.Tensor) -> Outputs:
            outputs = images.rows(image_bytes=image_bytes)
            scores = self.scores(outputs["embedding"], served.model.similarity)
            classes = tf.tile(tf.constant([self.names], tf.string), [tf.shape(scores)[0], 1])
            valid = outputs["valid"][:, None]
            return {
                "classes": classes,
                "scores": tf.where(valid, scores, 0.0),
                "probabilities": tf.where(valid, tf.nn.softmax(self.scale * scores), 0.0),
                "valid": outputs["valid"],
            }

        def scale() -> dict[str, float]:
            scores = score_scale(images, self.embeddings)["scores"]
            return {"scores": scores, "probabilities": max(1.0, self.scale * scores)}

        return Signature("classify", images.inputs, rows, images.examples, scale, instance=images.instance)


# Maximum number of unknown words in a warning.
_SHOWN = 10


def class_prompts(classes: Sequence[str], templates: Sequence[str] = ()) -> list[list[str]]:
    """Insert the name of each class into each template.

    Args:
        classes: one or more distinct names.
        templates: texts with one `{}` for the name; empty for the name alone.

    Returns:
        The prompts of each class, in the order of the templates.

    Raises:
        InvalidArgumentError: for an empty list, an empty or duplicate name, or a template without exactly one `{}`.

    Example:

    >>> class_prompts(["dog", "cat"], ["a photo of a {}", "a drawing of a {}"])[1]
    ['a photo of a cat', 'a drawing of a cat']
    """
    names = [name.strip() for name in classes]
    if not names:
        raise invalid_argument("classes", list(classes), "one class or more")
    if not all(names):
        raise invalid_argument("classes", list(classes), "non-empty names")
    twice = [name for place, name in enumerate(names) if name in names[:place]]
    if twice:
        raise invalid_argument("classes", twice[0], "distinct")
    for template in templates:
        if template.count(PLACE) != 1:
            fix = "For example: 'a photo of a {}'."
            raise invalid_argument("template", template, f"a text with exactly one {PLACE} for the class", fix)
    return [[template.replace(PLACE, name) for template in templates or (PLACE,)] for name in names]


def embed_classes(
    run: Run, classes: Sequence[str], templates: Sequence[str] = (), report: Callable[[str], None] = print
) -> ClassPrompts:
    """Embed the prompts of classes with the text tower of a run.

    A class is skipped if its name, or one of its prompts, has no word in the run's vocabulary.

    Args:
        run: the run.
        classes, templates: as for `class_prompts`.
        report: called with a warning about skipped classes and about unknown words in other names.

    Raises:
        InvalidArgumentError: as `class_prompts`; if all classes are skipped, or two classes give the same tokens.

    Example:

        prompts = embed_classes(Run.open("runs/vsepp"), ["dog", "cat"], ["a photo of a {}"])
    """
    every = [name.strip() for name in classes]
    texts: list[str] = []
    for name, of_class in zip(every, class_prompts(classes, templates), strict=True):
        texts += [name, *of_class]
    has_known_word = run.tokenizer.is_known(run.tokenizer(tf.constant(run.reader(texts)))).numpy().any(axis=1)
    is_read = has_known_word.reshape(len(every), -1).all(axis=1)
    names = [name for name, read in zip(every, is_read, strict=True) if read]
    skipped = [name for name, read in zip(every, is_read, strict=True) if not read]
    if not names:
        fix = "vocabulary.txt of the run lists its words."
        raise invalid_argument("classes", every, "names with a word of the run's vocabulary", fix)
    if skipped:
        report(f"Warning: skipped classes without a known word: {_listed(skipped)}.")
    prompts = class_prompts(names, templates)
    read = tf.constant(run.reader([prompt for texts in prompts for prompt in texts]))
    ids = run.tokenizer(read).numpy().reshape(len(names), -1)
    _check_distinct(names, ids)
    unknown, _, _ = unknown_words(run.tokenizer, tf.constant(run.reader(names)))
    if unknown:
        report(f"Warning: not known to the run: {_listed(unknown)}.")
    if run.multi_vector:
        _warn_of_lengths(ids, names, report)
    embedded = run.encoders(images=False).encode_text(read)["embedding"].numpy()
    embedded = embedded.reshape(len(names), len(prompts[0]), *embedded.shape[1:])
    return ClassPrompts(tuple(names), embedded, logit_factor(run), tuple(skipped), tuple(templates) or (PLACE,))


def logit_factor(run: Run) -> float:
    """Return the factor from scores to logits: learned, or the loss's 1 / temperature; 1 for other losses."""
    learned = run.model.logit_scale
    if learned is not None:
        return float(learned.parameters()[0])
    return 1 / getattr(run.recipe.loss, "temperature", 1.0)


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return f"{', '.join(names[:_SHOWN])}{more}"


def _warn_of_lengths(ids: np.ndarray, names: Sequence[str], report: Callable[[str], None]) -> None:
    """Warn if the names in `ids`, (classes, tokens), differ in number of words, since scores are sums over words."""
    words = np.count_nonzero(ids, axis=1)
    if words.min() < words.max():
        longest, shortest = names[int(words.argmax())], names[int(words.argmin())]
        report(
            f"Warning: scores are sums over words, so {longest!r}, with more words than {shortest!r}, is favoured or "
            "penalized. Use names of equal numbers of words."
        )


def _check_distinct(names: Sequence[str], ids: np.ndarray) -> None:
    """Check that the rows of `ids`, (classes, tokens), are distinct; equal ones would always tie."""
    first: dict[bytes, str] = {}
    for name, row in zip(names, ids, strict=True):
        other = first.setdefault(row.tobytes(), name)
        if other != name:
            raise invalid_argument(
                "classes",
                [other, name],
                "classes with different tokens",
                "Upper case and unknown words make no difference.",
            )


@dataclass(frozen=True, eq=False)
class Classified:
    """Classes of one image.

    Attributes:
        image: the file or key.
        scores: class -> score, best first; empty if there is an error.
        probabilities: class -> probability among all classes, in the same order.
        error: reason why the image was not classified; None if it was.
    """

    image: str
    scores: dict[str, float]
    probabilities: dict[str, float]
    error: str | None = None

    def cells(self) -> list[tuple[str, str, str]]:
        """Return the rows of a table: class, score, probability."""
        return [(name, f"{score:.3f}", f"{self.probabilities[name]:.3f}") for name, score in self.scores.items()]

    def to_json(self) -> dict[str, Any]:
        """Return JSON values."""
        if self.error is not None:
            return {"image": self.image, "error": self.error}
        return {"image": self.image, "scores": self.scores, "probabilities": self.probabilities}


@dataclass(frozen=True, eq=False, repr=False)
class ClassifiedImages(ImageResults[Classified]):
    """Classes of images.

    Attributes:
        prompts: the classes.
    """

    prompts: ClassPrompts

    columns: ClassVar[Sequence[str]] = ("class", "score", "probability")

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        return {**self.prompts.to_json(), **super().to_json()}

    def __str__(self) -> str:
        scale = self.prompts.scale
        how = f"{scale:.3g} x score" if scale != 1 else "the scores, since the run has no logit scale"
        return f"{super().__str__()}\n\nprobability: softmax of {how}"


def classify_images(
    run: Run, images: Sequence[str], prompts: ClassPrompts, dataset: StoredDataset | None = None, *, top: int = 5
) -> ClassifiedImages:
    """Classify images; unreadable images are reported with an error each.

    Args:
        run: the run.
        images: image files, or keys of images of the dataset.
        prompts: result of `embed_classes`.
        dataset: dataset of the keys, whose size limit also applies to files.
        top: number of classes per image; default 5.

    Raises:
        InvalidArgumentError: for top < 1.

    Example:

        (classified,) = classify_images(run, ["dog.jpg"], embed_classes(run, ["dog", "cat"]))
        print(classified.scores)
    """
    require("top", top, Count)
    embedded: dict[int, np.ndarray] = {}
    errors: dict[int, str] = {}
    for place, image in enumerate(progress(images, desc="images", unit="image", leave=False)):
        try:
            embedded[place], _ = embed_image(run, dataset, image)
        except DataError as error:
            errors[place] = one_line(error)
    classified = {place: Classified(images[place], {}, {}, error) for place, error in errors.items()}
    if embedded:
        scores = _scores(run, np.stack(list(embedded.values())), prompts)
        probabilities = tf.nn.softmax(prompts.scale * scores).numpy()
        for place, of_image, likely in zip(embedded, scores, probabilities, strict=True):
            order = np.argsort(-of_image, kind="stable")[:top]
            names = [prompts.names[number] for number in order]
            best = dict(zip(names, of_image[order].tolist(), strict=True))
            classified[place] = Classified(images[place], best, dict(zip(names, likely[order].tolist(), strict=True)))
    return ClassifiedImages(tuple(classified[place] for place in range(len(images))), prompts)


def _scores(run: Run, images: np.ndarray, prompts: ClassPrompts) -> np.ndarray:
    classes, templates, *sizes = prompts.embeddings.shape
    texts = prompts.embeddings.reshape(-1, *sizes)
    return class_scores(images, texts, np.repeat(np.arange(classes), templates), run.model.similarity)


@dataclass(frozen=True, eq=False, repr=False)
class SplitClassification(Result):
    """Classification of a split.

    Attributes:
        prompts: the classes.
        split: name of the split.
        images: number of images.
        counts: class -> number of images for which it has the highest score.
        labelled: number of images whose labelled class is among the classes.
        accuracy: mean of the per-class accuracies of labelled images, in percent; None without labels.
        accuracy_images: accuracy over labelled images, in percent; None without labels.
    """

    prompts: ClassPrompts
    split: str
    images: int
    counts: dict[str, int]
    labelled: int
    accuracy: float | None
    accuracy_images: float | None

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        values = dict(vars(self))
        del values["prompts"]
        return {**self.prompts.to_json(), **values}

    def __str__(self) -> str:
        rows = sorted(self.counts.items(), key=lambda item: -item[1])
        shown = table(["class", "images"], [[name, str(count)] for name, count in rows])
        if self.accuracy is None:
            return shown
        return (
            f"{shown}\n\naccuracy {self.accuracy:.1f} % (mean over classes), {self.accuracy_images:.1f} % (plain), "
            f"over {self.labelled} of {self.images} images, whose class is among these"
        )


def classify_split(run: Run, dataset: StoredDataset, split: str, prompts: ClassPrompts) -> SplitClassification:
    """Classify all images of a split.

    An image is correct if its class scores higher than every other, as in zero-shot recognition.

    Args:
        run: the run.
        dataset: the dataset.
        split: name of the split.
        prompts: result of `embed_classes`.

    Raises:
        VsembError: if run and dataset do not match, or the split is missing.

    Example:

        classified = classify_split(run, dataset, "test", embed_classes(run, ["dog", "cat"]))
        print(classified.counts, classified.accuracy)
    """
    part = dataset.split(split)
    images = Embedder(run.model).images(run.images_of(dataset, part), len(part))
    scores = _scores(run, images, prompts)
    best = np.bincount(scores.argmax(axis=1), minlength=len(prompts.names))
    counts = dict(zip(prompts.names, best.tolist(), strict=True))
    rows, classes = _labels(part, prompts.names)
    accuracy = accuracy_images = None
    if len(rows):
        right = recognized(scores[rows], classes)
        accuracy_images = 100 * float(right.mean())
        accuracy = 100 * float(np.mean([right[classes == label].mean() for label in np.unique(classes)]))
    return SplitClassification(prompts, split, len(part), counts, len(rows), accuracy, accuracy_images)


def _labels(part: Split, names: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
    """Return the rows of images whose class is among the names, and the number of the class."""
    numbers = {name: number for number, name in enumerate(names)}
    rows, classes = [], []
    for row, name in enumerate(part.class_names):
        if name in numbers:
            rows.append(row)
            classes.append(numbers[name])
    return np.array(rows, np.int64), np.array(classes, np.int64)


def chosen_classes(classes: Sequence[str] | None, classes_file: str | os.PathLike[str] | None) -> Sequence[str]:
    """Return the given names of classes, or the names in a file.

    Raises:
        InvalidArgumentError: unless exactly one of them is given, or for names in one text with commas.
        DataError: if the file cannot be read.
    """
    if classes is not None and classes_file is not None:
        raise invalid_argument("classes_file", classes_file, "omitted with `classes`")
    if classes_file is not None:
        return read_classes(classes_file)
    if classes is None:
        raise invalid_argument("classes", None, "names of classes, or omitted with `classes_file`")
    if len(classes) == 1 and "," in classes[0]:
        names = [name.strip() for name in classes[0].split(",")]
        raise invalid_argument("classes", classes[0], f"several names: {shlex.join(names)}")
    return classes


def read_classes(path: str | os.PathLike[str]) -> list[str]:
    """Read class names from a file, one per line; empty lines are ignored.

    Raises:
        DataError: if the file cannot be read.
    """
    return [line.strip() for line in text_lines(Path(path)) if line.strip()]
