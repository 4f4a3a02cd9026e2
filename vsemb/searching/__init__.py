"""Exact and approximate search over embeddings, and arithmetic with them."""

from vsemb.searching.arithmetic import abstract, combine, compose, resort_by_mean
from vsemb.searching.comparison import candidate_recall
from vsemb.searching.index import IndexSettings, IndexSource, Item, SearchIndex, StaleIndexError, check_candidates
from vsemb.searching.storage import check_index_directory, is_index, read_index, stored_settings, write_index

__all__ = [
    "IndexSettings",
    "IndexSource",
    "Item",
    "SearchIndex",
    "StaleIndexError",
    "abstract",
    "candidate_recall",
    "check_candidates",
    "check_index_directory",
    "combine",
    "compose",
    "is_index",
    "read_index",
    "resort_by_mean",
    "stored_settings",
    "write_index",
]
