"""Embedding a dataset with a run, into an index for search."""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
from tqdm import tqdm

from vsemb.data.store import Dataset, Split
from vsemb.errors import DataError, VsembError
from vsemb.evaluation import Embedder
from vsemb.exporting import ServedModel
from vsemb.files import sha256_bytes
from vsemb.runs.images import embed_image_bytes
from vsemb.runs.run import Run
from vsemb.runs.serve import check_run, run_encoders
from vsemb.searching import (
    IndexSettings,
    IndexSource,
    Item,
    SearchIndex,
    StaleIndexError,
    candidate_recall,
    check_candidates,
    check_index_directory,
    read_index,
    stored_settings,
    write_index,
)
from vsemb.searching.comparison import Compared, compare

ALL = "all"
_TEXTS, _IMAGES, _COMPARED_WITH = 4096, 64, 1000


def split_names(dataset: Dataset, split: str) -> tuple[str, ...]:
    """Returns the splits that `split` names: itself, or with `all` every one that has images."""
    if split != ALL or ALL in dataset.splits:
        return (dataset.split(split).name,)
    return tuple(dataset.splits)


def index_items(dataset: Dataset, names: tuple[str, ...], kind: str) -> list[Item]:
    """Lists what the rows of an index stand for, in their order."""
    items = []
    for name in names:
        for entry in dataset.split(name).entries:
            number, key, captions = int(entry["id"]), entry["key"], entry["captions"]
            if kind == "image":
                items.append(Item(number, key, name, key, max(captions, key=len)))
            else:
                items += [Item(number, f"{key}#{i}", name, key, text) for i, text in enumerate(captions)]
    return items


def index_source(run: Run, dataset: Dataset, split: str, kind: str) -> IndexSource:
    """Returns what an index of this run over these splits is made from."""
    return IndexSource(
        run=run.fingerprint,
        dataset=_content(run, dataset, kind),
        splits=split_names(dataset, split),
        kind=kind,
        similarity=run.recipe.similarity.to_json(),
    )


def _content(run: Run, dataset: Dataset, kind: str) -> str:
    """Returns a fingerprint of what is embedded, which annotations that captions are read with are a part of."""
    annotated = run.recipe.text.tokenizer.describe(dataset) if kind == "text" else {}
    parts = [dataset.fingerprint, *map(str, annotated.values())]
    return sha256_bytes(" ".join(parts).encode()) if annotated else dataset.fingerprint


def index_directory(run: Run, dataset: Dataset, split: str, kind: str) -> Path:
    """Returns where the index of a run over these splits lies: `RUN/index/DATASET-SPLIT-KIND`."""
    return run.path / "index" / re.sub(r"[^\w.-]+", "_", f"{dataset.name}-{split}-{kind}s")


def require_single_vector(run: Run, what: str, instead: str) -> None:
    """Refuses a run that embeds an image and a sentence as several vectors each.

    Args:
        run: the run.
        what: what was asked for, the beginning of the error.
        instead: what to do, a sentence of its own.

    Raises:
        DataError: if it does.

    Example:

        require_single_vector(run, "An index", "`vsemb search` scores all images without one.")
    """
    if run.recipe.similarity.multi_vector:
        raise DataError(
            f"{what} needs one vector an image and a sentence, and {run.path} (recipe {run.recipe.name!r}) "
            f"embeds them as sets of vectors. {instead}"
        )


def check_indexable(run: Run) -> None:
    """Refuses a run of which there is no index.

    Raises:
        DataError: if it has several vectors an item.
    """
    require_single_vector(run, "An index", "`vsemb search` scores all items without an index.")


