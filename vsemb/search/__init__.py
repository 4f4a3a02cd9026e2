"""Search room: exact search over embeddings, and arithmetic with them."""

from vsemb.search.arithmetic import combine, resort_by_mean
from vsemb.search.index import IndexSource, SearchIndex, StaleIndexError, write_index

__all__ = ["IndexSource", "SearchIndex", "StaleIndexError", "combine", "resort_by_mean", "write_index"]
