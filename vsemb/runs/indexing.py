"""Embed a dataset or image files with a run into an index for search."""

from __future__ import annotations

import itertools
import json
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from vsemb.console import progress, say
from vsemb.data.store import Split, StoredDataset
from vsemb.errors import DataError, VsembError, counted, escaped
from vsemb.evaluation import Embedder
from vsemb.evaluation.embed import rows_on_disk
from vsemb.files import sha256_bytes
from vsemb.printing import command_line, say_skipped
from vsemb.results import Result
from vsemb.runs.embedding import Embedded, Known, discard_work, embed_files, file_stamp, files_fingerprint, known_files
from vsemb.runs.images import embed_image_bytes
from vsemb.runs.inputs import kind_of
from vsemb.runs.run import Run
from vsemb.runs.serve import check_run
from vsemb.searching.backends.backend import SearchBackend
from vsemb.searching.backends.exact import Exact
from vsemb.searching.comparison import BackendComparison, all_backends, candidate_recall, compare
from vsemb.searching.index import (
    IndexSource,
    Item,
    SearchIndex,
    StaleIndexError,
    check_backend,
    check_candidates,
)
from vsemb.searching.storage import check_index_directory, read_index, stored_backend, write_index

ALL = "all"
#: Name of the only split in an index of image files.
FILES = "files"
#: Number of results whose recall is measured.
BEST = 10
_TEXTS, _IMAGES, _ROWS, _COMPARED_WITH = 4096, 64, 65_536, 1000


def split_names(dataset: StoredDataset, split: str) -> tuple[str, ...]:
    """Return the names of the selected splits: `split` itself, or all splits for `all`."""
    if split != ALL or ALL in dataset.splits:
        return (dataset.split(split).name,)
    return tuple(dataset.splits)


class DatasetItems(Sequence[Item]):
    """The items of an index of a dataset in the order of its rows, read on access.

    Args:
        dataset: the dataset.
        names: names of the splits.
        kind: `image` or `text`.

    Attributes:
        ids: int64 (items,), the image of each item.
    """

    def __init__(self, dataset: StoredDataset, names: Sequence[str], kind: str) -> None:
        self._parts = [dataset.split(name) for name in names]
        self._kind = kind
        ids = [part.ids if kind == "image" else part.ids[part.caption_rows] for part in self._parts]
        self.ids = np.concatenate(ids)
        self._ends = np.cumsum([len(each) for each in ids])

    def __len__(self) -> int:
        return len(self.ids)

    def __getitem__(self, place: Any) -> Any:
        if isinstance(place, slice):
            return [self[each] for each in range(*place.indices(len(self)))]
        place = range(len(self))[place]
        number = int(np.searchsorted(self._ends, place, "right"))
        part = self._parts[number]
        place -= int(self._ends[number - 1]) if number else 0
        row = place if self._kind == "image" else int(part.rows_of(np.array(place)))
        items = _items_of(part, row, part.keys[row], part.captions_of(row), self._kind)
        return items[0 if self._kind == "image" else place - int(part.caption_offsets[row])]

    def __iter__(self) -> Iterator[Item]:
        for part in self._parts:
            for row, (key, captions) in enumerate(zip(part.keys, part.caption_lists(), strict=True)):
                yield from _items_of(part, row, key, captions, self._kind)


def _items_of(part: Split, row: int, key: str, captions: list[str], kind: str) -> list[Item]:
    """Return the items of an image: itself, or its captions."""
    number = int(part.ids[row])
    if kind == "image":
        return [Item(number, key, part.name, key, max(captions, key=len))]
    return [Item(number, f"{key}#{i}", part.name, key, text) for i, text in enumerate(captions)]


def index_source(run: Run, dataset: StoredDataset, split: str, kind: str) -> IndexSource:
    """Return the source of an index of a run over splits of a dataset."""
    return IndexSource(
        run=run.fingerprint,
        dataset=_content(run, dataset, kind),
        splits=split_names(dataset, split),
        kind=kind,
        similarity=run.recipe.similarity.to_json(),
    )


def _content(run: Run, dataset: StoredDataset, kind: str) -> str:
    """Return the fingerprint of the embedded data: the dataset, and for captions also their annotations."""
    annotated = run.recipe.text.tokenizer.describe(dataset) if kind == "text" else {}
    parts = [dataset.fingerprint, *map(str, annotated.values())]
    return sha256_bytes(" ".join(parts).encode()) if annotated else dataset.fingerprint


