"""The command line of a pipeline: its parser, and errors on one line."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable

from vsemb.errors import VsembError, reason_of


def parser_of(
    name: str, description: str | None, epilog: str | None = None, *, allow_abbrev: bool = True
) -> argparse.ArgumentParser:
    """Return a parser of a pipeline's arguments.

    Args:
        name: name of the pipeline.
        description: docstring of its module.
        epilog: text after the arguments.
        allow_abbrev: whether options may be abbreviated.
    """
    return argparse.ArgumentParser(
        prog=f"python -m pipelines.{name}",
        description=description,
        epilog=epilog,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=allow_abbrev,
    )


def main_of(name: str, job: Callable[[], int], *, resumes: bool = True) -> int:
    """Run a job and return its exit status; an error is printed on one line.

    Args:
        name: name of the job, for the error line.
        job: function that returns the exit status.
        resumes: whether the same command continues after an interruption.
    """
    try:
        return job()
    except VsembError as error:
        print(f"{name}: {' '.join(str(error).split())}", file=sys.stderr)
    except KeyboardInterrupt:
        print(f"{name}: interrupted{'; the same command goes on from here' if resumes else ''}.", file=sys.stderr)
        return 130
    except OSError as error:
        print(f"{name}: {reason_of(error)}: {error.filename or ''}", file=sys.stderr)
    return 1
