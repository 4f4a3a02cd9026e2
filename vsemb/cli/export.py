"""Write a run as a SavedModel for TensorFlow Serving: strings and image bytes in, embeddings or captions out.

Each export is a new version, NAME/1, NAME/2, and appears whole or not at all. It is loaded and compared
with the run before it appears; a contract of what it takes and gives is written to contracts/NAME.json, see
`vsemb verify`, and a model card to contracts/NAME.md. Neither the dataset nor the network is needed. With
--classes it classifies images too: each class is the texts that its name makes with the templates, see
`vsemb classify`. With --index it searches too, among the items of an index that `vsemb index RUN` made, and
needs no index beside it then. A model of dependency trees takes trees in place of strings, since a
SavedModel cannot parse; see `vsemb parse`. A model of regions and words aligns them, see `vsemb align`, and
has neither classes nor an index. A run that writes captions takes image bytes alone; how it looks for them
is fixed here, by its recipe where nothing is given.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from vsemb.systems.captions.caption_command import add_search
from vsemb.systems.trees.parser_option import add_parser, use_parser
from vsemb.systems.zero_shot.classify_command import add_classes, chosen_classes

EXAMPLE = """  vsemb export runs/vsepp savedmodels/flickr8k
  vsemb export runs/vsepp savedmodels/pets --classes dog cat --template "a photo of a {}\"
  vsemb export runs/vsepp savedmodels/flickr8k --index runs/vsepp/index/flickr8k-all-images
  vsemb export runs/vsepp savedmodels/fast --precision mixed_bfloat16
  vsemb export runs/captions savedmodels/captions --beam 7 --n-best 5"""

# Options of runs that write captions, and of the others.
_OF_CAPTIONS = {"--beam": "beam", "--n-best": "n_best", "--length-penalty": "length_penalty"}
_OF_CAPTIONS |= {"--max-words": "max_words", "--candidates": "candidates"}
_OF_EMBEDDINGS = {"--classes": "classes", "--classes-file": "classes_file", "--template": "template"}
_OF_EMBEDDINGS |= {"--index": "index", "--parser": "parser", "--precision": "precision"}


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the command's arguments."""
    parser.add_argument("run", help="the run directory")
    parser.add_argument("out", metavar="savedmodels/NAME", help="the model's directory")
    parser.add_argument("--version", type=int, metavar="N", help="the version's number (the next)")
    add_classes(parser)
    parser.add_argument("--index", metavar="INDEX", help="an index of the run, searched by the model itself")
    add_parser(parser)
    parser.add_argument(
        "--precision",
        choices=("float32", "mixed_bfloat16"),
        help="what texts, and what stands behind an image network, are computed in (the recipe's; float32 "
        "where that is auto). mixed_bfloat16 is for large batches of texts on processors that multiply it by "
        "themselves; embeddings then have two digits",
    )
    add_search(parser.add_argument_group("runs that write captions"))
    parser.add_argument("--json", metavar="FILE", help="also write the signatures to FILE as JSON")


def run(arguments: argparse.Namespace) -> int:
    """Runs the command."""
    from vsemb.cli.tables import table
    from vsemb.export.description import serving_command, signature_table
    from vsemb.files import write_json
    from vsemb.runs.stored_run import read_recipe

    task = read_recipe(Path(arguments.run)).task
    writes = task in ("captions", "language")
    path = _captions(arguments) if writes else _embeddings(arguments)
    signatures = signature_table(path)
    print(f"{path}\n")
    rows = [[name, side, *row] for name, sides in signatures.items() for side in sides for row in sides[side]]
    print(table(["signature", "", "name", "type", "shape"], rows, text=range(5)))
    trees = "encode_tree" in signatures
    if trees:
        print("\nno encode_text: a SavedModel cannot parse; vsemb.serving.Client(parser=...) parses before")
    if task == "entailment":
        print("\nno encode_image: the run is for entailment, between sentences")
    elif not writes and "encode_image" not in signatures:
        print("\nno encode_image: the run was trained on precomputed features and holds no image network")
    print(f"\nverify it, serve it and ask it:\n{serving_command(path, trees, captions=writes)}")
    if arguments.json:
        write_json(arguments.json, {"path": str(path), "signatures": signatures})
    return 0


def _embeddings(arguments: argparse.Namespace) -> Path:
    from vsemb.errors import invalid_argument
    from vsemb.runs.run import Run
    from vsemb.runs.serve import export_run
    from vsemb.runs.tasks import open_run
    from vsemb.search import SearchIndex
    from vsemb.systems.entailment.run import EntailmentRun
    from vsemb.systems.zero_shot.classify import embed_classes

    _refuse(arguments, _OF_CAPTIONS, "none for a run that writes no captions")
    names = chosen_classes(arguments)
    opened = open_run(arguments.run)
    assert isinstance(opened, Run | EntailmentRun)
    if arguments.precision is not None:
        opened = opened.computed_in(arguments.precision)
    use_parser(arguments, opened)
    classes = None
    if names is not None:
        if not isinstance(opened, Run):
            raise invalid_argument("classes", names, "none for an entailment run", "It knows no images.")
        classes = embed_classes(opened, names, arguments.template, report=_report)
    index = SearchIndex.open(arguments.index) if arguments.index else None
    return export_run(opened, arguments.out, arguments.version, classes=classes, index=index, report=_report)


def _captions(arguments: argparse.Namespace) -> Path:
    from vsemb.runs.serve import export_captions
    from vsemb.systems.captions.captioning import CaptionOptions, open_captioning_run

    _refuse(arguments, _OF_EMBEDDINGS, "none for a run that writes captions")
    opened = open_captioning_run(arguments.run)
    options = CaptionOptions(**{name: getattr(arguments, name) for name in _OF_CAPTIONS.values()})
    return export_captions(opened, arguments.out, arguments.version, options=options, report=_report)


def _refuse(arguments: argparse.Namespace, options: dict[str, str], allowed: str) -> None:
    from vsemb.errors import invalid_argument

    for option, name in options.items():
        # A template that is not given is an empty list.
        if getattr(arguments, name) not in (None, []):
            raise invalid_argument(option, getattr(arguments, name), allowed, f"{arguments.run} is one.")


def _report(line: str) -> None:
    print(line, file=sys.stderr)