def index_directory(run: Run, dataset: StoredDataset, split: str, kind: str) -> Path:
    """Return the directory of the index of a run over splits of a dataset: `RUN/index/DATASET-SPLIT-KIND`."""
    return run.path / "index" / re.sub(r"[^\w.-]+", "_", f"{dataset.name}-{split}-{kind}s")


def require_single_vector(run: Run, what: str, instead: str) -> None:
    """Check that a run embeds an image and a sentence as one vector each.

    Args:
        run: the run.
        what: the requested feature, as the beginning of the error.
        instead: the fix, as a sentence.

    Raises:
        DataError: for a run with several vectors per item.

    Example:

        require_single_vector(run, "An index", "`vsemb search` scores all images without one.")
    """
    if run.recipe.similarity.multi_vector:
        raise DataError(
            f"{what} needs one vector per image and sentence; {run.path} (recipe {run.recipe.name!r}) "
            f"embeds them as sets of vectors. {instead}"
        )


def check_indexable(run: Run) -> None:
    """Check that a run can have an index.

    Raises:
        DataError: for a run with several vectors per item.
    """
    require_single_vector(run, "An index", "`vsemb search` scores all items without an index.")


def build_index(
    run: Run,
    dataset: StoredDataset,
    split: str = ALL,
    kind: str = "image",
    *,
    out: str | os.PathLike[str] | None = None,
    backend: SearchBackend | None = None,
) -> SearchIndex:
    """Embed the images or captions of a dataset and write their index.

    A run on cached features reads the dataset's cache if it exists. Otherwise images are decoded and embedded by the
    backbone.

    Args:
        run: the run.
        dataset: the dataset.
        split: name of the split, or `all`.
        kind: `image` or `text`.
        out: directory of the index; None for `index_directory`.
        backend: search backend; None for exact search in float32.

    Raises:
        VsembError: if run and dataset do not match, or the run has several vectors per item. Also if an image does not
            decode, the backend is not installed, or a file cannot be written.

    Example:

        index = build_index(Run.open("runs/vsepp"), Dataset.open("data/flickr8k"), "val")
    """
    check_indexable(run)
    source = index_source(run, dataset, split, kind)
    directory = Path(out) if out is not None else index_directory(run, dataset, split, kind)
    check_index_directory(directory, backend)
    embed = _embed_images if kind == "image" else _embed_captions
    blocks = (block for name in source.splits for block in embed(run, dataset, dataset.split(name)))
    items = DatasetItems(dataset, source.splits, kind)
    recorded = {"data": str(dataset.path.resolve())}
    return _write(run, directory, rows_on_disk(blocks, directory), items, items.ids, source, backend, recorded)


def index_files(
    run: Run,
    files: Sequence[str],
    out: str | os.PathLike[str],
    backend: SearchBackend | None = None,
    others: Sequence[str | os.PathLike[str]] = (),
) -> tuple[SearchIndex, Embedded]:
    """Embed image files without captions and write their index. An interrupted call resumes.

    An index of the same run in `out` is updated: files with the same path, size and modification time keep their
    embeddings, and files that are not in `files` are removed. A file that is in a dataset of which the run has an index
    has its embedding there.

    Args:
        run: the run.
        files: paths of images in any format that a dataset accepts.
        out: directory of the index.
        backend: search backend; None for exact search in float32.
        others: directories of further indexes, whose embeddings of the same files are kept, too.

    Returns:
        index: the index; the keys of its items are the files.
        embedded: the embedded files, the number of kept embeddings, and the files that cannot be read or decoded.

    Raises:
        VsembError: if the run has several vectors per item or does not embed images. Also if no image can be read, the
            backend is not installed, or a file cannot be written.

    Example:

        index, embedded = index_files(Run.open("runs/vsepp"), image_files(["photos"]), "indexes/photos")
    """
    check_indexable(run)
    check_index_directory(out, backend)
    known: dict[tuple[str, int, int], np.ndarray] = {}
    for directory in (*others, out):
        known.update(_known(run, directory, backend or Exact()))
    embedded = embed_files(run, files, out, known, _contents(run, backend or Exact()))
    items = [Item(row, name, FILES, name, "") for row, name in enumerate(embedded.names)]
    source = IndexSource(run.fingerprint, embedded.fingerprint, (FILES,), "image", run.recipe.similarity.to_json())
    recorded = {"folder": os.getcwd()}
    ids = np.arange(len(items))
    index = _write(run, Path(out), embedded.embeddings, items, ids, source, backend, recorded, embedded.stamps)
    discard_work(out)
    return index, embedded


