"""Search a dataset or an index: embed queries and find the nearest items."""

from __future__ import annotations

import contextlib
import dataclasses
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Protocol, Self

import numpy as np
from PIL import Image

from vsemb import registry
from vsemb.data.store import StoredDataset
from vsemb.drawing.pictures import MOST_TILES, contact_sheet, decimals, read_picture, save_picture, with_picture
from vsemb.errors import DataError, VsembError, invalid_argument, listed, one_line, printable
from vsemb.files import sha256_bytes
from vsemb.ops.tensorflow import tf
from vsemb.printing import table
from vsemb.results import Result
from vsemb.runs.images import embed_image, find_key, read_image_file
from vsemb.runs.indexing import ALL, file_problem, index_directory, indexed_file, open_index, open_indexed, split_names
from vsemb.runs.inputs import IMAGE_SUFFIXES, Query, check_counts, kind_of
from vsemb.runs.options import SearchOption
from vsemb.runs.run import Run
from vsemb.runs.serve import check_run
from vsemb.searching.arithmetic import OPERATIONS, combine
from vsemb.searching.index import IndexSource, Item, SearchIndex, check_candidates
from vsemb.text.coverage import unknown_words
from vsemb.text.spaces import SUBWORDS, lacks_spaces
from vsemb.unicode import has_surrogate, lone_surrogate

# Side of a picture in a contact sheet, in pixels.
_SIDE = 200


class EmbeddedQuery:
    """A query as an embedding.

    Args:
        run: the run that embeds the query.
        dataset: the dataset of image keys; None looks up keys in the index.
        index: the index to search, if it is open.
        query: the query.
        report: called with warnings.

    Attributes:
        vector: (dim,) float32; (items, dim) for a run with several vectors per item.
        own: ids of the images in the query.
        by_image: whether the query has images.

    Raises:
        VsembError: as `SearchSession.find`.

    Example:

        asked = EmbeddedQuery(run, dataset, None, Query("a dog on a beach"), print)
    """

    def __init__(
        self,
        run: Run,
        dataset: StoredDataset | None,
        index: SearchIndex | None,
        query: Query,
        report: Callable[[str], None],
    ) -> None:
        self.run, self.dataset, self.index, self.report = run, dataset, index, report
        similarity, (name, values) = run.recipe.similarity, query.operands
        if name in OPERATIONS and not similarity.composes:
            fix = f"That of {run.path} is {similarity.kind!r}; the recipe order-embedding has one."
            raise invalid_argument(name, values, "a run whose similarity is 'order'", fix)
        are_images = [name == "image" or (name in OPERATIONS and self._names_image(value)) for value in values]
        self.by_image = any(are_images)
        # If there are images, build the functions with images first, since these also embed texts.
        run.encoders(images=self.by_image)
        self.own: set[int] = set()
        vectors = [
            self._embed_image(value) if is_image else self._embed_text(value, "query" if name == "text" else name)
            for value, is_image in zip(values, are_images, strict=True)
        ]
        self.vector = OPERATIONS[name](*vectors) if name in OPERATIONS else vectors[0]
        minus = [self._embed_text(text, "minus") for text in query.minus]
        plus = [self._embed_text(text, "plus") for text in query.plus]
        if minus or plus:
            self.vector = combine(self.vector, minus, plus, run.model.similarity.normalize)

    def _embed_text(self, text: str, name: str) -> np.ndarray:
        return embed_text(self.run, text, name, self.report)

    def _names_image(self, value: str) -> bool:
        if Path(value).suffix.lower() in IMAGE_SUFFIXES or os.path.isfile(value):
            return True
        return (self._row_of(value) if self.dataset is None else find_key(self.dataset, value)) is not None

    def _row_of(self, key: str) -> int | None:
        """Return the row of an image in the index."""
        if self.index is None or self.index.source.kind != "image":
            return None
        keys = self.index.keys
        if not os.path.isfile(key):
            return keys.index(key) if key in keys else None
        # An image file matches an item only if it is the item's own file.
        if (folder := self.index.recorded.get("folder")) is None:
            return None
        paths = (os.path.abspath(os.path.join(folder, each)) for each in keys)
        return next((row for row, path in enumerate(paths) if path == os.path.abspath(key)), None)

    def _embed_image(self, image: str) -> np.ndarray:
        row = self._row_of(image)
        if self.index is not None and row is not None and self.dataset is None:
            self.own.add(int(self.index.ids[row]))
            # The embedding of a file that has changed is that of another picture.
            if self.index.items is None or file_problem(self.index, self.index.items[row]) != "changed":
                return self.index.embedding(row)
        vector, source = embed_image(self.run, self.dataset, image)
        if isinstance(source, tuple):
            split, place = source
            self.own.add(int(split.ids[place]))
        elif self.dataset is not None:
            digest = sha256_bytes(source)
            for part in map(self.dataset.split, self.dataset.splits):
                self.own |= set(part.ids[part.digests.rows_of(digest)].tolist())
        return vector


