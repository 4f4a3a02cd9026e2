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

from vsemb import __version__
from vsemb.errors import VsembError

# name -> one-line summary; the module of a command is imported only when it runs.
COMMANDS = {
    "scenes": "generate the synthetic scenes dataset",
    "prepare": "turn images and captions into a dataset",
    "features": "run a pretrained backbone once and cache its features",
    "regions": "find regions of images and cache their features",
    "parse": "find the dependency trees of a dataset's captions",
    "tag": "find the parts of speech of a dataset's captions",
    "recipes": "list the recipes, or print one",
    "train": "train a recipe on a dataset",
    "pretrained": "make a run of a pretrained CLIP or SigLIP, without training",
    "evaluate": "measure a run: recall and rank, or zero-shot",
    "lengths": "compare runs on captions of very different lengths",
    "report": "write a page about a run: recall, queries, failures",
    "projector": "look at a run's space in TensorBoard",
    "export": "write a run as a SavedModel for TensorFlow Serving",
    "serve": "serve SavedModels as TensorFlow Serving does",
    "verify": "hold an exported model to its contract",
    "index": "embed a dataset's images or texts for search",
    "search": "find images by text, image or arithmetic",
    "classify": "classify images by the names of classes",
    "align": "show which words of a sentence describe which regions of an image",
    "regions-search": "find the regions of images that fit a few words",
    "magnitudes": "show which words and regions weigh most, and which least",
    "caption": "write captions of images",
    "caption-regions": "write what is to be seen in each region of an image",
    "demo": "try a run in the browser",
}

# Commands that a system brings: name -> module.
SYSTEM_COMMANDS = {
    "regions": "vsemb.systems.regions.regions_command",
    "parse": "vsemb.systems.trees.parse_command",
    "tag": "vsemb.systems.language.tag_command",
    "classify": "vsemb.systems.zero_shot.classify_command",
    "align": "vsemb.systems.regions.align_command",
    "regions-search": "vsemb.systems.regions.search_command",
    "magnitudes": "vsemb.systems.regions.norms_command",
    "caption": "vsemb.systems.captions.caption_command",
    "caption-regions": "vsemb.systems.captions.caption_regions_command",
}


def build_parser() -> argparse.ArgumentParser:
    """Returns the top-level parser; sub-commands parse their own arguments."""
    width = max(map(len, COMMANDS))
    listing = "\n".join(f"  {name:<{width}}  {summary}" for name, summary in COMMANDS.items())
    parser = argparse.ArgumentParser(
        prog="vsemb",
        description="Visual-semantic embeddings: one space for images and sentences.",
        epilog=f"commands:\n{listing}\n\nExample: vsemb train vsepp --data data/flickr8k --out runs/vsepp\n"
        "Each command explains itself: vsemb COMMAND --help",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"vsemb {__version__}")
    parser.add_argument("command", choices=list(COMMANDS), metavar="COMMAND")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, metavar="...", help=argparse.SUPPRESS)
    return parser


def command_module(name: str) -> ModuleType:
    """Imports the module of a command."""
    return importlib.import_module(SYSTEM_COMMANDS.get(name, f"vsemb.cli.{name.replace('-', '_')}"))


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
    given = build_parser().parse_args(argv)
    # A text may stand after options too.
    arguments = command_parser(given.command).parse_intermixed_args(given.arguments)
    module = command_module(given.command)
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
