"""Results of acts: objects that print themselves, in a terminal, in a notebook and as JSON."""

from __future__ import annotations

import html
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


class Result:
    """Base class of the results of acts.

    A subclass defines `to_json` and `__str__`; a dataclass is declared with `repr=False`. The command prints the text,
    and writes the JSON values to where `--json` says.
    """

    @property
    def failure(self) -> str | None:
        """The reason why a command that prints this result must fail; None for success."""
        return None

    def to_json(self) -> Any:
        """Return the values of the result, JSON-able."""
        raise NotImplementedError

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(str(self))}</pre>"


@dataclass(frozen=True, eq=False, repr=False)
class Table(Result):
    """A result that consists of a text and values.

    Attributes:
        text: the text, such as a table of metrics.
        values: the values as JSON.
    """

    text: str
    values: Mapping[str, Any]

    def to_json(self) -> dict[str, Any]:
        """Return the values."""
        return dict(self.values)

    def __str__(self) -> str:
        return self.text