def files_directory(run: Run, images: Sequence[str | os.PathLike[str]]) -> Path:
    """Return the directory of the index of image files beside a run: `RUN/index/NAME-DIGEST-files`.

    Args:
        run: the run.
        images: the files, folders or patterns, as the user named them. Their absolute paths decide the digest.
    """
    named = [os.path.abspath(each) for each in images]
    name = re.sub(r"[^\w.-]+", "_", os.path.basename(named[0]))
    return run.path / "index" / f"{name}-{sha256_bytes(json.dumps(named).encode())[:8]}-files"


def open_files(
    run: Run, files: Sequence[str], directory: str | os.PathLike[str], report: Callable[[str], None] = print
) -> SearchIndex:
    """Open the index of image files. If it is missing, or files have changed, new and changed files are embedded.

    Args:
        run: the run.
        files: paths of images.
        directory: directory of the index. Other indexes of image files beside it also give their embeddings.
        report: called with messages.

    Raises:
        VsembError: as `index_files`.

    Example:

        files = image_files(["photos"])
        index = open_files(run, files, files_directory(run, ["photos"]))
    """
    source = IndexSource(run.fingerprint, files_fingerprint(files), (FILES,), "image", run.recipe.similarity.to_json())
    with suppress(VsembError):
        return read_index(directory, source)
    report(f"Embedding {counted(len(files), 'picture')} into {directory}, once; known ones are kept.")
    others = sorted(Path(directory).parent.glob("*-files"))
    index, embedded = index_files(run, files, directory, stored_backend(Path(directory)), others)
    say_skipped(embedded.skipped)
    return index


def _known(run: Run, directory: str | os.PathLike[str], backend: SearchBackend) -> Known:
    """Return the embeddings in an index of image files of a run, see `embed_files`; empty for any other directory."""
    with _usable(run, directory, backend) as index:
        if index is None or index.stamps is None:
            return {}
        return known_files(index.recorded["folder"], index.keys, index.stamps, index.embeddings)


def _contents(run: Run, backend: SearchBackend) -> dict[str, np.ndarray]:
    """Return the embeddings in the indexes of datasets below a run by the digests of the images, see `embed_files`."""
    contents: dict[str, np.ndarray] = {}
    for directory in sorted((run.path / "index").glob("*-images")):
        with _usable(run, directory, backend) as index, suppress(VsembError):
            if index is None:
                continue
            dataset = StoredDataset.of(index.recorded["data"])
            if _content(run, dataset, "image") == index.source.dataset:
                parts = map(dataset.split, index.source.splits)
                digests = itertools.chain.from_iterable(part.digests for part in parts)
                contents |= zip(digests, index.embeddings, strict=True)
    return contents


@contextmanager
def _usable(run: Run, directory: str | os.PathLike[str], backend: SearchBackend) -> Iterator[SearchIndex | None]:
    """Open an index whose embeddings serve another one of the run; None if there is none."""
    try:
        index = read_index(directory)
    except VsembError:
        yield None
        return
    with closing(index):
        kept = (index.source.run, index.backend.kept) == (run.fingerprint, backend.kept)
        yield index if kept else None


