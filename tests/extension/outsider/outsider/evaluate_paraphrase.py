"""`vsemb evaluate --paraphrase`: the share of captions whose nearest other caption is of the same image."""

from __future__ import annotations

import argparse
from typing import Any

from vsemb.commands import Measured, Mode


def evaluate(arguments: argparse.Namespace, run: Any) -> Measured:
    """Measure how often the nearest caption is of the same image."""
    from outsider.paraphrase import accuracy

    found = accuracy(run.model, run.tokenizer, run.open_data(arguments.data).split(arguments.split))
    return Measured(f"paraphrase   {found:.1f} %", {"paraphrase": found})


PARAPHRASE = Mode(evaluate, recipes=("vsemb.recipes.retrieval:Retrieval",))
