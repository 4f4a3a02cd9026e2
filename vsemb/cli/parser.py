"""Parsers of commands, made from the signatures of acts, see `vsemb.acts`.

`argparse` is enough: ranges and kinds of parts are checked by the act itself, on every way to it. Libraries that make
parsers from signatures support neither parts, whose kinds systems bring, nor imports for type checkers alone.
"""

from __future__ import annotations

import argparse
import difflib
import inspect
import os
import re
import textwrap
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NoReturn

import vsemb
from vsemb import registry
from vsemb.acts import Fields, Option, Parameter, signature_of
from vsemb.errors import invalid_argument, printable
from vsemb.parts import Hint, Typed, explanations, fields_of, read_hint
from vsemb.runs.inputs import is_manifest, is_part_of

#: Types whose values a word of a command line can be.
_PLAIN = {str, int, float, bool}
_NEGATIVE = re.compile(r"-(\d+\.?\d*|\.\d+)(e[-+]?\d+)?|-inf", re.IGNORECASE)
#: Options of all commands.
SHARED = ("json", "quiet")


class Parser(argparse.ArgumentParser):
    """A parser whose errors name the most similar option or command."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        # By itself, `argparse` takes -1e-3 and -inf for options.
        self._negative_number_matcher = _NEGATIVE

    def parse_args_anywhere(self, words: Sequence[str]) -> argparse.Namespace:
        """Parse words whose options may stand before, between and after arguments by place."""
        given, unknown = self.parse_known_intermixed_args(words)
        if unknown:
            flags = [flag for action in self._actions for flag in action.option_strings]
            near = difflib.get_close_matches(unknown[0].partition("=")[0], flags, n=1)
            fix = f". Did you mean {near[0]}?" if near else ""
            self.error(f"unrecognized arguments: {' '.join(unknown)}{fix}")
        return given

    def error(self, message: str) -> NoReturn:
        """Print the usage and the error, and exit with status 2."""
        if message.endswith(("expected one argument", "expected at least one argument")):
            message += ". A value that begins with a dash is joined to its option, as in --minus=-blue"
        super().error(message)


def parser_of(name: str, command: registry.Command) -> Parser:
    """Return the parser of a command. Its namespace has the arguments that were given, and no others.

    Args:
        name: its name.
        command: its declaration.
    """
    signature = signature_of(registry.load(command.act))
    examples = [*command.examples, *(each for system in registry.systems() for each in system.examples.get(name, ()))]
    parser = Parser(
        prog=f"vsemb {name}",
        description=f"{signature.summary}\n\n{signature.description}".strip(),
        epilog="\n".join(["examples:", *(f"  {line}" for line in examples), "", f"In Python: {_public_name(command)}"]),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        # Abbreviations are disabled, because `--k` would be read as `--keep-query`.
        allow_abbrev=False,
        argument_default=argparse.SUPPRESS,
    )
    for parameter in signature.parameters.values():
        if parameter.option.in_python:
            continue
        if signature.options is not None and parameter.name == signature.options.by:
            kinds = ", ".join(registry.kinds(signature.options.family))
            parameter = replace(parameter, explanation=f"{parameter.explanation.rstrip('.')}; one of {kinds}")
        _add(parser, parameter)
    if signature.values is not None:
        about = f"{_phrase(signature.values)}; repeatable"
        parser.add_argument("--set", action=_Settings, type=_pair(Typed), metavar="FIELD=VALUE", help=about)
    if signature.options is not None:
        _add_fields(parser, signature.options, signature.parameters)
    parser.add_argument("--json", metavar="FILE", help="also write the results as JSON to FILE; - prints only JSON")
    parser.add_argument("--quiet", action="store_true", help="print only results and errors")
    parser.usage = _usage(parser)
    return parser


def _public_name(command: registry.Command) -> str:
    """Return the name by which Python code calls the act of a command."""
    module, _, function = command.act.partition(":")
    return f"vsemb.{function}" if function in vsemb.__all__ else f"{module}.{function}"


def _usage(parser: Parser) -> str:
    """Return the usage without the options that may be omitted; a list of all of them would hide the others."""
    formatter = argparse.HelpFormatter(parser.prog)
    needed = [action for action in parser._actions if action.required and action.option_strings]
    formatter.add_usage(None, [*parser._get_positional_actions(), *needed], [], "")
    return f"{formatter.format_help().strip()} [options]".replace("%", "%%")


def call(function: Callable[..., Any], given: argparse.Namespace) -> Any:
    """Call an act with the arguments of its command.

    Raises:
        InvalidArgumentError: as the act, and for a field of `--set` that is an option of its own.
    """
    values = {name: value for name, value in vars(given).items() if name not in SHARED}
    fields = values.pop("set", {})
    for name in fields:
        if name in signature_of(function).parameters:
            raise invalid_argument("set", f"{name}={fields[name]}", f"a field; {name} is the option {_flag(name)}")
    return function(**values, **fields)


def check_json_file(given: argparse.Namespace) -> None:
    """Refuse to write JSON over a manifest or a file of the command, see `vsemb.runs.inputs.is_part_of`.

    Raises:
        InvalidArgumentError: naming the argument.
    """
    file = getattr(given, "json", None)
    if file in (None, "-"):
        return
    if is_manifest(file):
        fix = "The existing file is the manifest of a dataset, index or cache, which would be lost."
        raise invalid_argument("json", file, "another file", fix)
    for name, value in vars(given).items():
        if name in SHARED:
            continue
        for text in _texts(value):
            # A text may be longer than any file name; `os.path.exists` is false then, where `Path.exists` raises.
            if (name == "out" or os.path.exists(text)) and is_part_of(file, text):
                fix = f"It would replace a file of `{name}`, {printable(text)}."
                raise invalid_argument("json", file, "another file", fix)


def _texts(value: Any) -> Iterator[str]:
    """Yield the texts in the value of an argument."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        yield from (text for each in value.values() for text in _texts(each))
    elif isinstance(value, Sequence):
        yield from (text for each in value for text in _texts(each))


