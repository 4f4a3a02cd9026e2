"""Acts of zero-shot recognition: classification of images by class names, and the evidence of a text."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from vsemb.acts import act
from vsemb.console import say
from vsemb.parts import Count

if TYPE_CHECKING:
    from vsemb.data.store import StoredDataset
    from vsemb.runs.run import Run
    from vsemb.systems.zero_shot.classify import ClassifiedImages, ClassPrompts, SplitClassification
    from vsemb.systems.zero_shot.evidence import TracedScore


@act
def classify(
    run: Run | str | os.PathLike[str],
    images: Sequence[str | os.PathLike[str]],
    *,
    classes: Sequence[str] | None = None,
    classes_file: str | os.PathLike[str] | None = None,
    template: Sequence[str] = (),
    top: Count = 5,
    data: StoredDataset | str | os.PathLike[str] | None = None,
) -> ClassifiedImages:
    """Classify images by class names with any run, without training.

    The prompts of a class are its name in each template; its score is the mean of their scores. Probabilities are the
    softmax of the scores times the run's logit scale. Classes without a known word are skipped with a warning.

    Args:
        run: a run, or its directory.
        images: image files, or keys of images in the dataset.
        classes: names of the classes.
        classes_file: file with one class name per line.
        template: prompt with {} for the name; default: the name alone.
        top: classes shown per image.
        data: dataset of image keys; default: the training dataset.

    Returns:
        A result per image. Images that cannot be read have an error.

    Raises:
        InvalidArgumentError: without class names, or for a template without exactly one {}.
        DataError: if the file of names cannot be read.

    Example:

        classified = classify("runs/vsepp", ["rex.jpg"], classes=["dog", "cat"], template=["a photo of a {}"])
        classified[0].scores
    """
    from vsemb.runs.images import open_keys
    from vsemb.systems.zero_shot.classify import classify_images

    opened, prompts = open_prompts(run, classes, classes_file, template)
    names = [os.fspath(image) for image in images]
    return classify_images(opened, names, prompts, open_keys(opened, data), top=top)


@act
def classify_split(
    run: Run | str | os.PathLike[str],
    *,
    split: str = "test",
    classes: Sequence[str] | None = None,
    classes_file: str | os.PathLike[str] | None = None,
    template: Sequence[str] = (),
    data: StoredDataset | str | os.PathLike[str] | None = None,
) -> SplitClassification:
    """Classify all images of a split by class names, and compare with its class labels, if any.

    Prompts and scores are made as by `vsemb classify`.

    Args:
        run: a run, or its directory.
        split: split to classify.
        classes: names of the classes.
        classes_file: file with one class name per line.
        template: prompt with {} for the name; default: the name alone.
        data: the dataset; default: the training dataset.

    Raises:
        InvalidArgumentError: without class names, for a template without exactly one {}, or an unknown split.
        DataError: if run and dataset do not match, or the file of names cannot be read.

    Example:

        classified = classify_split("runs/vsepp", split="test", classes=["dog", "cat"])
        classified.counts, classified.accuracy
    """
    from vsemb.systems.zero_shot import classify as domain

    opened, prompts = open_prompts(run, classes, classes_file, template)
    return domain.classify_split(opened, opened.open_data(data), split, prompts)


@act
def trace(
    run: Run | str | os.PathLike[str],
    image: str | os.PathLike[str],
    text: str,
    *,
    data: StoredDataset | str | os.PathLike[str] | None = None,
    out: str | os.PathLike[str] | None = None,
) -> TracedScore:
    """Show which parts of a text speak for an image, and which against it.

    The text encoder of the run adds up the states of its steps, or averages them, so the score is a sum over the steps
    (Reed et al. 2016, section 4.2). A step of a convolutional encoder reads several words or characters; it is shown
    with the text that steps before it have not read.

    Args:
        run: a run, or its directory.
        image: an image file, or the key of an image in the dataset.
        text: a text.
        data: dataset of image keys; default: the training dataset.
        out: draw the steps beside the image: a .png or .jpg file.

    Raises:
        InvalidArgumentError: for a run whose score is not such a sum, or a text without a known word.
        DataError: if the image cannot be read.

    Example:

        traced = trace("runs/birds", "cardinal.jpg", "a red bird with a black face", out="traced.png")
        [(step.text, step.evidence) for step in traced.steps]
    """
    from vsemb.drawing.pictures import check_picture_path, with_drawing
    from vsemb.runs.images import open_keys
    from vsemb.runs.run import Run
    from vsemb.systems.zero_shot.evidence import trace_score

    name = os.fspath(image)
    if out is not None:
        check_picture_path(out, [name])
    opened = Run.open(run, "retrieval")
    traced = trace_score(opened, name, text, open_keys(opened, data, [name]))
    return with_drawing(traced, traced.drawn, out)


def open_prompts(
    run: Run | str | os.PathLike[str],
    classes: Sequence[str] | None,
    classes_file: str | os.PathLike[str] | None,
    template: Sequence[str],
) -> tuple[Run, ClassPrompts]:
    """Open a run and embed class names with it."""
    from vsemb.runs.run import Run
    from vsemb.systems.zero_shot.classify import chosen_classes, embed_classes

    names = chosen_classes(classes, classes_file)
    opened = Run.open(run, "retrieval")
    return opened, embed_classes(opened, names, template, report=say)
