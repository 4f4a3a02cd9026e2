"""`vsemb evaluate --captions`: the captions that a run writes, by BLEU, METEOR, ROUGE-L and CIDEr-D."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from vsemb.commands import table

if TYPE_CHECKING:
    from vsemb.recipes.schema import Recipe
    from vsemb.runs.run import Run
    from vsemb.systems.captions.caption_measure import CaptionTable

SUMMARY = "BLEU, METEOR, ROUGE-L, CIDEr-D and novelty of the captions written"


def measures(recipe: Recipe) -> bool:
    """Whether it measures runs of a recipe: those of models of the next word."""
    from vsemb.systems.captions.task import NextWordTask

    return isinstance(recipe, NextWordTask)


def configure(parser: argparse._ActionsContainer) -> None:
    """Adds the protocol's options."""
    parser.add_argument("--beside", nargs="+", default=[], metavar="RUN", help="other runs, measured in the same table")
    parser.add_argument("--beam", type=int, metavar="N", help="hypotheses kept (the recipe's)")
    parser.add_argument("--length-penalty", type=float, metavar="P", help="see vsemb caption --help (the recipe's)")
    parser.add_argument("--limit", type=int, metavar="N", help="the first N images (all)")
    parser.add_argument("--examples", type=int, default=0, metavar="N", help="images whose captions are shown (0)")
    parser.add_argument("--references", action="store_true", help="also score a person's caption against the others")
    parser.add_argument("--no-meteor", action="store_true", help="leave METEOR out, which takes Java and time")


def run(arguments: argparse.Namespace, opened: Run) -> dict[str, Any]:
    """Measures, prints a table and examples; returns what is written as JSON."""
    from vsemb.errors import invalid_argument
    from vsemb.systems.captions.caption_measure import measure_captions
    from vsemb.systems.captions.captioning import CaptionOptions, open_captioning_run

    if arguments.examples < 0:
        raise invalid_argument("examples", arguments.examples, "an integer >= 0")
    found = measure_captions(
        [open_captioning_run(path) for path in (arguments.run, *arguments.beside)],
        opened.open_data(arguments.data),
        arguments.split,
        options=CaptionOptions(beam=arguments.beam, length_penalty=arguments.length_penalty),
        limit=arguments.limit,
        meteor=not arguments.no_meteor,
        references=arguments.references,
    )
    print(captions_table(found))
    for image in range(min(arguments.examples, len(found.keys))):
        print(f"\n{_example(found, image)}")
    return found.to_json()


def captions_table(found: CaptionTable) -> str:
    """Lays out the scores of captions in percent, a row per run or baseline, with notes below.

    Args:
        found: see `vsemb.systems.captions.caption_measure.measure_captions`.
    """
    columns: dict[str, list[float | None]] = {
        **{f"B-{order}": [row.metrics.bleu[order - 1] for row in found.rows] for order in range(1, 5)},
        "METEOR": [row.metrics.meteor for row in found.rows],
        "ROUGE-L": [row.metrics.rouge_l for row in found.rows],
        "CIDEr": [row.metrics.cider for row in found.rows],
        "true": [row.true for row in found.rows],
        "novel": [row.metrics.novelty for row in found.rows],
    }
    columns = {name: values for name, values in columns.items() if any(v is not None for v in values)}
    rows = [
        [
            row.name,
            *("" if values[number] is None else f"{values[number]:.1f}" for values in columns.values()),
            str(row.metrics.vocabulary),
            f"{row.metrics.words:.1f}",
        ]
        for number, row in enumerate(found.rows)
    ]
    header = [f"{found.split}: {len(found.keys)} images", *columns, "vocabulary", "words"]
    lines = [table(header, rows)]
    known = found.rows[0].metrics.train_vocabulary
    if known is not None:
        lines.append(f"The training captions have {known:,} different words.")
    return "\n".join([*lines, *found.notes])


def _example(found: CaptionTable, image: int) -> str:
    """Lays out the captions of one image, each with its nearest training sentence."""
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
