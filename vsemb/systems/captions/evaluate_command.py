"""The parts of `vsemb evaluate` that measure captions and language models."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from vsemb.systems.captions.caption_measure import CaptionTable

CAPTIONS: dict[str, Any] = {
    "beam": None,
    "length_penalty": None,
    "limit": None,
    "examples": 0,
    "references": False,
    "no_meteor": False,
}
"""What goes with --captions alone: argument -> its default."""


def add_captions(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments."""
    group = parser.add_argument_group("captions and language models")
    group.add_argument("--captions", action="store_true", help="how good are the captions the run writes?")
    group.add_argument("--perplexity", action="store_true", help="how well does it foresee captions?")
    group.add_argument("--beside", nargs="+", default=[], metavar="RUN", help="other runs, measured in the same table")
    group.add_argument(
        "--beam",
        type=int,
        metavar="N",
        help="hypotheses kept (the recipe's, which sc-nlm always keeps in one table with multimodal-rnn)",
    )
    group.add_argument("--length-penalty", type=float, metavar="P", help="see vsemb caption --help (the recipe's)")
    group.add_argument("--limit", type=int, metavar="N", help="the first N images (all)")
    group.add_argument(
        "--examples",
        type=int,
        default=0,
        metavar="N",
        help="show captions of N images, with the training sentence nearest to each (0)",
    )
    group.add_argument("--references", action="store_true", help="also what people score: a caption against the others")
    group.add_argument("--no-meteor", action="store_true", help="leave METEOR out, which takes Java and time")


def run_captions(arguments: argparse.Namespace) -> int:
    """Measures captions, prints a table and examples, and writes JSON."""
    from vsemb.cli.tables import captions_table
    from vsemb.data.store import Dataset
    from vsemb.errors import invalid_argument
    from vsemb.files import write_json
    from vsemb.systems.captions.caption_measure import measure_captions
    from vsemb.systems.captions.captioning import CaptionOptions, open_captioning_run

    if arguments.examples < 0:
        raise invalid_argument("examples", arguments.examples, "an integer >= 0")
    runs = [open_captioning_run(path) for path in (arguments.run, *arguments.beside)]
    found = measure_captions(
        runs,
        Dataset.open(arguments.data or runs[0].data_path),
        arguments.split,
        options=CaptionOptions(beam=arguments.beam, length_penalty=arguments.length_penalty),
        limit=arguments.limit,
        meteor=not arguments.no_meteor,
        references=arguments.references,
    )
    print(captions_table(found))
    for image in range(min(arguments.examples, len(found.keys))):
        print(f"\n{_example(found, image)}")
    if arguments.json:
        write_json(arguments.json, found.to_json())
    return 0


def _example(found: CaptionTable, image: int) -> str:
    """Lays out what is written of one image: captions, each with its nearest training sentence."""
    from vsemb.cli.tables import table
    from vsemb.errors import printable

    rows = []
    for row in found.rows:
        marks = {None: "", True: "  (true)", False: "  (not true)"}
        truth = None if row.truths is None else row.truths[image] is True
        rows.append(["", row.name, f"{row.captions[image] or '(none)'}{marks[truth]}"])
        nearest = found.nearest_sentence(row, image)
        if row.recipe is not None and nearest is not None:
            rows.append(["", "  nearest training sentence", nearest])
    rows.append(["", "a reference", found.references[image][0]])
    return printable(table([found.keys[image], "", ""], rows, text=(0, 1, 2)))


def run_perplexity(arguments: argparse.Namespace) -> int:
    """Measures perplexities, prints a table and writes JSON."""
    from vsemb.cli.tables import perplexity_table
    from vsemb.data.store import Dataset
    from vsemb.errors import DataError
    from vsemb.files import write_json
    from vsemb.runs.tasks import open_run
    from vsemb.systems.captions.caption_run import CaptionRun
    from vsemb.systems.captions.perplexities import difference_of, measure_perplexities
    from vsemb.systems.language.language_run import LanguageRun

    runs: list[CaptionRun | LanguageRun] = []
    for path in (arguments.run, *arguments.beside):
        run = open_run(path)
        if not isinstance(run, CaptionRun | LanguageRun):
            raise DataError(
                f"{path} is a run of the recipe {run.recipe.name!r}, which is for {run.task}; a run that "
                "writes words is needed, such as one of multimodal-rnn, log-bilinear or sc-nlm."
            )
        runs.append(run)
    dataset = Dataset.open(arguments.data or runs[0].data_path)
    rows = measure_perplexities(runs, dataset, arguments.split)
    difference = difference_of(rows[: len(runs)])
    print(perplexity_table(rows, arguments.split, difference))
    if arguments.json:
        measured = [row.to_json() for row in rows]
        write_json(arguments.json, {"split": arguments.split, "difference": difference, "measured": measured})
    return 0
