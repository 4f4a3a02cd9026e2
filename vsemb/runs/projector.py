"""Write words, sentences and images of a run for TensorBoard's embedding projector.

    <directory>/
      projector_config.pbtxt      the list of tensors
      NAME.tsv                    one vector per line
      NAME.metadata.tsv           one label per line, with a header
      NAME.sprite.jpg             thumbnails, row by row in one sheet
      events.out.tfevents.…       a line of text

TensorBoard does not show a directory without an event file. Vectors are written as text, because TensorBoard reads a
file as binary only if it cannot be read as text.
"""

from __future__ import annotations

import math
import os
import re
import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from vsemb.console import progress
from vsemb.data.store import Split, StoredDataset
from vsemb.drawing.pictures import square_thumbnail, text_tile
from vsemb.errors import DataError, invalid_argument
from vsemb.evaluation import Embedder
from vsemb.files import replacing_directory
from vsemb.ops.tensorflow import tf
from vsemb.printing import table
from vsemb.results import Result
from vsemb.runs.indexing import require_single_vector
from vsemb.runs.run import Run
from vsemb.text.normalize import words_of

#: Folder inside a run with the files of the projector.
PROJECTOR = "projector"
#: Maximum side of a sprite sheet in pixels, the limit of graphics in browsers.
MAX_SHEET = 8192
#: Maximum and minimum side of a thumbnail in pixels.
MAX_SIDE, MIN_SIDE = 96, 64
#: Maximum number of thumbnails of the minimum side per sheet.
MAX_POINTS = (MAX_SHEET // MIN_SIDE) ** 2

CONFIG = "projector_config.pbtxt"
_QUALITY = 88
_EVENTS = "events.out.tfevents."
# Line ends in Python and JavaScript, tabs and NUL.
_SEPARATORS = re.compile(r"[\t-\r\x00\x1c-\x1e\x85\u2028\u2029]+")


@dataclass(frozen=True, repr=False)
class Projection(Result):
    """A folder for TensorBoard's projector.

    Attributes:
        path: the folder.
        shapes: name of a tensor -> its points and entries per point.
    """

    path: Path
    shapes: Mapping[str, tuple[int, ...]]

    def to_json(self) -> dict[str, Any]:
        """Return the path and the shapes."""
        return {"path": str(self.path), "shapes": {name: list(shape) for name, shape in self.shapes.items()}}

    def __str__(self) -> str:
        rows = [[name, *map(str, shape)] for name, shape in self.shapes.items()]
        text = table(["tensor", "points", "entries"], rows)
        return f"{text}\n\ntensorboard --logdir {shlex.quote(str(self.path))}    # http://localhost:6006/#projector"


def project_run(
    run: Run, dataset: StoredDataset, split: str, out: Path, *, images: int, sentences: int, words: int, seed: int
) -> Projection:
    """Write the folder of `vsemb.write_projector`.

    The tensors are `images`, `sentences`, `words`, and `everything` with all of them, which can be coloured by kind
    (`image`, `sentence`, `word`).
    """
    require_single_vector(run, "The projector", "Use `vsemb report`.")
    for name, value in (("images", images), ("sentences", sentences), ("words", words)):
        if value > MAX_POINTS:
            raise invalid_argument(name, value, f"an integer from 0 to {MAX_POINTS}")
    if not images + sentences + words:
        raise invalid_argument("images, sentences, words", (0, 0, 0), "at least one above 0")
    check_projector_directory(out)
    part = dataset.split(split)
    rows = np.random.default_rng(seed).permutation(len(part))
    rows = np.sort(rows[: images or sentences])
    tensors = [_images(run, dataset, part, rows)] if images else []
    tensors += [_sentences(run, part, rows, sentences)] if sentences else []
    tensors += _words(run, part, words) if words else []
    if not tensors:
        raise invalid_argument("words", words, "images or sentences above 0 for a run without words")
    if len(tensors) > 1:
        tensors.insert(0, _everything(tensors))
    write_tensors(out, tensors, f"{run.recipe.name} on {dataset.name}, {split}")
    return Projection(out, {tensor.name: tensor.embeddings.shape for tensor in tensors})


def _images(run: Run, dataset: StoredDataset, part: Split, rows: np.ndarray) -> ProjectorTensor:
    embedded = Embedder(run.model).images(run.images_of(dataset, part), rows)
    # Label an image with its longest caption, which is the most informative.
    captions = [max(part.captions_of(row), key=len) for row in rows]
    thumbnails = None
    if part.has_images:
        side = thumbnail_side(len(rows))
        bar = progress(rows.tolist(), desc=f"thumbnails of {part.name}", unit="image")
        thumbnails = [square_thumbnail(part, row, side) for row in bar]
    return ProjectorTensor("images", embedded, {"caption": captions, **_columns(part, rows)}, thumbnails)


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
    columns = {"sentence": said, **_columns(part, [row for row, _ in chosen])}
    return ProjectorTensor("sentences", embedded, {**columns, "words": [len(text.split()) for text in said]})


def _columns(part: Split, rows: Sequence[int] | np.ndarray) -> dict[str, Sequence[object]]:
    columns: dict[str, Sequence[object]] = {
        "key": [part.keys[row] for row in rows],
        "split": [part.name] * len(rows),
    }
    return {**columns, "class": [part.class_names[row] for row in rows]} if part.has_classes else columns


def _everything(tensors: Sequence[ProjectorTensor]) -> ProjectorTensor:
    """Join tensors in one; if a sheet cannot hold all points, the last ones are left out."""
    columns: dict[str, list[object]] = {"label": [], "kind": [], "key": []}
    for tensor in tensors:
        labels = next(iter(tensor.columns.values()))
        columns["label"] += labels
        columns["kind"] += [tensor.name.removesuffix("s")] * len(labels)
        columns["key"] += tensor.columns.get("key", [""] * len(labels))
    columns = {name: values[:MAX_POINTS] for name, values in columns.items()}
    embeddings = np.concatenate([tensor.embeddings for tensor in tensors])[:MAX_POINTS]
    thumbnails = None
    if tensors[0].thumbnails is not None:
        side = thumbnail_side(len(embeddings))
        pictures = [image.resize((side, side), Image.Resampling.LANCZOS) for image in tensors[0].thumbnails]
        thumbnails = [*pictures, *(text_tile(str(label), side) for label in columns["label"][len(pictures) :])]
    return ProjectorTensor("everything", embeddings, columns, thumbnails)


def _words(run: Run, part: Split, count: int) -> list[ProjectorTensor]:
    counts = Counter(word for words in words_of(part.captions) for word in words)
    chosen = sorted(filter(run.reader.knows, counts), key=lambda word: (-counts[word], word))[:count]
    if not chosen:
        return []
    embedded = Embedder(run.model).texts(*run.encode(chosen))
    columns: dict[str, Sequence[object]] = {"word": chosen, "count": [counts[word] for word in chosen]}
    if not run.recipe.similarity.unit_length:
        columns["norm"] = [f"{norm:.4g}" for norm in np.linalg.norm(embedded, axis=1)]
    return [ProjectorTensor("words", embedded, columns)]


@dataclass(frozen=True, eq=False)
class ProjectorTensor:
    """A tensor of the projector: vectors, labels and thumbnails.

    Attributes:
        name: lower-case letters, digits and hyphens.
        embeddings: (n, dim) float32, finite.
        columns: name of a column -> n values; the first column labels the points.
        thumbnails: n images of equal size; None shows points.
    """

    name: str
    embeddings: np.ndarray
    columns: Mapping[str, Sequence[object]]
    thumbnails: Sequence[Image.Image] | None = None

    def __post_init__(self) -> None:
        if not np.isfinite(self.embeddings).all():
            raise DataError(f"The embeddings of {self.name!r} must be finite; they hold NaN or infinity.")


def thumbnail_side(count: int) -> int:
    """Return the side of thumbnails that fit a sprite sheet, in pixels.

    Args:
        count: number of thumbnails, at most `MAX_POINTS`.

    Example:

    >>> thumbnail_side(100), thumbnail_side(10_000)
    (96, 81)
    """
    return min(MAX_SIDE, MAX_SHEET // _sheet_columns(count))


def sprite_sheet(thumbnails: Sequence[Image.Image]) -> Image.Image:
    """Join thumbnails of equal size in a square sheet, row by row."""
    width, height = thumbnails[0].size
    columns = _sheet_columns(len(thumbnails))
    # Square, even with empty rows: TensorBoard 2.20 computes positions from the number of rows.
    sheet = Image.new("RGB", (columns * width, columns * height))
    for place, image in enumerate(thumbnails):
        sheet.paste(image, (place % columns * width, place // columns * height))
    return sheet


def check_projector_directory(out: str | os.PathLike[str]) -> None:
    """Check that a directory may be replaced by `write_tensors`.

    Raises:
        DataError: if it holds other files.
    """
    out = Path(out)
    entries = list(out.iterdir()) if out.is_dir() else [out] if out.exists() else []
    ours = (out / CONFIG).exists() and all(
        entry.is_file() and (entry.suffix in (".tsv", ".jpg", ".pbtxt") or entry.name.startswith(_EVENTS))
        for entry in entries
    )
    if entries and not ours:
        raise DataError(
            f"{out} must be a projector's folder or not exist; it holds other files. Choose another directory."
        )


def write_tensors(out: str | os.PathLike[str], tensors: Sequence[ProjectorTensor], title: str = "embeddings") -> Path:
    """Write the projector folder atomically; an earlier projector folder is replaced.

    Args:
        out: the directory.
        tensors: tensors with distinct names; TensorBoard opens the first tensor.
        title: title in TensorBoard's list of texts.

    Returns:
        The directory.

    Raises:
        DataError: if `out` holds other files, or a file cannot be written.

    Example:

        words = ProjectorTensor("words", vectors, {"word": ["dog", "cat"], "count": [20, 10]})
        write_tensors("runs/vsepp/projector", [words])
    """
    from google.protobuf import text_format
    from tensorboard.plugins.projector import ProjectorConfig

    check_projector_directory(out)
    config = ProjectorConfig()
    with replacing_directory(out, overwrite=True) as folder:
        for tensor in tensors:
            shown = config.embeddings.add(
                tensor_name=tensor.name,
                tensor_path=f"{tensor.name}.tsv",
                metadata_path=f"{tensor.name}.metadata.tsv",
                tensor_shape=tensor.embeddings.shape,
            )
            np.savetxt(folder / shown.tensor_path, tensor.embeddings, fmt="%.7g", delimiter="\t")
            (folder / shown.metadata_path).write_text(_metadata(tensor.columns), encoding="utf-8")
            if tensor.thumbnails is not None:
                shown.sprite.image_path = f"{tensor.name}.sprite.jpg"
                shown.sprite.single_image_dim.extend(tensor.thumbnails[0].size)
                sprite_sheet(tensor.thumbnails).save(folder / shown.sprite.image_path, quality=_QUALITY)
        (folder / CONFIG).write_text(text_format.MessageToString(config), encoding="utf-8")
        writer = tf.summary.create_file_writer(str(folder))
        with writer.as_default():
            tf.summary.text("projector", f"{title}: {', '.join(tensor.name for tensor in tensors)}", step=0)
        writer.close()
    return Path(out)


def _sheet_columns(count: int) -> int:
    return math.isqrt(count - 1) + 1


def _metadata(columns: Mapping[str, Sequence[object]]) -> str:
    """Return the text of a metadata file. TensorBoard would show the header of a single column, so it is omitted."""
    rows: list[Sequence[object]] = [list(columns)] if len(columns) > 1 else []
    rows += zip(*columns.values(), strict=True)
    lines = []
    for row in rows:
        cells = [_SEPARATORS.sub(" ", str(value)) for value in row]
        lines.append("\t".join(cells) + "\n")
    return "".join(lines)
