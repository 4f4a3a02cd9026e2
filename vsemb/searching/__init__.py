"""Exact and approximate search over embeddings, and arithmetic with them.

index.py        the index: embeddings, their items and their search
storage.py      its files
scan.py         exact search
backends/       the family of search backends, which find candidates
comparison.py   size, time and recall of the backends
arithmetic.py   sums, compositions and abstractions of embeddings
"""
