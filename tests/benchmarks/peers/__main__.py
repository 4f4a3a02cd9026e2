"""The process of a peer; `Peer` starts it as `python -m tests.benchmarks.peers MODULE:FUNCTION FOLDER`."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.benchmarks.peers import ANSWER, ARGUMENTS, load, save


def main() -> None:
    """Calls the function once, and what it returned once per line of the input."""
    module, _, name = sys.argv[1].partition(":")
    folder = Path(sys.argv[2])
    answers = os.dup(1)
    os.dup2(2, 1)  # What libraries print is no answer.
    call: Callable[..., Any] | None = None
    while os.read(0, 1):
        arguments, found = load(folder / ARGUMENTS), {}
        if call is None:
            call = getattr(importlib.import_module(module), name)(**arguments)
        else:
            found = call(**arguments)
        save(folder / ANSWER, found)
        os.write(answers, b"\n")


if __name__ == "__main__":
    main()
