"""Runs of one recipe with several seeds: `OUT/seed-0`, `OUT/seed-1` and so on, each an ordinary run directory."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

from vsemb.errors import DataError
from vsemb.parts import Count, require
from vsemb.recipes.schema import Recipe
from vsemb.runs.run import RECIPE, Run


def seeded_recipes(recipe: Recipe, out: str | os.PathLike[str], count: int) -> dict[Path, Recipe]:
    """Return run directories and the recipe of each, which differ in `training.seed` only.

    Args:
        recipe: the recipe; its seed is the first.
        out: directory of the run directories.
        count: number of seeds.

    Raises:
        InvalidArgumentError: if count < 1.
        DataError: if `out` is a run directory itself.
    """
    require("seeds", count, Count)
    if (Path(out) / RECIPE).exists():
        raise DataError(f"{out} must be a directory of runs with --seeds; it is one run. Choose another --out.")
    training = recipe.training
    return {
        Path(out) / f"seed-{seed}": replace(recipe, training=replace(training, seed=seed))
        for seed in range(training.seed, training.seed + count)
    }


def open_seeds(path: str | os.PathLike[str]) -> list[Run]:
    """Open a run, or the runs of a directory that `vsemb train --seeds` wrote, by ascending seed.

    Raises:
        DataError: as `Run.open`.
    """
    found = [] if (Path(path) / RECIPE).exists() else list(Path(path).glob("seed-*"))
    return [Run.open(each) for each in sorted(found, key=lambda each: (len(each.name), each.name)) or [Path(path)]]
