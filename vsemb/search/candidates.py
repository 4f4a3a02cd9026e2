"""Approximate search for order scores: candidates by inner product, then exact scores of those alone.

Order violations are sums over dimensions that no matrix product gives, and cost several times as much. But
for embeddings of unit length E(x, y) + E(y, x) = ||x - y||² = 2 - 2 x·y, and what has a small violation has
a large inner product. On Flickr8k's validation split with the recipe `order-embedding`,
`vsemb index RUN --split val --candidates 50` finds 100.0 % of the exact ten best images of 1,000 for a
caption, and with `--captions` 99.9 % of the ten best captions of 5,000. Adding the items' L1 norms, which
tell the two directions apart, or fitting a quadratic of every dimension misses fewer still; neither is worth
its cost where so few are missed.
"""

from __future__ import annotations

from vsemb.errors import invalid_argument
from vsemb.similarities import Similarity
from vsemb.similarities import get as get_similarity

#: Candidates of a backend for each result, and the fewest of them.
EACH, FEWEST = 10, 100


def default_candidates(k: int) -> int:
    """Returns how many items of a backend are scored exactly unless told.

    Example:

    >>> default_candidates(5), default_candidates(50)
    (100, 500)
    """
    return max(EACH * k, FEWEST)


def check_candidates(candidates: int, k: int, similarity: str | Similarity, *, approximate: bool = False) -> None:
    """Refuses numbers of candidates that make no sense.

    Args:
        candidates: items scored exactly for each query.
        k: results wanted.
        similarity: the similarity, or its kind.
        approximate: whether a backend finds them, and not the inner products of all items.

    Raises:
        InvalidArgumentError: for a similarity whose scores are inner products, where those choose them, one
            for which they choose none, or fewer candidates than k.
    """
    similarity = get_similarity(similarity)
    why = None
    if not similarity.candidates_by_inner_product:
        why = "Inner products find no candidates for it, and all items are scored: leave it out."
    elif similarity.inner_product and not approximate:
        why = "Its scores are inner products, by which candidates would be chosen: leave it out."
    if why is not None:
        raise invalid_argument("candidates", candidates, f"none with the similarity {similarity.kind!r}", why)
    if candidates < k:
        raise invalid_argument("candidates", candidates, f"an integer >= {k}, the number of results")
