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
import os
import re
import types
import typing
from collections.abc import Callable, ItemsView, Iterable, Iterator, KeysView, Mapping, Sequence, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, Self

from vsemb import registry
from vsemb.errors import DataError, InvalidArgumentError, VsembError, invalid_argument, unknown_name

#: Key of a part's kind in JSON.
KIND = "kind"


class Typed(str):
    """Text of a command line, which is parsed by the type of its field: for a field of numbers, `3` is a number."""

    __slots__ = ()


@dataclass(frozen=True)
class Range:
    """Range of a numeric field.

    Attributes:
        allowed: the range as a phrase.
        holds: whether a number is in the range; must be false for NaN.
        read: function that reads a number from text; None for `int` or `float`. It raises ValueError.
        shown: function that writes a number as `read` reads it.
    """

    allowed: str
    holds: Callable[[float], bool]
    read: Callable[[str], float] | None = None
    shown: Callable[[float], str] = str


def between(low: int, high: int) -> Range:
    """Return the range of the integers from `low` to `high`."""
    return Range(f"an integer from {low} to {high}", lambda value: low <= value <= high)


def at_least(low: int) -> Range:
    """Return the range of the integers from `low` on."""
    return Range(f"an integer >= {low}", lambda value: value >= low)


_UNITS = {"": 1, "KIB": 2**10, "MIB": 2**20, "GIB": 2**30}


def read_bytes_size(text: str) -> int:
    """Read a number of bytes, with or without a unit.

    Raises:
        ValueError: for any other text.

    Example:

    >>> read_bytes_size("32MiB"), read_bytes_size("1000")
    (33554432, 1000)
    """
    digits = text.rstrip("KMGiBkmgb")
    unit = text[len(digits) :].upper()
    if not digits.isdecimal() or unit not in _UNITS:
        raise ValueError(text)
    return int(digits) * _UNITS[unit]


def bytes_size(number: float) -> str:
    """Write a number of bytes, in the largest unit that needs no fraction.

    Example:

    >>> bytes_size(2**25), bytes_size(1000)
    ('32MiB', '1000')
    """
    for unit, size in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if number >= size and number % size == 0:
            return f"{int(number) // size}{unit}"
    return str(int(number))


#: A file or folder.
PathName = str | os.PathLike[str]
Count = Annotated[int, at_least(1)]
Whole = Annotated[int, at_least(0)]
#: Of an exported model: TensorFlow Serving reads int64.
Version = Annotated[int, between(1, 2**63 - 1)]
# Of a network; 0 stands for any free one.
Port = Annotated[int, between(0, 65535)]
Bytes = Annotated[
    int,
    Range("a number of bytes, KiB, MiB or GiB, such as 32MiB", lambda value: value >= 1, read_bytes_size, bytes_size),
]
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

    def with_overrides(self, assignments: Sequence[str], others: Iterable[str] = ()) -> Self:
        """Return the part with fields replaced.

        Args:
            assignments: `field=value`. A field is a path such as `path.to.field`, or the end of the path of one field
                only, with `.` or `_` between its steps. The value is JSON or a plain string. For a field with a part,
                the value is a kind, and the part has its defaults. Kinds are set before the fields of their parts.
            others: further names, for the error about an unknown field.

        Raises:
            InvalidArgumentError: for an unknown field, with the most similar one, or an invalid value.
        """
        plain, left = self.to_json(), [_split(assignment) for assignment in assignments]
        # First the parts, outer ones before inner ones, because they decide which fields exist.
        while parts := [(path, each) for each in left if (path := _part_path(type(self), plain, each[0]))]:
            path, chosen = min(parts, key=lambda one: one[0].count("."))
            left.remove(chosen)
            _assign(type(self), plain, path.split("."), chosen[1])
        for name, text in left:
            _assign(type(self), plain, self._path(plain, name, others).split("."), text)
        return _checked(type(self), plain, "")

    def fields_listed(self) -> str | None:
        """Return a sentence that says where all fields are listed, for errors; for subclasses."""
        return None

    def _path(self, plain: Mapping[str, Any], name: str, others: Iterable[str]) -> str:
        """Return the path of the field that an assignment names."""
        fitting = _named(type(self), plain, name)
        if len(fitting) > 1:
            longer = ", ".join(path.replace(".", "_") for path in fitting)
            message = f"`{name}` must name one recipe field; it fits several. Write one of {longer}."
            raise InvalidArgumentError(message, argument=name)
        if not fitting:
            paths = [path for path, _ in _fields(type(self), plain)]
            ends = {path.rpartition(".")[2] for path in paths}
            raise unknown_name("recipe field", name, sorted({*paths, *ends, *others}), self.fields_listed())
        return fitting[0]


def _split(assignment: str) -> tuple[str, str]:
    name, equals, text = assignment.partition("=")
    if not equals:
        raise invalid_argument("set", assignment, "field=value")
    return name.strip(), text.strip()


