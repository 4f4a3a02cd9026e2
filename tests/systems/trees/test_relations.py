"""Relations and their numbers; products with one matrix per relation."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from vsemb.systems.trees.relations import RELATIONS, relation_product, relation_product_reference


def test_every_relation_has_one_number() -> None:
    # 37 universal relations, and the 22 of ClearNLP that are not among them.
    assert len(RELATIONS) == len(set(RELATIONS)) == 59
    assert RELATIONS[0] == "dep"


@pytest.mark.parametrize("relations", [[2, 0, 2, 4, 0, 2], [3], [1, 1], []], ids=str)
def test_products_and_gradients_are_those_of_the_reference(relations: list[int]) -> None:
    generator, count = np.random.default_rng(0), 5
    values = [generator.normal(size=(len(relations), 3)), generator.normal(size=(count, 3, 2))]
    factors = generator.normal(size=(len(relations), 2))
    results = []
    for function in (relation_product, relation_product_reference):
        rows, matrices = map(tf.constant, values)
        with tf.GradientTape() as tape:
            tape.watch([rows, matrices])
            products = function(tf.constant(relations, tf.int32), count)(rows, matrices)
            total = tf.reduce_sum(factors * products**2)
        results.append([products, *map(tf.convert_to_tensor, tape.gradient(total, [rows, matrices]))])
    for fast, slow in zip(*results, strict=True):
        np.testing.assert_allclose(fast, slow, rtol=1e-12, atol=1e-12)
    expected = [row @ values[1][relation] for row, relation in zip(values[0], relations, strict=True)]
    np.testing.assert_allclose(results[0][0], np.reshape(expected, (-1, 2)), rtol=1e-12)
