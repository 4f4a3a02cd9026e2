"""Sampling of scenes: what each split may show, sizes, and objects that keep apart."""

from __future__ import annotations

import itertools
import random

import pytest

from vsemb.data.synthetic import world


def test_hold_out_reaches_the_compositional_split_alone() -> None:
    pools = world.compositional_pools()
    held = set(world.HOLD_OUT)
    assert set(pools) == {"train", "val", "test", "compositional"}
    for split in ("train", "val", "test"):
        assert len(pools[split].main) == 64 - len(held)
        assert not held & {*pools[split].main, *pools[split].others}
    assert set(pools["compositional"].main) == held
    assert len(pools["compositional"].others) == 64


def test_every_colour_and_shape_is_left_for_train() -> None:
    shown = world.compositional_pools()["train"].main
    assert {colour for colour, _ in shown} == set(world.COLOURS)
    assert {shape for _, shape in shown} == set(world.SHAPES)


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_zero_shot_classes_are_disjoint_and_balanced(seed: int) -> None:
    pools = world.zero_shot_pools(seed)
    # Diagonals of the 8 x 8 table: 1 for val, 2 for test, 5 for train, 8 classes each.
    for split, diagonals in (("val", 1), ("test", 2), ("train", 5)):
        assert len(set(pools[split].main)) == 8 * diagonals
        for name in (*world.COLOURS, *world.SHAPES):
            assert sum(name in pair for pair in pools[split].main) == diagonals
    for one, other in itertools.combinations(pools.values(), 2):
        assert not {*one.main, *one.others} & {*other.main, *other.others}


def test_zero_shot_classes_depend_on_the_seed() -> None:
    assert world.zero_shot_pools(0) == world.zero_shot_pools(0)
    assert world.zero_shot_pools(0) != world.zero_shot_pools(1)


def test_scenes_are_well_laid_out() -> None:
    rng = random.Random("layout")
    pools = world.compositional_pools()["train"]
    counts = [0] * 5
    for _ in range(2000):
        scene = world.sample_scene(rng, pools)
        counts[len(scene.objects)] += 1
        main, *others = scene.objects
        assert all(other.extent < main.extent for other in others)
        for item in scene.objects:
            assert abs(item.extent / world.SIZES[item.size] - 1) <= 0.0701
            for centre in (item.x, item.y):
                assert item.extent / 2 <= centre <= 1 - item.extent / 2
        for one, other in itertools.combinations(scene.objects, 2):
            distance = max(abs(one.x - other.x), abs(one.y - other.y))
            assert distance > (one.extent + other.extent) / 2
    # 6, 7, 4, 3 in 20 of 2,000 images: 600, 700, 400, 300; four standard deviations are at most 85.
    assert all(abs(count - expected) < 85 for count, expected in zip(counts[1:], (600, 700, 400, 300), strict=True))
