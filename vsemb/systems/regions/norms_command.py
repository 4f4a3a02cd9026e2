"""Show which words and regions weigh most in a run's scores, and which words weigh least.

For runs on regions whose score is a sum of inner products, such as those of variant paper of the recipe
dvsa: words and regions with long vectors decide it. A word's magnitude is the mean length of its vectors over
its places in the captions of a split. --out draws a sheet of the regions.
"""

from __future__ import annotations

import argparse

from vsemb.systems.regions.search_command import add_choice, add_files, check_files

EXAMPLE = """  vsemb magnitudes runs/dvsa
  vsemb magnitudes runs/dvsa --data data/flickr8k --split test -k 20 --parts --out salient.png"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the command's arguments."""
    parser.add_argument("run", metavar="RUN", help="the run directory")
    parser.add_argument("--data", help="the dataset (the one the run was trained on)")
    parser.add_argument("--split", default="val", help="the split to measure (%(default)s)")
    parser.add_argument("-k", type=int, default=40, metavar="N", help="words of each kind, and regions (%(default)s)")
    parser.add_argument(
        "--min-count",
        type=int,
        default=5,
        metavar="N",
        help="leave words out that the split's captions have less often (%(default)s)",
    )
    add_choice(parser)
    add_files(parser)


def run(arguments: argparse.Namespace) -> int:
    """Runs the command."""
    from vsemb.cli.tables import regions_table, table
    from vsemb.data.store import Dataset
    from vsemb.errors import printable
    from vsemb.files import write_json
    from vsemb.runs.pictures import decimals, save_picture
    from vsemb.runs.run import Run
    from vsemb.systems.regions.magnitudes import measure_magnitudes
    from vsemb.systems.regions.region_search import region_sheet

    check_files(arguments)
    opened = Run.open(arguments.run)
    opened.need_regions()
    dataset = Dataset.open(arguments.data or opened.data_path)
    found = measure_magnitudes(
        opened,
        dataset,
        arguments.split,
        k=arguments.k,
        min_count=arguments.min_count,
        every=arguments.all_regions,
        parts=arguments.parts,
    )
    digits = decimals(word.magnitude for word in found.largest)
    words = [
        [[f"{word.magnitude:.{digits}f}", word.word, str(word.count)] for word in side]
        for side in (found.smallest, found.largest)
    ]
    rows = [[*low, *high] for low, high in zip(*words, strict=True)]
    header = ["smallest", "word", "places", "largest", "word", "places"]
    print(table(header, rows, text=(1, 4)))
    print(f"\n{regions_table(found.regions, 'magnitude')}")
    if arguments.out is not None and found.regions:
        save_picture(region_sheet(dataset, found.regions), arguments.out)
        print(f"\n{printable(arguments.out)}")
    if arguments.json:
        write_json(arguments.json, {"split": arguments.split, **found.to_json()})
    return 0