def embed_text(run: Run, text: str, name: str, report: Callable[[str], None]) -> np.ndarray:
    """Embed a text and report unknown words.

    Args:
        run: the run.
        text: the text.
        name: name of the text in errors.
        report: called with a line about unknown words.

    Returns:
        (dim,) float32; (words, dim) for a run with several vectors per item.

    Raises:
        InvalidArgumentError: if no word of the text is in the run's vocabulary.
        DataError: if the text must be parsed and the run lacks a parser.
    """
    return run.encoders(images=False).encode_text(read_text(run, text, name, report))["embedding"].numpy()[0]


def read_text(run: Run, text: str, name: str, report: Callable[[str], None]) -> tf.Tensor:
    """Convert a text to the input of the run, and report unknown words.

    Args:
        run: the run.
        text: the text.
        name: name of the text in errors.
        report: called with a line about unknown words.

    Returns:
        (1,) string, the input of `encode_text`.

    Raises:
        InvalidArgumentError: if no word of the text is in the run's vocabulary, or for a lone surrogate.
        DataError: if the text must be parsed and the run lacks a parser.
    """
    if has_surrogate(text):
        raise lone_surrogate(name, text)
    tokenizer = run.tokenizer
    read = tf.constant(run.reader([text]))
    unknown, tokens, known = unknown_words(tokenizer, read)
    unit, units = tokenizer.unit
    if not tokens:
        raise invalid_argument(name, text, f"a text with at least one {unit}")
    if not known:
        fix = f"The run's vocabulary.txt lists its {units}."
        if unit == "word" and lacks_spaces(text):
            fix = f"The run reads a text without spaces as one word. Train one with {SUBWORDS}."
        allowed = f"at least one {unit} that the run was trained with"
        raise invalid_argument(name, text, allowed, f"Not known: {', '.join(unknown)}. {fix}")
    if unknown:
        report(f"Warning: not known to the run: {', '.join(unknown)}.")
    return read


