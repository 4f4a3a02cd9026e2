"""`vsemb analyze` and the analysis of lengths."""

from __future__ import annotations

import argparse

from vsemb.commands import Mode, Modes, picked
from vsemb.printing import save_json, table

_ROWS = {
    "image_all": "image, by all captions",
    "image_pairs": "image, by captions of the pairs",
    "image_shorter": "  the shorter ones",
    "image_longer": "  the longer ones",
    "longer_by_shorter": "longer caption, by the shorter",
}


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    Modes(parser, "analyze", word="analysis")
    parser.add_argument("runs", nargs="+", metavar="RUN", help="run directory; `lengths` compares several")
    parser.add_argument("--data", help="dataset (the training dataset of the first run)")
    parser.add_argument("--split", default="val", help="split to evaluate (%(default)s)")
    parser.add_argument("--json", metavar="FILE", help="also write the results as JSON to FILE")


def run(arguments: argparse.Namespace) -> None:
    """Analyze trained runs; the analyses are described below.

    Examples:
      vsemb analyze lengths runs/order runs/symmetric --data data/flickr8k --images 1000
    """
    arguments.modes.run(arguments)


def _configure_lengths(parser: argparse._ActionsContainer) -> None:
    parser.add_argument("--pairs", type=int, default=100, metavar="N", help="number of pairs (%(default)s)")
    parser.add_argument("--images", type=int, metavar="N", help="use only the first N images of the split (all)")
    parser.add_argument("--examples", type=int, default=3, metavar="N", help="number of pairs to print (%(default)s)")


def _analyze_lengths(arguments: argparse.Namespace) -> None:
    """Compare runs on captions of very different lengths.

    The queries are the pairs of captions of one image that differ most in length (Vendrov et al. 2016, section 4.6).
    Two kinds of mean ranks are printed: of the image by its captions, and of the longer caption by the shorter one.
    Ranks start at 1, and ties count against the model. To see the effect of an order, compare a run with an order and
    the same run with a symmetric similarity.
    """
    from vsemb.errors import invalid_argument
    from vsemb.runs.measure import compare_lengths
    from vsemb.runs.run import Run

    if arguments.examples < 0:
        raise invalid_argument("examples", arguments.examples, "an integer >= 0")
    opened = [Run.open(path, "retrieval") for path in arguments.runs]
    dataset = opened[0].open_data(arguments.data)
    found = compare_lengths(opened, dataset, arguments.split, **picked(arguments, "pairs", "images"))
    names = [run.path.name for run in opened]
    if len(set(names)) < len(names):
        names = [str(run.path) for run in opened]
    means = [analysis.to_json() for analysis in found.runs]
    apart = [int(found.differences.min()), int(found.differences.max())]
    print(
        f"{len(found.pairs)} pairs of captions of {found.split}, {apart[0]} to {apart[1]} words apart; "
        f"{len(found.keys):,} images, {len(found.captions):,} captions"
    )
    rows = [[title, *(f"{mean[key]:.1f}" for mean in means)] for key, title in _ROWS.items()]
    print(table(["mean rank of the", *names], rows))
    examples = found.examples(arguments.examples)
    for example in examples:
        print(f"\n{example['key']}")
        rows = [[*map(str, example[f"{side}_ranks"]), example[side]] for side in ("longer", "shorter")]
        print(table([*names, "caption"], rows, text=(len(names),)))
    report = {
        "split": found.split,
        "images": len(found.keys),
        "captions": len(found.captions),
        "pairs": len(found.pairs),
        "words_apart": apart,
        "runs": [{"run": str(run.path), **mean} for run, mean in zip(opened, means, strict=True)],
        "examples": examples,
    }
    save_json(arguments, report)


LENGTHS = Mode(_analyze_lengths, _configure_lengths)
