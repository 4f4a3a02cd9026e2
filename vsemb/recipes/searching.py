"""Answering a search: a text or an image, arithmetic with them, over a dataset's index."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from vsemb.data.store import Dataset
from vsemb.errors import invalid_argument
from vsemb.export import ServedModel
from vsemb.files import sha256_bytes
from vsemb.recipes.build import similarity_name
from vsemb.recipes.images import embed_image
from vsemb.recipes.indexing import (
    ALL,
    Item,
    index_items,
    open_index,
    split_names,
)
from vsemb.recipes.run import Run
from vsemb.recipes.serve import run_encoders
from vsemb.search import abstract, check_candidates, combine, compose, resort_by_mean
from vsemb.text.characters import CharacterTokenizer
from vsemb.text.class_names import ClassTokenizer
from vsemb.text.tokenizers import Tokenizer

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


@dataclass(frozen=True)
class Result:
    """One result.

    Attributes:
        rank: from 1.
        score: the similarity, higher is better.
        item: the image or caption found.
    """

    rank: int
    score: float
    item: Item

    def to_json(self) -> dict[str, Any]:
        """Returns plain values."""
        item = self.item
        return {
            "rank": self.rank,
            "score": self.score,
            "key": item.key,
            "id": item.id,
            "split": item.split,
            "caption": item.caption,
        }


def search_run(
    run: Run,
    dataset: Dataset,
    query: Query,
    *,
    k: int = 10,
    split: str = ALL,
    captions: bool = False,
    resort: int | None = None,
    keep_query: bool = False,
    candidates: int | None = None,
    report: Callable[[str], None] = print,
) -> list[Result]:
    """Finds the images (or captions) of a dataset nearest to a query.

    The query goes through the same functions as in a SavedModel of the run. The index is built on
    first use. An image of the dataset that is the query itself, by its key or its bytes, is left out.

    With an order, the captions that a text finds say what the text says and perhaps more, and those that
    an image finds are true of the image; see `SearchIndex.search`. A composition or abstraction with an
    image in it counts as an image.

    Args:
        run: the run.
        dataset: the dataset searched.
        query: what is looked for.
        k: results wanted.
        split: the split searched, or `all`.
        captions: search captions instead of images.
        resort: re-sort the best so many by their distance to their mean (Kiros et al. 2014, section
            3.2); those after them keep their places.
        keep_query: whether the query's own image may be found.
        candidates: score exactly only so many, chosen by inner product; None scores all.
        report: called with a line worth showing: unknown words, an index being built.

    Raises:
        InvalidArgumentError: if no word of a text is known, a number is below 1, the run's space has no
            composition and abstraction, or candidates are of no use in it.
        DataError: if the image cannot be read or embedded, or run and dataset do not fit.

    Example:

        query = Query(image="blue_car.jpg", minus=("blue",), plus=("red",))
        results = search_run(run, dataset, query, k=5, resort=20)
    """
    for name, value in (("k", k), ("resort", 1 if resort is None else resort)):
        if value < 1:
            raise invalid_argument(name, value, "an integer >= 1")
    split_names(dataset, split)
    if candidates is not None:
        check_candidates(candidates, max(k, resort or 0), similarity_name(run.recipe))
    parts = _parts(run, dataset, query)
    by_image = any(part.is_image for part in parts)
    encoders = run_encoders(run, images=by_image)
    vector, own = _embed_query(run, dataset, encoders, query, parts, report)
    kind = "text" if captions else "image"
    index = open_index(run, dataset, split, kind, encoders if by_image else None, report)
    exclude: list[int] = []
    if own and not captions and not keep_query:
        exclude = np.flatnonzero(np.isin(index.ids, list(own))).tolist()
    rows, scores = index.search(
        vector[None],
        max(k, resort or 0),
        exclude=exclude,
        query_kind="image" if by_image else "text",
        candidates=candidates,
    )
    order = np.arange(rows.shape[1])
    if resort is not None:
        order[:resort] = resort_by_mean(index.embeddings[rows[0, :resort]])
    items = index_items(dataset, index.source.splits, kind)
    return [
        Result(rank, float(scores[0, place]), items[rows[0, place]])
        for rank, place in enumerate(order[:k], 1)
    ]


@dataclass(frozen=True)
class _Part:
    name: str
    value: str
    is_image: bool


def _parts(run: Run, dataset: Dataset, query: Query) -> list[_Part]:
    if query.text is not None:
        return [_Part("query", query.text, False)]
    if query.image is not None:
        return [_Part("image", query.image, True)]
    name, values = ("compose", query.compose) if query.compose else ("abstract", query.abstract)
    if similarity_name(run.recipe) != "order":
        raise invalid_argument(
            name,
            values,
            "a run whose similarity is 'order'",
            f"That of {run.path} is {similarity_name(run.recipe)!r}; the recipe order-embedding has one.",
        )
    return [_Part(name, value, _names_image(dataset, value)) for value in values]


def _names_image(dataset: Dataset, value: str) -> bool:
    if Path(value).suffix.lower() in _IMAGE_SUFFIXES or os.path.isfile(value):
        return True
    return any(
        value in dataset.split(name).keys
        for name in dataset.splits
        if dataset.manifest["splits"][name]["images"]
    )


def _embed_query(
    run: Run,
    dataset: Dataset,
    encoders: ServedModel,
    query: Query,
    parts: list[_Part],
    report: Callable[[str], None],
) -> tuple[np.ndarray, set[int]]:
    """Returns the embedding, and the ids of the dataset's images that are in the query."""
    vectors, own = [], set()
    for part in parts:
        if part.is_image:
            vector, same = _embed_image(run, dataset, encoders, part.value)
            own |= same
        else:
            vector = _embed_text(encoders, run.tokenizer, part.value, part.name, report)
        vectors.append(vector)
    vector = vectors[0] if len(vectors) == 1 else _OPERATIONS[parts[0].name](*vectors)
    minus, plus = (
        [_embed_text(encoders, run.tokenizer, text, name, report) for text in getattr(query, name)]
        for name in ("minus", "plus")
    )
    if minus or plus:
        vector = combine(vector, minus, plus, run.model.similarity.normalize)
    return vector, own