class SearchedItems(Protocol):
    """Items to search: a `vsemb.searching.index.SearchIndex`, or the items of a run without an index.

    Attributes:
        source: run, dataset and splits.
        items: keys and captions; None if unknown.
        ids: int64, id of each item's image.
    """

    @property
    def source(self) -> IndexSource: ...

    @property
    def items(self) -> Sequence[Item] | None: ...

    @property
    def ids(self) -> np.ndarray: ...

    @property
    def dim(self) -> int:
        """Size of a vector."""

    def embedding(self, row: int) -> np.ndarray:
        """Return the embedding of an item, float32."""

    def search(
        self,
        queries: np.ndarray,
        k: int,
        *,
        exclude: Sequence[int] = (),
        query_kind: str | None = None,
        candidates: int | None = None,
    ) -> tuple[np.ndarray, np.ndarray]:
        """Find the k best items per query, see `vsemb.searching.index.SearchIndex.search`."""

    def resorted(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Sort items by their distance to their mean, see `vsemb.searching.arithmetic.resort_by_mean`."""

    def close(self) -> None:
        """Free memory and connections."""


class SearchMethod:
    """Search in a dataset with the runs of one type of embeddings.

    This class is for one vector per item. It builds a missing or stale index in the run directory. Systems register
    subclasses for other types in `vsemb.registry.System.search_methods`.

    Class attributes:
        combines: whether embeddings can be added, subtracted and averaged.
    """

    combines: ClassVar[bool] = True

    @classmethod
    def check(
        cls, run: Run, query: Query, index: Path, k: int, resort: int | None = None, candidates: int | None = None
    ) -> None:
        """Check a query before any work.

        Args:
            run: the run.
            query: the query.
            index: directory of the index.
            k, resort, candidates: as `SearchSession.find`.

        Raises:
            InvalidArgumentError: if an argument is not possible; the error names it.
        """
        if candidates is not None and not index.exists():
            # A new index is exact and has no candidates.
            check_candidates(candidates, max(k, resort or 0), run.recipe.similarity)

    @classmethod
    def open(
        cls,
        run: Run,
        dataset: StoredDataset,
        split: str,
        kind: str,
        *,
        report: Callable[[str], None] = print,
        keep: int = 0,
    ) -> SearchedItems:
        """Open the images or captions of a dataset for search.

        Args:
            run: the run.
            dataset: the dataset.
            split: split to search, or `all`.
            kind: `image` or `text`.
            report: called with progress lines.
            keep: bytes of embeddings to keep in memory if they are not on disk.

        Raises:
            VsembError: if run and dataset do not match.
        """
        return open_index(run, dataset, split, kind, report)


def search_method_of(run: Run) -> type[SearchMethod]:
    """Return the class that searches with a run."""
    return registry.load(registry.entries("search_methods")[run.recipe.similarity.accepts])


@dataclass(frozen=True)
class SearchResult:
    """One result of a search.

    Attributes:
        rank: rank, from 1.
        score: similarity, higher is better; for re-sorted results, the negative distance to their mean.
        item: the image or caption.
        file: the image file, in an index of image files; None for items of a dataset.
        problem: what happened to the file since it was indexed, see `file_problem`; None for nothing.
    """

    rank: int
    score: float
    item: Item
    file: str | None = None
    problem: str | None = None

    @property
    def name(self) -> str:
        """The key of the item, or the path of its file if the key is not a path from the current directory."""
        return self.item.key if self.file is None or os.path.exists(self.item.key) else self.file

    def to_json(self) -> dict[str, Any]:
        """Return values for JSON, with `problem` if it is not None."""
        shown = {name: getattr(self.item, name) for name in ("key", "id", "split", "caption")}
        problem = {} if self.problem is None else {"problem": self.problem}
        return {"rank": self.rank, "score": self.score, **shown, **problem}


@dataclass(frozen=True, repr=False)
class SearchResults(Result, Sequence[SearchResult]):
    """The results of a query, best first.

    Attributes:
        query: the query.
        results: the results; empty if there is an error.
        error: reason why one of several queries was not answered.
        echoed: whether the text also shows the query, as one of several.
        out: file of the contact sheet, if there is one.
    """

    query: Query
    results: tuple[SearchResult, ...] = ()
    error: str | None = None
    echoed: bool = False
    out: str | None = None

    def __len__(self) -> int:
        return len(self.results)

    def __getitem__(self, place: Any) -> Any:
        return self.results[place]

    @property
    def failure(self) -> str | None:
        return self.error

    def to_json(self) -> dict[str, Any]:
        """Return the query, and the results or the error."""
        query = {"query": self.query.to_json()}
        if self.error is not None:
            return {**query, "error": self.error}
        return {**query, "results": [result.to_json() for result in self.results]}

    def __str__(self) -> str:
        lines = [f"query: {printable(str(self.query.text))}"] if self.echoed else []
        if self.error is None:
            captioned = any(result.item.caption for result in self.results)
            header = ["rank", "score", "key" if captioned else "file", *["caption"] * captioned]
            rows = [
                [str(each.rank), f"{each.score:.3f}", each.name, *[each.item.caption] * captioned]
                for each in self.results
            ]
            lines.append(with_picture(table(header, rows, text=(2, 3)), self.out))
        return "\n".join(lines)


class SearchSession:
    """A dataset or an index, opened once for any number of queries; a context manager.

    Queries are embedded by the functions of a SavedModel of the run. The index of a dataset is built on first use. A
    run with several vectors per item scores all items per query, without an index.

    Args:
        run: the run.
        dataset: the dataset to search. With an index, its dataset or None. With None, image keys are looked up in the
            index, and the image file of a query may be among the results.
        index: index of the run, to search instead of the dataset.
        split: split of the dataset to search, or `all`.
        captions: whether captions of the dataset are searched instead of images.
        report: called with progress lines and warnings: unknown words, an index being built.
        options: second stages, which order the first results again.

    Raises:
        InvalidArgumentError: if neither dataset nor index is given, or the split is unknown.
        StaleIndexError: if the index was made with another run.

    Example:

        index, run, dataset = open_indexed("indexes/flickr8k")
        with SearchSession(run, dataset, index=index) as search:
            results = search.find(Query("a dog on a beach"))
    """

    def __init__(
        self,
        run: Run,
        dataset: StoredDataset | None,
        *,
        index: SearchIndex | None = None,
        split: str = ALL,
        captions: bool = False,
        report: Callable[[str], None] = print,
        options: Sequence[SearchOption] = (),
    ) -> None:
        if index is not None:
            check_run(index, run)
        elif dataset is None:
            raise invalid_argument("dataset", dataset, "a dataset where no index is given")
        else:
            split_names(dataset, split)
        self.run, self.dataset, self.index, self.report = run, dataset, index, report
        self._split, self._kind = split, "text" if captions else "image"
        self._options = options
        self._items: SearchedItems | None = index

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        if self._items is not None and self._items is not self.index:
            self._items.close()

    def find(
        self,
        query: Query,
        *,
        k: int = 10,
        resort: int | None = None,
        keep_query: bool = False,
        candidates: int | None = None,
    ) -> list[SearchResult]:
        """Find the items nearest to a query. If the query is an image of the dataset, that image is omitted.

        With an order, captions found by a text have its content and possibly more. Captions found by an image are true
        of the image. See `SearchIndex.search`. A composition or abstraction that includes an image counts as an image.

        Args:
            query: the query.
            k: number of results.
            resort: number of best items, at least `k`, to re-sort by distance to their mean (Kiros et al. 2014, section
                3.2); None keeps the order.
            keep_query: whether the query's own image may be a result.
            candidates: number of items to score exactly, see `SearchIndex.search`; None scores all items, or the
                default number of the index's backend.

        Returns:
            Results by descending score.

        Raises:
            InvalidArgumentError: if no word of a text is known, a number is below 1, or the run does not support
                composition, candidates, or arithmetic.
            DataError: if the image cannot be read or embedded, or run and dataset do not match.

        Example:

            query = Query(image="blue_car.jpg", minus=("blue",), plus=("red",))
            results = search.find(query, k=5, resort=20)
        """
        check_counts(k=k, resort=resort)
        run, dataset = self.run, self.dataset
        for option in self._options:
            option.require(query, self._kind if self.index is None else self.index.source.kind)
            if resort is not None:
                raise invalid_argument("resort", resort, "omitted where the first results are ordered by other scores")
        count = max([k, *(option.results_read for option in self._options)])
        if self._items is None:
            assert dataset is not None
            where, method = index_directory(run, dataset, self._split, self._kind), search_method_of(run)
            method.check(run, query, where, count, resort, candidates)
        asked = EmbeddedQuery(run, dataset, self.index, query, self.report)
        if self._items is None:
            assert dataset is not None
            self._items = method.open(run, dataset, self._split, self._kind, report=self.report)
        items, exclude = self._items, []
        if asked.own and items.source.kind == "image" and not keep_query:
            exclude = np.flatnonzero(np.isin(items.ids, list(asked.own))).tolist()
        query_kind = "image" if asked.by_image else "text"
        results = nearest(
            items, asked.vector, count, query_kind=query_kind, exclude=exclude, resort=resort, candidates=candidates
        )
        if self.index is not None:
            results = [_with_file(self.index, result) for result in results]
        for option in self._options:
            # Files that are not as they were indexed follow; a warning names them.
            read = [result for result in results[: option.results_read] if result.problem is None]
            others = [result for result in results if result not in read]
            ordered = [*(option.reordered(self, query, read) if read else ()), *others]
            results = [dataclasses.replace(result, rank=rank) for rank, result in enumerate(ordered, 1)]
        results = results[:k]
        changed = [f"{result.item.key} ({result.problem})" for result in results if result.problem is not None]
        if changed:
            self.report(f"Warning: not as they were indexed: {listed(changed)}. Run `vsemb index` again.")
        return results

    def answer(self, query: Query, out: str | os.PathLike[str] | None = None, **options: Any) -> SearchResults:
        """Find the items nearest to a query, and draw a contact sheet of them.

        Args:
            query: the query.
            out: picture file of the contact sheet; None for none.
            **options: as `find`.

        Raises:
            VsembError: as `find` and `sheet`.
        """
        results = self.find(query, **options)
        if out is not None:
            save_picture(self.sheet(results), out)
        return SearchResults(query, tuple(results), out=None if out is None else os.fspath(out))

    def answer_line(
        self, query: Query, echoed: bool, out: str | os.PathLike[str] | None = None, **options: Any
    ) -> SearchResults:
        """Answer one of several queries, see `answer`. An error is part of the result.

        Args:
            query: the query.
            echoed: whether the text of the result also shows the query.
            out, **options: as `answer`.
        """
        try:
            return dataclasses.replace(self.answer(query, out, **options), echoed=echoed)
        except VsembError as error:
            return SearchResults(query, error=one_line(error), echoed=echoed)

    def sheet(self, results: Sequence[SearchResult]) -> Image.Image:
        """Return a contact sheet of the images found, with scores, names and captions.

        Files that have changed or are gone since they were indexed are left out, with a warning.

        Raises:
            InvalidArgumentError: if `results` is empty.
            DataError: if an image is damaged or missing, or its dataset is missing.
        """
        tiles, digits = [], decimals(result.score for result in results)
        whole = [result for result in results[:MOST_TILES] if result.problem is None]
        if results and not whole:
            raise DataError("The contact sheet needs a file that is as it was indexed; all have changed or are gone.")
        if left_out := len(results[:MOST_TILES]) - len(whole):
            self.report(f"Warning: {left_out} of the files found are left out of the contact sheet.")
        for result in whole:
            item = result.item
            lines = [f"{result.score:.{digits}f}  {os.path.basename(item.key)}", *filter(None, [item.caption])]
            tiles.append((read_picture(self.image_of(result), item.image_key, _SIDE), "\n".join(lines)))
        return contact_sheet(tiles, _SIDE)

    def image_of(self, result: SearchResult) -> bytes:
        """Return the encoded image of a result.

        Raises:
            DataError: if it is damaged or missing, or its dataset is missing.
        """
        if result.file is not None:
            return read_image_file(result.file, None).encoded
        if self.dataset is None:
            raise DataError("The images of the index are needed; its dataset is no longer there. Name it as `data`.")
        split = self.dataset.split(result.item.split)
        return split.read_image(split.keys.index(result.item.image_key))


def _with_file(index: SearchIndex, result: SearchResult) -> SearchResult:
    path = indexed_file(index, result.item.key)
    if path is None:
        return result
    return dataclasses.replace(result, file=str(path), problem=file_problem(index, result.item))


@contextlib.contextmanager
def open_search(
    source: Run | str | os.PathLike[str],
    *,
    run: str | os.PathLike[str] | None = None,
    data: StoredDataset | str | os.PathLike[str] | None = None,
    split: str | None = None,
    captions: bool = False,
    report: Callable[[str], None] = print,
    options: Sequence[SearchOption] = (),
) -> Iterator[SearchSession]:
    """Open a dataset with a run, or an index, for search.

    Args:
        source: a run, its directory, or the directory of an index.
        run: run of the index, if it is no longer in its recorded directory.
        data: the dataset; None for the training dataset, or that of the index.
        split, captions, report: as `SearchSession`, for a run.
        options: as `SearchSession`.

    Raises:
        InvalidArgumentError: for a run of an index without one.
        VsembError: if they do not match.
    """
    with contextlib.ExitStack() as stack:
        if not isinstance(source, Run) and kind_of(source) == "index":
            index, opened, dataset = open_indexed(source, run, data)
            stack.callback(index.close)
            search = SearchSession(opened, dataset, index=index, report=report, options=options)
        else:
            if run is not None:
                raise invalid_argument("run", run, "omitted unless the source is an index")
            opened = Run.open(source, "retrieval")
            chosen: dict[str, Any] = {"split": split or ALL, "captions": captions}
            search = SearchSession(opened, opened.open_data(data), report=report, options=options, **chosen)
        yield stack.enter_context(search)


def nearest(
    index: SearchedItems,
    vector: np.ndarray,
    k: int,
    *,
    query_kind: str,
    exclude: Sequence[int] = (),
    resort: int | None = None,
    candidates: int | None = None,
) -> list[SearchResult]:
    """Find the items of an index that are nearest to an embedding.

    Args:
        index: the items to search.
        vector: (dim,) float32; (items, dim) for several vectors per item.
        k: number of results.
        query_kind: `"image"` or `"text"`, the kind of the query.
        exclude: rows to omit.
        resort: as `SearchSession.find`.
        candidates: as `SearchSession.find`.

    Raises:
        DataError: if the index lacks keys and captions of its items.
        InvalidArgumentError: as `SearchIndex.search`.
    """
    if index.items is None:
        raise DataError("The index must name its items; they are not in it. Make it again with `vsemb index`.")
    rows, scores = index.search(
        vector[None], max(k, resort or 0), exclude=exclude, query_kind=query_kind, candidates=candidates
    )
    items, best = rows[0], scores[0]
    if resort is not None:
        order, distances = index.resorted(items)
        items, best = items[order], -distances
    return [SearchResult(rank, float(best[rank - 1]), index.items[row]) for rank, row in enumerate(items[:k], 1)]
