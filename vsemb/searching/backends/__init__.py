"""Backends that find candidates: the items that probably have the largest inner products with a query.

Candidates are then scored exactly, see `vsemb.searching.index`, so scores do not depend on the backend. The backends
are NumPy codes of one byte or one bit per dimension, FAISS and ScaNN (extra `index`), and Milvus (extra `milvus`).
"""

from vsemb.searching.backends.backend import Backend
from vsemb.searching.backends.codes import BinaryCodes, Int8Codes
from vsemb.searching.backends.faiss import FaissBinary, FaissFlat, FaissInt8, FaissIVF
from vsemb.searching.backends.milvus import MilvusCollection
from vsemb.searching.backends.scann import ScannIndex

#: Backend by name; `int8` and `binary` are the dtypes of the backend `exact`.
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
#: Names of backends on the command line.
NAMES = ("exact", *(name for name in BACKENDS if name not in ("int8", "binary")))
