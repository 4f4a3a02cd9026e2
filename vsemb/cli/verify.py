"""`vsemb verify`."""

from __future__ import annotations

import argparse
import shlex

from vsemb.commands import picked
from vsemb.printing import save_json, table


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("model", metavar="savedmodels/NAME", help="directory of the model")
    parser.add_argument("--version", type=int, metavar="N", help="version number (the newest)")
    parser.add_argument("--contract", metavar="FILE", help="file of the contract (contracts/NAME.json)")
    parser.add_argument("--key", metavar="PEM", help="public key that must have signed the contract")
    parser.add_argument(
        "--timeout", type=float, default=600, metavar="S", help="maximum seconds per process (%(default)s)"
    )
    parser.add_argument("--json", metavar="FILE", help="also write the checks as JSON to FILE")


def run(arguments: argparse.Namespace) -> None:
    """Check an exported model against its contract, without Keras and vsemb, as TensorFlow Serving would run it.

    The examples of the contract run in two separate processes: in TensorFlow for Python, and in TensorFlow's C library.
    Types, shapes, outputs and files must equal the contract, and invalid rows must not change other rows. The exit
    status is 1 if a check fails.

    With --key, the model is opened only if the owner of the key has signed it with vsemb export --sign.

    Examples:
      vsemb verify savedmodels/flickr8k
      vsemb verify savedmodels/flickr8k --version 1 --contract contracts/flickr8k.json
      vsemb verify savedmodels/flickr8k --key key.pub
    """
    from vsemb.errors import DataError
    from vsemb.exporting.verify import verify_model

    found = verify_model(arguments.model, **picked(arguments, "version", "contract", "key", "timeout"))
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
    print(f"\nnext  vsemb serve {shlex.quote(arguments.model)}")
