"""The frame of a command around its act: console, results, JSON, exit status."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
from collections.abc import Iterator
from typing import Any, TextIO, cast

from vsemb import registry
from vsemb.cli.parser import call, check_json_file
from vsemb.console import SafeStream, quieted
from vsemb.errors import printable
from vsemb.files import write_json
from vsemb.results import Result


def run(name: str, command: registry.Command, arguments: argparse.Namespace) -> int:
    """Call the act of a command and print its results.

    Results are printed to standard output, and as JSON where `--json` says; with `--json -`, only JSON is. With
    `--quiet`, notices and progress bars are silent.

    Args:
        name: name of the command.
        command: its declaration.
        arguments: the arguments that were given.

    Returns:
        The exit status: 1 if a result is a failure.

    Raises:
        VsembError: as the act.
    """
    file = getattr(arguments, "json", None)
    check_json_file(arguments)
    with console(getattr(arguments, "quiet", False), only_json=file == "-") as stream:
        returned = call(registry.load(command.act), arguments)
        # An act that answers several questions in turn returns an iterator.
        several = isinstance(returned, Iterator)
        results: Iterator[Result] = returned if several else iter([returned])
        values = []
        failed = False
        for result in results:
            if text := printable(str(result)):
                print(text)
            values.append(result.to_json())
            if result.failure is not None:
                failed = True
                print(f"vsemb {name}: {result.failure}", file=sys.stderr)
        write(values if several else values[0], file, stream)
    return int(failed)


def write(values: Any, file: str | None, stream: TextIO) -> None:
    """Write the values of results as JSON.

    Args:
        values: the values.
        file: a file, `-` for the stream, or None for no JSON.
        stream: standard output.
    """
    if file == "-":
        print(json.dumps(values, indent=2, ensure_ascii=False, allow_nan=False), file=stream)
    elif file is not None:
        write_json(file, values)


@contextlib.contextmanager
def console(quiet: bool, only_json: bool = False) -> Iterator[TextIO]:
    """Set up the console for a command: results are escaped, see `vsemb.console.SafeStream`.

    Args:
        quiet: whether notices are silent.
        only_json: whether nothing is printed to standard output, except by what is written to the stream.

    Yields:
        Standard output.
    """
    with contextlib.ExitStack() as stack:
        stream = cast(TextIO, SafeStream(sys.stdout))
        shown = stack.enter_context(open(os.devnull, "w")) if only_json else stream
        stack.enter_context(contextlib.redirect_stdout(shown))
        stack.enter_context(quieted(quiet))
        yield stream
