"""Index of `vsemb index` from embeddings of `pipelines.beam_embed`."""

from __future__ import annotations

import os

import numpy as np

from pipelines.beam.embed_job import Model
from pipelines.beam.vectors import read_vectors
from vsemb.data.store import StoredDataset
from vsemb.errors import DataError
from vsemb.runs.indexing import DatasetItems, check_indexable, index_source
from vsemb.runs.run import Run
from vsemb.searching.backends.backend import SearchBackend
from vsemb.searching.index import SearchIndex
from vsemb.searching.storage import check_index_directory, write_index


def check_index(model: Model, run: Run, out: str, kind: str, backend: SearchBackend) -> None:
    """Check the requirements of an index before embedding.

    Raises:
        DataError: if the model was exported from another run, or an index of the run is not supported.
        MissingExtraError: if the backend is not installed.
    """
    check_indexable(run)
    check_index_directory(out, backend)
    if model.contract.fingerprint != run.fingerprint:
        raise DataError(
            f"The model at {model.path} was exported from another run than {run.path} "
            f"({str(model.contract.fingerprint)[:12]}, not {run.fingerprint[:12]}); export that one."
        )
    if kind == "text" and not run.recipe.text.tokenizer.per_caption:
        raise DataError(f"{run.path} reads the names of classes and no captions, so it cannot index these.")


def build_index(
    run: Run,
    dataset: StoredDataset,
    split: str,
    kind: str,
    embeddings: str,
    out: str | os.PathLike[str],
    backend: SearchBackend | None = None,
) -> SearchIndex:
    """Build the index of `vsemb index` from embeddings of a dataset.

    Args:
        run: run of the exported model.
        dataset: the dataset.
        split: name of the split, or `all`.
        kind: `image` or `text`.
        embeddings: local folder of the embeddings.
        out: directory of the index.
        backend: search backend.

    Raises:
        DataError: if the embeddings are of another run or other items, or one is missing.
    """
    manifest, vectors = read_vectors(embeddings)
    if manifest["run"] != run.fingerprint or manifest["kind"] != kind:
        raise DataError(
            f"The embeddings in {embeddings} are {manifest['kind']}s by the run {str(manifest['run'])[:12]}, "
            f"not {kind}s by {run.path} ({run.fingerprint[:12]}). Export that run and embed with it."
        )
    source = index_source(run, dataset, split, kind)
    items = DatasetItems(dataset, source.splits, kind)
    if manifest["bad"]:
        bad = manifest["bad"][0]
        raise DataError(f"{bad['key']!r} has no embedding ({bad['reason']}), so the index cannot be complete.")
    if not np.array_equal(items.ids, vectors.ids) or [item.key for item in items] != list(vectors.keys):
        raise DataError(f"The embeddings in {embeddings} do not belong to {dataset.path}; make them again.")
    return write_index(
        out,
        vectors.embeddings,
        items.ids,
        None,
        source,
        items=items,
        backend=backend,
        recorded={"run": str(run.path.resolve()), "data": str(dataset.path.resolve())},
    )