def _fields(cls: type[Part], plain: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Hint]]:
    """Yield the path and the type of each field of a part as JSON; after a field with a part, its fields follow."""
    if cls.family is not None:
        cls = _class_of(cls.family, plain[KIND], prefix)
    for name, hint in fields_of(cls).items():
        read, value = read_hint(hint), plain.get(name)
        yield prefix + name, read
        if read.part is not None and isinstance(value, Mapping):
            yield from _fields(read.part, value, f"{prefix}{name}.")


def _named(cls: type[Part], plain: Mapping[str, Any], name: str) -> list[str]:
    """Return the paths that a name is the end of; only the name itself if its first step is a field."""
    if name.partition(".")[0] in fields_of(cls):
        return [name]
    end = name.replace(".", "_")
    named = []
    for path, _ in _fields(cls, plain):
        steps = path.split(".")
        if end in ("_".join(steps[start:]) for start in range(len(steps))):
            named.append(path)
    return named


def _part_path(cls: type[Part], plain: Mapping[str, Any], name: str) -> str | None:
    """Return the path of the one field that a name is the end of, if it holds a part."""
    paths, fields = _named(cls, plain, name), dict(_fields(cls, plain))
    if len(paths) == 1 and paths[0] in fields and fields[paths[0]].part is not None:
        return paths[0]
    return None


_FIELDS: dict[type[Any], Mapping[str, Any]] = {}


def _class_of(family: str, kind: str, path: str) -> type[Any]:
    return registry.CLASSES.get((family, kind)) or registry.find_part(family, kind, path)


def fields_of(cls: type[Any]) -> Mapping[str, Any]:
    """Return field name -> type hint for a part or another dataclass."""
    if cls not in _FIELDS:
        hints = typing.get_type_hints(cls, include_extras=True)
        _FIELDS[cls] = {each.name: hints[each.name] for each in dataclasses.fields(cls)}
    return _FIELDS[cls]


def _typed(text: str, accepted: tuple[Any, ...]) -> Any:
    """Parse a typed value; accepted types decide, because a fingerprint may consist of digits only."""
    text = str(text)
    words = {"true": True, "false": False, "null": None, "none": None}
    if text.lower() in words and not (str in accepted and types.NoneType not in accepted):
        return words[text.lower()]
    try:
        parsed = json.loads(text)
    except (ValueError, RecursionError):
        return text
    return text if str in accepted and not isinstance(parsed, str) else parsed


_UNIONS = (types.UnionType, typing.Union)


@dataclass(frozen=True)
class Hint:
    """Components of a type hint.

    Attributes:
        plain: plain types, including `NoneType`.
        literals: allowed values of a literal.
        range: range of numbers.
        part: family or record of a field with a part.
        items: hint of the items of a sequence.
        length: number of its items; None for any number.
        values: hint of the values of a mapping, whose keys are strings.
    """

    plain: tuple[Any, ...] = ()
    literals: tuple[Any, ...] = ()
    range: Range | None = None
    part: type[Part] | None = None
    items: Hint | None = None
    length: int | None = None
    values: Hint | None = None

    @property
    def accepted(self) -> tuple[Any, ...]:
        """Plain types, and types of the literals."""
        return tuple(dict.fromkeys([*self.plain, *map(type, self.literals)]))

    @property
    def allowed(self) -> str:
        """Allowed values of the field as a phrase."""
        phrases = []
        if self.literals:
            phrases.append(f"one of {', '.join(map(str, self.literals))}")
        if self.range is not None:
            phrases.append(self.range.allowed)
        if self.items is not None:
            number = "a sequence" if self.length is None else f"a sequence of {self.length}"
            phrases.append(f"{number}, each item ({self.items.allowed})")
        if self.values is not None:
            phrases.append(f"a mapping of names to ({self.values.allowed})")
        if self.part is not None:
            phrases.append(f"a {self.part.family or self.part.__name__}")
        told = {types.NoneType} if self.range is None else {types.NoneType, int, float}
        phrases += [kind.__name__ for kind in self.plain if kind not in told]
        return " or ".join([*phrases, *["null"] * (types.NoneType in self.plain)])

    def lists(self, value: object) -> bool:
        """Whether the value is one of the literals. `True` is not 1."""
        return any(type(each) is type(value) and each == value for each in self.literals)


