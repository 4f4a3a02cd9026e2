"""Exception types of vsemb and the form of their messages.

Every message names, in this order: the argument or file, the allowed values, the received value and the fix.
The command line prints only the message, on one line, and exits with status 1.
"""

from __future__ import annotations

import contextlib
import difflib
import re
from collections.abc import Iterable, Iterator, Sequence

# Maximum number of names, of problems, and maximum length of a value, in a message of two lines.
_LISTED, _PROBLEMS, _LONGEST = 20, 10, 500
# Control characters of ASCII and Latin-1 except tab and line feed, and those of the bidirectional algorithm.
_CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")


class VsembError(Exception):
    """Base class of all errors of vsemb; the message is for users.

    Example:

        try:
            model = vsemb.load("runs/mine")
        except vsemb.VsembError as error:
            sys.exit(str(error))
    """

    # Keras puts the names and shapes of a layer's inputs around other errors.
    _keras_call_info_injected = True

    def __init__(self, *arguments: object) -> None:
        # A message names files, keys and texts of others, which must not control the terminal that shows it.
        super().__init__(*(escaped(value) if isinstance(value, str) else value for value in arguments))


class InvalidArgumentError(VsembError, ValueError):
    """Invalid value of an argument, recipe field or option.

    Attributes:
        argument: its name; None if several arguments do not fit each other.
    """

    def __init__(self, *arguments: object, argument: str | None = None) -> None:
        super().__init__(*arguments)
        self.argument = argument


class DataError(VsembError):
    """Missing, damaged or mismatched file, dataset, feature cache or run."""


class MissingExtraError(VsembError, ImportError):
    """Missing optional dependency."""


class WorkerError(VsembError):
    """Lost or unresponsive worker of a training."""


def invalid_argument(name: str, received: object, allowed: str, fix: str | None = None) -> InvalidArgumentError:
    """Build the error for an invalid argument.

    Args:
        name: name of the argument, e.g. `"margin"`.
        received: the invalid value.
        allowed: the allowed values as a phrase, e.g. `"a number >= 0"`.
        fix: a sentence with the fix; None if an allowed value is enough.

    Example:

    >>> print(invalid_argument("margin", -1, "a number >= 0"))
    `margin` must be a number >= 0; got -1.
    """
    shown = plain_repr(received)
    if len(shown) > _LONGEST or "\n" in shown:
        shown = one_line(shown)
    # A parameter like `from_` ends in a line because its name is a keyword of Python.
    message = f"`{name.rstrip('_')}` must be {allowed}; got {shown}."
    return InvalidArgumentError(f"{message} {fix}" if fix else message, argument=name)


def unknown_name(name: str, received: str, allowed: Iterable[str], fix: str | None = None) -> InvalidArgumentError:
    """Build the error for an unknown name, with the most similar allowed name.

    Args:
        name: name of the argument.
        received: the unknown name.
        allowed: the allowed names.
        fix: a sentence with the fix, used without a similar name.

    Example:

    >>> print(unknown_name("recipe", "vsep", ["kiros2014", "vsepp"]))
    `recipe` must be one of kiros2014, vsepp; got 'vsep'.
    Did you mean 'vsepp'?
    """
    options = list(allowed)
    close = difflib.get_close_matches(str(received), options, n=3)
    fix = f"Did you mean {close[0]!r}?" if close else fix
    shown = options if len(options) <= _LISTED else close or options[:3]
    allowed = f"one of {', '.join(shown)}"
    if len(shown) < len(options):
        allowed = f"one of {len(options)} names, such as {', '.join(shown)}"
    return invalid_argument(name, received, allowed, fix)


def missing_extra(package: str, extra: str) -> MissingExtraError:
    """Build the error for a missing optional dependency, with the extra that installs it.

    Example:

    >>> print(missing_extra("tensorflow_datasets", "tfds"))
    The package `tensorflow_datasets` is not installed. It comes with an extra: pip install 'vsemb[tfds]'.
    """
    return MissingExtraError(
        f"The package `{package}` is not installed. It comes with an extra: pip install 'vsemb[{extra}]'."
    )


