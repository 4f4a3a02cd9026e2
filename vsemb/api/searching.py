"""Acts of search: `vsemb.find`, `vsemb.index`, `vsemb.compare_backends` and `vsemb.embed`."""

from __future__ import annotations

import itertools
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing
from typing import TYPE_CHECKING, Annotated, Any, Literal

from vsemb.acts import Fields, Option, act, additions, chosen
from vsemb.console import say
from vsemb.errors import counted, invalid_argument
from vsemb.parts import Count
from vsemb.printing import say_skipped
from vsemb.runs.inputs import (
    TABLES,
    Query,
    check_source,
    check_vectors_path,
    image_files,
    texts_and_blanks,
    typed_lines,
)
from vsemb.runs.options import SearchOption
from vsemb.searching.backends.backend import SearchBackend
from vsemb.unicode import require_unicode

if TYPE_CHECKING:
    from vsemb.data.store import StoredDataset
    from vsemb.runs.embedding import VectorFile
    from vsemb.runs.indexing import IndexSummary
    from vsemb.runs.run import Run
    from vsemb.runs.searching import SearchResults, SearchSession
    from vsemb.searching.comparison import BackendComparison

# Numbers of blank lines in a notice.
_LISTED = 20


@act
def find(
    source: Run | str | os.PathLike[str],
    text: Annotated[str | None, Option(by_place=True)] = None,
    *,
    image: str | os.PathLike[str] | None = None,
    minus: Annotated[Sequence[str], Option(repeated=True)] = (),
    plus: Annotated[Sequence[str], Option(repeated=True)] = (),
    compose: Sequence[str] = (),
    abstract: Sequence[str] = (),
    data: StoredDataset | str | os.PathLike[str] | None = None,
    split: str | None = None,
    captions: bool = False,
    k: Count = 10,
    resort: Count | None = None,
    candidates: Count | None = None,
    keep_query: bool = False,
    run: str | os.PathLike[str] | None = None,
    out: str | os.PathLike[str] | None = None,
    **options: Annotated[Any, Fields("search option")],
) -> SearchResults | Iterator[SearchResults]:
    """Find the images of a dataset that match a text or an image, with words subtracted and added.

    The first search with a run embeds its dataset. An index from `vsemb index` does not need a dataset. Without a text,
    an image or several of them, queries are read from the terminal or from standard input, one per line; the model is
    loaded once.

    `minus` and `plus` are the arithmetic of Kiros et al. 2014: an image of a blue car, minus "blue", plus "red".
    `compose` and `abstract` follow Vendrov et al. 2016 for order-embeddings: images that show all of several texts or
    images, or the content that they have in common.

    The score of a result is its similarity. With `resort`, it is the negative distance to the mean. A run with several
    vectors per image does not support an index or arithmetic; each query is compared with all images.

    Args:
        source: a run, its directory, or the directory of an index.
        text: text to search for; default: read queries line by line.
        image: query image: a file, or a key in the dataset, which is then omitted from the results.
        minus: words to subtract.
        plus: words to add.
        compose: two or more texts or images; results show all of them.
        abstract: two or more texts or images; results show what they have in common.
        data: dataset to search; default: the training dataset.
        split: split to search, or all; default: all.
        captions: search captions instead of images.
        k: number of results.
        resort: re-sort this number of best results by distance to their mean.
        candidates: candidates to score exactly; default: 10 per result, at least 100; all for orders.
        keep_query: keep the query image in the results.
        run: run of the index, if the run was moved.
        out: contact sheet of the results, 400 at most, as .png or .jpg.
        **options: fields of the options that systems add, such as `rerank`.

    Returns:
        The results of the query, best first. For several queries, an iterator of their results; an error is part of
        the result of its query.

    Raises:
        InvalidArgumentError: if no word of the text is known, or an argument does not fit the run.
        DataError: if an image cannot be read, or run, index and dataset do not match.

    Example:

        results = vsemb.find("runs/mine", "a dog on a beach", data="data/mine", k=5)
        results[0].item.key, results[0].score
        vsemb.find("runs/mine", image="blue_car.jpg", minus=["blue"], plus=["red"], resort=20)
    """
    from vsemb.drawing.pictures import check_picture_path

    added = additions(SearchOption, options)
    if out is not None:
        check_picture_path(out, [] if image is None else [image])
    if keep_query and image is None:
        raise invalid_argument("keep_query", keep_query, "omitted without a query image")
    if isinstance(source, str | os.PathLike):
        named = data if isinstance(data, str | os.PathLike) else None
        check_source(source, data=named, split=split, captions=captions)

    def opened() -> AbstractContextManager[SearchSession]:
        from vsemb.runs.searching import open_search

        return open_search(source, run=run, data=data, split=split, captions=captions, report=say, options=added)

    found = {"k": k, "resort": resort, "candidates": candidates, "keep_query": keep_query}
    subtracted, summed = tuple(minus), tuple(plus)
    if text is None and image is None and not (compose or abstract):
        return _answers(opened, subtracted, summed, out, found)
    named_image = None if image is None else os.fspath(image)
    query = Query(text, named_image, subtracted, summed, tuple(compose), tuple(abstract))
    with opened() as search:
        return search.answer(query, out, **found)


