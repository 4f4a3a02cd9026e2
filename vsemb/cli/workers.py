"""Starting a command as several workers on this machine."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from vsemb.training.cluster import launch


def launch_workers(name: str, parser: argparse.ArgumentParser, arguments: argparse.Namespace) -> int:
    """Runs a command of `vsemb` as so many workers as `arguments.workers` says.

    Args:
        name: the command.
        parser: what its arguments were parsed with.
        arguments: they, with `workers` and `strategy` among them.

    Returns:
        The status, see `vsemb.training.cluster.launch`.

    Raises:
        InvalidArgumentError: for fewer than two workers.
    """
    of_worker = argparse.Namespace(**{**vars(arguments), "workers": None, "strategy": "multiworker"})
    return launch([sys.executable, "-m", "vsemb.cli", name, *command_line(parser, of_worker)], arguments.workers)


def command_line(parser: argparse.ArgumentParser, arguments: argparse.Namespace) -> list[str]:
    """Returns a command line that is parsed to the given arguments.

    Args:
        parser: what parses it; of arguments that take one value, or a value or none, or may be repeated.
        arguments: what is to come out.

    Example:

    >>> parser = argparse.ArgumentParser()
    >>> for name in ("recipe", "--out"):
    ...     _ = parser.add_argument(name)
    >>> command_line(parser, parser.parse_args(["--out", "runs/one", "vsepp"]))
    ['vsepp', '--out=runs/one']
    """
    positional, options = [], []
    for action in parser._actions:
        value: Any = getattr(arguments, action.dest, action.default)
        if not action.option_strings:
            positional.append(str(value))
            continue
        option = action.option_strings[-1]
        for each in value if isinstance(value, list) else [value]:
            if each == action.default:
                continue
            # An option whose value may be left out stands alone.
            options.append(option if action.nargs == "?" and each == action.const else f"{option}={each}")
    return [*positional, *options]
