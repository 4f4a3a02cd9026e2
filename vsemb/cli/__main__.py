"""Entry point of `vsemb` and `python -m vsemb.cli`."""

from __future__ import annotations

import argparse
import contextlib
import gc
import importlib.abc
import importlib.machinery
import importlib.util
import os
import signal
import sys
import threading
import types
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from vsemb import __version__, registry
from vsemb.allocation import keep_freed_memory
from vsemb.cli.commands import COMMANDS
from vsemb.console import without_tracing_advice
from vsemb.errors import VsembError, escaped, one_line, reason_of, unknown_name

if TYPE_CHECKING:
    from vsemb.cli.parser import Parser

#: New objects after which Python searches for garbage in the process of a command.
_NEW_OBJECTS = 10_000

_WITHOUT = "`vsemb train --backend jax` needs no TensorFlow."


def commands() -> dict[str, registry.Command]:
    """Return all commands by name: commands of the base first, then of systems.

    `annotate` has only annotations of systems. It is omitted if systems do not provide any.
    """
    own = {name: command for name, command in COMMANDS.items() if name != "annotate" or registry.kinds("annotation")}
    return own | registry.entries("commands")


def build_parser() -> argparse.ArgumentParser:
    """Return the top-level parser; commands parse their own arguments."""
    known = commands()
    width = max(map(len, known))
    listing = "\n".join(f"  {name:<{width}}  {command.summary}" for name, command in known.items())
    parser = argparse.ArgumentParser(
        prog="vsemb",
        description="Visual-semantic embeddings: images and sentences in one vector space.",
        epilog=f"commands:\n{listing}\n\nExample: vsemb train vsepp --data data/flickr8k --out runs/vsepp\n"
        "Options of a command: vsemb COMMAND --help",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"vsemb {__version__}")
    parser.add_argument("command", metavar="COMMAND")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, metavar="...", help=argparse.SUPPRESS)
    return parser


def command_parser(name: str) -> Parser:
    """Return the parser of a command."""
    # Not needed for the list of commands, which must appear at once.
    from vsemb.cli.parser import parser_of

    return parser_of(name, commands()[name])


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command.

    Returns:
        0 on success, 1 if the command failed (stderr has the reason in one line), 2 on wrong usage, 130 if interrupted.
        SIGTERM and SIGHUP raise `SystemExit`, so that half-written files are removed.
    """
    _silence_tensorflow()
    if not (sys.argv[1:] if argv is None else argv):
        build_parser().print_help(sys.stderr)
        return 2
    try:
        parser = build_parser()
        given = parser.parse_args(argv)
        known = commands()
        if given.command not in known:
            parser.error(one_line(unknown_name("command", given.command, known)))
        command = known[given.command]
        arguments = command_parser(given.command).parse_args_anywhere(given.arguments)
    except VsembError as error:
        # A system that cannot be loaded raises this error.
        print(f"vsemb: {_reason(error)}", file=sys.stderr)
        return 1
    backend = os.environ.get("KERAS_BACKEND", "")
    if len(command.backends) > 1:
        backend = getattr(arguments, "backend", backend)
    os.environ["KERAS_BACKEND"] = backend if backend in command.backends else command.backends[0]
    if command.keeps_memory:
        keep_freed_memory()
        if argv is None:
            # The libraries make half a million objects that stay, and the default searches them again and again.
            gc.set_threshold(_NEW_OBJECTS)
    main_thread = threading.current_thread() is threading.main_thread()
    before = {number: signal.signal(number, _terminate) for number in _ending()} if main_thread else {}
    try:
        from vsemb.cli.running import run

        with without_tracing_advice():
            return run(given.command, command, arguments)
    except KeyboardInterrupt:
        print(f"vsemb {given.command}: interrupted.", file=sys.stderr)
        return 130
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except Exception as error:
        print(f"vsemb {given.command}: {escaped(_reason(error))}", file=sys.stderr)
        return 1
    finally:
        for number, handler in before.items():
            signal.signal(number, handler or signal.SIG_DFL)


def _reason(error: Exception) -> str:
    """Return the reason why a command failed, in one line. Raise internal errors again."""
    if isinstance(error, VsembError):
        return " ".join(str(error).split())
    if isinstance(error, ModuleNotFoundError) and str(error.name).startswith(("tensorflow", "jax")):
        package = str(error.name).partition(".")[0].replace("_", "-")
        return f"{package} must be installed for this command; run `pip install {package}`. {_WITHOUT}"
    if isinstance(error, MemoryError):
        return f"not enough memory. {error}"
    if isinstance(error, OSError):
        return f"{reason_of(error)}: {error.filename or ''}"
    if isinstance(error, UnicodeEncodeError):
        return f"names and paths must be valid UTF-8; got {one_line(ascii(error.object))}. Rename the file or folder."
    # TensorFlow's errors are recognized by name, so that `--help` does not import TensorFlow.
    if "OpError" not in {kind.__name__ for kind in type(error).__mro__}:
        raise error
    reason, _, _ = str(getattr(error, "message", error)).partition("\n")
    return f"TensorFlow: {reason}"


def _silence_tensorflow() -> None:
    """Suppress start-up messages of TensorFlow. Important errors are exceptions."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    if "tensorflow" not in sys.modules and not any(isinstance(finder, _QuietImport) for finder in sys.meta_path):
        sys.meta_path.insert(0, _QuietImport())


class _QuietImport(importlib.abc.MetaPathFinder):
    """Import TensorFlow without the messages that its libraries write before they read the log level."""

    def find_spec(self, fullname: str, path: object, target: object = None) -> importlib.machinery.ModuleSpec | None:
        if fullname != "tensorflow":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(fullname)
        if spec is not None and spec.loader is not None:
            load = spec.loader.exec_module

            def load_quietly(module: types.ModuleType) -> None:
                with _stderr_aside():
                    load(module)

            spec.loader.exec_module = load_quietly  # type: ignore[method-assign]
        return spec


@contextlib.contextmanager
def _stderr_aside() -> Iterator[None]:
    """Drop output to the file descriptor of standard error, unless an exception is raised."""
    import tempfile

    sys.stderr.flush()
    kept = os.dup(2)
    with tempfile.TemporaryFile() as aside:
        os.dup2(aside.fileno(), 2)
        try:
            yield
        except BaseException:
            os.dup2(kept, 2)
            aside.seek(0)
            os.write(2, aside.read())
            raise
        finally:
            sys.stderr.flush()
            os.dup2(kept, 2)
            os.close(kept)


def _ending() -> list[signal.Signals]:
    """Return the signals that end a command; a closed terminal ends it too, unless it runs under nohup."""
    hang_up = [signal.SIGHUP] if hasattr(signal, "SIGHUP") else []
    return [signal.SIGTERM, *(number for number in hang_up if signal.getsignal(number) is not signal.SIG_IGN)]


def _terminate(number: int, *_: object) -> None:
    # 128 plus the number of the signal, as in shells.
    sys.exit(128 + number)


if __name__ == "__main__":
    sys.exit(main())
