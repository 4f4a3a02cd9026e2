"""The best boxes of an image: ranked, and of those that overlap the best one, in graph."""

from __future__ import annotations

import tensorflow as tf

_GONE = -float("inf")
_HIGHEST = 1e38


def best_boxes(
    boxes: tf.Tensor, scores: tf.Tensor, count: int, overlap: float
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Takes the best box, drops what overlaps it, and so on (greedy non-maximum suppression).

    Rows are independent of each other, and of two boxes with the same score the first is taken, so
    the result does not depend on the batch.

    Args:
        boxes: (batch, n, 4), or (n, 4) for the same in every image; `[x, y, w, h]`. Boxes without
            area, such as padding, are never taken.
        scores: (batch, n), larger is better; a box whose score is NaN is never taken.
        count: boxes to take.
        overlap: boxes whose intersection over union with a taken one is above this are dropped.

    Returns:
        boxes: float32 (batch, count, 4), best first; zeros where there are no more.
        scores: float32 (batch, count), likewise.
        places: int32 (batch, count), which of the n they were; -1 where there are no more.

    Example:

    >>> boxes = [[[0.0, 0.0, 0.5, 0.5], [0.0, 0.0, 0.5, 0.4], [0.5, 0.5, 0.5, 0.5]]]
    >>> best_boxes(boxes, [[0.9, 0.8, 0.7]], count=3, overlap=0.5)[2].numpy().tolist()
    [[0, 2, -1]]
    """
    scores = tf.convert_to_tensor(scores, tf.float32)
    boxes = tf.convert_to_tensor(boxes, tf.float32)
    batch, n = tf.unstack(tf.shape(scores))
    boxes = tf.broadcast_to(boxes, tf.stack([batch, n, 4]))
    possible = tf.reduce_all(boxes[..., 2:] > 0, axis=-1) & ~tf.math.is_nan(scores)
    # Minus infinity marks what is gone; the lowest float too, `tf.argmax` would pass over.
    ranked = tf.clip_by_value(scores, -_HIGHEST, _HIGHEST)
    ranked = tf.where(possible, ranked, _GONE)
    # A box more that is never taken, for images without any.
    ranked = tf.pad(ranked, [[0, 0], [0, 1]], constant_values=_GONE)
    boxes = tf.pad(boxes, [[0, 0], [0, 1], [0, 0]])
    low, high, area = boxes[..., :2], boxes[..., :2] + boxes[..., 2:], boxes[..., 2] * boxes[..., 3]
    columns = tf.range(n + 1)

    def take(step: tf.Tensor, left: tf.Tensor, taken: tf.TensorArray) -> tuple:
        best = tf.argmax(left, axis=1, output_type=tf.int32)  # (batch,)
        found = tf.gather(left, best, batch_dims=1) > _GONE
        chosen = [tf.gather(values, best[:, None], batch_dims=1) for values in (low, high, area)]
        sides = tf.maximum(tf.minimum(high, chosen[1]) - tf.maximum(low, chosen[0]), 0.0)
        common = sides[..., 0] * sides[..., 1]  # (batch, n + 1)
        same = tf.math.divide_no_nan(common, area + chosen[2] - common)
        left = tf.where((same > overlap) | (columns == best[:, None]), _GONE, left)
        return step + 1, left, taken.write(step, tf.where(found, best, -1))

    # One at least: an array of nothing cannot be stacked where the batch is unknown.
    steps = max(count, 1)
    taken = tf.TensorArray(tf.int32, size=steps, element_shape=ranked.shape[:1])
    _, _, taken = tf.while_loop(
        lambda step, *_: step < steps, take, (tf.constant(0), ranked, taken), maximum_iterations=steps
    )
    places = tf.transpose(tf.reshape(taken.stack(), tf.stack([steps, batch])))[:, :count]
    real = places >= 0
    at = tf.where(real, places, n)
    best = tf.gather(boxes, at, batch_dims=1)
    best_scores = tf.where(real, tf.gather(ranked, at, batch_dims=1), 0.0)
    return best, best_scores, places
