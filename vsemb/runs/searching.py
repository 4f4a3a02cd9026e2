"""Searching a dataset, or an index by itself: queries, their embeddings, and the items nearest to them."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Protocol

import numpy as np
import tensorflow as tf

from vsemb import registry
from vsemb.data.store import Dataset
from vsemb.errors import DataError, invalid_argument
from vsemb.exporting import ServedModel
from vsemb.files import sha256_bytes
from vsemb.runs.images import embed_image, find_key
from vsemb.runs.indexing import ALL, index_directory, open_index, split_names
from vsemb.runs.run import Run
from vsemb.runs.serve import check_run, run_encoders
from vsemb.searching import IndexSource, Item, SearchIndex, abstract, check_candidates, combine, compose

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
        given = self._given
        if len(given) != 1:
            allowed = "one of a text or an image (--image), --compose and --abstract"
            raise invalid_argument("query", given or None, allowed)
        name, values = self.operands
        if name in _OPERATIONS and len(values) == 1:
            raise invalid_argument(name, values, "two or more texts or images")

    @property
    def _given(self) -> dict[str, Any]:
        kinds = {name: getattr(self, name) for name in ("text", "image", "compose", "abstract")}
        return {name: value for name, value in kinds.items() if value not in (None, ())}

    @property
    def operands(self) -> tuple[str, tuple[str, ...]]:
        """The attribute that is given, and the texts or images in it."""
        ((name, value),) = self._given.items()
        return name, (value,) if isinstance(value, str) else tuple(value)


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
        VsembError: as `search_run`.

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
        self.run, self.dataset, self.index, self.report = run, dataset, index, report
        similarity, (name, values) = run.recipe.similarity, query.operands
        if name in _OPERATIONS and not similarity.composes:
            fix = f"That of {run.path} is {similarity.kind!r}; the recipe order-embedding has one."
            raise invalid_argument(name, values, "a run whose similarity is 'order'", fix)
        are_images = [name == "image" or (name in _OPERATIONS and self._names_image(value)) for value in values]
        self.by_image = any(are_images)
        self.encoders = run_encoders(run, images=self.by_image)
        self.own: set[int] = set()
        vectors = [
            self._embed_image(value) if is_image else self._embed_text(value, "query" if name == "text" else name)
            for value, is_image in zip(values, are_images, strict=True)
        ]
        self.vector = _OPERATIONS[name](*vectors) if name in _OPERATIONS else vectors[0]
        minus = [self._embed_text(text, "minus") for text in query.minus]
        plus = [self._embed_text(text, "plus") for text in query.plus]
        if minus or plus:
            self.vector = combine(self.vector, minus, plus, run.model.similarity.normalize)

    def _embed_text(self, text: str, name: str) -> np.ndarray:
        return embed_text(self.encoders, self.run, text, name, self.report)

    def _names_image(self, value: str) -> bool:
        if Path(value).suffix.lower() in _IMAGE_SUFFIXES or os.path.isfile(value):
            return True
        return (self._row_of(value) if self.dataset is None else find_key(self.dataset, value)) is not None

    def _row_of(self, key: str) -> int | None:
        """Returns the row of an image in the index."""
        if self.index is None or self.index.source.kind != "image" or key not in self.index.keys:
            return None
        return self.index.keys.index(key)

    def _embed_image(self, image: str) -> np.ndarray:
        row = self._row_of(image)
        if self.index is not None and row is not None and self.dataset is None and not os.path.isfile(image):
            self.own.add(int(self.index.ids[row]))
            return self.index.embedding(row)
        vector, source = embed_image(self.run, self.dataset, self.encoders, image)
        if isinstance(source, tuple):
            split, place = source
            self.own.add(int(split.ids[place]))
        elif self.dataset is not None:
            digest = sha256_bytes(source)
            entries = (entry for name in self.dataset.splits for entry in self.dataset.split(name).entries)
            self.own |= {int(entry["id"]) for entry in entries if entry.get("sha256") == digest}
        return vector


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


class Searchable(Protocol):
    """Items that are searched: a `vsemb.searching.SearchIndex`, or what stands in its place.

    Attributes:
        source: what is searched.
        items: what is found; None where that is not known.
        ids: int64, of the image of each item.
    """

    @property
    def source(self) -> IndexSource: ...

    @property
    def items(self) -> list[Item] | None: ...

    @property
    def ids(self) -> np.ndarray: ...

    @property
    def dim(self) -> int:
        """Size of a vector."""

    def embedding(self, row: int) -> np.ndarray:
        """Returns the embedding of an item, float32."""

    def search(
        self,
        queries: np.ndarray,
        k: int,
        *,
        exclude: Sequence[int] = (),
        query_kind: str | None = None,
        candidates: int | None = None,
    ) -> tuple[np.ndarray, np.ndarray]:
        """Finds the k best items for each query, see `vsemb.searching.SearchIndex.search`."""

    def resorted(self, rows: np.ndarray) -> np.ndarray:
        """Returns the order of items by how near they are to their mean."""

    def close(self) -> None:
        """Frees what is held."""


class Searcher:
    """How the items of a dataset are searched with runs whose similarity accepts one form of embeddings.

    This one is for one vector an item: it has an index in the run directory, made where it is missing or stale. A
    system names a subclass in `vsemb.registry.System.searchers`.

    Class attributes:
        combines: whether embeddings can be added, subtracted and averaged.
    """

    combines: ClassVar[bool] = True

    @classmethod
    def check(
        cls, run: Run, query: Query, index: Path, k: int, resort: int | None = None, candidates: int | None = None
    ) -> None:
        """Refuses what cannot be asked, before any work.

        Args:
            run: the run.
            query: what is looked for.
            index: where an index would lie.
            k, resort, candidates: as `search_run`.

        Raises:
            InvalidArgumentError: naming the argument.
        """
        if candidates is not None and not index.exists():
            # It would be built to score every item; refused before the work of embedding.
            check_candidates(candidates, max(k, resort or 0), run.recipe.similarity)

    @classmethod
    def open(
        cls,
        run: Run,
        dataset: Dataset,
        split: str,
        kind: str,
        *,
        encoders: ServedModel | None = None,
        report: Callable[[str], None] = print,
        keep: int = 0,
    ) -> Searchable:
        """Opens the images or captions of a dataset for searches.

        Args:
            run: the run.
            dataset: the dataset.
            split: the split searched, or `all`.
            kind: `image` or `text`.
            encoders: the run's, where they are at hand.
            report: called with a line worth showing.
            keep: bytes of embeddings that may stay in memory where they are not on disk.

        Raises:
            VsembError: if run and dataset do not fit.
        """
        return open_index(run, dataset, split, kind, encoders, report)


def searcher_of(run: Run) -> type[Searcher]:
    """Returns how items are searched with a run."""
    return registry.load(registry.entries("searchers")[run.recipe.similarity.accepts])


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
        shown = {name: getattr(self.item, name) for name in ("key", "id", "split", "caption")}
        return {"rank": self.rank, "score": self.score, **shown}


def search_run(
    run: Run,
    dataset: Dataset | None,
    query: Query,
    *,
    index: SearchIndex | None = None,
    k: int = 10,
    split: str = ALL,
    captions: bool = False,
    resort: int | None = None,
    keep_query: bool = False,
    candidates: int | None = None,
    report: Callable[[str], None] = print,
) -> list[Result]:
    """Finds the images (or captions) of a dataset, or the items of an index, nearest to a query.

    The query goes through the same functions as in a SavedModel of the run. The index of a dataset is built on first
    use; a run of several vectors an item has none, and scores all items each time. An image of the dataset that is the
    query itself, by its key or its bytes, is left out.

    With an order, the captions that a text finds say what the text says and perhaps more, and those that
    an image finds are true of the image; see `SearchIndex.search`. A composition or abstraction with an
    image in it counts as an image.

    Args:
        run: the run.
        dataset: the dataset searched; with an index, that which was embedded, or None where it is not at hand: then
            keys of images are looked up in the index, and image files are not compared with the items.
        query: what is looked for.
        index: an index that the run made, which is searched in place of the dataset.
        k: results wanted.
        split: the split of the dataset searched, or `all`.
        captions: search captions of the dataset instead of images.
        resort: re-sort the best so many by their distance to their mean (Kiros et al. 2014, section
            3.2); those after them keep their places.
        keep_query: whether the query's own image may be found.
        candidates: score exactly only so many, see `SearchIndex.search`; None scores all, or as many as the
            backend of the index does.
        report: called with a line worth showing: unknown words, an index being built.

    Raises:
        InvalidArgumentError: if no word of a text is known, a number is below 1, the run's space has no
            composition and abstraction, candidates are of no use in it, or it has several
            vectors an item, with which only one text or image can be looked for.
        StaleIndexError: if the index was made with another run.
        DataError: if the image cannot be read or embedded, or run and dataset do not fit.

    Example:

        query = Query(image="blue_car.jpg", minus=("blue",), plus=("red",))
        results = search_run(run, dataset, query, k=5, resort=20)

        index, run, dataset = open_indexed("indexes/flickr8k")
        results = search_run(run, dataset, Query("a dog on a beach"), index=index)
    """
    for name, value in (("k", k), ("resort", resort)):
        if value is not None and value < 1:
            raise invalid_argument(name, value, "an integer >= 1")
    items: Searchable
    with contextlib.ExitStack() as opened:
        if index is not None:
            check_run(index, run)
            asked, items = EmbeddedQuery(run, dataset, index, query, report), index
        elif dataset is not None:
            split_names(dataset, split)
            kind, searcher = "text" if captions else "image", searcher_of(run)
            searcher.check(run, query, index_directory(run, dataset, split, kind), k, resort, candidates)
            asked = EmbeddedQuery(run, dataset, None, query, report)
            encoders = asked.encoders if asked.by_image else None
            items = searcher.open(run, dataset, split, kind, encoders=encoders, report=report)
            opened.callback(items.close)
        else:
            raise invalid_argument("dataset", dataset, "a dataset where no index is given")
        exclude: list[int] = []
        if asked.own and items.source.kind == "image" and not keep_query:
            exclude = np.flatnonzero(np.isin(items.ids, list(asked.own))).tolist()
        query_kind = "image" if asked.by_image else "text"
        return nearest(
            items, asked.vector, k, query_kind=query_kind, exclude=exclude, resort=resort, candidates=candidates
        )


def nearest(
    index: Searchable,
    vector: np.ndarray,
    k: int,
    *,
    query_kind: str,
    exclude: Sequence[int] = (),
    resort: int | None = None,
    candidates: int | None = None,
) -> list[Result]:
    """Finds the items of an index nearest to an embedding.

    Args:
        index: the index, which says what its rows stand for, or what stands in its place.
        vector: (dim,) float32; (items, dim) for several vectors an item.
        k: results wanted.
        query_kind: what the embedding is of, `"image"` or `"text"`.
        exclude: rows never to return.
        resort: as `search_run`.
        candidates: as `search_run`.

    Raises:
        DataError: if the index does not say what its rows stand for.
        InvalidArgumentError: as `SearchIndex.search`.
    """
    if index.items is None:
        raise DataError("The index does not say what its rows stand for. Make it again with `vsemb index`.")
    rows, scores = index.search(
        vector[None], max(k, resort or 0), exclude=exclude, query_kind=query_kind, candidates=candidates
    )
    order = np.arange(rows.shape[1])
    if resort is not None:
        order[:resort] = index.resorted(rows[0, :resort])
    return [
        Result(rank, float(scores[0, place]), index.items[rows[0, place]]) for rank, place in enumerate(order[:k], 1)
    ]
