"""`vsemb evaluate --paraphrase`: the share of captions whose nearest other caption is of the same image."""

from __future__ import annotations

import argparse
from typing import Any

from vsemb.commands import Mode


def evaluate(arguments: argparse.Namespace, run: Any) -> dict[str, Any]:
    """Measure how often the nearest caption is of the same image."""
    from outsider.paraphrase import accuracy

    found = accuracy(run.model, run.tokenizer, run.open_data(arguments.data).split(arguments.split))
    print(f"paraphrase   {found:.1f} %")
    return {"paraphrase": found}


PARAPHRASE = Mode(evaluate, recipes=("vsemb.recipes.retrieval:Retrieval",))