def build_index(
    run: Run,
    dataset: Dataset,
    split: str = ALL,
    kind: str = "image",
    encoders: ServedModel | None = None,
    *,
    out: str | os.PathLike[str] | None = None,
    settings: IndexSettings | None = None,
) -> SearchIndex:
    """Embeds the images or captions of a dataset and writes their index.

    Images of a run on cached features come from the dataset's cache where it has them, and are decoded
    and sent through the backbone otherwise.

    Args:
        run: the run.
        dataset: the dataset.
        split: its name, or `all`.
        kind: `image` or `text`.
        encoders: the run's, where they are at hand.
        out: the index's directory; None for its place in the run, see `index_directory`.
        settings: how it is stored and searched; None for exactly, as float32.

    Raises:
        VsembError: if run and dataset do not fit, the run has several vectors an item, an image does not decode,
            the backend is not installed, or the file system refuses.

    Example:

        index = build_index(Run.open("runs/vsepp"), Dataset.open("data/flickr8k"), "val")
    """
    check_indexable(run)
    source = index_source(run, dataset, split, kind)
    directory = Path(out) if out is not None else index_directory(run, dataset, split, kind)
    check_index_directory(directory, settings)
    embed = _embed_images if kind == "image" else _embed_captions
    embedded = [block for name in source.splits for block in embed(run, dataset, dataset.split(name), encoders)]
    items = index_items(dataset, source.splits, kind)
    return write_index(
        directory,
        np.concatenate(embedded),
        np.array([item.id for item in items], np.int64),
        [item.key for item in items],
        source,
        items=items,
        settings=settings,
        recorded={"run": str(run.path.resolve()), "data": str(dataset.path.resolve())},
    )


def open_indexed(
    directory: str | os.PathLike[str],
    run: str | os.PathLike[str] | None = None,
    data: str | os.PathLike[str] | None = None,
) -> tuple[SearchIndex, Run, Dataset | None]:
    """Opens an index with the run that made it, and with its dataset where that is still there.

    Args:
        directory: the index's.
        run: the run's directory; None for where it was.
        data: the dataset's directory; None for where it was.

    Returns:
        The index, the run, and the dataset or None. The dataset is not needed to search.

    Raises:
        StaleIndexError: if run or dataset are others than the index was made from.
        DataError: if the index is damaged, or the run is no longer where it was.

    Example:

        index, run, dataset = open_indexed("indexes/flickr8k")
    """
    index = read_index(directory)
    try:
        path = Path(index.recorded.get("run", "") if run is None else run)
        if run is None and not path.is_dir():
            raise DataError(f"The run of the index {directory} is no longer at {path}. Name it with --run.")
        opened = Run.open(path)
        check_run(index, opened)
        return index, opened, _dataset_of(index, opened, data)
    except BaseException:
        index.close()
        raise


def _dataset_of(index: SearchIndex, run: Run, data: str | os.PathLike[str] | None) -> Dataset | None:
    try:
        dataset = Dataset.open(index.recorded.get("data", "") if data is None else data)
        content = _content(run, dataset, index.source.kind)
    except VsembError:
        if data is None:
            return None
        raise
    if content == index.source.dataset:
        return dataset
    if data is None:
        return None
    annotations = " or annotations" if content != dataset.fingerprint else ""
    raise StaleIndexError(
        f"The index was made from another dataset{annotations} than {dataset.path} "
        f"({index.source.dataset[:12]}, not {content[:12]}). Name the right one with --data, or make it again."
    )


def open_index(
    run: Run,
    dataset: Dataset,
    split: str = ALL,
    kind: str = "image",
    encoders: ServedModel | None = None,
    report: Callable[[str], None] = print,
) -> SearchIndex:
    """Opens the index of a run over a dataset; builds it where it is missing or stale, and says so.

    One that is built anew is stored and searched as it was.

    Args:
        run: the run.
        dataset: the dataset.
        split: its name, or `all`.
        kind: `image` or `text`.
        encoders: the run's, where they are at hand.
        report: called with a line worth showing.

    Raises:
        VsembError: as `build_index`, or if the index is damaged.
    """
    check_indexable(run)
    source = index_source(run, dataset, split, kind)
    directory = index_directory(run, dataset, split, kind)
    if not directory.exists():
        report(f"No index at {directory} yet: embedding the {kind}s of {dataset.name}, once.")
        return build_index(run, dataset, split, kind, encoders)
    try:
        return read_index(directory, source)
    except StaleIndexError as error:
        report(f"{str(error).rpartition(' Make it again')[0]} Embedding anew.")
        return build_index(run, dataset, split, kind, encoders, settings=stored_settings(directory))


