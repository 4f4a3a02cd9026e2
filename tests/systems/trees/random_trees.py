"""Random dependency trees, most of them non-projective."""

from __future__ import annotations

import numpy as np

from vsemb.systems.trees.trees import Tree

WORDS = ("a", "dog", "Dog", "RUNS", "犬", "don't", "3.5", ".", "Große", "ΣΑΣ", "New York", "zebra", "_", "#")


def random_tree(generator: np.random.Generator, size: int) -> Tree:
    """A tree of so many words: each, in a random order, hangs on one before it in that order."""
    order = generator.permutation(size)
    heads = np.zeros(size, np.int64)
    for place in range(1, size):
        heads[order[place]] = 1 + order[generator.integers(place)]
    return Tree(tuple(generator.choice(WORDS, size).tolist()), tuple(heads.tolist()))