@dataclass(frozen=True, eq=False, repr=False)
class IndexSummary(Result):
    """Summary of an index: its items and its search backend.

    Attributes:
        where: its directory.
        items: number of items.
        dim: size of an embedding.
        source: source of the embeddings.
        backend: its search backend.
        kept: number of embeddings of unchanged image files.
        skipped: image file that could not be read -> reason.
        recall: number of candidates -> share of the exact 10 best items that is found among them.
    """

    where: str
    items: int
    dim: int
    source: IndexSource
    backend: SearchBackend
    kept: int = 0
    skipped: Mapping[str, str] = field(default_factory=dict)
    recall: Mapping[int, float] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        values = {
            "items": self.items,
            "kind": self.source.kind,
            "dim": self.dim,
            "splits": list(self.source.splits),
            "backend": self.backend.kind,
            "dtype": self.backend.dtype,
            "where": self.where,
            "kept": self.kept,
            "skipped": dict(self.skipped),
        }
        recall = {str(count): recall for count, recall in self.recall.items()}
        return {**values, "recall": recall} if recall else values

    def __str__(self) -> str:
        kind, splits = self.source.kind, self.source.splits
        of = "" if splits == (FILES,) else f" of {', '.join(splits)}"
        lines = [f"items   {self.items:,} {kind}s{of}"]
        if self.kept:
            lines.append(f"kept    {self.kept:,} unchanged {kind}s; {self.items - self.kept:,} embedded")
        lines += [
            f"dim     {self.dim}",
            f"stored  {self.backend.label}",
            f"where   {escaped(self.where)}",
            f"next    {escaped(command_line('search', self.where, 'a dog on a beach'))}",
        ]
        for count, recall in self.recall.items():
            lines.append(f"recall  {100 * recall:.1f} % of the exact {BEST} best among {count} candidates")
        return "\n".join(lines)


def make_index(
    run: Run,
    *,
    files: Sequence[str] | None = None,
    named: Sequence[str | os.PathLike[str]] = (),
    data: StoredDataset | str | os.PathLike[str] | None = None,
    split: str = ALL,
    kind: str = "image",
    out: str | os.PathLike[str] | None = None,
    backend: SearchBackend | None = None,
    candidates: Sequence[int] = (),
) -> IndexSummary:
    """Write an index of a dataset or of image files, and describe it.

    Args:
        run: the run.
        files: image files; None for a dataset.
        named: the image files as the user named them, for the default of `out`, see `files_directory`.
        data: the dataset; None for the training dataset.
        split, kind: as `build_index`.
        out: directory of the index; None for a directory below `RUN/index`.
        backend: search backend; None for exact search in float32.
        candidates: numbers of candidates with which recall is measured, for a dataset.

    Raises:
        VsembError: as `build_index` and `index_files`.
    """
    check_indexable(run)
    backend = backend or Exact()
    # Checked before embedding starts.
    check_backend(backend, run.recipe.similarity)
    for count in candidates:
        check_candidates(count, BEST, run.recipe.similarity, approximate=backend.approximate)
    if files is not None:
        where = Path(out or files_directory(run, named or files))
        index, embedded = index_files(run, files, where, backend)
        index.close()
        return IndexSummary(
            str(where), len(index), index.dim, index.source, backend, embedded.kept, dict(embedded.skipped)
        )
    dataset = run.open_data(data)
    where = Path(out or index_directory(run, dataset, split, kind))
    with closing(build_index(run, dataset, split, kind, out=where, backend=backend)) as index:
        recall = measure_candidates(run, dataset, index, candidates, k=BEST) if candidates else {}
    return IndexSummary(str(where), len(index), index.dim, index.source, backend, recall=recall)


def indexed_file(index: SearchIndex, key: str) -> Path | None:
    """Return the file of an item in an index of image files; None for an index of a dataset."""
    folder = index.recorded.get("folder")
    return None if folder is None else Path(folder) / key


def file_problem(index: SearchIndex, item: Item) -> str | None:
    """Return what happened to the file of an item since it was indexed: `changed` or `gone`; None for nothing."""
    path = indexed_file(index, item.key)
    if path is None or index.stamps is None or item.id not in range(len(index.stamps)):
        return None
    stamp = file_stamp(path)
    # In an index of image files, the id of an item is its row.
    if stamp == tuple(index.stamps[item.id].tolist()):
        return None
    return "changed" if any(stamp) else "gone"


def _write(
    run: Run,
    directory: Path,
    embeddings: np.ndarray,
    items: Sequence[Item],
    ids: np.ndarray,
    source: IndexSource,
    backend: SearchBackend | None,
    recorded: dict[str, str],
    stamps: np.ndarray | None = None,
) -> SearchIndex:
    return write_index(
        directory,
        embeddings,
        ids,
        None,
        source,
        items=items,
        backend=backend,
        recorded={"run": str(run.path.resolve()), **recorded},
        stamps=stamps,
    )


