"""Backends: what finds the items whose inner product with a query is probably among the largest.

Their candidates are scored exactly afterwards (`vsemb.search.index`), so that none of them decides a score.
"""

from __future__ import annotations

from vsemb.search.backends.base import Backend
from vsemb.search.backends.codes import BinaryCodes, Int8Codes
from vsemb.search.backends.faiss_indexes import FaissBinary, FaissFlat, FaissInt8, FaissIVF
from vsemb.search.backends.milvus_collection import MilvusCollection
from vsemb.search.backends.scann_searcher import ScannIndex

#: Those of `exact` with the dtypes int8 and binary, and the others by their names.
BACKENDS: dict[str, type[Backend]] = {
    "int8": Int8Codes,
    "binary": BinaryCodes,
    "faiss-flat": FaissFlat,
    "faiss-ivf": FaissIVF,
    "faiss-int8": FaissInt8,
    "faiss-binary": FaissBinary,
    "scann": ScannIndex,
    "milvus": MilvusCollection,
}
#: What the command line calls a backend.
NAMES = ("exact", *(name for name in BACKENDS if name not in ("int8", "binary")))

__all__ = ["BACKENDS", "NAMES", "Backend"]
