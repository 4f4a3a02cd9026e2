"""`vsemb check`."""

from __future__ import annotations

import argparse

from vsemb.printing import save_json


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("data", metavar="DATA", help="directory of the dataset")
    parser.add_argument("--json", metavar="FILE", help="also write what is damaged as JSON to FILE")


def run(arguments: argparse.Namespace) -> None:
    """Read a dataset once and say what is damaged: one line per index, shard, cache or annotation.

    Images that two splits have in common are named too. They do not count as damage.

    Other commands check the sizes of files only, so that ten million images open at once. The exit status is 1 if
    anything is damaged.

    Examples:
      vsemb check data/flickr8k
    """
    from vsemb.data.check import check_dataset
    from vsemb.data.duplicates import shared_images
    from vsemb.data.store import Dataset
    from vsemb.errors import DataError

    found = []
    for line in check_dataset(arguments.data):
        print(line)
        found.append(line)
    # Columns of a damaged index cannot be read.
    shared = [] if found else list(shared_images(Dataset.open(arguments.data)))
    for line in shared:
        print(line)
    save_json(arguments, {"data": str(arguments.data), "damaged": found, "shared": shared})
    if found:
        places = "one place" if len(found) == 1 else f"{len(found)} places"
        raise DataError(f"{arguments.data} is damaged in {places}, see above. Prepare it again.")
    print(f"{arguments.data}: no damage found.")