def _answers(
    opened: Callable[[], AbstractContextManager[SearchSession]],
    minus: tuple[str, ...],
    plus: tuple[str, ...],
    out: str | os.PathLike[str] | None,
    options: Mapping[str, Any],
) -> Iterator[SearchResults]:
    """Answer queries that are read line by line."""
    at_terminal, lines = sys.stdin.isatty(), typed_lines()
    if at_terminal:
        say("Loading the model.")
    else:
        # Read the first query before the model is loaded.
        first = next(lines, None)
        if first is None:
            raise invalid_argument("text", None, "a text, an image, or a line of standard input")
        lines = itertools.chain([first], lines)
    with opened() as search:
        for line in lines:
            yield search.answer_line(Query(line, minus=minus, plus=plus), not at_terminal, out, **options)


@act
def index(
    run: Run | str | os.PathLike[str],
    *,
    images: Sequence[str | os.PathLike[str]] | None = None,
    data: StoredDataset | str | os.PathLike[str] | None = None,
    split: str | None = None,
    captions: bool = False,
    out: str | os.PathLike[str] | None = None,
    backend: SearchBackend | str = "exact",
    candidates: Sequence[Count] = (),
    **options: Annotated[Any, Fields("search backend", by="backend")],
) -> IndexSummary:
    """Embed image files, or images or captions of a dataset, into an index for `vsemb search`.

    `images` takes directories (read with their subdirectories), glob patterns in quotes, image files, and text files
    with one path per line. A dataset and captions are not needed. Unreadable files are listed at the end and omitted.
    An interrupted call resumes where it stopped. If the index exists, only new and changed files are embedded, and
    files that are no longer given are removed.

    The index becomes invalid if the weights of the run or the dataset change, which search detects. It contains the
    names of its items, so search needs the run but not the dataset.

    By default, a search scores every item exactly. Other backends find candidates faster, and the dtypes int8 and
    binary need less memory; the candidates are then scored exactly. `vsemb compare-backends` measures them.

    Runs on regions do not support an index; `vsemb search` scores all their images.

    Args:
        run: a run, or its directory.
        images: image files without captions: directories, globs, files, .txt lists.
        data: the dataset; default: the training dataset.
        split: split to embed, or all; default: all.
        captions: embed captions instead of images.
        out: directory of the index; default: below RUN/index.
        backend: a search backend or its name.
        candidates: also measure recall with these numbers of candidates per query.
        **options: fields of the backend.

    Raises:
        InvalidArgumentError: for an unknown backend or split, or arguments that do not fit each other.
        DataError: if run and dataset do not match, no image can be read, or the directory holds something else.
        MissingExtraError: if the library of the backend is not installed.

    Example:

        vsemb.index("runs/mine", images=["photos"], out="indexes/photos")
        vsemb.index("runs/mine", data="data/mine", backend="faiss-ivf", nprobe=32)
    """
    by = chosen(SearchBackend, "backend", backend, options)
    files = None
    if images is not None:
        if not images:
            raise invalid_argument("images", images, "at least one file, directory or pattern")
        given = {"data": data, "split": split, "captions": captions, "candidates": candidates}
        for name, value in given.items():
            if value:
                raise invalid_argument(name, value, "omitted with `images`, which have no captions")
        files = image_files(images)

    from vsemb.runs.indexing import ALL, make_index
    from vsemb.runs.run import Run

    made = make_index(
        Run.open(run, "retrieval"),
        files=files,
        named=images or (),
        data=data,
        split=ALL if split is None else split,
        kind="text" if captions else "image",
        out=out,
        backend=by,
        candidates=candidates,
    )
    say_skipped(made.skipped)
    return made


