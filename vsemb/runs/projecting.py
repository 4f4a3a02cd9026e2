"""A run's words, sentences and images for TensorBoard's embedding projector."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

import numpy as np
from PIL import Image
from tqdm import tqdm

from vsemb.data.store import Dataset, Split
from vsemb.errors import invalid_argument
from vsemb.evaluation import Embedder
from vsemb.export.projector import (
    MAX_POINTS,
    ProjectorTensor,
    check_projector_directory,
    thumbnail_side,
    write_projector,
)
from vsemb.runs.indexing import require_single_vector
from vsemb.runs.pictures import square_thumbnail, text_tile
from vsemb.runs.run import Run
from vsemb.text.normalize import words_of

#: The folder inside a run where the projector's files lie.
PROJECTOR = "projector"


def project_run(
    run: Run,
    dataset: Dataset,
    split: str = "val",
    out: str | os.PathLike[str] | None = None,
    *,
    images: int = 1000,
    sentences: int = 1000,
    words: int = 500,
    seed: int = 0,
) -> tuple[Path, dict[str, tuple[int, int]]]:
    """Writes the projector's folder for a split.

    There is a tensor for each of three kinds, and one, `everything`, with images and sentences together.
    Words are embedded as sentences of one word, and so lie in the same space; they are the most frequent
    of the split's captions that the run knows. A run that reads the names of classes has no words.

    Args:
        run: the run.
        dataset: the dataset.
        split: name of the split.
        out: the directory; None for `projector` inside the run.
        images: images, drawn at random; fewer where the split has fewer, 0 for none.
        sentences: sentences of these images (of drawn images, where there are none), one an image in
            turns; 0 for none.
        words: words; 0 for none.
        seed: of the draw, >= 0.

    Returns:
        path: the directory.
        shapes: name of a tensor -> its shape.

    Raises:
        InvalidArgumentError: for a number out of range, or nothing to show.
        DataError: if run and dataset do not fit, the run has several vectors an item, `out` holds something else,
            or the file system refuses.

    Example:

        project_run(Run.open("runs/vsepp"), Dataset.open("data/flickr8k"), "val", images=500)
    """
    require_single_vector(run, "The projector", "`vsemb report` shows what its words describe.")
    for name, value in (("images", images), ("sentences", sentences), ("words", words)):
        if not 0 <= value <= MAX_POINTS:
            raise invalid_argument(name, value, f"an integer from 0 to {MAX_POINTS}")
    if seed < 0:
        raise invalid_argument("seed", seed, "an integer >= 0")
    if not images + sentences + words:
        raise invalid_argument("images, sentences, words", (0, 0, 0), "at least one above 0")
    out = run.path / PROJECTOR if out is None else Path(out)
    check_projector_directory(out)
    part = dataset.split(split)
    rows = np.random.default_rng(seed).permutation(len(part))
    rows = np.sort(rows[: images or sentences])
    tensors: list[ProjectorTensor] = []
    if sentences and images:
        pictured, said = _images(run, dataset, part, rows), _sentences(run, part, rows, sentences)
        tensors += [_everything(part, rows, pictured, said), pictured, said]
    elif images:
        tensors.append(_images(run, dataset, part, rows))
    elif sentences:
        tensors.append(_sentences(run, part, rows, sentences))
    if words:
        tensors += _words(run, part, words)
    if not tensors:
        raise invalid_argument("words", words, "images or sentences above 0 for a run that knows no words")
    write_projector(out, tensors, f"{run.recipe.name} on {dataset.name}, {split}")
    return out, {tensor.name: tensor.embeddings.shape for tensor in tensors}


def _images(run: Run, dataset: Dataset, part: Split, rows: np.ndarray) -> ProjectorTensor:
    embedded = Embedder(run.model).images(run.images_of(dataset, part), rows)
    columns: dict[str, list[object]] = {
        # The longest tells most.
        "caption": [max(part.entries[row]["captions"], key=len) for row in rows],
        "key": [part.keys[row] for row in rows],
        "split": [part.name] * len(rows),
    }
    if all(part.class_names):
        columns["class"] = [part.class_names[row] for row in rows]
    return ProjectorTensor("images", embedded, columns, _thumbnails(part, rows))


def _thumbnails(part: Split, rows: np.ndarray, side: int | None = None) -> list[Image.Image] | None:
    if not part.has_images:
        return None
    side = side or thumbnail_side(len(rows))
    bar = tqdm(rows.tolist(), desc=f"thumbnails of {part.name}", unit="image", disable=None)
    return [square_thumbnail(part, row, side) for row in bar]


def _sentences(run: Run, part: Split, rows: np.ndarray, count: int) -> ProjectorTensor:
    read, read_rows = run.texts_of(part)
    texts = run.shown_texts_of(part)
    of_rows: list[list[int]] = [[] for _ in range(len(part))]
    for text, row in enumerate(read_rows):
        of_rows[row].append(text)
    most = max(len(own) for own in of_rows)
    turns = [(row, of_rows[row][turn]) for turn in range(most) for row in rows if turn < len(of_rows[row])]
    chosen = sorted(turns[:count])
    said = [texts[text] for _, text in chosen]
    embedded = Embedder(run.model).texts(*run.encode([read[text] for _, text in chosen]))
    columns: dict[str, list[object]] = {
        "sentence": list(said),
        "key": [part.keys[row] for row, _ in chosen],
        "split": [part.name] * len(said),
        "words": [len(text.split()) for text in said],
    }
    if all(part.class_names):
        columns["class"] = [part.class_names[row] for row, _ in chosen]
    return ProjectorTensor("sentences", embedded, columns)


def _everything(part: Split, rows: np.ndarray, pictured: ProjectorTensor, said: ProjectorTensor) -> ProjectorTensor:
    """Images and sentences in one tensor, so that an image is seen beside its sentences."""
    # A sheet holds so many; images come first.
    kept = min(len(said.embeddings), MAX_POINTS - len(pictured.embeddings))
    count = len(pictured.embeddings) + kept
    thumbnails = None
    if pictured.thumbnails is not None:
        side = thumbnail_side(count)
        texts = [str(text) for text in said.columns["sentence"][:kept]]
        thumbnails = [
            *(image.resize((side, side), Image.Resampling.LANCZOS) for image in pictured.thumbnails),
            *(text_tile(text, side) for text in texts),
        ]
    return ProjectorTensor(
        "everything",
        np.concatenate([pictured.embeddings, said.embeddings[:kept]]),
        {
            "label": [*pictured.columns["caption"], *said.columns["sentence"][:kept]],
            "kind": ["image"] * len(rows) + ["sentence"] * kept,
            "key": [*pictured.columns["key"], *said.columns["key"][:kept]],
        },
        thumbnails,
    )


def _words(run: Run, part: Split, count: int) -> list[ProjectorTensor]:
    counts = Counter(word for words in words_of(part.captions) for word in words)
    chosen = sorted(filter(run.reader.knows, counts), key=lambda word: (-counts[word], word))[:count]
    if not chosen:
        return []
    embedded = Embedder(run.model).texts(*run.encode(chosen))
    columns: dict[str, list[object]] = {"word": list(chosen), "count": [counts[word] for word in chosen]}
    if not run.recipe.similarity.unit_length:
        columns["norm"] = [f"{norm:.4g}" for norm in np.linalg.norm(embedded, axis=1)]
    return [ProjectorTensor("words", embedded, columns)]
