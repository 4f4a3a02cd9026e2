"""Best chain of regions along a sentence (Karpathy and Fei-Fei 2015, section 3.1.4)."""

from __future__ import annotations

from typing import Any

from keras import ops

Tensor = Any

# Score of padded regions: finite, since inf - inf is NaN, and far below all sums of inner products.
_LOWEST = -1e30


def best_chain(unaries: Tensor, words: Tensor, regions: Tensor, affinity: Tensor) -> tuple[Tensor, Tensor]:
    """Compute the best region of each word of a sentence, with a bonus for neighbours on one region, exactly.

    The result maximizes the sum over words of `unaries[t, a_t]`, plus `affinity` for each pair of neighbours with
    a_t = a_(t+1) (equations 10 to 12). The paper writes that it minimizes this energy, but both of its parts are
    rewards. A change of region always starts from the best region of the previous word, so a step costs O(M) operations
    and not O(M^2). With an affinity of 0 each word takes its own best region. With a very large affinity all words
    share the region of the best sum.

    Args:
        unaries: (b, T, M) float, v_i . s_t of every word and region.
        words: (b, T) bool, false for padding. Padding may be anywhere and is left out of the chain.
        regions: (b, M) bool, false for padding, which is never chosen.
        affinity: scalar or (b,) float, beta; must be >= 0, which is not checked.

    Returns:
        path: (b, T) int32, the region of each word, -1 for padding and in rows without regions.
        score: (b,) float32, the maximum; 0 for a row without words or regions.

    Example: the second word takes the region of the first if the affinity exceeds its loss of 0.2.

    >>> unaries = ops.array([[[2.0, 1.0], [0.8, 1.0]]])
    >>> words, regions = ops.ones((1, 2), "bool"), ops.ones((1, 2), "bool")
    >>> for affinity in (0.1, 0.3):
    ...     path, score = best_chain(unaries, words, regions, affinity)
    ...     print(ops.convert_to_numpy(path)[0], round(float(score[0]), 4))
    [0 1] 3.0
    [0 0] 3.1
    """
    words, regions = ops.cast(words, "bool"), ops.cast(regions, "bool")
    if 0 in (words.shape[1], regions.shape[1]):
        return ops.full(ops.shape(words), -1, "int32"), ops.zeros(ops.shape(words)[:1])
    real = ops.cast(words, "float32")
    before = ops.cumsum(real, axis=1) - real
    affinity = ops.broadcast_to(ops.reshape(ops.cast(affinity, "float32"), (-1, 1)), (ops.shape(words)[0], 1))
    is_region, unaries = ops.expand_dims(regions, 1), ops.cast(unaries, "float32")
    # Clip the affinity at the largest possible gain of changes: above it the chain is the same, but rounding would lose
    # the unaries.
    spread = _largest(ops.where(is_region, unaries, _LOWEST)) + _largest(ops.where(is_region, -unaries, _LOWEST))
    enough = ops.minimum(affinity, 2.0 * ops.sum(ops.where(words, spread, 0.0), axis=1, keepdims=True))
    # Reward of a word for staying: 0 for the first, which has no neighbour before it.
    reward = ops.where(before > 0, enough, 0.0)
    unaries = ops.where(is_region, unaries, _LOWEST)

    # One tensor, (T, b, M + 2), since `ops.scan` accepts only one if T is unknown.
    inputs = _by_step(unaries, real, reward)

    def forward(so_far: Tensor, now: Tensor) -> tuple[Tensor, Tensor]:
        unary, word, reward = now[:, :-2], now[:, -2:-1], now[:, -1:]
        best = _largest(so_far, keepdims=True)
        so_far = ops.where(word > 0, unary + ops.maximum(so_far + reward, best), so_far)
        return so_far, so_far

    last, all_sums = ops.scan(forward, ops.zeros_like(unaries[:, 0]), inputs)  # (b, M), (T, b, M)

    def backward(region: Tensor, then: Tensor) -> tuple[Tensor, Tensor]:
        sums, word, reward = then[:, :-2], then[:, -2], then[:, -1]
        at = ops.equal(ops.expand_dims(region, 1), ops.arange(ops.shape(sums)[1], dtype="int32"))
        stay = ops.sum(ops.where(at, sums, 0.0), axis=1) + reward >= _largest(sums)
        moved = ops.cast(ops.argmax(sums, axis=1), "int32")
        region = ops.where(ops.logical_or(stay, ops.equal(word, 0)), region, moved)
        return region, region

    final = ops.cast(ops.argmax(last, axis=1), "int32")
    # Sums of each step with word flag and reward of the next step; padding follows the last step.
    next_ = [ops.pad(x[:, 1:], [[0, 0], [0, 1]]) for x in (real, reward)]
    _, path = ops.scan(backward, final, _by_step(ops.transpose(all_sums, (1, 0, 2)), *next_), reverse=True)

    has_region = ops.logical_and(words, ops.any(regions, axis=1, keepdims=True))
    path = ops.where(has_region, ops.transpose(path), -1)
    score = _largest(last)
    # If the affinity was clipped, the whole chain stays on one region.
    links, more = ops.sum(real, axis=1) - 1.0, (affinity - enough)[:, 0]
    score = score + ops.where(ops.logical_and(links > 0, more > 0), links * more, 0.0)
    return path, ops.where(ops.any(has_region, axis=1), score, 0.0)


def _largest(x: Tensor, keepdims: bool = False) -> Tensor:
    # `initial` allows empty batches, whose maximum Keras refuses.
    return ops.max(x, axis=-1, keepdims=keepdims, initial=_LOWEST)


def _by_step(values: Tensor, *columns: Tensor) -> Tensor:
    """Stack (b, T, M) and columns of (b, T) as (T, b, M + columns)."""
    parts = [values, *(ops.expand_dims(column, -1) for column in columns)]
    return ops.transpose(ops.concatenate(parts, axis=-1), (1, 0, 2))
