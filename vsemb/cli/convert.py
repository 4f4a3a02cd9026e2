"""`vsemb convert`."""

from __future__ import annotations

import argparse

from vsemb.printing import add_json, save_json


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("data", metavar="DATA", help="a prepared dataset")
    parser.add_argument("--format", required=True, choices=["webdataset", "parquet"], help="format to write")
    parser.add_argument("--out", required=True, metavar="DIR", help="directory to write")
    parser.add_argument("--images-per-file", type=int, default=1024, metavar="N", help="images per file (%(default)s)")
    parser.add_argument("--overwrite", action="store_true", help="replace DIR")
    add_json(parser)


def run(arguments: argparse.Namespace) -> None:
    """Write a dataset in the format of other programs.

    webdataset: tar files with image, captions (.txt, one per line) and .json (key, split, captions, class) per image.
    parquet: the columns key, image, captions, class and split, as `datasets.load_dataset` of Hugging Face reads them.
    `vsemb prepare` reads both formats.

    Examples:
      vsemb convert data/flickr8k --format webdataset --out flickr8k-shards
      vsemb convert data/flickr8k --format parquet --out flickr8k-parquet
    """
    from vsemb.data.store import Dataset
    from vsemb.data.writing.convert import convert

    files = convert(
        Dataset.open(arguments.data),
        arguments.out,
        arguments.format,
        images_per_file=arguments.images_per_file,
        overwrite=arguments.overwrite,
    )
    size = sum(file.stat().st_size for file in files)
    print(f"{arguments.out}: {len(files):,} files, {size / 1e6:,.1f} MB")
    save_json(arguments, {"files": [str(file) for file in files], "bytes": size})
