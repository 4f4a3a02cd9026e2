"""`vsemb verify`."""

from __future__ import annotations

import argparse

from vsemb.commands import picked, save_json, table


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the command's arguments."""
    parser.add_argument("model", metavar="savedmodels/NAME", help="the model's directory")
    parser.add_argument("--version", type=int, metavar="N", help="the version's number (the newest)")
    parser.add_argument("--contract", metavar="FILE", help="the contract (contracts/NAME.json beside it)")
    parser.add_argument("--timeout", type=float, default=600, metavar="S", help="seconds per process (%(default)s)")
    parser.add_argument("--json", metavar="FILE", help="also write the checks to FILE as JSON")


def run(arguments: argparse.Namespace) -> None:
    """Hold an exported model to its contract, as TensorFlow Serving would run it.

    The golden inputs of the contract go through each signature in two other processes: in Python's TensorFlow with
    neither Keras nor vsemb, and through TensorFlow's C library with no Python TensorFlow at all. Types, shapes and
    answers must be the contract's, a bad row must cost its neighbours nothing, and the files must be those that were
    exported. It ends with status 1 if anything differs.

    Examples:
      vsemb verify savedmodels/flickr8k
      vsemb verify savedmodels/flickr8k --version 1 --contract contracts/flickr8k.json
    """
    from vsemb.errors import DataError
    from vsemb.exporting.verify import verify_model

    found = verify_model(arguments.model, **picked(arguments, "version", "contract", "timeout"))
    rows = []
    for each in found.checks:
        difference = "" if each.difference is None else f"{each.difference:.1e}"
        rows.append([each.check, each.signature, str(each.rows or ""), difference, "yes" if each.ok else "NO"])
    print(f"{found.path}, by {found.contract}\n")
    print(table(["check", "signature", "rows", "difference", "ok"], rows, text=(0, 1, 4)))
    save_json(arguments, found.to_json())
    if found.failed:
        first, more = found.failed[0], len(found.failed) - 1
        where = " ".join(filter(None, [first.check + ":", first.signature]))
        raise DataError(f"{where} {first.problem}{f' ({more} more checks failed)' if more else ''}.")
