"""States of a Tree-LSTM on TensorFlow, computed level by level, with a custom gradient.

A schedule is computed in graph from the heads. It orders all nodes of the batch: nodes with children and roots (the
*trunk*) from the deepest level up, then the leaves. The children of a level are all in the level before it, and all
roots are in the last, so one loop over the levels computes everything. Leaves have no children, so their states are
computed together before the loop. Edges to a level are sorted by slot: the matrix of a slot multiplies one block, and
segment sums add the results into the heads.

The automatic gradient of a `while_loop` adds a gradient of `recurrent` at every level. The custom gradient multiplies
once per slot after the loop, which makes a training step about three times faster.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from vsemb.ops.tensorflow import tf

Tensor = Any


def level_states(
    inputs: Tensor,
    recurrent: Tensor,
    heads: Tensor,
    mask: Tensor,
    depth: Tensor,
    slot: Tensor,
    *,
    child_sum: bool,
) -> Tensor:
    """Compute the states of `vsemb.systems.trees.tree_lstm.tree_lstm_states`.

    Args:
        inputs: (batch, steps, 4 units) float32 or float64.
        recurrent: (slots, units, (3 + slots) units) of the same dtype; (1, units, 4 units) with `child_sum`.
        heads: (batch, steps) int32, 0 outside the mask; each row holds one tree or is empty.
        mask: (batch, steps) bool.
        depth: (batch, steps) int32, 0 for the root.
        slot: (batch, steps) int32, less than `slots`.
        child_sum: whether children are summed and not kept in slots.

    Returns:
        (batch, steps, units), 0 where `mask` is false.
    """
    slots, units = recurrent.shape[:2]
    plan = _schedule(heads, mask, depth, slot, slots)
    rule = SimpleNamespace(slots=slots, units=units, child_sum=child_sum)

    def to_places(parts: list[Tensor], width: int) -> Tensor:
        rows = tf.concat([*parts, tf.zeros([1, width], inputs.dtype)], 0)  # the last one is for padding
        return tf.reshape(tf.gather(rows, plan.place), tf.concat([tf.shape(heads), [width]], 0))

    @tf.custom_gradient
    def states(inputs: Tensor, recurrent: Tensor) -> tuple[Tensor, Any]:
        x = tf.gather(tf.reshape(inputs, [-1, 4 * units]), plan.nodes)
        h, saved = _forward(rule, plan, x, recurrent)

        def gradient(upstream: Tensor) -> tuple[Tensor, Tensor]:
            upstream = tf.gather(tf.reshape(upstream, [-1, units]), plan.nodes)
            dx, drecurrent = _backward(rule, plan, recurrent, h, saved, upstream)
            return to_places(dx, 4 * units), drecurrent

        return to_places([h], units), gradient

    result = states(inputs, recurrent)
    result.set_shape([*heads.shape, units])
    return result


def _schedule(heads: Tensor, mask: Tensor, depth: Tensor, slot: Tensor, slots: int) -> SimpleNamespace:
    steps = tf.shape(heads)[1]
    number = tf.range(1, steps + 1)
    has_child = tf.reduce_any(heads[:, None] == number[:, None], 2)
    is_leaf = mask & ~has_child & (heads > 0)
    levels = tf.maximum(tf.reduce_max(tf.where(mask, depth, 0)), 0) + 1  # one level without nodes for an empty batch
    level = levels - 1 - depth

    # Nodes: the trunk by level, the leaves by level, padding.
    order, trunk_sizes = _sorted(tf.where(is_leaf, level + levels, level), mask, 2 * levels)
    start = tf.cumsum(tf.concat([[0], trunk_sizes], 0))
    count = start[-1]
    nodes = order[:count]
    place = tf.minimum(tf.math.invert_permutation(order), count)

    # Edges are identified by their child, and sorted by the child's level, then by slot.
    is_edge = mask & (heads > 0)
    order, sizes = _sorted(level * slots + slot, is_edge, levels * slots)
    sizes = tf.reshape(sizes, [-1, slots])
    ends = tf.cumsum(tf.concat([[0], tf.reduce_sum(sizes, 1)], 0))
    edges = order[: ends[-1]]
    child = tf.gather(place, edges)
    head = tf.gather(tf.reshape(heads, [-1]), edges) - 1
    parent = tf.gather(place, edges - edges % tf.maximum(steps, 1) + head)
    # The loop reads the nodes of a level in this order: trunk nodes, then leaves.
    at = tf.gather(tf.reshape(level, [-1]), edges)
    trunk_before, leaves_before = tf.gather(start, at), tf.gather(start, levels + at)
    trunk_there = tf.gather(start, at + 1) - trunk_before
    leaf = trunk_there + child - leaves_before
    return SimpleNamespace(
        levels=levels,
        nodes=nodes,  # (nodes,) index of each node in (batch * steps,)
        place=place,  # (batch * steps,) index of each token in `nodes`; for padding, the number of nodes
        start=start,  # (2 levels + 1,) first node of each level of the trunk, then of the leaves
        trunk=start[levels],  # number of trunk nodes
        sizes=sizes,  # (levels, slots) number of edges of each level in each slot
        ends=ends,  # (levels + 1,) first edge of each level
        child=child,  # (edges,) index of the child in `nodes`
        here=tf.where(child < start[levels], child - trunk_before, leaf),  # the same, within the child's level
        parent=parent,  # (edges,) index of the head, a trunk node
        slot=tf.gather(tf.reshape(slot, [-1]), edges),
    )


def _sorted(group: Tensor, mask: Tensor, groups: Tensor) -> tuple[Tensor, Tensor]:
    """Sort all places by group, with places outside the mask last, and count the members of each group."""
    group = tf.reshape(tf.where(mask, group, groups), [-1])
    sizes = tf.math.bincount(group, minlength=groups, maxlength=groups)
    return tf.argsort(group, stable=True), sizes


def _forward(rule: Any, plan: Any, x: Tensor, recurrent: Tensor) -> tuple[Tensor, Any]:
    """Return h of all nodes, and the tensors that the gradient needs."""
    units = rule.units
    matrices = tf.unstack(recurrent)
    leaf_h, leaf_c, leaf_saved = _node(rule, x[plan.trunk :, : 3 * units], None)
    trunk = x[: plan.trunk]
    forget = trunk[:, 3 * units :]
    # Each slot's forget gate starts from the same input.
    wide = trunk[:, : 3 * units] if rule.child_sum else tf.concat([trunk] + [forget] * (rule.slots - 1), 1)

    def level(number: Tensor, h: Tensor, c: Tensor, arrays: Any) -> tuple[Any, ...]:
        first, end = plan.start[number], plan.start[number + 1]
        edges, leaves = _below(plan, number)
        here, parent = plan.here[edges], plan.parent[edges] - first
        h = tf.gather(tf.concat([h, leaf_h[leaves]], 0), here)
        c = tf.gather(tf.concat([c, leaf_c[leaves]], 0), here)
        z = multiply_blocks(h, matrices, _child_sizes(plan, number))
        sums, cells, kept = _arrive(rule, z, c, forget[first:end], parent, plan.slot[edges], end - first)
        h, c, saved = _node(rule, wide[first:end] + sums, cells)
        values = [h, *saved, *kept]
        return number + 1, h, c, [a.write(number, v) for a, v in zip(arrays, values, strict=True)]

    empty = tf.zeros((0, units), x.dtype)
    widths = [1, 2, 1, 1, 1, 1] if rule.child_sum else [1, 2, 1, 1, rule.slots, rule.slots]
    arrays = [_array(plan.levels, width * units, x.dtype) for width in widths]
    *_, arrays = tf.while_loop(
        lambda number, *_: number < plan.levels,
        level,
        [0, empty, empty, arrays],
        shape_invariants=_loop_shapes(units, arrays),
    )
    # Converted to tensors, since a SavedModel cannot store arrays for the gradient. Unused tensors are pruned.
    trunk_h, *saved = (a.concat() for a in arrays)
    return tf.concat([trunk_h, leaf_h], 0), (saved, leaf_saved)


def _backward(
    rule: Any, plan: Any, recurrent: Tensor, h: Tensor, saved: Any, upstream: Tensor
) -> tuple[list[Tensor], Tensor]:
    """Return the gradients of `x`, in parts to be concatenated, and of `recurrent`."""
    units = rule.units
    saved, leaf_saved = saved
    # Transposing once is faster than at every level.
    matrices = tf.unstack(tf.transpose(recurrent, [0, 2, 1]))
    of_nodes, of_edges = (saved[:3], saved[3:]) if rule.child_sum else (saved, [])

    def level(number: Tensor, dh: Tensor, dc: Tensor, out: Any) -> tuple[Any, ...]:
        first, end = plan.start[number], plan.start[number + 1]
        edges, leaves = _below(plan, number)
        saved, kept = [t[first:end] for t in of_nodes], [t[edges] for t in of_edges]
        dpre, dcells = _node_gradient(rule, dh + upstream[first:end], dc, saved)
        dz, dc = _arrive_gradient(rule, dpre, dcells, kept, plan.parent[edges] - first, plan.slot[edges])
        dh = multiply_blocks(dz, matrices, _child_sizes(plan, number))
        back = tf.math.invert_permutation(plan.here[edges])
        dh, dc = tf.gather(dh, back), tf.gather(dc, back)
        inner = tf.shape(dh)[0] - (leaves.stop - leaves.start)
        values = [dpre, dcells, dh[inner:], dc[inner:]]
        return number - 1, dh[:inner], dc[:inner], [a.write(number, v) for a, v in zip(out, values, strict=True)]

    roots = tf.zeros([plan.trunk - plan.start[plan.levels - 1], units], h.dtype)
    widths = [3, 1, 1, 1] if rule.child_sum else [3 + rule.slots, rule.slots, 1, 1]
    out = [_array(plan.levels, width * units, h.dtype) for width in widths]
    *_, out = tf.while_loop(
        lambda number, *_: number >= 0,
        level,
        [plan.levels - 1, roots, roots, out],
        shape_invariants=_loop_shapes(units, out),
    )
    dpre, dcells, dh, dc = (a.concat() for a in out)
    dleaf, _ = _node_gradient(rule, upstream[plan.trunk :] + dh, dc, leaf_saved)

    by_slot = tf.argsort(plan.slot, stable=True)
    parent, slot = tf.gather(plan.parent, by_slot), tf.gather(plan.slot, by_slot)
    kept = [tf.gather(t, by_slot) for t in of_edges]
    dz, _ = _arrive_gradient(rule, dpre, dcells, kept, parent, slot)
    rows = tf.gather(h, tf.gather(plan.child, by_slot))
    sizes = tf.reduce_sum(plan.sizes, 0)
    parts = zip(*(tf.split(t, sizes, num=rule.slots) for t in (rows, dz)), strict=True)
    drecurrent = tf.stack([tf.matmul(a, b, transpose_a=True) for a, b in parts])

    if rule.child_sum:
        dforget = tf.math.unsorted_segment_sum(dz[:, 3 * units :], parent, plan.trunk)
    else:
        dforget = tf.add_n(tf.split(dpre[:, 3 * units :], rule.slots, 1))
    dtrunk = tf.concat([dpre[:, : 3 * units], dforget], 1)
    return [dtrunk, tf.pad(dleaf, [[0, 0], [0, units]])], drecurrent


def _arrive(
    rule: Any, z: Tensor, c: Tensor, forget: Tensor, parent: Tensor, slot: Tensor, count: Tensor
) -> tuple[Tensor, Tensor, list[Tensor]]:
    """Sum the children's contributions to gates and cells into their heads.

    Returns:
        Gates (count, (3 + slots) units), cells (count * slots, units) and an empty list. With `child_sum`, gates
        (count, 3 units), cells (count, units) after the children's forget gates, and tensors for the gradient.
    """
    gates = 3 * rule.units
    total = tf.math.unsorted_segment_sum
    if not rule.child_sum:
        return total(z, parent, count), total(c, parent * rule.slots + slot, count * rule.slots), []
    keep = tf.sigmoid(z[:, gates:] + tf.gather(forget, parent))
    return total(z[:, :gates], parent, count), total(keep * c, parent, count), [keep, c]


def _arrive_gradient(
    rule: Any, dpre: Tensor, dcells: Tensor, kept: list[Tensor], parent: Tensor, slot: Tensor
) -> tuple[Tensor, Tensor]:
    """Return the gradients of z and c of children, from the gradients of their heads."""
    dz = tf.gather(dpre, parent)
    if not rule.child_sum:
        return dz, tf.gather(tf.reshape(dcells, [-1, rule.units]), parent * rule.slots + slot)
    keep, c = kept
    dcells = tf.gather(dcells, parent)
    dforget = tf.raw_ops.SigmoidGrad(y=keep, dy=dcells * c)
    return tf.concat([dz, dforget], 1), dcells * keep


def _node(rule: Any, pre: Tensor, cells: Tensor | None) -> tuple[Tensor, Tensor, list[Tensor]]:
    """Return h and c of nodes, and tensors for the gradient; `cells` is None for leaves."""
    units = rule.units
    io, u = tf.sigmoid(pre[:, : 2 * units]), tf.tanh(pre[:, 2 * units : 3 * units])
    i, o = tf.split(io, 2, 1)
    c, saved = i * u, []
    if cells is not None and rule.child_sum:
        c += cells
    elif cells is not None:
        keep, cells = tf.sigmoid(pre[:, 3 * units :]), tf.reshape(cells, [-1, rule.slots * units])
        c += tf.add_n(tf.split(keep * cells, rule.slots, 1))
        saved = [keep, cells]
    return o * tf.tanh(c), c, [io, u, c, *saved]


def _node_gradient(rule: Any, dh: Tensor, dc: Tensor, saved: list[Tensor]) -> tuple[Tensor, Tensor]:
    """Return the gradients of `pre` and `cells`, from the gradients of h and c."""
    io, u, c, *kept = saved
    i, o = tf.split(io, 2, 1)
    t = tf.tanh(c)
    dc += tf.raw_ops.TanhGrad(y=t, dy=dh * o)
    dio = tf.raw_ops.SigmoidGrad(y=io, dy=tf.concat([dc * u, dh * t], 1))
    parts = [dio, tf.raw_ops.TanhGrad(y=u, dy=dc * i)]
    if not kept:
        return tf.concat(parts, 1), dc
    keep, cells = kept
    dc = tf.tile(dc, [1, rule.slots])
    return tf.concat([*parts, tf.raw_ops.SigmoidGrad(y=keep, dy=dc * cells)], 1), dc * keep


def _below(plan: Any, number: Tensor) -> tuple[slice, slice]:
    """Return the edges from the level before to a level's nodes, and the leaves among them."""
    before = tf.maximum(number - 1, 0)
    after = tf.minimum(number, before + 1)
    first = plan.levels
    leaves = plan.start[first + before] - plan.trunk, plan.start[first + after] - plan.trunk
    return slice(plan.ends[before], plan.ends[after]), slice(*leaves)


def _child_sizes(plan: Any, number: Tensor) -> Tensor:
    return tf.where(number > 0, plan.sizes[tf.maximum(number - 1, 0)], 0)


def multiply_blocks(rows: Tensor, matrices: list[Tensor], sizes: Tensor) -> Tensor:
    """Multiply rows, sorted by slot with `sizes` rows per slot, with the matrices of their slots."""
    if len(matrices) == 1:
        return rows @ matrices[0]
    parts = tf.split(rows, sizes, num=len(matrices))
    return tf.concat([part @ matrix for part, matrix in zip(parts, matrices, strict=True)], 0)


def _array(levels: Tensor, width: int, dtype: Any) -> Any:
    return tf.TensorArray(dtype, size=levels, infer_shape=False, element_shape=[None, width])


def _loop_shapes(units: int, arrays: list[Any]) -> list[Any]:
    """Return the shapes of the loop variables: level, h, c and the arrays."""
    states = tf.TensorShape([None, units])
    return [tf.TensorShape([]), states, states, [tf.TensorShape(None)] * len(arrays)]
