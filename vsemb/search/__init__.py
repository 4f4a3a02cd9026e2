"""Search room: exact and approximate search over embeddings, and arithmetic with them."""

from vsemb.search.arithmetic import combine, resort_by_mean
from vsemb.search.candidates import candidate_recall, check_candidates
from vsemb.search.geometry import abstract, compose
from vsemb.search.index import IndexSource, SearchIndex, StaleIndexError, write_index

__all__ = [
    "IndexSource",
    "SearchIndex",
    "StaleIndexError",
    "abstract",
    "candidate_recall",
    "check_candidates",
    "combine",
    "compose",
    "resort_by_mean",
    "write_index",
]
