"""What subcommands of the base and of systems share: tables, modes, and options that systems add.

A mode is one of the things that a command can do, chosen by a flag (`vsemb evaluate --pointing`) or by its first
word (`vsemb analyze norms`). Options are added to a command whatever its mode (`--parser`). Both are modules that
a system names in `vsemb.registry.System`; they import nothing heavy outside their functions:

    SUMMARY = "help text of the mode's flag"
    USES = ("bootstrap",)            # options of other modes that this one reads too; may be missing
    def configure(parser): ...       # adds its options
    def run(arguments): ...          # does it; for `vsemb evaluate`, see `vsemb.cli.evaluate`
    def measures(recipe): ...        # for `vsemb evaluate`: whether it measures runs of a recipe

    def configure(parser): ...       # of a module of options
    def apply(arguments, run): ...   # returns keywords for the command's function, or None
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from vsemb import registry
from vsemb.errors import DataError, InvalidArgumentError, invalid_argument, printable
from vsemb.files import write_json

if TYPE_CHECKING:
    from vsemb.data.store import Dataset
    from vsemb.runs.run import Run


def table(header: Sequence[str], rows: Sequence[Sequence[str]], text: Collection[int] = (0,)) -> str:
    """Lays out a table.

    Args:
        header: names of the columns.
        rows: cells, as many per row as the header has.
        text: the columns of text, aligned to the left; the others are numbers, to the right.

    Example:

    >>> print(table(["", "R@1"], [["a", "1.0"], ["bc", "10.0"]]))
         R@1
    a    1.0
    bc  10.0
    """
    lines = [list(header), *map(list, rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(header))]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if column in text else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    )


def say(line: str) -> None:
    """Prints a line of progress to standard error."""
    print(line, file=sys.stderr)


@dataclass(frozen=True)
class _Option:
    owner: str
    shown: str
    default: Any


@dataclass(frozen=True)
class Modes:
    """The modes of a command, and which options belong to them.

    Attributes:
        modules: name -> module.
        options: name of an argument -> the option; its owner is a mode, or `""` for the command without one.
        by_flag: whether a mode is chosen by a flag.
    """

    modules: dict[str, ModuleType]
    options: dict[str, _Option]
    by_flag: bool = True

    def chosen(self, arguments: argparse.Namespace) -> str | None:
        """Returns the mode whose flag was given; None for none.

        Raises:
            InvalidArgumentError: for two of them.
        """
        named = [name for name in self.modules if getattr(arguments, name.replace("-", "_"))]
        if len(named) > 1:
            raise InvalidArgumentError(f"--{named[0]} must stand alone; got --{named[1]} too. Run one at a time.")
        return named[0] if named else None

    def check(self, arguments: argparse.Namespace, name: str) -> None:
        """Refuses options of other modes.

        Args:
            arguments: the command's.
            name: the mode that runs; `""` for the command without one.

        Raises:
            InvalidArgumentError: naming the option and the modes that take it.
        """
        for argument, option in self.options.items():
            takers = [option.owner, *(each for each in self.modules if argument in self._uses(each))]
            if name in takers or getattr(arguments, argument) == option.default:
                continue
            needed = " or ".join(f"with {self._shown(each)}" if each else "without a mode" for each in takers)
            here = f"with {self._shown(name)}" if name else "without it"
            raise InvalidArgumentError(f"{option.shown} must be used {needed}; got it {here}. Leave it out.")

    def _uses(self, name: str) -> Collection[str]:
        return getattr(self.modules[name], "USES", ())

    def _shown(self, name: str) -> str:
        return f"--{name}" if self.by_flag else name


def add_modes(
    parser: argparse.ArgumentParser,
    command: str,
    own: Callable[[argparse._ActionsContainer], None] | None = None,
    *,
    by_flag: bool = True,
) -> None:
    """Adds the modes that the base and systems declare for a command; `arguments.modes` is then a `Modes`.

    Args:
        parser: the command's.
        command: its name.
        own: adds the options of the command without a mode.
        by_flag: whether to add a flag per mode.
    """
    modules = {name: registry.load(module) for name, module in registry.modes(command).items()}
    options: dict[str, _Option] = {}

    def add(
        owner: str, configure: Callable[[argparse._ActionsContainer], None], to: argparse._ActionsContainer
    ) -> None:
        before = len(parser._actions)
        configure(to)
        for action in parser._actions[before:]:
            options[action.dest] = _Option(owner, action.option_strings[-1], action.default)

    if own is not None:
        add("", own, parser)
    if by_flag and modules:
        flags = parser.add_argument_group("modes")
        for name, module in modules.items():
            flags.add_argument(f"--{name}", action="store_true", help=module.SUMMARY)
    for name, module in modules.items():
        add(name, module.configure, parser.add_argument_group(f"with --{name}" if by_flag else name))
    parser.set_defaults(modes=Modes(modules, options, by_flag))


def add_options(parser: argparse._ActionsContainer, *groups: str) -> None:
    """Adds the options that systems bring.

    Args:
        parser: a command's.
        *groups: keys of `vsemb.registry.System.options`: `run` for a command that reads raw texts with a run, and
            those of the command itself.
    """
    for module in _option_modules(groups):
        module.configure(parser)


def apply_options(arguments: argparse.Namespace, run: Run, *groups: str) -> dict[str, Any]:
    """Applies the options that `add_options` added.

    Returns:
        Keywords for the command's function; tuples of the same name are joined.

    Raises:
        VsembError: if an option does not fit the run.
    """
    keywords: dict[str, Any] = {}
    for module in _option_modules(groups):
        for name, value in (module.apply(arguments, run) or {}).items():
            # Several may add to a tuple, such as further signatures.
            keywords[name] = (*keywords.get(name, ()), *value) if isinstance(value, tuple) else value
    return keywords


def _option_modules(groups: Sequence[str]) -> list[ModuleType]:
    return [
        registry.load(name)
        for group in groups
        for system in registry.systems()
        for name in system.options.get(group, ())
    ]


def say_verified(stores: Sequence[Any], kind: str, data: Path, file: Path | None) -> None:
    """Prints which caches of a dataset have been read in full.

    Args:
        stores: what was opened, each with `fingerprint`, `shape` and `directory`.
        kind: what they are and the command that makes them, `features` or `regions`.
        data: the dataset.
        file: gets the same as JSON; None for none.

    Raises:
        DataError: if there are none.
    """
    if not stores:
        raise DataError(f"{data} has no {kind} that could be verified. Make them first: vsemb {kind} {data}")
    found = [{"fingerprint": s.fingerprint, "shape": list(s.shape), "directory": str(s.directory)} for s in stores]
    rows = [[each["fingerprint"], " x ".join(map(str, each["shape"])), each["directory"]] for each in found]
    print(table(["as written", "shape", "where"], rows, text=(0, 1, 2)))
    if file is not None:
        write_json(file, {"verified": found})


def check_image_files(images: Sequence[str], **written: str | None) -> None:
    """Refuses to write a picture or JSON over an image that is read, or over each other.

    Args:
        images: files that are read.
        **written: option -> the file that is written, or None.

    Raises:
        InvalidArgumentError: naming the option.
    """
    taken = {os.path.realpath(image): "the image" for image in images}
    for name, path in written.items():
        if path is None:
            continue
        if (other := taken.get(os.path.realpath(path))) is not None:
            raise invalid_argument(name, path, f"another file than {other}, which it would replace")
        taken[os.path.realpath(path)] = "the picture"


def open_keys(run: Run, data: str | None, images: Sequence[str]) -> Dataset | None:
    """Opens the dataset whose keys images may name; None where files need none.

    Args:
        run: the run.
        data: the dataset that was named; None for the run's.
        images: files or keys. One that is a file is enough to go on without a dataset.

    Raises:
        DataError: if there is neither the file nor the dataset.
    """
    from vsemb.data.store import Dataset

    try:
        return Dataset.open(data or run.data_path)
    except DataError as error:
        # Image files need no dataset; only one that was asked for is missed.
        if data:
            raise
        if images and not any(map(os.path.isfile, images)):
            raise DataError(
                f"There is no image file {printable(images[0])!r}, and no dataset whose key it may be "
                f"(name one with --data): {error}"
            ) from error
    return None
