"""One search of a run, opened and closed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from vsemb.data.store import StoredDataset
from vsemb.runs.inputs import Query
from vsemb.runs.run import Run
from vsemb.runs.searching import SearchResult, SearchSession
from vsemb.searching.index import SearchIndex


def search_run(
    run: Run,
    dataset: StoredDataset | None,
    query: Query,
    *,
    index: SearchIndex | None = None,
    split: str = "all",
    captions: bool = False,
    report: Callable[[str], None] = print,
    **options: Any,
) -> list[SearchResult]:
    """Search a dataset or an index once, with options of `SearchSession.find`."""
    with SearchSession(run, dataset, index=index, split=split, captions=captions, report=report) as search:
        return search.find(query, **options)
