"""`vsemb export`."""

from __future__ import annotations

import argparse

from vsemb.commands import add_options, apply_options
from vsemb.console import say
from vsemb.printing import save_json, table


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("run", help="run directory")
    parser.add_argument("out", metavar="savedmodels/NAME", help="directory of the model")
    parser.add_argument("--version", type=int, metavar="N", help="version number (the next)")
    parser.add_argument("--index", metavar="INDEX", help="index of the run, for search inside the model")
    computed_in = "precision of the embeddings (the recipe's; float32 for auto)"
    parser.add_argument("--precision", choices=("float32", "mixed_bfloat16"), help=computed_in)
    parser.add_argument("--sign", metavar="PEM", help="private Ed25519 key that signs the contract")
    parser.add_argument("--json", metavar="FILE", help="also write the signatures as JSON to FILE")
    add_options(parser, "run", "export")


def run(arguments: argparse.Namespace) -> None:
    """Write a run as a SavedModel for TensorFlow Serving: strings and image bytes in, embeddings or captions out.

    Each export is a new version, NAME/1, NAME/2, published atomically. Before publication it is loaded and compared
    with the run. The contract of inputs and outputs is written to contracts/NAME.json, see `vsemb verify`. The model
    card is written to contracts/NAME.md. The dataset is not needed.

    With --index, the model contains the items of an index from `vsemb index RUN` and searches them. A model of
    dependency trees takes trees instead of strings, because a SavedModel cannot parse.

    Examples:
      vsemb export runs/vsepp savedmodels/flickr8k
      vsemb export runs/vsepp savedmodels/flickr8k --index runs/vsepp/index/flickr8k-all-images
      vsemb export runs/vsepp savedmodels/fast --precision mixed_bfloat16
      vsemb export runs/vsepp savedmodels/flickr8k --sign key.pem
    """
    from vsemb.exporting.contract import serving_command
    from vsemb.exporting.servable import signature_table
    from vsemb.exporting.signing import read_key, sign
    from vsemb.runs.run import Run
    from vsemb.runs.serve import export_run
    from vsemb.searching.storage import read_index

    if arguments.sign:
        # Check the key before the export, which takes long.
        read_key(arguments.sign, private=True)
    opened = Run.open(arguments.run)
    if arguments.precision is not None:
        opened = opened.computed_in(arguments.precision)
    options = apply_options(arguments, opened, "run", "export")
    index = read_index(arguments.index) if arguments.index else None
    path = export_run(opened, arguments.out, arguments.version, index=index, report=say, **options)
    if arguments.sign:
        say(f"signed: {sign(path, arguments.sign)}")
    signatures = signature_table(path)
    print(f"{path}\n")
    rows = [[name, side, *row] for name, sides in signatures.items() for side in sides for row in sides[side]]
    print(table(["signature", "", "name", "type", "shape"], rows, text=range(5)))
    encoders = [name for name in signatures if name.startswith("encode_")]
    if encoders and "encode_text" not in encoders:
        print(f"\nno encode_text: vsemb.serving.Client converts texts to the inputs of {encoders[0]}")
    if encoders and "encode_image" not in encoders:
        reason = "was trained on precomputed features and holds no image network"
        print(f"\nno encode_image: the run {reason if opened.sees_images else 'embeds no images'}")
    print(f"\nnext\n{serving_command(path)}")
    save_json(arguments, {"path": str(path), "signatures": signatures})
