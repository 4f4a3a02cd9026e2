"""Acts of dependency trees."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from vsemb.acts import act
from vsemb.console import say
from vsemb.results import Table

if TYPE_CHECKING:
    from vsemb.runs.run import Run


@act
def set_parser(run: Run | str | os.PathLike[str], parser: str) -> Table:
    """Give a run on dependency trees another parser for new sentences.

    A run has the parser of its training captions. It has none if their trees came from files without a parser.

    Args:
        run: a run on dependency trees, or its directory.
        parser: installed spaCy pipeline, or its folder, which is copied to the run.

    Raises:
        InvalidArgumentError: if the run does not read trees, or the parser does not exist.

    Example:

        set_parser("runs/trees", "en_core_web_sm")
    """
    from vsemb.runs.run import Run
    from vsemb.systems.trees.parse_texts import use_parser

    opened = Run.open(run, "retrieval")
    name = use_parser(opened, parser, report=say)
    return Table(f"{opened.path} parses with {name}.", {"run": str(opened.path), "parser": name})
