"""Search backends, a family of parts: how an index stores its items and finds candidates.

Candidates are the items that probably have the largest inner products with a query. They are then scored exactly, see
`vsemb.searching.index`, so scores do not depend on the backend. Candidates come from NumPy codes of one byte or one bit
per dimension, from FAISS and ScaNN (extra `index`), and from Milvus (extra `milvus`).
"""
