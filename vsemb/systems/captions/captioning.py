"""Captions of images, whatever kind of run writes them: the one way in for commands, reports and pages."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from tqdm import tqdm

from vsemb.data.batches import image_batches
from vsemb.data.sources import ImageSource
from vsemb.data.store import Dataset
from vsemb.errors import DataError, invalid_argument, one_line, printable
from vsemb.runs.images import find_key, read_image_file
from vsemb.runs.stored_run import read_recipe
from vsemb.systems.captions.caption_run import CaptionRun
from vsemb.systems.captions.caption_writer import CaptioningRun, CaptionWriter, Written
from vsemb.systems.captions.captioner import Captioner, NeuralCaptioner
from vsemb.systems.captions.sampling import Sampler
from vsemb.systems.language.generation import load_captioner
from vsemb.systems.language.language_run import LanguageRun

# What the captions of a run depend on; the other options are refused where they are given.
_READ = {
    "beam search": ("beam", "n_best", "length_penalty", "max_words"),
    "sampling": ("n_best", "max_words", "sample", "temperature", "seed"),
    "ranked candidates": ("beam", "n_best", "candidates"),
}
_N_BEST = 5
# Images a batch, where a beam is searched and where candidates are ranked.
_SEARCHED, _RANKED = 64, 4


@dataclass(frozen=True)
class CaptionOptions:
    """How captions are looked for; None leaves it to the run's recipe, see `CaptionConfig`.

    Attributes:
        beam: hypotheses kept while a caption is searched for.
        n_best: captions an image, best first; None for five, or fewer where the beam of a network is
            narrower, and one where words are drawn greedily. A search may find fewer.
        length_penalty: of a beam search.
        max_words: longest caption.
        sample: `greedy`, `random`, `top-k=5` or `top-p=0.9`: words are drawn, and no beam is searched.
        temperature: of the draws.
        seed: of the draws.
        candidates: of language models, captions written before the best are chosen.
    """

    beam: int | None = None
    n_best: int | None = None
    length_penalty: float | None = None
    max_words: int | None = None
    sample: str | None = None
    temperature: float = 1.0
    seed: int = 0
    candidates: int | None = None


_DEFAULT = CaptionOptions()


def open_captioning_run(path: str | os.PathLike[str]) -> CaptioningRun:
    """Opens a run that writes captions.

    Raises:
        DataError: if it is no run, has no selected weights yet, or writes none.

    Example:

        open_captioning_run("runs/captions")
    """
    path = Path(path)
    recipe = read_recipe(path)
    if recipe.task == CaptionRun.task:
        return CaptionRun.open(path)
    reason = f"which is for {recipe.task}"
    if recipe.task == LanguageRun.task:
        if recipe.caption.decoder != "log-bilinear":
            return LanguageRun.open(path)
        reason = "which sees no image"
    raise DataError(
        f"{path} is a run of the recipe {recipe.name!r}, {reason}; a run that writes captions is needed, "
        "such as one of multimodal-rnn or sc-nlm."
    )


def writes_captions(path: str | os.PathLike[str]) -> bool:
    """Whether a run is for captions or is a language model, and so for `open_captioning_run`.

    Raises:
        DataError: if it is no run.
    """
    return read_recipe(Path(path)).task in (CaptionRun.task, LanguageRun.task)


def captioner_of(run: CaptioningRun, options: CaptionOptions = _DEFAULT) -> Captioner:
    """Returns what writes captions of a run's images; images are rows of its model's input.

    Raises:
        InvalidArgumentError: for an option out of range, or one that the run does not read.
    """
    if options.n_best is not None and options.n_best < 1:
        raise invalid_argument("n_best", options.n_best, "an integer >= 1")
    if isinstance(run, LanguageRun):
        _check_read(options, "ranked candidates", f"nothing for a run of the recipe {run.recipe.name!r}")
        n_best = _N_BEST if options.n_best is None else options.n_best
        return load_captioner(run, n_best=n_best, candidates=options.candidates, beam=options.beam)
    recipe = run.recipe.caption
    max_words = recipe.max_words if options.max_words is None else options.max_words
    if options.sample is not None:
        _check_read(options, "sampling", "nothing where words are drawn")
        sampler = Sampler.parse(options.sample, temperature=options.temperature, seed=options.seed)
        # Greedy draws are all alike.
        n_best = 1 if options.sample == "greedy" else _N_BEST
        n_best = n_best if options.n_best is None else options.n_best
        return NeuralCaptioner(run.model, run.vocabulary, n_best=n_best, max_words=max_words, sampler=sampler)
    reason = "nothing where a beam is searched; name a way to draw words with --sample"
    if options.candidates is not None:
        reason = f"nothing for a run of the recipe {run.recipe.name!r}"
    _check_read(options, "beam search", reason)
    beam = recipe.beam if options.beam is None else options.beam
    return NeuralCaptioner(
        run.model,
        run.vocabulary,
        beam=beam,
        n_best=min(_N_BEST, beam) if options.n_best is None else options.n_best,
        length_penalty=recipe.length_penalty if options.length_penalty is None else options.length_penalty,
        max_words=max_words,
    )


def _check_read(options: CaptionOptions, kind: str, allowed: str) -> None:
    for field in dataclasses.fields(options):
        value = getattr(options, field.name)
        if field.name not in _READ[kind] and value != field.default:
            raise invalid_argument(field.name, value, allowed)


class _Rows:
    """Some rows of an image source, in the place of all."""

    def __init__(self, source: ImageSource, rows: np.ndarray) -> None:
        self._source, self._rows = source, rows

    @property
    def spec(self) -> tf.TensorSpec:
        return self._source.spec

    def gather(self, rows: np.ndarray) -> np.ndarray:
        return self._source.gather(self._rows[rows])

    def finish(self, images: tf.Tensor, seed: tf.Tensor | None) -> tf.Tensor:
        return self._source.finish(images, seed)


def caption_split(
    run: CaptioningRun,
    dataset: Dataset,
    split_name: str,
    options: CaptionOptions = _DEFAULT,
    *,
    rows: np.ndarray | None = None,
) -> list[list[Written]]:
    """Writes captions of a split's images, with a progress bar.

    Args:
        run: the run.
        dataset: the dataset.
        split_name: name of the split.
        options: how captions are looked for.
        rows: (n,) the rows of the images wanted; None for all, in their order.

    Returns:
        For each image its captions with their log-probabilities, best first.

    Raises:
        InvalidArgumentError: as `captioner_of`.
        DataError: if run and dataset do not fit, or the split is not there.

    Example:

        written = caption_split(open_captioning_run("runs/captions"), Dataset.open("data/flickr8k"), "val")
        text, log_prob = written[0][0]
    """
    part = dataset.split(split_name)
    rows = np.arange(len(part)) if rows is None else rows
    writer = CaptionWriter(run, captioner_of(run, options))
    source = _Rows(run.images_of(dataset, part), rows)
    # Where many candidates are written for an image, images are taken one after another anyway.
    size = _RANKED if isinstance(run, LanguageRun) else _SEARCHED
    found: list[list[Written]] = []
    with tqdm(total=len(rows), desc="captions", unit="image", disable=None, leave=False) as bar:
        for batch in image_batches(source, len(rows), size):
            found += writer.of_rows(batch["image"])
            bar.update(len(found) - bar.n)
    return found


@dataclass(frozen=True)
class ImageCaptions:
    """The captions of one image.

    Attributes:
        image: its file or key.
        captions: with their log-probabilities, best first; empty where there is an error.
        error: why there are none, else None.
    """

    image: str
    captions: tuple[Written, ...]
    error: str | None = None

    def to_json(self) -> dict[str, Any]:
        """Returns plain values."""
        image = printable(self.image)
        if self.error is not None:
            return {"image": image, "error": printable(self.error)}
        return {
            "image": image,
            "captions": [{"text": text, "log_prob": log_prob} for text, log_prob in self.captions],
        }


def caption_images(
    run: CaptioningRun,
    images: Sequence[str],
    dataset: Dataset | None = None,
    options: CaptionOptions = _DEFAULT,
) -> list[ImageCaptions]:
    """Writes captions of images one by one; one that cannot be read does not stop the others.

    Args:
        run: the run.
        images: image files, or keys of images of the dataset.
        dataset: where keys are looked up; files are shrunk as it was prepared. None for neither.
        options: how captions are looked for.

    Raises:
        InvalidArgumentError: as `captioner_of`.

    Example:

        (found,) = caption_images(open_captioning_run("runs/captions"), ["dog.jpg"])
        print(found.captions[0])
    """
    writer = CaptionWriter(run, captioner_of(run, options))
    found = []
    for image in tqdm(images, desc="captions", unit="image", disable=None, leave=False):
        try:
            found.append(ImageCaptions(image, tuple(_captions_of(writer, image, dataset))))
        except DataError as error:
            found.append(ImageCaptions(image, (), one_line(error)))
    return found


def _captions_of(writer: CaptionWriter, image: str, dataset: Dataset | None) -> list[Written]:
    place = None if dataset is None or os.path.isfile(image) else find_key(dataset, image)
    if dataset is not None and place is not None:
        return writer.of_split_row(dataset, *place)
    (found,) = writer.of_bytes([read_image_file(image, dataset).encoded])
    if found is None:
        raise DataError(f"The image {image!r} does not decode as JPEG or PNG.")
    return found
