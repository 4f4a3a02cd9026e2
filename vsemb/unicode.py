"""Raw texts as Unicode: one form of canonically equal texts, the part of a text that is read, and lone surrogates.

No TensorFlow: clients and readers import this module. `vsemb.text.composition` composes in graph.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable

from vsemb.errors import InvalidArgumentError, invalid_argument

#: Maximum bytes read of a composed text, after white space at its start.
MAX_BYTES = 4096

#: Maximum bytes read before composition. A decomposed text has at most three times the bytes of the composed one.
MAX_RAW_BYTES = 4 * MAX_BYTES


def composed(text: str) -> str:
    r"""Return a text in composed form (Unicode normalization form C), which canonically equal texts share.

    Example:

    >>> composed("cafe\u0301")
    'café'
    """
    return text if text.isascii() else unicodedata.normalize("NFC", text)


def shortened(text: str) -> str:
    """Return at most `MAX_BYTES` of a raw text, composed; a lone surrogate becomes `?`."""
    start = text.encode(errors="replace")[:MAX_RAW_BYTES].decode(errors="replace")
    return composed(start).encode()[:MAX_BYTES].decode(errors="ignore")


def readable_part(text: str) -> str:
    r"""Return the part of a raw text that a parser in Python reads: at most `MAX_BYTES`, composed and trimmed.

    Example:

    >>> readable_part(" a\x00dog ")
    'a dog'
    """
    # Parsers treat NUL as a space.
    return shortened(text.replace("\0", " ").strip()).strip()


def has_surrogate(text: str) -> bool:
    r"""Return whether a text has a lone surrogate, half of a character that no encoding can write.

    Broken JSON has them (`"\ud83d"`), and a command line whose bytes are not UTF-8 (`"\udcff"`).

    Example:

    >>> has_surrogate("half a \ud83d smile"), has_surrogate("a 😀 smile")
    (True, False)
    """
    if text.isascii():
        return False
    try:
        text.encode()
    except UnicodeEncodeError:
        return True
    return False


def require_unicode(name: str, texts: Iterable[object], first: int = 0) -> None:
    """Check texts for lone surrogates.

    Args:
        name: name of the argument.
        texts: the texts; values that are not strings are ignored.
        first: number of the first row.

    Raises:
        InvalidArgumentError: for the first text with a lone surrogate; the error names its row.
    """
    for row, text in enumerate(texts, first):
        if isinstance(text, str) and has_surrogate(text):
            raise lone_surrogate(f"{name}[{row}]", text)


def lone_surrogate(name: str, text: str) -> InvalidArgumentError:
    """Build the error for a text with a lone surrogate."""
    fix = "Half of a character is lost there, or bytes are not UTF-8."
    return invalid_argument(name, text, "valid Unicode, without lone surrogates", fix)
