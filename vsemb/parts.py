"""Typed parts: the frozen dataclasses of which recipes consist.

A part is one choice of a family, such as a text encoder. Its fields are exactly the settings of this choice. Its class
is defined beside the object that it builds:

    class TextEncoder(Part, family="text encoder"):          # the family
        ...

    @dataclass(frozen=True)
    class Linear(TextEncoder, kind="linear"):                # a choice
        '''Sum or mean of word vectors.

        Attributes:
            reduce: `sum` or `mean` of a sentence's word vectors.
        '''

        reduce: Literal["sum", "mean"] = "sum"

Types, ranges and literals are checked when a part is created. In JSON a part is an object with the key `kind` and its
fields. A subclass of `Part` without a family is a record of fields, without a kind.
"""

from __future__ import annotations

import dataclasses
import inspect
import json
import math
import numbers
import re
import types
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, Self

from vsemb import registry
from vsemb.errors import DataError, InvalidArgumentError, VsembError, invalid_argument, unknown_name

#: Key of a part's kind in JSON.
KIND = "kind"


@dataclass(frozen=True)
class Range:
    """Range of a numeric field.

    Attributes:
        allowed: the range as a phrase.
        holds: whether a number is in the range; must be false for NaN.
        read: function that reads a number from a command line; None for `int` or `float`. It raises ValueError.
    """

    allowed: str
    holds: Callable[[float], bool]
    read: Callable[[str], float] | None = None


def between(low: int, high: int) -> Range:
    """Return the range of the integers from `low` to `high`."""
    return Range(f"an integer from {low} to {high}", lambda value: low <= value <= high)


def at_least(low: int) -> Range:
    """Return the range of the integers from `low` on."""
    return Range(f"an integer >= {low}", lambda value: value >= low)


Count = Annotated[int, at_least(1)]
Whole = Annotated[int, at_least(0)]
Port = Annotated[int, between(0, 65535)]
# Above all useful values, below the limits of memory and of int32.
Size = Annotated[int, between(1, 65536)]
Share = Annotated[float, Range("a number in [0, 1)", lambda value: 0 <= value < 1)]
Probability = Annotated[float, Range("a number in [0, 1]", lambda value: 0 <= value <= 1)]
Positive = Annotated[float, Range("a finite number > 0", lambda value: 0 < value < math.inf)]
NonNegative = Annotated[float, Range("a finite number >= 0", lambda value: 0 <= value < math.inf)]
Finite = Annotated[float, Range("a finite number", math.isfinite)]
# Sums of seed and epoch must fit int32.
Seed = Annotated[int, between(0, 10**9)]