def open_indexed(
    directory: str | os.PathLike[str],
    run: str | os.PathLike[str] | None = None,
    data: StoredDataset | str | os.PathLike[str] | None = None,
) -> tuple[SearchIndex, Run, StoredDataset | None]:
    """Open an index with its run, and with its dataset if it still exists.

    Args:
        directory: directory of the index.
        run: directory of the run; None for the recorded directory.
        data: the dataset, or its directory; None for the recorded directory.

    Returns:
        The index, the run, and the dataset or None. Search does not need the dataset.

    Raises:
        StaleIndexError: if the index was made from another run or dataset.
        DataError: if the index is damaged, or the run is not in its recorded directory.

    Example:

        index, run, dataset = open_indexed("indexes/flickr8k")
    """
    index = read_index(directory)
    try:
        recorded = Path(index.recorded.get("run", ""))
        if run is None and not recorded.is_dir():
            raise DataError(f"The run of the index {directory} is no longer at {recorded}. Name it as `run`.")
        opened = Run.open(recorded if run is None else run)
        check_run(index, opened)
        return index, opened, _dataset_of(index, opened, data)
    except BaseException:
        index.close()
        raise


def open_dataset_index(
    source: Run | str | os.PathLike[str],
    data: StoredDataset | str | os.PathLike[str] | None,
    split: str,
    kind: str,
) -> tuple[Run, StoredDataset | None, SearchIndex]:
    """Open an index with its run and dataset, or the index of a run over a dataset, which is built if it is missing.

    Args:
        source: directory of the index; or a run, or its directory.
        data: the dataset; None for that of the index, or the training dataset.
        split, kind: as `open_index`, for a run.

    Returns:
        The run, the dataset, and the index. An index of image files has no dataset.

    Raises:
        StaleIndexError: if the index was made from another run or dataset.
        DataError: if the dataset of the index is not at its recorded place.
    """
    if isinstance(source, Run) or kind_of(source) != "index":
        run = Run.open(source, "retrieval")
        check_indexable(run)
        opened = run.open_data(data)
        return run, opened, open_index(run, opened, split, kind)
    index, run, dataset = open_indexed(source, data=data)
    if dataset is None and "data" in index.recorded:
        index.close()
        raise DataError(
            f"The comparison needs the captions of the dataset of {source}, which is not at its recorded place. "
            "Name it as `data`."
        )
    return run, dataset, index


def _dataset_of(
    index: SearchIndex, run: Run, data: StoredDataset | str | os.PathLike[str] | None
) -> StoredDataset | None:
    if data is None and "data" not in index.recorded:
        return None
    try:
        named = index.recorded["data"] if data is None else data
        dataset = StoredDataset.of(named)
        content = _content(run, dataset, index.source.kind)
    except VsembError:
        if data is None:
            return None
        raise
    if content == index.source.dataset:
        return dataset
    if data is None:
        say(f"The dataset at {dataset.path} has changed since it was indexed. Results are of the indexed one.")
        return None
    annotations = " or annotations" if content != dataset.fingerprint else ""
    raise StaleIndexError(
        f"The index was made from another dataset{annotations} than {dataset.path} "
        f"({index.source.dataset[:12]}, not {content[:12]}). Name the right one as `data`, or make it again."
    )


def open_index(
    run: Run,
    dataset: StoredDataset,
    split: str = ALL,
    kind: str = "image",
    report: Callable[[str], None] = print,
) -> SearchIndex:
    """Open the index of a run over a dataset. A missing or stale index is reported and built.

    A stale index is rebuilt with its own backend.

    Args:
        run: the run.
        dataset: the dataset.
        split: name of the split, or `all`.
        kind: `image` or `text`.
        report: called with progress lines.

    Raises:
        VsembError: as `build_index`, or if the index is damaged.
    """
    check_indexable(run)
    source = index_source(run, dataset, split, kind)
    directory = index_directory(run, dataset, split, kind)
    if not directory.exists():
        report(f"No index at {directory} yet: embedding the {kind}s of {dataset.name}, once.")
        return build_index(run, dataset, split, kind)
    try:
        return read_index(directory, source)
    except StaleIndexError as error:
        report(f"{str(error).rpartition(' Make it again')[0]} Embedding anew.")
        return build_index(run, dataset, split, kind, backend=stored_backend(directory))


