"""Entry point of `vsemb` and `python -m vsemb.cli`."""

from __future__ import annotations

import argparse
import importlib
import os
import signal
import sys
import threading
from collections.abc import Sequence
from types import ModuleType

from vsemb import __version__, registry
from vsemb.errors import VsembError

#: Commands of the base: name -> (module, summary). A module is imported when its command runs or explains itself.
COMMANDS = {
    "scenes": ("vsemb.cli.scenes", "generate the synthetic scenes dataset"),
    "prepare": ("vsemb.cli.prepare", "turn images and captions into a dataset"),
    "features": ("vsemb.cli.features", "run a pretrained backbone once and cache its features"),
    "annotate": ("vsemb.cli.annotate", "annotate captions: dependency trees, parts of speech"),
    "recipes": ("vsemb.cli.recipes", "list the recipes, or explain one"),
    "train": ("vsemb.cli.train", "train a recipe on a dataset"),
    "import": ("vsemb.cli.import_preset", "make a run of a pretrained CLIP or SigLIP, without training"),
    "evaluate": ("vsemb.cli.evaluate", "measure a run by the protocol of its task, or another"),
    "analyze": ("vsemb.cli.analyze", "analyze runs: norms of embeddings, lengths of captions"),
    "report": ("vsemb.cli.report", "write a page about a run: metrics, queries, failures"),
    "projector": ("vsemb.cli.projector", "look at a run's space in TensorBoard"),
    "export": ("vsemb.cli.export", "write a run as a SavedModel for TensorFlow Serving"),
    "serve": ("vsemb.cli.serve", "serve SavedModels as TensorFlow Serving does"),
    "verify": ("vsemb.cli.verify", "hold an exported model to its contract"),
    "index": ("vsemb.cli.index", "embed a dataset's images or texts for search"),
    "search": ("vsemb.cli.search", "find images by text, image or arithmetic"),
    "demo": ("vsemb.cli.demo", "try a run in the browser"),
}
#: Those that do nothing without a mode, and of which the base has none.
_MODES_ONLY = ("annotate",)


def commands() -> dict[str, tuple[str, str]]:
    """Returns all commands, name -> (module, summary): those of the base, then those of systems.

    One that has only modes is left out where no system brings any.
    """
    own = {name: entry for name, entry in COMMANDS.items() if name not in _MODES_ONLY or registry.modes(name)}
    return own | registry.entries("commands")


def build_parser() -> argparse.ArgumentParser:
    """Returns the top-level parser; sub-commands parse their own arguments."""
    known = commands()
    width = max(map(len, known))
    listing = "\n".join(f"  {name:<{width}}  {summary}" for name, (_, summary) in known.items())
    parser = argparse.ArgumentParser(
        prog="vsemb",
        description="Visual-semantic embeddings: one space for images and sentences.",
        epilog=f"commands:\n{listing}\n\nExample: vsemb train vsepp --data data/flickr8k --out runs/vsepp\n"
        "Each command explains itself: vsemb COMMAND --help",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"vsemb {__version__}")
    parser.add_argument("command", choices=list(known), metavar="COMMAND")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, metavar="...", help=argparse.SUPPRESS)
    return parser


def command_module(name: str) -> ModuleType:
    """Imports the module of a command."""
    return importlib.import_module(commands()[name][0])


def command_parser(name: str) -> argparse.ArgumentParser:
    """Returns the parser of one command, as its module configures it."""
    module = command_module(name)
    parser = argparse.ArgumentParser(
        prog=f"vsemb {name}",
        description=module.__doc__,
        epilog=f"example:\n{module.EXAMPLE}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    module.configure(parser)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command.

    Returns:
        0 on success, 1 when the command failed (one line on stderr says why), 2 on wrong usage,
        130 when interrupted. `SystemExit` is raised when it is asked to terminate, so that no half-written
        files are left.
    """
    # Errors that matter are exceptions; what TensorFlow logs at this level is about GPUs it did not find.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    try:
        given = build_parser().parse_args(argv)
        # A text may stand after options too.
        arguments = command_parser(given.command).parse_intermixed_args(given.arguments)
        module = command_module(given.command)
    except VsembError as error:
        # Of a system that cannot be loaded.
        print(f"vsemb: {' '.join(str(error).split())}", file=sys.stderr)
        return 1
    main_thread = threading.current_thread() is threading.main_thread()
    before = signal.signal(signal.SIGTERM, _terminate) if main_thread else None
    try:
        return module.run(arguments) or 0
    except VsembError as error:
        print(f"vsemb {given.command}: {' '.join(str(error).split())}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print(f"vsemb {given.command}: interrupted.", file=sys.stderr)
        return 130
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except MemoryError as error:
        print(f"vsemb {given.command}: not enough memory. {error}", file=sys.stderr)
        return 1
    except OSError as error:
        print(f"vsemb {given.command}: {error.strerror or error}: {error.filename or ''}", file=sys.stderr)
        return 1
    except Exception as error:
        # TensorFlow's own errors, caught by name so that `--help` need not import it.
        if "OpError" not in {kind.__name__ for kind in type(error).__mro__}:
            raise
        reason = str(getattr(error, "message", error)).splitlines()[0]
        print(f"vsemb {given.command}: TensorFlow: {reason}", file=sys.stderr)
        return 1
    finally:
        if main_thread:
            signal.signal(signal.SIGTERM, before or signal.SIG_DFL)


def _terminate(*_: object) -> None:
    # 128 and the signal's number, as shells have it.
    sys.exit(128 + signal.SIGTERM)


if __name__ == "__main__":
    sys.exit(main())
