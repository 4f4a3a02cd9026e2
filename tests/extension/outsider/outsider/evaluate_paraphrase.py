"""`vsemb evaluate --paraphrase`: the share of captions whose nearest other caption is of the same image."""

from __future__ import annotations

import argparse
from typing import Any

SUMMARY = "how often the nearest caption is of the same image"


def measures(recipe: Any) -> bool:
    """Whether it measures runs of a recipe, beside those that name it: those for retrieval."""
    from vsemb.recipes.retrieval import Retrieval

    return isinstance(recipe, Retrieval)


def configure(parser: argparse._ActionsContainer) -> None:
    """Adds no options."""


def run(arguments: argparse.Namespace, run: Any) -> dict[str, Any]:
    """Measures and prints."""
    from outsider.paraphrase import accuracy

    found = accuracy(run.model, run.tokenizer, run.open_data(arguments.data).split(arguments.split))
    print(f"paraphrase   {found:.1f} %")
    return {"paraphrase": found}