def measure_candidates(
    run: Run,
    dataset: StoredDataset,
    index: SearchIndex,
    candidates: Sequence[int],
    *,
    k: int = 10,
    queries: int = 500,
) -> dict[int, float]:
    """Measure the recall of approximate search in an index, with captions of the dataset as queries.

    Args:
        run: the run.
        dataset: the dataset.
        index: index of the run over the dataset.
        candidates: numbers of items scored exactly per query.
        k: number of results.
        queries: maximum number of captions drawn from the splits of the index.

    Returns:
        number of candidates -> share of the exact k best items that is found, see `candidate_recall`.

    Raises:
        InvalidArgumentError: if a number of candidates is below k, or the run does not support candidates.
    """
    for count in candidates:
        check_candidates(count, k, index.source.scored_by, approximate=index.finder is not None)
    embedded, _ = _caption_queries(run, dataset, index, queries)
    return {count: candidate_recall(index, embedded, count, k, query_kind="text") for count in candidates}


def measure_backends(run: Run, dataset: StoredDataset | None, index: SearchIndex) -> BackendComparison:
    """Measure all search backends on an index, with 1,000 captions of its dataset as queries, or pictures of it.

    Retrieval is measured on images only, because among captions a caption finds itself.

    Args:
        run: the run.
        dataset: the dataset; None for an index of image files, which are the queries then.
        index: index of the run over the dataset.

    Raises:
        StaleIndexError: if the index was made with another run.
    """
    check_run(index, run)
    truth = None
    if dataset is None:
        drawn = np.sort(np.random.default_rng(0).permutation(len(index))[:_COMPARED_WITH])
        embedded, query_kind = np.asarray(index.embeddings[drawn], np.float32), index.source.kind
    else:
        embedded, own = _caption_queries(run, dataset, index, _COMPARED_WITH)
        truth, query_kind = own if index.source.kind == "image" else None, "text"
    backends = all_backends()
    rows = compare(index, embedded, own=truth, query_kind=query_kind, backends=backends)
    shown = progress(rows, "backends", total=len(backends), unit="backend", leave=False)
    queries = f"{len(embedded):,} {'captions' if dataset else 'pictures'}"
    return BackendComparison(tuple(shown), len(index), index.dim, index.source, queries)


def _caption_queries(
    run: Run, dataset: StoredDataset, index: SearchIndex, queries: int
) -> tuple[np.ndarray, np.ndarray]:
    """Draw captions from the splits of an index; return their embeddings and the ids of their images."""
    captions: list[str] = []
    own = np.empty(0, np.int64)
    for part in map(dataset.split, index.source.splits):
        texts, rows = run.texts_of(part)
        captions += texts
        own = np.append(own, part.ids[rows])
    drawn = np.sort(np.random.default_rng(0).permutation(len(captions))[:queries])
    embedded = Embedder(run.model).texts(*run.encode([captions[row] for row in drawn]))
    return np.asarray(embedded), own[drawn]


def captions_read(run: Run, split: Split) -> Sequence[str]:
    """Return a split's captions as inputs of `Run.encode`, in the order of the split.

    Raises:
        DataError: if the run reads class names, or the dataset lacks required annotations.
    """
    _require_captions(run)
    return run.texts_of(split)[0]


def _require_captions(run: Run) -> None:
    if not run.recipe.text.tokenizer.per_caption:
        raise DataError(f"{run.path} must be a run that reads captions; it reads class names.")


def _embed_captions(run: Run, dataset: StoredDataset, split: Split) -> Iterator[np.ndarray]:
    _require_captions(run)
    (ids, offsets, rows), embedder = run.encoded_texts_of(split), Embedder(run.model)
    with progress(total=len(rows), desc=f"captions of {split.name}", unit="caption") as bar:
        for start in range(0, len(rows), _TEXTS):
            part = offsets[start : start + _TEXTS + 1]
            yield embedder.texts(ids, part)
            bar.update(len(part) - 1)


def _embed_images(run: Run, dataset: StoredDataset, split: Split) -> Iterator[np.ndarray]:
    if run.has_features(dataset):
        source, embedder = run.images_of(dataset, split), Embedder(run.model)
        for start in range(0, len(split), _ROWS):
            yield embedder.images(source, np.arange(start, min(start + _ROWS, len(split))))
        return
    keys = iter(split.keys)
    with progress(total=len(split), desc=f"images of {split.name}", unit="image") as bar:
        for _, encoded in split.readable(split.encoded_images().batch(_IMAGES).prefetch(1)):
            yield embed_image_bytes(run, encoded, list(itertools.islice(keys, len(encoded))))
            bar.update(len(encoded))