def _add_fields(parser: argparse.ArgumentParser, fields: Fields, taken: Mapping[str, Parameter]) -> None:
    """Add the fields of parts, a group per part.

    An option belongs to the group of the first part that has it. Groups of other parts refer to it, or explain it if it
    means something else there.
    """
    first: dict[str, tuple[str, Parameter]] = {}
    for kind, part in fields.parts.items():
        by_place = fields.by is None or taken[fields.by].by_place
        chosen = kind if by_place else f"{_flag(str(fields.by))} {kind}"
        texts = explanations(part)
        own: list[Parameter] = []
        same: dict[str, list[str]] = {}
        others: list[str] = []
        for name, hint in fields_of(part).items():
            default = getattr(part, name, None)
            parameter = Parameter(name, read_hint(hint), default, False, texts[name], Option())
            if name in taken:
                continue
            if name not in first:
                first[name] = kind, parameter
                own.append(parameter)
            elif _help(parameter) == _help(first[name][1]):
                same.setdefault(first[name][0], []).append(_flag(name, default))
            else:
                others.append(f"{_flag(name, default)}: {_help(parameter)}".replace("%%", "%"))
        about = inspect.cleandoc(part.__doc__ or "").partition("\n\nAttributes:")[0]
        about += "".join(f"\n\n{', '.join(names)}: see {owner}" for owner, names in same.items())
        about += "".join("\n\n" + textwrap.fill(line, 100, subsequent_indent="    ") for line in others)
        group = parser.add_argument_group(f"with {chosen}", about)
        for parameter in own:
            _add(group, parameter)


def _add(parser: argparse._ActionsContainer, parameter: Parameter) -> None:
    """Add the argument of a parameter, unless a command line cannot hold its values."""
    hint, name = parameter.hint, parameter.name
    if not _holds(hint):
        return
    settings: dict[str, Any] = {"help": _help(parameter), **_form(parameter)}
    if parameter.by_place:
        if not parameter.required:
            settings["nargs"] = "*" if "nargs" in settings else "?"
        parser.add_argument(name, **settings)
        return
    parser.add_argument(_flag(name, parameter.default), dest=name, required=parameter.required, **settings)