def _embed_text(
    encoders: ServedModel, tokenizer: Tokenizer, text: str, name: str, report: Callable[[str], None]
) -> np.ndarray:
    words = [piece.decode() for piece in tokenizer.pieces(tf.constant([text])).flat_values.numpy()]
    ids = tokenizer.ragged(tf.constant([text])).flat_values.numpy()
    unknown = [word for word, number in zip(words, ids, strict=True) if number == _UNKNOWN]
    piece, pieces = _piece(tokenizer)
    if not words:
        raise invalid_argument(name, text, f"a text with at least one {piece}")
    if len(unknown) == len(words):
        raise invalid_argument(
            name,
            text,
            f"at least one {piece} that the run was trained with",
            f"Not known: {', '.join(dict.fromkeys(unknown))}. The run's vocabulary.txt lists its {pieces}.",
        )
    if unknown:
        report(f"Warning: not known to the run: {', '.join(dict.fromkeys(unknown))}.")
    return encoders.encode_text(tf.constant([text]))["embedding"].numpy()[0]


def _piece(tokenizer: Tokenizer) -> tuple[str, str]:
    """Returns what a text is made of, one and several."""
    if isinstance(tokenizer, CharacterTokenizer):
        return "character", "characters"
    if isinstance(tokenizer, ClassTokenizer):
        return "name of a class", "classes"
    return "word", "words"


def _embed_image(
    run: Run, dataset: Dataset, encoders: ServedModel, image: str
) -> tuple[np.ndarray, set[int]]:
    """Returns the embedding, and the ids of the dataset's images that are this image."""
    vector, source = embed_image(run, dataset, encoders, image)
    if isinstance(source, tuple):
        split, row = source
        return vector, {int(split.ids[row])}
    digest = sha256_bytes(source)
    own = {
        int(entry["id"])
        for name in dataset.splits
        if dataset.manifest["splits"][name]["images"]
        for entry in dataset.split(name).entries
        if entry.get("sha256") == digest
    }
    return vector, own
