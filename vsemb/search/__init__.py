"""Search room: exact and approximate search over embeddings, and arithmetic with them."""

from vsemb.search.arithmetic import combine, resort_by_mean
from vsemb.search.candidates import check_candidates
from vsemb.search.comparison import candidate_recall
from vsemb.search.geometry import abstract, compose
from vsemb.search.index import SearchIndex
from vsemb.search.source import IndexSettings, IndexSource, Item, StaleIndexError
from vsemb.search.storage import is_index, stored_settings
from vsemb.search.writing import check_index_directory, write_index

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
    "resort_by_mean",
    "stored_settings",
    "write_index",
]