def read_hint(hint: Any) -> Hint:
    """Split a type hint of a field into its components."""
    plain: list[Any] = []
    read = Hint()
    if typing.get_origin(hint) is Annotated:
        hint, *extras = typing.get_args(hint)
        read = Hint(range=next((extra for extra in extras if isinstance(extra, Range)), None))
    union = typing.get_origin(hint) in _UNIONS
    for each in typing.get_args(hint) if union else (hint,):
        if typing.get_origin(each) is Annotated:
            each, *extras = typing.get_args(each)
            read = dataclasses.replace(read, range=next((e for e in extras if isinstance(e, Range)), None))
        if typing.get_origin(each) is typing.Literal:
            read = dataclasses.replace(read, literals=read.literals + typing.get_args(each))
        elif isinstance(each, type) and issubclass(each, Part):
            read = dataclasses.replace(read, part=each)
        elif typing.get_origin(each) in (tuple, Sequence):
            first, *others = typing.get_args(each)
            # `tuple[str, str]` has two items, `tuple[str, ...]` any number.
            length = len(others) + 1 if others and others[0] is not Ellipsis else None
            read = dataclasses.replace(read, items=read_hint(first), length=length)
        elif typing.get_origin(each) is Mapping:
            read = dataclasses.replace(read, values=read_hint(typing.get_args(each)[1]))
        else:
            plain.append(typing.get_origin(each) or each)
    return dataclasses.replace(read, plain=tuple(dict.fromkeys(plain)))


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
    if isinstance(value, Typed):
        value = _typed(value, read.accepted)
    if isinstance(value, str) and read.range is not None and read.range.read is not None:
        value = _read_number(read, value, path)
    if value is None and types.NoneType in read.plain:
        return None
    if read.items is not None and isinstance(value, Sequence) and not isinstance(value, str | bytes):
        require_length(read, value, path)
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
    if read.lists(value):
        return value
    exact = bool if isinstance(value, bool) else object
    if not any(isinstance(value, kind) and exact in (object, kind) for kind in read.plain):
        raise _not_allowed(read, path, value)
    if read.range is not None:
        _require(read, path, value)
    return value


def require_length(read: Hint, value: Sequence[Any], path: str) -> None:
    """Check the number of items of a sequence.

    Raises:
        InvalidArgumentError: for another number than that of the hint.
    """
    if read.length not in (None, len(value)):
        raise invalid_argument(path, value, read.allowed)


def _read_number(read: Hint, text: str, path: str) -> float:
    assert read.range is not None and read.range.read is not None
    try:
        return read.range.read(text)
    except ValueError as error:
        raise invalid_argument(path, text, read.allowed) from error


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
        raise _not_allowed(read, name, value)


def _not_allowed(read: Hint, name: str, value: Any) -> InvalidArgumentError:
    if read.literals and isinstance(value, str):
        return unknown_name(name, value, map(str, read.literals))
    return invalid_argument(name, value, read.allowed)


def path_of(name: str, value: Any) -> Path:
    """Return the path of a file or folder, after a check of its type.

    Args:
        name: name of the argument, for the message.
        value: its value.

    Raises:
        InvalidArgumentError: for another type, such as an open file.

    Example:

    >>> path_of("out", "data/pets")
    PosixPath('data/pets')
    """
    if not isinstance(value, str | os.PathLike):
        raise invalid_argument(name, type(value).__name__, "the path of a file or folder")
    return Path(value)


def in_order(name: str, values: Any, allowed: str | None = None) -> list[Any]:
    """Return values that others belong to by their places, after a check that they have an order.

    Args:
        name: name of the argument, a plural, for the message.
        values: the values, a sequence, array, column or iterator.
        allowed: the allowed values as a phrase; default: a list.

    Raises:
        InvalidArgumentError: for one value, a set, whose order differs between processes, or a mapping.

    Example:

    >>> in_order("captions", ("a dog", "a cat"))
    ['a dog', 'a cat']
    """
    allowed = allowed or f"a list of {name}"
    if isinstance(values, str | bytes | os.PathLike):
        raise invalid_argument(name, values, allowed)
    kind = type(values).__name__
    if getattr(values, "ndim", 1) == 0 or not isinstance(values, Iterable):
        raise invalid_argument(name, kind, allowed)
    # The views of a dictionary are sets, too, but have its order.
    if isinstance(values, Set) and not isinstance(values, KeysView | ItemsView):
        fix = "Keep them in a list from the start."
        raise invalid_argument(name, kind, f"{allowed}, since a set has no order", fix)
    if isinstance(values, Mapping):
        raise invalid_argument(name, kind, allowed, "Of a dictionary: list(dictionary.values()).")
    return list(values)


def require_all(values: Mapping[str, Any], hints: Mapping[str, Any]) -> None:
    """Check values by their type hints, see `require`.

    Args:
        values: name -> value.
        hints: name -> type hint, of the values to check.
    """
    for name, hint in hints.items():
        require(name, values[name], hint)


def require_fields(record: Any) -> None:
    """Check the fields of a dataclass that is not a part, see `require`."""
    require_all(vars(record), fields_of(type(record)))


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
        chosen = _class_of(cls.family, kind, path or KIND)
        if not issubclass(chosen, cls):
            raise invalid_argument(path or KIND, kind, f"a kind of {cls.__name__}")
        cls = chosen
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
        cls = _class_of(cls.family, plain[KIND], parents)
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
        plain[name] = _defaults(_class_of(part.family or "", value, full))
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
    explained: dict[str, str] = {}
    for each in reversed(cls.__mro__):
        explained |= entries_of(vars(each).get("__doc__") or "", "Attributes")
    return {name: explained.get(name, "") for name in fields_of(cls)}


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
    parts = {name: rebuilt(value, change) for name, value in values.items() if isinstance(value, Part)}
    changed = {name: value for name, value in parts.items() if value is not values[name]}
    return change(dataclasses.replace(part, **changed) if changed else part)