@dataclass(frozen=True)
class Part:
    """Base class of all parts.

    Class attributes:
        family: name of the family; None for a record.
        kind: name of this choice in its family; None for the family itself and for records.
        made_of: name of a fingerprint of the part in `run.json` -> phrase for a different one, such as
            `another dataset`. A resumed run must have the same fingerprint. Entries of base classes are inherited.
    """

    family: ClassVar[str | None] = None
    kind: ClassVar[str | None] = None
    made_of: ClassVar[Mapping[str, str]] = {}

    def __init_subclass__(cls, *, family: str | None = None, kind: str | None = None, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if family is not None:
            cls.family = family
        cls.kind = kind
        if kind is not None:
            if cls.family is None:
                raise invalid_argument("kind", kind, "a subclass of a part with a family")
            registry.register(cls.family, kind, cls)

    def __post_init__(self) -> None:
        for name, hint in fields_of(type(self)).items():
            value = _checked(hint, getattr(self, name), name)
            # An integer is converted to float for a float field.
            object.__setattr__(self, name, value)
        self.check()

    @property
    def label(self) -> str:
        """Name of the choice in reports: its kind, or a more specific name."""
        return str(self.kind)

    def check(self) -> None:
        """Check conditions on several fields of the part; for subclasses.

        Raises:
            InvalidArgumentError: with the name of the field.
        """

    def keep_files(self, folder: Path) -> None:
        """Write the files that the part needs into a new run directory; for subclasses.

        Args:
            folder: the run directory during its creation.
        """

    def localized(self, path: Path) -> Part:
        """Return the part with the paths of the files in run directory `path`; for subclasses."""
        return self

    def without_downloads(self) -> Part:
        """Return the part with random instead of published weights; for subclasses."""
        return self

    def arguments(self, *without: str) -> dict[str, Any]:
        """Return the fields that are not parts, as keyword arguments of the object that the part builds.

        Args:
            without: names of fields to leave out.
        """
        values = {name: getattr(self, name) for name in fields_of(type(self)) if name not in without}
        return {name: value for name, value in values.items() if not isinstance(value, Part)}

    def to_json(self) -> dict[str, Any]:
        """Return the part and its nested parts as JSON values."""
        plain: dict[str, Any] = {} if self.kind is None else {KIND: self.kind}
        for name in fields_of(type(self)):
            value = getattr(self, name)
            plain[name] = value.to_json() if isinstance(value, Part) else value
        return plain

    @classmethod
    def from_json(cls, value: Any) -> Self:
        """Rebuild a part from the result of `to_json`; a missing field has its default.

        Raises:
            DataError: if a field is unknown, of the wrong type or outside its range.
        """
        try:
            return _checked(cls, value, "")
        except VsembError as error:
            raise DataError(f"{cls.__name__} cannot be read. {error}") from error

    def with_overrides(self, assignments: Sequence[str]) -> Self:
        """Return the part with fields replaced.

        Args:
            assignments: `path.to.field=value`; the value is JSON or a plain string. For a field with a part, the
                value is a kind, and the part has its defaults. Kinds are set before the fields of their parts.

        Raises:
            InvalidArgumentError: for an unknown field, with the most similar one, or an invalid value.
        """
        plain = self.to_json()
        split: list[tuple[list[str], str]] = []
        for assignment in assignments:
            path, equals, text = assignment.partition("=")
            if not equals:
                raise invalid_argument("set", assignment, "path.to.field=value")
            split.append((path.strip().split("."), text.strip()))
            if path.strip() not in fields_of(type(self)):
                longer = [each for each in _paths(plain) if each.endswith(f".{path.strip()}")]
                if longer:
                    raise invalid_argument("recipe field", path.strip(), f"a whole path: {' or '.join(longer[:3])}")
        for names, text in sorted(split, key=lambda one: len(one[0])):
            _assign(type(self), plain, names, text)
        return _checked(type(self), plain, "")


def _paths(plain: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    """Yield the paths of the fields of a part as JSON."""
    for name, value in plain.items():
        yield prefix + name
        if isinstance(value, Mapping):
            yield from _paths(value, f"{prefix}{name}.")


_FIELDS: dict[type[Any], Mapping[str, Any]] = {}


def fields_of(cls: type[Any]) -> Mapping[str, Any]:
    """Return field name -> type hint for a part or another dataclass."""
    if cls not in _FIELDS:
        hints = typing.get_type_hints(cls, include_extras=True)
        _FIELDS[cls] = {each.name: hints[each.name] for each in dataclasses.fields(cls)}
    return _FIELDS[cls]


def _typed(text: str, accepted: tuple[Any, ...]) -> Any:
    """Parse a typed value; accepted types decide, because a fingerprint may consist of digits only."""
    words = {"true": True, "false": False, "null": None, "none": None}
    if text.lower() in words and not (str in accepted and types.NoneType not in accepted):
        return words[text.lower()]
    try:
        parsed = json.loads(text)
    except ValueError:
        return text
    return text if str in accepted and not isinstance(parsed, str) else parsed


_UNIONS = (types.UnionType, typing.Union)


@dataclass(frozen=True)
class Hint:
    """Components of a type hint.

    Attributes:
        accepted: plain types, including `NoneType`.
        literals: allowed values of a literal.
        range: range of numbers.
        part: family or record of a field with a part.
        items: hint of the items of a sequence, which may have any number of them.
        values: hint of the values of a mapping, whose keys are strings.
    """

    accepted: tuple[Any, ...] = ()
    literals: tuple[Any, ...] = ()
    range: Range | None = None
    part: type[Part] | None = None
    items: Hint | None = None
    values: Hint | None = None

    @property
    def allowed(self) -> str:
        """Allowed values of the field as a phrase."""
        phrases = []
        if self.literals:
            phrases.append(f"one of {', '.join(map(str, self.literals))}")
        if self.range is not None:
            phrases.append(self.range.allowed)
        if self.items is not None:
            phrases.append(f"a sequence, each item {self.items.allowed}")
        if self.values is not None:
            phrases.append(f"a mapping, each value {self.values.allowed}")
        if self.part is not None:
            phrases.append(f"a {self.part.family or self.part.__name__}")
        told = {type(value) for value in self.literals}
        if self.range is not None:
            told |= {int, float}
        phrases += [kind.__name__ for kind in self.accepted if kind is not types.NoneType and kind not in told]
        return " or ".join([*phrases, *["null"] * (types.NoneType in self.accepted)])

    def lists(self, value: object) -> bool:
        """Whether the value is one of the literals. `True` is not 1."""
        return any(type(each) is type(value) and each == value for each in self.literals)


def read_hint(hint: Any) -> Hint:
    """Split a type hint of a field into its components."""
    if typing.get_origin(hint) is Annotated and typing.get_origin(typing.get_args(hint)[0]) in _UNIONS:
        # Only the parts of a union have ranges.
        hint = typing.get_args(hint)[0]
    accepted: list[Any] = []
    read = Hint()
    union = typing.get_origin(hint) in _UNIONS
    for each in typing.get_args(hint) if union else (hint,):
        if typing.get_origin(each) is Annotated:
            each, *extras = typing.get_args(each)
            read = dataclasses.replace(read, range=next((e for e in extras if isinstance(e, Range)), None))
        if typing.get_origin(each) is typing.Literal:
            read = dataclasses.replace(read, literals=read.literals + typing.get_args(each))
            accepted += {type(value) for value in typing.get_args(each)}
        elif isinstance(each, type) and issubclass(each, Part):
            read = dataclasses.replace(read, part=each)
        elif typing.get_origin(each) in (tuple, Sequence):
            read = dataclasses.replace(read, items=read_hint(typing.get_args(each)[0]))
        elif typing.get_origin(each) is Mapping:
            read = dataclasses.replace(read, values=read_hint(typing.get_args(each)[1]))
        else:
            accepted.append(typing.get_origin(each) or each)
    return dataclasses.replace(read, accepted=tuple(dict.fromkeys(accepted)))


def _checked(hint: Any, value: Any, path: str) -> Any:
    """Convert a plain value or a part to the type of a field, and check it."""
    return checked_value(read_hint(hint), value, path)


def checked_value(read: Hint, value: Any, path: str) -> Any:
    """Convert a value to a type, and check it.

    Args:
        read: the type.
        value: a plain value, a part, or the JSON values of one.
        path: name of the argument or field, for the message.

    Returns:
        The value; sequences are tuples, and an integer is a float if only that is accepted.

    Raises:
        InvalidArgumentError: if the value is of another type, or not allowed.
    """
    if value is None and types.NoneType in read.accepted:
        return None
    if read.items is not None and isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return tuple(checked_value(read.items, item, path) for item in value)
    if read.values is not None and isinstance(value, Mapping):
        return {name: checked_value(read.values, item, f"{path}.{name}") for name, item in value.items()}
    if read.part is not None and not (isinstance(value, str) and str in read.accepted):
        return _checked_part(read.part, value, path)
    # Numbers of NumPy become Python's.
    if isinstance(value, numbers.Integral) and not isinstance(value, bool):
        value = float(value) if float in read.accepted and int not in read.accepted else int(value)
    elif isinstance(value, numbers.Real) and not isinstance(value, bool):
        value = float(value)
    exact = bool if isinstance(value, bool) else object
    fits = any(isinstance(value, kind) and exact in (object, kind) for kind in read.accepted)
    # The nearest literal helps more than a type.
    if not fits and not (read.literals and isinstance(value, str)):
        raise invalid_argument(path, value, read.allowed)
    _require(read, path, value)
    return value


def require(name: str, value: Any, hint: Any) -> None:
    """Check a value against the range and the literals of a type hint, if it has any.

    Raises:
        InvalidArgumentError: if the value is not allowed.
    """
    read = read_hint(hint)
    if not (value is None and types.NoneType in read.accepted):
        _require(read, name, value)


def _require(read: Hint, name: str, value: Any) -> None:
    if read.lists(value):
        return
    if read.range is not None:
        number = isinstance(value, numbers.Real if float in read.accepted else numbers.Integral)
        if not number or isinstance(value, bool) or not read.range.holds(value):
            raise invalid_argument(name, value, read.allowed)
    elif read.literals:
        if isinstance(value, str):
            raise unknown_name(name, value, map(str, read.literals))
        raise invalid_argument(name, value, read.allowed)


def require_fields(record: Any) -> None:
    """Check the fields of a dataclass that is not a part, see `require`."""
    for name, hint in fields_of(type(record)).items():
        require(name, getattr(record, name), hint)


def _checked_part(cls: type[Part], value: Any, path: str) -> Part:
    if isinstance(value, cls):
        return value
    if isinstance(value, str) and cls.family is not None:
        value = {KIND: value}
    if not isinstance(value, dict):
        raise invalid_argument(path or "recipe", value, f"an object with the fields of {cls.family or cls.__name__}")
    value = dict(value)
    if cls.family is not None:
        kind = value.pop(KIND, None)
        if not isinstance(kind, str):
            kinds = ", ".join(registry.kinds(cls.family))
            raise invalid_argument(path or KIND, kind, f"an object with {KIND!r}, one of {kinds}")
        found = registry.find_part(cls.family, kind, path or KIND)
        if not issubclass(found, cls):
            raise invalid_argument(path or KIND, kind, f"a kind of {cls.__name__}")
        cls = found
    hints = fields_of(cls)
    prefix = f"{path}." if path else ""
    arguments = {}
    for name, item in value.items():
        if name not in hints:
            raise _unknown_field(cls, prefix, name)
        arguments[name] = _checked(hints[name], item, prefix + name)
    for each in dataclasses.fields(cls):
        required = each.default is dataclasses.MISSING and each.default_factory is dataclasses.MISSING
        if required and each.name not in arguments:
            raise invalid_argument(path or "recipe", sorted(value), f"an object with {each.name!r}")
    return cls(**arguments)


def _unknown_field(cls: type[Part], prefix: str, name: str) -> InvalidArgumentError:
    """Return the error for an unknown field; `prefix` is the path to the part, with a dot."""
    names = [prefix + each for each in fields_of(cls)]
    if names:
        return unknown_name("recipe field", prefix + name, names)
    return invalid_argument("recipe field", prefix + name, f"omitted, since {cls.kind!r} has no fields")


def _assign(cls: type[Part], plain: dict[str, Any], path: list[str], text: str, parents: str = "") -> None:
    """Set one field in the JSON values of a part."""
    name, *rest = path
    if cls.family is not None and cls.kind is None:
        cls = registry.find_part(cls.family, plain[KIND], parents)
    hints = fields_of(cls)
    full = f"{parents}.{name}".lstrip(".")
    if name not in hints:
        prefix = f"{parents}." if parents else ""
        raise _unknown_field(cls, prefix, name)
    read = read_hint(hints[name])
    part = read.part
    if rest:
        if part is None or plain[name] is None:
            raise invalid_argument("set", f"{full}.{'.'.join(rest)}", f"{full}=value: it has no fields")
        _assign(part, plain[name], rest, text, full)
        return
    if part is not None and part.family is None:
        raise invalid_argument("set", full, f"one of {', '.join(f'{full}.{each}' for each in fields_of(part))}")
    value = _typed(text, read.accepted if part is None else (str, *read.accepted))
    if part is not None and isinstance(value, str):
        # Defaults only: further assignments may be required before the part is valid.
        plain[name] = _defaults(registry.find_part(part.family or "", value, full))
        return
    value = _checked(hints[name], value, full)
    plain[name] = value.to_json() if isinstance(value, Part) else value


def _defaults(cls: type[Part]) -> dict[str, Any]:
    """Return a kind and the defaults of its fields as JSON values."""
    plain: dict[str, Any] = {KIND: cls.kind}
    for each in dataclasses.fields(cls):
        value = each.default if each.default_factory is dataclasses.MISSING else each.default_factory()
        if value is not dataclasses.MISSING:
            plain[each.name] = value.to_json() if isinstance(value, Part) else value
    return plain


def explanations(cls: type[Part]) -> dict[str, str]:
    """Return field name -> explanation, from `Attributes:` in the docstrings of the class and its base classes."""
    found: dict[str, str] = {}
    for each in reversed(cls.__mro__):
        found |= entries_of(vars(each).get("__doc__") or "", "Attributes")
    return {name: found.get(name, "") for name in fields_of(cls)}


def entries_of(docstring: str, section: str) -> dict[str, str]:
    """Return name -> explanation, from a section of a docstring in Google's style.

    Args:
        docstring: the docstring.
        section: title of the section, such as `Args`.

    Example:

    >>> entries_of(entries_of.__doc__, "Args")["section"]
    'title of the section, such as `Args`.'
    """
    text = inspect.cleandoc(docstring).partition(f"\n{section}:\n")[2]
    # The section ends at the first line without indentation.
    text = re.split(r"^(?=\S)", text, maxsplit=1, flags=re.MULTILINE)[0]
    entries = re.findall(r"^    \*{0,2}(\w+): (.*(?:\n {5,}.*)*)", text, re.MULTILINE)
    return {name: " ".join(explained.split()) for name, explained in entries}


def walk(part: Part) -> Iterator[Part]:
    """Yield a part and all nested parts, parents first."""
    yield part
    for name in fields_of(type(part)):
        value = getattr(part, name)
        if isinstance(value, Part):
            yield from walk(value)


def rebuilt(part: Part, change: Callable[[Part], Part]) -> Any:
    """Return a part with `change` applied to every nested part and to the part itself."""
    values = {name: getattr(part, name) for name in fields_of(type(part))}
    changed = {name: rebuilt(value, change) for name, value in values.items() if isinstance(value, Part)}
    return change(dataclasses.replace(part, **changed) if changed else part)