def measure_candidates(
    run: Run,
    dataset: Dataset,
    index: SearchIndex,
    candidates: Sequence[int],
    *,
    k: int = 10,
    queries: int = 500,
) -> dict[int, float]:
    """Measures approximate search in an index, with captions of the dataset as queries.

    Args:
        run: the run.
        dataset: the dataset.
        index: of the run, over the dataset.
        candidates: numbers of items scored exactly for each query.
        k: results wanted.
        queries: captions drawn from the splits of the index, fewer where there are fewer.

    Returns:
        number of candidates -> share of the exact k best that is found, see `candidate_recall`.

    Raises:
        InvalidArgumentError: for numbers below k, or a run with which candidates are of no use.
    """
    for count in candidates:
        check_candidates(count, k, index.source.scored_by, approximate=index.backend is not None)
    embedded, _ = _caption_queries(run, dataset, index, queries)
    return {count: candidate_recall(index, embedded, count, k, query_kind="text") for count in candidates}


def compare_backends(run: Run, dataset: Dataset, index: SearchIndex) -> Iterator[Compared]:
    """Measures every backend and size of embeddings on an index, with 1,000 captions of its dataset as queries.

    Args:
        run: the run.
        dataset: the dataset.
        index: of the run, over the dataset.

    Yields:
        A row for each of `COMPARED`, see `vsemb.searching.comparison.compare`. Among captions a caption finds itself,
        so that retrieval is measured among images alone.

    Raises:
        StaleIndexError: if the index was made with another run.
    """
    check_run(index, run)
    embedded, own = _caption_queries(run, dataset, index, _COMPARED_WITH)
    truth = own if index.source.kind == "image" else None
    yield from compare(index, embedded, own=truth, query_kind="text")


def _caption_queries(run: Run, dataset: Dataset, index: SearchIndex, queries: int) -> tuple[np.ndarray, np.ndarray]:
    """Draws captions from the splits of an index: their embeddings, and the ids of their images."""
    captions: list[str] = []
    own = np.empty(0, np.int64)
    for part in map(dataset.split, index.source.splits):
        texts, rows = run.texts_of(part)
        captions += texts
        own = np.append(own, part.ids[rows])
    drawn = np.sort(np.random.default_rng(0).permutation(len(captions))[:queries])
    embedded = Embedder(run.model).texts(*run.encode([captions[row] for row in drawn]))
    return np.asarray(embedded), own[drawn]


def captions_read(run: Run, split: Split) -> list[str]:
    """Returns a split's captions as `Run.encode` takes them, in their order.

    Raises:
        DataError: if the run reads no captions, or the dataset lacks what it reads them with.
    """
    if not run.recipe.text.tokenizer.per_caption:
        raise DataError(f"{run.path} reads the names of classes and no captions.")
    return run.texts_of(split)[0]


def _embed_captions(run: Run, dataset: Dataset, split: Split, encoders: ServedModel | None) -> Iterator[np.ndarray]:
    captions, embedder = captions_read(run, split), Embedder(run.model)
    with tqdm(total=len(captions), desc=f"captions of {split.name}", unit="caption", disable=None) as bar:
        for start in range(0, len(captions), _TEXTS):
            texts = captions[start : start + _TEXTS]
            yield embedder.texts(*run.encode(texts))
            bar.update(len(texts))


def _embed_images(run: Run, dataset: Dataset, split: Split, encoders: ServedModel | None) -> Iterator[np.ndarray]:
    if run.has_features(dataset):
        yield Embedder(run.model).images(run.images_of(dataset, split), len(split))
        return
    encoders = encoders or run_encoders(run)
    keys = iter(split.keys)
    with tqdm(total=len(split), desc=f"images of {split.name}", unit="image", disable=None) as bar:
        for _, encoded in split.encoded_images().batch(_IMAGES).prefetch(1):
            yield embed_image_bytes(encoders, encoded, list(itertools.islice(keys, len(encoded))))
            bar.update(len(encoded))
