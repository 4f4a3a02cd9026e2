"""Recipes as nested plain values: JSON and what is typed on the command line, checked against the fields."""

from __future__ import annotations

import dataclasses
import json
import types
import typing
from dataclasses import dataclass
from typing import Any

from vsemb.errors import invalid_argument, unknown_name


def paths(plain: dict[str, Any], prefix: str = "") -> list[str]:
    """Returns the dotted paths of all leaves.

    Example:

    >>> paths({"a": 1, "b": {"c": 2}})
    ['a', 'b.c']
    """
    found = []
    for name, value in plain.items():
        path = prefix + name
        found += paths(value, path + ".") if isinstance(value, dict) else [path]
    return found


@dataclass(frozen=True)
class Given:
    """A value as it was typed, whose type the field decides: a fingerprint may be all digits."""

    text: str

    def value(self, kinds: tuple[Any, ...]) -> Any:
        """Returns the value as one of the types of its field, or as JSON has it."""
        words = {"true": True, "false": False, "null": None, "none": None}
        if self.text.lower() in words and not (str in kinds and types.NoneType not in kinds):
            return words[self.text.lower()]
        try:
            parsed = json.loads(self.text)
        except ValueError:
            return self.text
        return self.text if str in kinds and not isinstance(parsed, str) else parsed


def from_plain(cls: Any, value: Any, prefix: str) -> Any:
    """Builds a dataclass, and those in it, from nested plain values, checking names and types.

    Args:
        cls: the dataclass.
        value: a dictionary; leaves are plain values or `Given`.
        prefix: of the paths in messages.

    Raises:
        InvalidArgumentError: for a field that is unknown, missing or of another type.
    """
    hints = typing.get_type_hints(cls)
    if not isinstance(value, dict):
        raise invalid_argument(prefix or "recipe", value, "an object")
    arguments = {}
    for name, item in value.items():
        if name not in hints:
            raise unknown_name("recipe field", prefix + name, [prefix + hint for hint in hints])
        arguments[name] = _checked(hints[name], item, prefix + name)
    for item in dataclasses.fields(cls):
        required = item.default is dataclasses.MISSING and item.default_factory is dataclasses.MISSING
        if required and item.name not in arguments:
            raise invalid_argument(prefix or "recipe", sorted(value), f"an object with {item.name!r}")
    return cls(**arguments)


def _checked(hint: Any, value: Any, path: str) -> Any:
    if dataclasses.is_dataclass(hint):
        return from_plain(hint, value, path + ".")
    allowed = typing.get_args(hint) if isinstance(hint, types.UnionType) else (hint,)
    if isinstance(value, Given):
        value = value.value(allowed)
    for kind in allowed:
        if kind is float and isinstance(value, int) and not isinstance(value, bool):
            return float(value)
        if isinstance(value, kind) and not (kind is int and isinstance(value, bool)):
            return value
    names = ["null" if kind is types.NoneType else kind.__name__ for kind in allowed]
    raise invalid_argument(path, value, " or ".join(names))