@act
def compare_backends(
    source: Run | str | os.PathLike[str],
    *,
    data: StoredDataset | str | os.PathLike[str] | None = None,
    split: str | None = None,
    captions: bool = False,
) -> BackendComparison:
    """Measure size, time and recall of all search backends on a dataset; nothing is changed.

    Queries are 1,000 captions of the dataset, or pictures of an index of image files. Backends that are not installed
    are named.

    Args:
        source: a run, its directory, or the directory of an index of a dataset.
        data: the dataset; default: the training dataset, or that of the index.
        split: split to search, or all; default: all.
        captions: search captions instead of images.

    Raises:
        InvalidArgumentError: for an unknown split, or a split with an index.
        DataError: if run and dataset do not match, or the dataset of the index is missing.

    Example:

        print(vsemb.compare_backends("indexes/mine"))
    """
    if isinstance(source, str | os.PathLike):
        check_source(source, split=split, captions=captions)

    from vsemb.runs.indexing import ALL, measure_backends, open_dataset_index

    kind = "text" if captions else "image"
    run, dataset, opened = open_dataset_index(source, data, ALL if split is None else split, kind)
    with closing(opened):
        return measure_backends(run, dataset, opened)


@act
def embed(
    run: Run | str | os.PathLike[str],
    *,
    out: Annotated[str | os.PathLike[str], Option(by_place=False)],
    images: Sequence[str | os.PathLike[str]] | None = None,
    texts: Sequence[str] | None = None,
    precision: Literal["float32", "int8", "ubinary"] = "float32",
) -> VectorFile:
    """Embed image files or texts into a file of vectors.

    A .npy file holds (n, dim) float32; the JSON file beside it names the rows. A .parquet file has the columns `image`
    or `text` and `embedding`. Vectors have the geometry of the run's similarity: unit length for cosine and order.
    `int8` and `ubinary` have it after `vsemb.quantization.dequantize`.
    Unreadable images, texts without a known word and blank lines are listed and omitted; only line feeds end a line.
    An interrupted call resumes where it stopped. If the file exists, only new and changed images are embedded, and
    images that are no longer given are removed.

    Args:
        run: a run, or its directory.
        out: vectors.npy or vectors.parquet.
        images: image files: directories, globs, files, .txt lists of paths.
        texts: texts, or one file with one text per line.
        precision: precision of the vectors: float32; int8, 1 byte per number; or ubinary, 1 bit. The last two need
            cosine similarity.

    Raises:
        InvalidArgumentError: without images or texts, with both, for another ending of the file, an existing file with
            anything else than vectors of the same kind, or a precision that the run does not have.
        DataError: if nothing can be embedded, or a file cannot be written.

    Example:

        vsemb.embed("runs/mine", images=["photos"], out="photos.npy")
        vsemb.embed("runs/mine", texts=["a dog on a beach", "a cat"], out="two.npy")
    """
    check_vectors_path(out)
    if (images is None) == (texts is None):
        raise invalid_argument("images", images, "given, or else `texts`, and not both")
    blanks: list[int] = []
    if images is not None:
        kind, names = "image", image_files(images)
    else:
        kind, names = "text", list(texts or ())
        require_unicode("texts", names)
        # A misspelt name of a file is not a text.
        file = names[0] if len(names) == 1 else ""
        if file.lower().endswith((".txt", *TABLES)) or (os.path.exists(file) and not os.path.isdir(file)):
            names, blanks = texts_and_blanks(file)
    if not names:
        given = texts if images is None else images
        raise invalid_argument(f"{kind}s", given, f"at least one {kind}, or a file with one")

    from vsemb.runs.embedding import write_vectors
    from vsemb.runs.indexing import require_single_vector
    from vsemb.runs.run import Run

    opened = Run.open(run, "retrieval")
    require_single_vector(opened, "A file of vectors", "`vsemb search` compares sets without one.")
    written = write_vectors(opened, kind, names, out, blanks, precision)
    if texts and blanks:
        more = " …" if len(blanks) > _LISTED else ""
        numbers = ", ".join(map(str, blanks[:_LISTED])) + more
        say(f"{counted(len(blanks), 'blank line')} of {texts[0]} omitted: {numbers}")
    say_skipped(written.skipped)
    return written
