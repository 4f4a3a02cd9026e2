"""Parts of subcommands of the base and of systems: modes, options that systems add, and measured values.

A system names its subcommands, modes and options in `vsemb.registry.System` as `module:object`; their modules import
nothing heavy outside functions, so that `--help` needs no TensorFlow. A mode is one of the things that a command can
do, chosen by a flag (`vsemb evaluate --pointing`) or by its first word (`vsemb analyze norms`). Options are added to a
command in all of its modes (`--parser`).
"""

from __future__ import annotations

import argparse
import html
import inspect
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from vsemb import registry
from vsemb.errors import InvalidArgumentError

if TYPE_CHECKING:
    from vsemb.runs.run import Run

#: Adds arguments to a parser, or to a group of one.
Configure = Callable[[argparse._ActionsContainer], None]


@dataclass(frozen=True)
class Command:
    """A subcommand. A module with functions of these names can be used in its place.

    Attributes:
        run: function that runs the command and returns the exit status, or None for 0. `--help` shows its docstring;
            examples follow `Examples:` at its end.
        configure: function that adds the arguments.
    """

    run: Callable[[argparse.Namespace], int | None]
    configure: Callable[[argparse.ArgumentParser], None]


@dataclass(frozen=True)
class Mode:
    """A mode of a subcommand.

    Attributes:
        run: function that runs the mode; it takes the parsed arguments, and further arguments of the command. The first
            line of its docstring is the help text of the flag; `--help` of the command shows the rest.
        configure: function that adds the options of the mode.
        uses: names of options of other modes that this mode also reads; these modes may be missing.
        recipes: for a protocol of `vsemb evaluate`, whose `run` returns `Measured`: references to classes of recipes
            whose runs it can also measure.
    """

    run: Callable[..., Any]
    configure: Configure = lambda parser: None
    uses: Collection[str] = ()
    recipes: Collection[str] = ()

    def measures(self, recipe: Any) -> bool:
        """Whether it measures runs of a recipe that names another protocol."""
        return any(isinstance(recipe, registry.load(reference)) for reference in self.recipes)


@dataclass(frozen=True)
class Options:
    """Options that a system adds to commands.

    Attributes:
        configure: function that adds the options.
        apply: function of the parsed arguments and the run; returns keyword arguments for the command's function.
    """

    configure: Configure
    apply: Callable[[argparse.Namespace, Run], dict[str, Any]]


@dataclass(frozen=True, eq=False, repr=False)
class Measured:
    """Result of a protocol of `vsemb evaluate`.

    Attributes:
        text: the tables that the command prints.
        values: the metrics as JSON values. In a list `measured`, the first row is that of the run.
        result: object that `vsemb.evaluate` returns; None for this one.
        finish: function that is called after the metrics are printed and saved, for example to draw a picture.
    """

    text: str
    values: dict[str, Any]
    result: Any = None
    finish: Callable[[], None] = lambda: None

    def to_json(self) -> dict[str, Any]:
        """Return the metrics as `vsemb evaluate --json` writes them."""
        return self.values

    def __repr__(self) -> str:
        return self.text

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(self.text)}</pre>"


