"""The console: notices and progress bars on standard error, results on standard output.

Work of more than two seconds shows a bar with `progress`; notices are printed with `say`. Neither is written to
standard output, so results can be piped. `quieted` silences both, as `--quiet` does for each command of `vsemb`.
"""

from __future__ import annotations

import contextlib
import logging
import os
import sys
from collections.abc import Iterable, Iterator
from typing import Any

# Of the process, for notices come from all threads.
_quiet = False
_DELAY = 1.0


def say(line: str) -> None:
    """Print a notice to standard error, above progress bars."""
    if _quiet:
        return
    from tqdm import tqdm

    tqdm.write(line, file=sys.stderr)
    sys.stderr.flush()


def progress(iterable: Iterable[Any] | None = None, desc: str | None = None, *, unit: str, **options: Any) -> Any:
    """Return a progress bar with rate and remaining time, shown on a terminal.

    Args:
        iterable: what is iterated over; None for a bar that is moved with `update`.
        desc: what is being done.
        unit: what is counted, singular.
        **options: as for `tqdm.tqdm`, `total` among them; `disable=False` shows the bar without a terminal, too.

    Example:

        for image in progress(images, "prepare", unit="image"):
            ...
    """
    from tqdm import tqdm

    # Where `disable` is None, tqdm looks whether there is a terminal.
    options["disable"] = True if _quiet else options.get("disable")
    # A bar that stays is there from the start; one that goes away does not flicker.
    options.setdefault("delay", 0 if options.get("leave", True) else _DELAY)
    return tqdm(iterable, desc, unit=f" {unit}", dynamic_ncols=True, **options)


def accented(text: str) -> str:
    """Return a text in the accent colour where standard output is a terminal; `NO_COLOR` in the environment says no."""
    return f"\033[1;36m{text}\033[0m" if sys.stdout.isatty() and not os.environ.get("NO_COLOR") else text


@contextlib.contextmanager
def without_tracing_advice() -> Iterator[None]:
    """Drop TensorFlow's advice on retracing inside the context.

    TensorFlow counts the traces of all models of a process together, and each model is traced once.
    """

    def keeps(record: logging.LogRecord) -> bool:
        return "tf.function retracing" not in record.getMessage()

    logger = logging.getLogger("tensorflow")
    logger.addFilter(keeps)
    try:
        yield
    finally:
        logger.removeFilter(keeps)


@contextlib.contextmanager
def quieted(quiet: bool = True) -> Iterator[None]:
    """Silence `say` and `progress` inside the context.

    Args:
        quiet: whether to.
    """
    global _quiet
    before, _quiet = _quiet, quiet
    try:
        yield
    finally:
        _quiet = before
