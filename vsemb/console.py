"""The console: notices and progress bars on standard error, results on standard output.

`progress` shows a bar for long work, and `say` prints notices. Neither writes to standard output, so results can be
piped. `quieted` silences both, as `--quiet` does for each command of `vsemb`.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import sys
from collections.abc import Iterable, Iterator
from typing import Any, TextIO

from vsemb.errors import escaped

# A global of the process, because all threads print notices.
_quiet = False
_DELAY = 1.0
_ACCENT, _PLAIN = "\033[1;36m", "\033[0m"
_OURS = re.compile(f"({re.escape(_ACCENT)}|{re.escape(_PLAIN)})")
# Assumed size of a terminal of size 0, where tqdm would show nothing.
_SIZE: dict[str, Any] = {"ncols": 80, "nrows": 24}


def say(line: str) -> None:
    """Print a notice to standard error, above progress bars."""
    if _quiet:
        return
    from tqdm import tqdm

    tqdm.write(escaped(line), file=sys.stderr)
    sys.stderr.flush()


def progress(iterable: Iterable[Any] | None = None, desc: str | None = None, *, unit: str, **options: Any) -> Any:
    """Return a progress bar with rate and remaining time, which is only shown on a terminal.

    Args:
        iterable: the items; None for a bar that is advanced with `update`.
        desc: label of the work.
        unit: noun for an item, singular.
        **options: options of `tqdm.tqdm`, such as `total`; `disable=False` shows the bar without a terminal, too.

    Example:

        for image in progress(images, "prepare", unit="image"):
            ...
    """
    from tqdm import tqdm

    # With `disable=None`, tqdm hides the bar unless standard error is a terminal.
    options["disable"] = True if _quiet else options.get("disable")
    # A bar with `leave` is shown from the start. One that disappears is delayed, so that short work does not flicker.
    options.setdefault("delay", 0 if options.get("leave", True) else _DELAY)
    desc = None if desc is None else escaped(desc)
    size = {"dynamic_ncols": True} if _has_size() else _SIZE
    return tqdm(iterable, desc, unit=f" {unit}", **size, **options)


def _has_size() -> bool:
    """Return whether standard error is not a terminal of size 0, as programs that record a session have."""
    try:
        return min(os.get_terminal_size(sys.stderr.fileno())) > 0
    except (OSError, ValueError, AttributeError):
        return True


def accented(text: str) -> str:
    """Return a text in the accent colour, if standard output is a terminal and `NO_COLOR` is not set."""
    return f"{_ACCENT}{text}{_PLAIN}" if sys.stdout.isatty() and not os.environ.get("NO_COLOR") else text


class SafeStream:
    """A stream for a terminal: what is written is escaped, except for the accent colour, see `vsemb.errors.escaped`.

    The form of the escapes is that of JSON, so JSON keeps its meaning.

    Args:
        stream: the stream that is written to.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        """Write a text."""
        if not text.isprintable():
            parts = _OURS.split(text)
            text = "".join(part if place % 2 else escaped(part) for place, part in enumerate(parts))
        return self._stream.write(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@contextlib.contextmanager
def without_tracing_advice() -> Iterator[None]:
    """Suppress TensorFlow's warnings about retracing inside the context.

    They are false alarms: TensorFlow counts the traces of all models of a process together, and each is traced once.
    """

    def keeps(record: logging.LogRecord) -> bool:
        return "tf.function retracing" not in record.getMessage()

    logger = logging.getLogger("tensorflow")
    logger.addFilter(keeps)
    try:
        yield
    finally:
        logger.removeFilter(keeps)


def is_quiet() -> bool:
    """Return whether notices and progress bars are silenced."""
    return _quiet


@contextlib.contextmanager
def quieted(quiet: bool = True) -> Iterator[None]:
    """Silence `say` and `progress` inside the context.

    Args:
        quiet: whether to silence them; False shows them, even inside another `quieted`.
    """
    global _quiet
    before, _quiet = _quiet, quiet
    try:
        yield
    finally:
        _quiet = before
