"""A worker of a training: `python -m vsemb.api.worker ARGUMENTS`, with the arguments of `vsemb.train` as JSON."""

from __future__ import annotations

import json
import signal
import sys
from typing import Any

from vsemb.allocation import keep_freed_memory
from vsemb.api.training import train
from vsemb.console import quieted
from vsemb.errors import VsembError
from vsemb.parts import Typed


def main(text: str) -> int:
    """Train as a worker, and return the exit status.

    Args:
        text: the arguments of `vsemb.train` as JSON, with the fields of the recipe under `values`, and `quiet`.
    """
    given: dict[str, Any] = json.loads(text)
    given |= {name: Typed(value) for name, value in given.pop("values").items()}
    keep_freed_memory()
    signal.signal(signal.SIGTERM, _terminate)
    try:
        with quieted(given.pop("quiet")):
            if isinstance(given["recipe"], dict):
                from vsemb.recipes.schema import Recipe

                given["recipe"] = Recipe.from_json(given["recipe"])
            train(**given)
    except VsembError as error:
        print(f"vsemb train: {' '.join(str(error).split())}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


def _terminate(number: int, *_: object) -> None:
    sys.exit(128 + number)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
