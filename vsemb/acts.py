"""Acts: functions that a person calls, from Python or as commands, such as `vsemb.train`.

An act is a function with the decorator `act`. Its signature is the only list of its options: the decorator checks the
arguments by their type hints, as `vsemb.parts` checks fields of parts, and `vsemb.cli` makes a command of it.

    @act
    def convert(data: Dataset | str | PathLike[str], out: str, *, images_per_file: Count = 1024) -> Files:
        '''Write a dataset in the format of other programs.

        Args:
            data: a prepared dataset.
            ...

Modules of acts import nothing heavy outside functions, so that `--help` needs no TensorFlow. Classes that they import
for type checkers alone, like `Dataset` here, are compared by name.

Parameters become arguments of the command: those without a default by their place, others as options. `Option` in a
hint changes that. `**options: Annotated[Any, Fields("protocol", by="protocol")]` takes the fields of the part that the
parameter `protocol` names; without `by`, the fields of any parts of a family.
"""

from __future__ import annotations

import builtins
import functools
import inspect
import typing
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ParamSpec, TypeVar

from vsemb import registry
from vsemb.errors import invalid_argument, unknown_name
from vsemb.parts import Hint, Part, checked_value, entries_of, fields_of, read_hint, require_length

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T", bound=Part)


@dataclass(frozen=True)
class Option:
    """How a parameter is written on the command line, if not as its hint says; stands in `Annotated`.

    Attributes:
        by_place: whether it is an argument by its place, or an option such as `--out`. None: by its place if it has no
            default.
        repeated: whether each item of a sequence has its own option: `--plus red --plus old`.
        names: names of the items in a sequence of a certain length, for the help.
        in_python: whether Python alone can give it, since it is an object.
    """

    by_place: bool | None = None
    repeated: bool = False
    names: tuple[str, ...] | None = None
    in_python: bool = False


@dataclass(frozen=True)
class Fields:
    """Says which parts the keyword arguments of `**options` are fields of; stands in `Annotated`.

    Attributes:
        family: family of the parts.
        by: name of the parameter that holds a part or its kind; None for any parts of the family.
    """

    family: str
    by: str | None = None

    @property
    def parts(self) -> dict[str, type[Part]]:
        """Kind -> class."""
        return {kind: registry.find_part(self.family, kind, self.family) for kind in registry.kinds(self.family)}

    def hints(self) -> dict[str, Any]:
        """Return name -> type hint of the fields of all parts."""
        return {name: hint for part in self.parts.values() for name, hint in fields_of(part).items()}


@dataclass(frozen=True)
class Parameter:
    """A parameter of an act.

    Attributes:
        name: its name.
        hint: its type.
        default: its default; `inspect.Parameter.empty` for none.
        positional: whether it can be given by its place.
        explanation: its text in the docstring.
        option: its form on the command line.
    """

    name: str
    hint: Hint
    default: Any
    positional: bool
    explanation: str
    option: Option

    @property
    def required(self) -> bool:
        """Whether it has no default."""
        return self.default is inspect.Parameter.empty

    @property
    def by_place(self) -> bool:
        """Whether the command takes it by its place."""
        if self.option.by_place is not None:
            return self.option.by_place
        return self.required and self.positional


@dataclass(frozen=True)
class CallSignature:
    """The signature of an act.

    Attributes:
        parameters: name -> parameter, without `**options`.
        options: the parts of which `**options` takes fields; None for an act without it.
        values: explanation of the keywords of an act that takes any, such as fields of a recipe; None for others.
        summary: first line of the docstring.
        description: the docstring up to its first section, without the first line.
    """

    parameters: Mapping[str, Parameter]
    options: Fields | None
    values: str | None
    summary: str
    description: str

    def check_names(self, given: Iterable[str]) -> None:
        """Refuse unknown keywords of a call.

        Raises:
            InvalidArgumentError: for the first, with the most similar name.
        """
        if self.values is not None:
            return
        names = [*self.parameters, *(self.options.hints() if self.options is not None else ())]
        for name in given:
            if name not in names:
                raise unknown_name("argument", name, names)


class Unloaded:
    """Base class of stand-ins for classes that a module imports for type checkers alone."""


class _Names(dict[str, Any]):
    """Names of a module; a name that it lacks is a stand-in for a class of this name."""

    def __missing__(self, name: str) -> type:
        self[name] = type(name, (Unloaded,), {})
        stand_in: type = self[name]
        return stand_in


def resolved_hints(function: Callable[..., Any]) -> dict[str, Any]:
    """Return the type hints of a function, with stand-ins for classes that were imported for type checkers alone."""
    names = _Names(vars(builtins) | getattr(inspect.unwrap(function), "__globals__", {}))
    return typing.get_type_hints(inspect.unwrap(function), names, names, include_extras=True)


