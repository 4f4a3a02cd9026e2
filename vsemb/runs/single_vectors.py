"""Refusing runs whose embeddings are sets where one vector an item is wanted."""

from __future__ import annotations

from vsemb.errors import DataError
from vsemb.runs.run import Run


def need_single_vectors(run: Run, what: str, instead: str) -> None:
    """Refuses a run that embeds an image and a sentence as a set of vectors each.

    Args:
        run: the run.
        what: what was asked for, the beginning of the error.
        instead: what to do, a sentence of its own.

    Raises:
        DataError: if it does.

    Example:

        need_single_vectors(run, "An index", "`vsemb search` scores all images without one.")
    """
    if run.multi_vector:
        raise DataError(
            f"{what} needs one vector an image and a sentence, and {run.path} (recipe {run.recipe.name!r}) "
            f"embeds them as sets of regions and words. {instead}"
        )