class Modes:
    """The modes of a command, and which options belong to them; `arguments.modes` of a command that makes them.

    Args:
        parser: the command's, which gets a flag, and a group of options, per mode.
        command: its name, by which systems declare modes.
        own: what the command does without a mode; its options are added to the parser.
        word: name of the first argument, where that chooses the mode in place of a flag.

    Attributes:
        modes: name -> mode, that without a mode under `""`.
    """

    def __init__(
        self, parser: argparse.ArgumentParser, command: str, own: Mode | None = None, *, word: str | None = None
    ) -> None:
        named: dict[str, Mode] = {
            name: registry.load(mode) for name, mode in registry.entries("modes", command).items()
        }
        self.modes = {"": own, **named} if own is not None else named
        self._names, self._word = list(named), word
        # Name of an argument -> the mode that it belongs to, and itself.
        self._options: dict[str, tuple[str, argparse.Action]] = {}
        if word is not None:
            parser.add_argument(word, choices=self._names, metavar=word.upper(), help=" or ".join(self._names))
        elif named:
            flags = parser.add_argument_group("modes")
            for name, mode in named.items():
                flags.add_argument(f"--{name}", action="store_true", help=_described(mode)[0])
        for name, mode in self.modes.items():
            known = len(parser._actions)
            mode.configure(parser.add_argument_group(f"with {self._shown(name)}") if name else parser)
            self._options |= {action.dest: (name, action) for action in parser._actions[known:]}
        parser.set_defaults(modes=self)

    @property
    def options(self) -> list[str]:
        """Names of the options of the modes."""
        return list(self._options)

    @property
    def explained(self) -> str:
        """The text of `--help` about modes, beside the help texts of their flags."""
        of_modes = [(name, _described(self.modes[name])[1]) for name in self._names]
        return "".join(f"\n\n{self._shown(name)}:\n{text}" for name, text in of_modes if text)

    def chosen(self, arguments: argparse.Namespace) -> str:
        """Return the name of the mode that was asked for; `""` for none.

        Raises:
            InvalidArgumentError: for two of them.
        """
        if self._word is not None:
            return getattr(arguments, self._word)
        named = [name for name in self._names if getattr(arguments, name.replace("-", "_"))]
        if len(named) > 1:
            raise InvalidArgumentError(f"--{named[0]} must stand alone; got --{named[1]} too. Run one at a time.")
        return named[0] if named else ""

    def check(self, arguments: argparse.Namespace, name: str) -> None:
        """Refuse options of other modes.

        Args:
            arguments: the command's.
            name: the mode that runs; `""` for the command without one.

        Raises:
            InvalidArgumentError: naming the option and the modes that take it.
        """
        for argument, (owner, action) in self._options.items():
            takers = [owner, *(each for each in self._names if argument in self.modes[each].uses)]
            if name in takers or getattr(arguments, argument) == action.default:
                continue
            needed = " or ".join(f"with {self._shown(each)}" if each else "without a mode" for each in takers)
            here = f"with {self._shown(name)}" if name else "without it"
            raise InvalidArgumentError(
                f"{action.option_strings[-1]} must be used {needed}; got it {here}. Leave it out."
            )

    def run(self, arguments: argparse.Namespace, *given: Any) -> Any:
        """Run the mode that was asked for, with what else the command gives to its modes.

        Raises:
            InvalidArgumentError: for two modes, none where the command needs one, or options of another one.
        """
        name = self.chosen(arguments)
        if name not in self.modes:
            flags = " or ".join(map(self._shown, self._names))
            raise InvalidArgumentError(f"The command must be told what to do; got nothing. Add {flags}.")
        self.check(arguments, name)
        return self.modes[name].run(arguments, *given)

    def _shown(self, name: str) -> str:
        return f"--{name}" if self._word is None else name


def _described(mode: Mode) -> tuple[str, str]:
    """Return the first line of a mode's docstring, as help texts are written, and the rest."""
    first, _, rest = (inspect.getdoc(mode.run) or "").partition("\n")
    return first[:1].lower() + first[1:].rstrip("."), rest.strip()


def add_options(parser: argparse._ActionsContainer, *groups: str) -> None:
    """Add the options that systems bring.

    Args:
        parser: a command's.
        *groups: keys of `vsemb.registry.System.options`: `run` for a command that reads raw texts with a run, and
            those of the command itself.
    """
    for options in _options(groups):
        options.configure(parser)


def apply_options(arguments: argparse.Namespace, run: Run, *groups: str) -> dict[str, Any]:
    """Apply the options that `add_options` added.

    Returns:
        Keywords for the command's function; tuples of the same name are joined.

    Raises:
        VsembError: if an option does not fit the run.
    """
    keywords: dict[str, Any] = {}
    for options in _options(groups):
        for name, value in options.apply(arguments, run).items():
            # Several may add to a tuple, such as further signatures.
            keywords[name] = (*keywords.get(name, ()), *value) if isinstance(value, tuple) else value
    return keywords


def _options(groups: Sequence[str]) -> list[Options]:
    return [
        registry.load(name)
        for group in groups
        for system in registry.systems()
        for name in system.options.get(group, ())
    ]


def picked(arguments: argparse.Namespace, *names: str) -> dict[str, Any]:
    """Return some of a command's arguments, as keywords.

    Example:

    >>> picked(argparse.Namespace(k=3, split="val", out=None), "k", "split")
    {'k': 3, 'split': 'val'}
    """
    return {name: getattr(arguments, name) for name in names}