@contextlib.contextmanager
def needs_extra(package: str, extra: str) -> Iterator[None]:
    """Convert import errors of an optional dependency to `MissingExtraError`.

    Raises:
        MissingExtraError: if the dependency is not installed.

    Example:

        with needs_extra("faiss-cpu", "index"):
            import faiss
    """
    try:
        yield
    except ImportError as error:
        raise missing_extra(package, extra) from error


def one_line(text: object, longest: int = _LONGEST) -> str:
    """Return a text or an error's message on one line, truncated to `longest` characters.

    Example:

    >>> one_line("no such\\n  file", longest=10)
    'no such f…'
    """
    line = " ".join(str(text).split())
    return line if len(line) <= longest else line[: longest - 1] + "…"


def reason_of(error: BaseException | None) -> str:
    """Return the reason that the operating system gives, without number and file name; of another error, its text.

    Example:

    >>> reason_of(FileNotFoundError(2, "No such file or directory", "dog.jpg")), reason_of(ValueError("too short"))
    ('No such file or directory', 'too short')
    """
    return str(getattr(error, "strerror", None) or error)


def counted(count: int, one: str, several: str | None = None) -> str:
    """Return a number with what it counts, and a verb in the same number.

    Args:
        count: the number.
        one: what is counted, for the number 1.
        several: the same for other numbers; default: with an s.

    Example:

    >>> counted(1, "image"), counted(2000, "image is", "images are")
    ('1 image', '2,000 images are')
    """
    return f"{count:,} {one if count == 1 else several or one + 's'}"


def plain_repr(value: object) -> str:
    """Return the representation of a value, with NumPy's numbers and strings as Python's.

    Example:

    >>> import numpy as np
    >>> plain_repr([np.str_("b"), np.float32(0.5)])
    "['b', 0.5]"
    """
    return re.sub(r"""\bnp\.\w+\(('(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|[-+.\w]+)\)""", r"\1", repr(value))


@contextlib.contextmanager
def reader_errors() -> Iterator[None]:
    """Raise the `DataError` of a reader that TensorFlow calls, in place of TensorFlow's error with a traceback.

    Raises:
        DataError: if the reader raised it.

    Example:

        with reader_errors():
            model.fit(batches.dataset(), epochs=10)
    """
    try:
        yield
    except Exception as error:
        # TensorFlow keeps only the text of the error.
        raised = re.search(rf"\b{DataError.__name__}: (.+)", str(getattr(error, "message", "")))
        if raised is None:
            raise
        raise DataError(raised[1]) from error


def listed(problems: Sequence[str]) -> str:
    """Return the first ten of many problems on one line, with the number of the others.

    Example:

    >>> listed(["row 3: no such file.", "row 5: the file is empty."])
    'row 3: no such file; row 5: the file is empty'
    """
    more = f"; and {len(problems) - _PROBLEMS} more" if len(problems) > _PROBLEMS else ""
    return "; ".join(problem.rstrip(".") for problem in problems[:_PROBLEMS]) + more


def escaped(text: str) -> str:
    """Return a text without characters that control a terminal or the direction of text: they become `\\uXXXX`.

    A key, caption or file name may come from others. Line feeds and tabs are kept.

    Example:

    >>> escaped("dog\\x1b[2J.jpg"), escaped("dog.jpg")
    ('dog\\\\u001b[2J.jpg', 'dog.jpg')
    """
    return text if text.isprintable() else _CONTROLS.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def printable(text: str) -> str:
    """Return a text that any stream can encode: undecodable bytes of a file name become `?`.

    Example:

    >>> printable("dog\\udcff.jpg")
    'dog?.jpg'
    """
    # Python stores such bytes as lone surrogates.
    return text.encode(errors="replace").decode()
