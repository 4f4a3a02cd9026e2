"""Exception types of vsemb and the one form their messages take.

Every message names, in this order: the argument (or file), what was received, what is allowed, and
the fix. The command line prints the message alone, on one line, and exits with status 1.
"""

from __future__ import annotations

import contextlib
import difflib
from collections.abc import Iterable, Iterator

# More names than this do not fit the two lines of a message, nor do longer values.
_LISTED, _LONGEST = 20, 500


class VsembError(Exception):
    """Base of every error that vsemb raises on purpose; its message is for people.

    Example:

        try:
            model = vsemb.load("runs/mine")
        except vsemb.VsembError as error:
            sys.exit(str(error))
    """


class InvalidArgumentError(VsembError, ValueError):
    """An argument, recipe field or option has a value that is not allowed."""


class DataError(VsembError):
    """A file, dataset, feature cache or run is missing, broken or does not fit its partner."""


class MissingExtraError(VsembError, ImportError):
    """An optional dependency is needed and not installed."""


class WorkerError(VsembError):
    """Another worker of a training is gone or does not answer."""


def invalid_argument(name: str, received: object, allowed: str, fix: str | None = None) -> InvalidArgumentError:
    """Builds the error for one bad argument.

    Args:
        name: the argument as the caller wrote it, e.g. `"margin"`.
        received: the offending value.
        allowed: what is allowed, as a phrase, e.g. `"a number >= 0"`.
        fix: what to do about it, when that is more than passing an allowed value.

    Example:

    >>> print(invalid_argument("margin", -1, "a number >= 0"))
    Invalid value for argument `margin`. Received: margin=-1. Expected: a number >= 0.
    """
    shown = repr(received)
    if len(shown) > _LONGEST or "\n" in shown:
        shown = one_line(shown)
    message = f"Invalid value for argument `{name}`. Received: {name}={shown}. Expected: {allowed}."
    return InvalidArgumentError(f"{message} {fix}" if fix else message)


def unknown_name(name: str, received: str, allowed: Iterable[str]) -> InvalidArgumentError:
    """Builds the error for a name that is not in a closed list, with the nearest one suggested.

    Example:

    >>> print(unknown_name("recipe", "vsep", ["kiros2014", "vsepp"]))
    Invalid value for argument `recipe`. Received: recipe='vsep'. Expected: one of kiros2014, vsepp.
    Did you mean 'vsepp'?
    """
    options = list(allowed)
    close = difflib.get_close_matches(str(received), options, n=3)
    fix = f"Did you mean {close[0]!r}?" if close else None
    shown = options if len(options) <= _LISTED else close or options[:3]
    allowed = f"one of {', '.join(shown)}"
    if len(shown) < len(options):
        allowed = f"one of {len(options)} names, such as {', '.join(shown)}"
    return invalid_argument(name, received, allowed, fix)


def missing_extra(package: str, extra: str) -> MissingExtraError:
    """Builds the error for an optional dependency, naming the extra that installs it.

    Example:

    >>> print(missing_extra("tensorflow_datasets", "tfds"))
    The package `tensorflow_datasets` is not installed. It comes with an extra: pip install 'vsemb[tfds]'.
    """
    return MissingExtraError(
        f"The package `{package}` is not installed. It comes with an extra: pip install 'vsemb[{extra}]'."
    )


@contextlib.contextmanager
def needs_extra(package: str, extra: str) -> Iterator[None]:
    """Surrounds the imports of an optional dependency.

    Raises:
        MissingExtraError: if the dependency is not installed, see `missing_extra`.

    Example:

        with needs_extra("faiss-cpu", "index"):
            import faiss
    """
    try:
        yield
    except ImportError as error:
        raise missing_extra(package, extra) from error


def one_line(text: object, longest: int = _LONGEST) -> str:
    """Returns a text, or an error's message, without line breaks and no longer than a message should be.

    Example:

    >>> one_line("no such\\n  file", longest=10)
    'no such f…'
    """
    line = " ".join(str(text).split())
    return line if len(line) <= longest else line[: longest - 1] + "…"


def printable(text: str) -> str:
    """Returns a text as any stream or file takes it: bytes of a file's name that are no text become `?`.

    Example:

    >>> printable("dog\\udcff.jpg")
    'dog?.jpg'
    """
    # Python keeps such bytes as halves of characters.
    return text.encode(errors="replace").decode()
