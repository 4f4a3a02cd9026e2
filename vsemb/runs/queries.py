"""What is looked for, and its embedding: a text or an image, several of them, and arithmetic with words."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import tensorflow as tf

from vsemb.data.store import Dataset
from vsemb.errors import invalid_argument
from vsemb.export import ServedModel
from vsemb.files import sha256_bytes
from vsemb.runs.images import embed_image
from vsemb.runs.run import Run
from vsemb.runs.serve import run_encoders
from vsemb.search import SearchIndex, abstract, combine, compose

_UNKNOWN = 1
_OPERATIONS = {"compose": compose, "abstract": abstract}
# What ends so is no text, even where there is no such file.
_IMAGE_SUFFIXES = (".jpg", ".jpeg", ".png")


@dataclass(frozen=True)
class Query:
    """What is looked for: a text, an image or several at once, and words taken away from it and added.

    Attributes:
        text: a sentence.
        image: path of an image file, or the key of an image of the dataset.
        minus: words (or phrases) whose embeddings are subtracted.
        plus: words (or phrases) whose embeddings are added.
        compose: two or more of which all is wanted, each a text, the path of an image file or the key of
            an image of the dataset.
        abstract: two or more of which what they have in common is wanted.

    Raises:
        InvalidArgumentError: unless there is exactly one of text, image, compose and abstract.
    """

    text: str | None = None
    image: str | None = None
    minus: tuple[str, ...] = ()
    plus: tuple[str, ...] = ()
    compose: tuple[str, ...] = ()
    abstract: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        all_kinds = {name: getattr(self, name) for name in ("text", "image", "compose", "abstract")}
        given = {name: value for name, value in all_kinds.items() if value not in (None, ())}
        if len(given) != 1:
            allowed = "one of a text or an image (--image), --compose and --abstract"
            raise invalid_argument("query", given or None, allowed)
        for name in ("compose", "abstract"):
            if len(getattr(self, name)) == 1:
                raise invalid_argument(name, getattr(self, name), "two or more texts or images")


class EmbeddedQuery:
    """A query as an embedding.

    Args:
        run: what embeds it.
        dataset: where keys of images are looked up; None for the index.
        index: what will be searched, where it is open already.
        query: what is looked for.
        report: called with a line worth showing.

    Attributes:
        vector: (dim,) float32; (items, dim) for a run of several vectors an item.
        own: ids of the images that it is made of.
        by_image: whether there are images in it.
        encoders: the run's.

    Raises:
        VsembError: as `vsemb.runs.searching.search_run`.

    Example:

        asked = EmbeddedQuery(run, dataset, None, Query("a dog on a beach"), print)
    """

    def __init__(
        self,
        run: Run,
        dataset: Dataset | None,
        index: SearchIndex | None,
        query: Query,
        report: Callable[[str], None],
    ) -> None:
        place = _Place(run, dataset, index)
        parts = _parts(place, query)
        self.by_image = any(part.is_image for part in parts)
        self.encoders = run_encoders(run, images=self.by_image)
        self.vector, self.own = _embed_query(place, self.encoders, query, parts, report)


@dataclass(frozen=True)
class _Place:
    """Where a query is asked: what embeds it, and where keys of images are looked up."""

    run: Run
    dataset: Dataset | None
    index: SearchIndex | None

    def names_image(self, value: str) -> bool:
        if Path(value).suffix.lower() in _IMAGE_SUFFIXES or os.path.isfile(value):
            return True
        if self.dataset is None:
            return self.row_of(value) is not None
        return any(value in self.dataset.split(name).keys for name in _filled(self.dataset))

    def row_of(self, key: str) -> int | None:
        """The row of an image in the index."""
        if self.index is None or self.index.source.kind != "image" or key not in self.index.keys:
            return None
        return self.index.keys.index(key)

    def embed_image(self, encoders: ServedModel, image: str) -> tuple[np.ndarray, set[int]]:
        """Returns the embedding, and the ids of the images that are this one."""
        row = self.row_of(image)
        if self.index is not None and row is not None and self.dataset is None and not os.path.isfile(image):
            return self.index.embedding(row), {int(self.index.ids[row])}
        vector, source = embed_image(self.run, self.dataset, encoders, image)
        if isinstance(source, tuple):
            split, number = source
            return vector, {int(split.ids[number])}
        if self.dataset is None:
            return vector, set()
        digest = sha256_bytes(source)
        entries = (entry for name in _filled(self.dataset) for entry in self.dataset.split(name).entries)
        return vector, {int(entry["id"]) for entry in entries if entry.get("sha256") == digest}


def _filled(dataset: Dataset) -> list[str]:
    return [name for name in dataset.splits if dataset.manifest["splits"][name]["images"]]


@dataclass(frozen=True)
class _Part:
    name: str
    value: str
    is_image: bool


def _parts(place: _Place, query: Query) -> list[_Part]:
    if query.text is not None:
        return [_Part("query", query.text, False)]
    if query.image is not None:
        return [_Part("image", query.image, True)]
    name, values = ("compose", query.compose) if query.compose else ("abstract", query.abstract)
    run = place.run
    similarity = run.recipe.similarity
    if not similarity.composes:
        raise invalid_argument(
            name,
            values,
            "a run whose similarity is 'order'",
            f"That of {run.path} is {similarity.kind!r}; the recipe order-embedding has one.",
        )
    return [_Part(name, value, place.names_image(value)) for value in values]


def _embed_query(
    place: _Place,
    encoders: ServedModel,
    query: Query,
    parts: list[_Part],
    report: Callable[[str], None],
) -> tuple[np.ndarray, set[int]]:
    """Returns the embedding, and the ids of the images that are in the query."""
    run = place.run
    vectors, own = [], set()
    for part in parts:
        if part.is_image:
            vector, same = place.embed_image(encoders, part.value)
            own |= same
        else:
            vector = embed_text(encoders, run, part.value, part.name, report)
        vectors.append(vector)
    vector = vectors[0] if len(vectors) == 1 else _OPERATIONS[parts[0].name](*vectors)
    minus, plus = (
        [embed_text(encoders, run, text, name, report) for text in getattr(query, name)] for name in ("minus", "plus")
    )
    if minus or plus:
        vector = combine(vector, minus, plus, run.model.similarity.normalize)
    return vector, own


def embed_text(encoders: ServedModel, run: Run, text: str, name: str, report: Callable[[str], None]) -> np.ndarray:
    """Embeds a text that someone typed, and says which of it the run does not know.

    Args:
        encoders: the run's.
        run: the run.
        text: the text.
        name: what it is called in an error.
        report: called with a line about words that are not known.

    Returns:
        (dim,) float32; (words, dim) for a run of several vectors an item.

    Raises:
        InvalidArgumentError: if there is nothing in it that the run was trained with.
        DataError: if it has to be parsed and the run knows no parser.
    """
    return encoders.encode_text(read_text(run, text, name, report))["embedding"].numpy()[0]


def read_text(run: Run, text: str, name: str, report: Callable[[str], None]) -> tf.Tensor:
    """Reads a text that someone typed as the run takes it, and says which of it the run does not know.

    Args:
        run: the run.
        text: the text.
        name: what it is called in an error.
        report: called with a line about words that are not known.

    Returns:
        string (1,), what `encode_text` takes.

    Raises:
        InvalidArgumentError: if there is nothing in it that the run was trained with.
        DataError: if it has to be parsed and the run knows no parser.
    """
    tokenizer = run.tokenizer
    read = tf.constant(run.reader([text]))
    words = [piece.decode() for piece in tokenizer.pieces(read).flat_values.numpy()]
    ids = tokenizer.word_ids(tokenizer.ragged(read).flat_values.numpy())
    unknown = [word for word, number in zip(words, ids, strict=True) if number == _UNKNOWN]
    unit, units = tokenizer.unit
    if not words:
        raise invalid_argument(name, text, f"a text with at least one {unit}")
    if len(unknown) == len(words):
        raise invalid_argument(
            name,
            text,
            f"at least one {unit} that the run was trained with",
            f"Not known: {', '.join(dict.fromkeys(unknown))}. The run's vocabulary.txt lists its {units}.",
        )
    if unknown:
        report(f"Warning: not known to the run: {', '.join(dict.fromkeys(unknown))}.")
    return read
