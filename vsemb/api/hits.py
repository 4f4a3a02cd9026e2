"""`vsemb.search`: the embeddings nearest to a text, an image or a vector."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from vsemb.api.model import Model
from vsemb.console import say
from vsemb.data.images import ImageLike, image_bytes, is_image
from vsemb.drawing.pictures import data_uri, read_picture, scaled_to
from vsemb.errors import DataError, invalid_argument, one_line
from vsemb.parts import Count, in_order, require
from vsemb.runs.inputs import IMAGE_SUFFIXES
from vsemb.searching.scan import best_of
from vsemb.tables import Markup, html_table

# Longer side of a picture in a notebook, in pixels.
_SIDE = 128


@dataclass(frozen=True)
class Hit:
    """One result of `vsemb.search`.

    Attributes:
        index: row of the embedding, from 0.
        score: similarity to the query; higher is better.
        item: `items[index]` if items were passed to the search; otherwise None.

    Example:

        hits[0].index, hits[0].score
    """

    index: int
    score: float
    item: Any = field(default=None, compare=False)


class Hits(list[Hit]):
    """The results of `vsemb.search`, best first. A notebook shows them as a table with images.

    Example:

        hits = vsemb.search(model, "a dog on a beach", embeddings, items=files)
        best = hits[0].item
    """

    def __repr__(self) -> str:
        shown = any(hit.item is not None for hit in self)
        lines = [f"{hit.score:8.3f} {hit.index:6}{f'  {_named(hit.item)}' * shown}" for hit in self]
        return "\n".join([f"   score  index{'  item' * shown}", *lines])

    def _repr_html_(self) -> str:
        shown = any(hit.item is not None for hit in self)
        rows = [
            [rank, f"{hit.score:.3f}", hit.index, *_cells(hit.item)[: 2 * shown]] for rank, hit in enumerate(self, 1)
        ]
        return html_table(["rank", "score", "index", *["item", ""][: 2 * shown]], rows)


def _names_file(value: str) -> bool:
    # A value with such an ending is a path and not a text, even if the file does not exist.
    return value.lower().endswith(IMAGE_SUFFIXES) or os.path.isfile(value)


def _named(item: Any) -> str:
    return one_line(os.fspath(item) if isinstance(item, str | os.PathLike) else repr(item), 100)


def _cells(item: Any) -> list[object]:
    """Return the name and the picture of an item; the picture is "" if the item is not an image."""
    name = _named(item) if isinstance(item, str | os.PathLike) else ""
    if not is_image(item) or (isinstance(item, str) and not _names_file(item)):
        return [name or _named(item), ""]
    try:
        small = scaled_to(read_picture(image_bytes(item), name, _SIDE), _SIDE)
    except DataError as error:
        return [name, str(error)]
    return [Path(name).name, Markup(f'<img alt="" src="{data_uri(small)}">')]


def search(
    model: Model,
    query: str | ImageLike | np.ndarray,
    embeddings: np.ndarray,
    k: int = 5,
    *,
    items: Iterable[Any] | None = None,
) -> Hits:
    """Find the embeddings nearest to a query, by exact scores.

    For millions of embeddings, make an index with `vsemb index`.

    Args:
        model: the model that made the embeddings.
        query: a text; an image as in `Model.encode_images`; or an embedding, (dim,). A string is an image path if
            such a file exists, or if it ends like an image file (.jpg).
        embeddings: (n, dim), of any precision of `Model.encode_images`. An order-embedding scores them as images. Rows
            of NaN are not found.
        k: maximum number of results.
        items: n objects that belong to the embeddings, such as image files or captions; results include them.

    Returns:
        At most k results, best first. Equal scores keep the order of the embeddings.

    Raises:
        InvalidArgumentError: for embeddings of another model, k < 1, or another number of items than embeddings.
        DataError: for a query that cannot be embedded.

    Example:

        files = sorted(Path("pictures").glob("*.jpg"))
        hits = vsemb.search(model, "a dog on a beach", model.encode_images(files), k=3, items=files)
        print(hits)
    """
    require("k", k, Count)
    embeddings = np.asarray(embeddings)
    listed: Sequence[Any] | None = None if items is None else in_order("items", items)
    if listed is not None and len(listed) != len(embeddings):
        raise invalid_argument("items", f"{len(listed)} items", f"{len(embeddings)}, one per embedding")
    if isinstance(query, str) and not _names_file(query):
        vector = model.encode_texts(query)
        if unknown := model._unknown_words(query):
            say(f"Warning: not known to the run: {', '.join(unknown)}.")
    elif isinstance(query, np.ndarray) and (query.ndim == 1 or np.issubdtype(query.dtype, np.floating)):
        vector = query
    elif is_image(query):
        vector = model.encode_images(query)
    else:
        raise invalid_argument("query", type(query).__name__, "one text, one image, or an embedding (dim,)")
    if vector.ndim >= embeddings.ndim > 1 and vector is query:
        allowed = f"one embedding, of {embeddings.ndim - 1} dimension(s) for these embeddings"
        raise invalid_argument("query", f"shape {vector.shape}", allowed, "Search with one row at a time: query[0].")
    if vector.ndim >= embeddings.ndim:
        allowed = f"(rows, dim); the query has the shape {vector.shape}"
        fix = "Make them with encode_images or encode_texts."
        raise invalid_argument("embeddings", f"shape {embeddings.shape}", allowed, fix)
    # Rows of NaN belong to images that could not be read.
    rows, scores = best_of(np.nan_to_num(model.similarity(embeddings, vector), nan=-np.inf)[None], k)
    pairs = [pair for pair in zip(rows[0].tolist(), scores[0].tolist(), strict=True) if pair[1] > -np.inf]
    return Hits(Hit(row, score, None if listed is None else listed[row]) for row, score in pairs)