@functools.cache
def signature_of(function: Callable[..., Any]) -> CallSignature:
    """Return the signature of an act."""
    hints = resolved_hints(function)
    doc = inspect.getdoc(function) or ""
    explained = entries_of(doc, "Args")
    parameters: dict[str, Parameter] = {}
    options: Fields | None = None
    values: str | None = None
    for name, given in inspect.signature(function).parameters.items():
        extras = typing.get_args(hints[name])[1:] if typing.get_origin(hints[name]) is Annotated else ()
        if given.kind is given.VAR_KEYWORD:
            options = next((extra for extra in extras if isinstance(extra, Fields)), None)
            values = explained.get(name, "") if options is None else None
            continue
        parameters[name] = Parameter(
            name,
            read_hint(hints[name]),
            given.default,
            given.kind is not given.KEYWORD_ONLY,
            explained.get(name, ""),
            next((extra for extra in extras if isinstance(extra, Option)), Option()),
        )
    summary, _, rest = doc.partition("\n")
    description = rest.partition("\nArgs:\n")[0].partition("\nReturns:\n")[0].strip()
    return CallSignature(parameters, options, values, summary, description)


def act(function: Callable[P, R]) -> Callable[P, R]:
    """Check the arguments of a function by their type hints.

    Raises:
        InvalidArgumentError: for a value of another type or outside its range, and for an unknown keyword, with the
            most similar name.
    """

    @functools.wraps(function)
    def checked(*args: P.args, **kwargs: P.kwargs) -> R:
        signature = signature_of(function)
        known = signature.parameters
        signature.check_names(kwargs)
        bound = inspect.signature(function).bind(*args, **kwargs)
        for name, value in bound.arguments.items():
            if name in known and value is not known[name].default:
                packages = {"vsemb", "keras", _root(function.__module__)}
                bound.arguments[name] = _checked(known[name].hint, value, name, packages)
        return function(*bound.args, **bound.kwargs)

    return checked


def _checked(hint: Hint, value: Any, name: str, packages: Collection[str]) -> Any:
    """Check an argument.

    Objects are returned as they are, if their class or a base class has the name of a hint and is of a package.
    """
    if hint.items is not None and isinstance(value, Sequence) and not isinstance(value, str | bytes):
        require_length(hint, value, name)
        return tuple(_checked(hint.items, item, name, packages) for item in value)
    if hint.values is not None and isinstance(value, Mapping):
        if unnamed := [key for key in value if not isinstance(key, str)]:
            raise invalid_argument(name, unnamed[0], "a mapping whose keys are names")
        return {key: _checked(hint.values, item, f"{name}.{key}", packages) for key, item in value.items()}
    names = {kind.__name__ for kind in hint.accepted if issubclass(kind, Unloaded)}
    if any(base.__name__ in names and _root(base.__module__) in packages for base in type(value).__mro__):
        return value
    if isinstance(value, str) and not value and str in hint.plain:
        raise invalid_argument(name, value, "a text of at least one character")
    return checked_value(hint, value, name)


def _root(module: str) -> str:
    return module.partition(".")[0]


def chosen(family: type[T], by: str, choice: T | str, options: Mapping[str, Any]) -> T:
    """Return the part that an act was told to use.

    Args:
        family: its family.
        by: name of the act's parameter, for the message.
        choice: the part, or its kind.
        options: field -> value, only with a kind.

    Raises:
        InvalidArgumentError: for an unknown kind or field, with the most similar one, or a value that does not fit.
    """
    if isinstance(choice, Part):
        for name, value in options.items():
            fix = f"Give it to the object itself, or name the {family.family} {choice.kind!r} in its place."
            raise invalid_argument(name, value, f"omitted with an object for `{by}`", fix)
        return typing.cast(T, checked_value(Hint(part=family), choice, by))
    kind = registry.find_part(str(family.family), choice, by)
    _check_names(kind, options)
    return typing.cast(T, kind(**options))


def _check_names(part: type[Part], options: Mapping[str, Any]) -> None:
    known = fields_of(part)
    for name in options:
        if name in known:
            continue
        parts = Fields(str(part.family)).parts
        owners = [kind for kind, each in parts.items() if name in fields_of(each)]
        if owners:
            raise invalid_argument(name, options[name], f"omitted for {part.kind}; it is for {' and '.join(owners)}")
        if not known:
            raise invalid_argument("option", name, f"omitted, since {part.kind} has no options")
        raise unknown_name("option", name, known)


def additions(family: type[T], options: Mapping[str, Any]) -> list[T]:
    """Return the parts of a family that some options are fields of, each with its options.

    Args:
        family: the family.
        options: field -> value; a field belongs to one part.

    Raises:
        InvalidArgumentError: for an unknown field, with the most similar one, or a value that does not fit.
    """
    fields = Fields(str(family.family))
    hints = fields.hints()
    for name in options:
        if name not in hints:
            raise unknown_name("option", name, hints)
    made = []
    for part in fields.parts.values():
        own = {name: value for name, value in options.items() if name in fields_of(part)}
        if own:
            made.append(typing.cast(T, part(**own)))
    return made