def _form(parameter: Parameter) -> dict[str, Any]:
    """Return the settings of an argument that depend on the type of its values."""
    hint, name = parameter.hint, parameter.name
    if hint.values is not None:
        return {"action": _Pairs, "type": _pair(_reader(hint.values)), "metavar": f"NAME={_metavar(hint.values, '')}"}
    shown = {"type": _reader(hint), "metavar": _metavar(hint, name)}
    if hint.items is not None and hint.items.items is not None:
        # A sequence of sequences: one option for each.
        several = {"nargs": hint.items.length or "+", "action": "append"}
        return {"type": _reader(hint.items.items), "metavar": parameter.option.names, **several}
    if hint.items is not None:
        action = {"action": "append"} if parameter.option.repeated else {"action": "extend", "nargs": "+"}
        return shown | {"type": _reader(hint.items)} | action
    if set(hint.accepted) == {bool} and hint.plain:
        return {"action": "store_false" if parameter.default is True else "store_true"}
    if set(hint.accepted) == {bool, types.NoneType} and not hint.literals:
        return {"action": argparse.BooleanOptionalAction}
    if hint.lists(True):
        return shown | {"nargs": "?", "const": True}
    if hint.literals and set(hint.accepted) <= {str, types.NoneType}:
        return {"choices": list(hint.literals)} | ({"metavar": name.upper()} if parameter.by_place else {})
    return shown


def _holds(hint: Hint) -> bool:
    inner = hint.items or hint.values
    return bool(_PLAIN & set(hint.accepted)) or (inner is not None and _holds(inner))


def _reader(hint: Hint) -> Callable[[str], Any]:
    """Return the function that reads a value of a type from a word."""
    literals = {str(each): each for each in hint.literals if not isinstance(each, bool)}
    numeric: list[Callable[[str], Any]] = [kind for kind in (int, float) if kind in hint.accepted]
    if hint.range is not None and hint.range.read is not None:
        numeric = [hint.range.read]

    def read(text: str) -> Any:
        if text in literals:
            return literals[text]
        for number in numeric:
            try:
                return number(text)
            except ValueError:
                continue
        if str in hint.plain:
            return text
        raise argparse.ArgumentTypeError(f"it must be {hint.allowed}; got {text!r}")

    return read


def _pair(read: Callable[[str], Any]) -> Callable[[str], tuple[str, Any]]:
    """Return the function that reads `NAME=VALUE`."""

    def read_pair(text: str) -> tuple[str, Any]:
        name, equals, value = text.partition("=")
        if not (name.strip() and equals):
            raise argparse.ArgumentTypeError(f"it must be NAME=VALUE; got {text!r}")
        return name.strip(), read(value.strip())

    return read_pair


class _Pairs(argparse.Action):
    """Collect `NAME=VALUE` in a dictionary."""

    once = True

    def __call__(
        self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, values: Any, option: str | None = None
    ) -> None:
        name, value = values
        if self.once and name in getattr(namespace, self.dest, {}):
            parser.error(f"argument {option}: {name} must be given once")
        setattr(namespace, self.dest, getattr(namespace, self.dest, {}) | {name: value})


class _Settings(_Pairs):
    """Collect `FIELD=VALUE`. The last value of a field counts, so a script can add to a command."""

    once = False


def _flag(name: str, default: Any = None) -> str:
    """Return the option of a parameter; one that is true without it is named by its opposite."""
    if len(name) == 1:
        return f"-{name}"
    return f"--{'no-' if default is True else ''}{name.strip('_').replace('_', '-')}"


def _metavar(hint: Hint, name: str) -> str:
    hint = hint.items or hint
    if str in hint.accepted:
        return name.strip("_").upper() or "VALUE"
    return "N" if int in hint.accepted else "X"


def _help(parameter: Parameter) -> str:
    text, default = _phrase(parameter.explanation), parameter.default
    if default is True and set(parameter.hint.accepted) == {bool}:
        return f"do not {text}"
    if (parameter.option.repeated or parameter.hint.values is not None) and "repeatable" not in text:
        text += "; repeatable"
    shown = default not in (None, (), {}) and not isinstance(default, bool) and not parameter.required
    if not shown or "default" in text:
        return text
    return f"{text} ({parameter.hint.range.shown(default) if parameter.hint.range is not None else default})"


def _phrase(explanation: str) -> str:
    return explanation.rstrip(".").replace("%", "%%")
