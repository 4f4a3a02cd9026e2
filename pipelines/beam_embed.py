"""Embed millions of images or texts with an exported model, with Apache Beam, and index them.

    python -m pipelines.beam_embed savedmodels/flickr8k --data data/flickr8k --out embeddings/flickr8k

MODEL is an export of `vsemb export`: the directory of a version, or of all versions for the newest one. It embeds
the images (or --captions) of a dataset, image files (--images, one path or URI per line) or texts (--texts, one text
per line). OUT contains Parquet or TFRecord files of (id, key, split, embedding), a manifest, and dead-letters.jsonl
with failed items and reasons. With --run and --index the job also builds the index of `vsemb index`, for
`vsemb search`. After an interruption the same command resumes and keeps finished files.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from pipelines.beam.running import RUNNER_HELP, parse
from pipelines.running import main_of, parser_of

if TYPE_CHECKING:
    from pipelines.beam.embedding import Unit

EXAMPLE = """  python -m pipelines.beam_embed savedmodels/flickr8k --data data/flickr8k \\
      --out embeddings/flickr8k --run runs/vsepp --index indexes/flickr8k
  vsemb search indexes/flickr8k "a dog on a beach"
  python -m pipelines.beam_embed savedmodels/flickr8k --images files.txt --out embeddings/files \\
      --direct_running_mode multi_processing --direct_num_workers 8
  python -m pipelines.beam_embed gs://BUCKET/savedmodels/coco/1 --data data/coco \\
      --shards gs://BUCKET/data/coco --out gs://BUCKET/embeddings --format tfrecord \\
      --runner Dataflow --project P --region europe-west1 --temp_location gs://BUCKET/tmp \\
      --sdk_container_image IMAGE"""


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of the job's arguments."""
    epilog = f"{RUNNER_HELP}\n\nexample:\n{EXAMPLE}"
    parser = parser_of("beam_embed", __doc__, epilog, allow_abbrev=False)
    parser.add_argument("model", metavar="MODEL", help="the exported model")
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--data", metavar="DATA", help="a dataset")
    what.add_argument("--images", metavar="FILE", help="a list of image files: one path or URI per line")
    what.add_argument("--texts", metavar="FILE", help="a file of texts, one per line")
    parser.add_argument("--split", help="with --data: the split to embed, or all (all)")
    parser.add_argument("--captions", action="store_true", help="with --data: embed captions instead of images")
    parser.add_argument(
        "--shards", metavar="DIR", help="with --data: where workers find its shards, a path or URI (DATA)"
    )
    parser.add_argument("--out", required=True, metavar="OUT", help="directory to make, or a store's folder")
    parser.add_argument("--format", default="parquet", help="parquet or tfrecord (%(default)s)")
    parser.add_argument(
        "--rows-per-file", type=int, default=16384, metavar="N", help="about so many a file (%(default)s)"
    )
    parser.add_argument("--overwrite", action="store_true", help="replace other embeddings at OUT")
    index = parser.add_argument_group("index, with --data")
    index.add_argument("--index", metavar="INDEX", help="also build this index for `vsemb search`")
    index.add_argument("--run", metavar="RUN", help="the run that MODEL was exported from")
    index.add_argument("--backend", default="exact", help="as in `vsemb index` (%(default)s)")
    index.add_argument("--dtype", default="float32", help="as in `vsemb index` (%(default)s)")
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run the job and return the exit status."""
    parser = build_parser()
    arguments, flags = parse(parser, argv)
    of_data = (arguments.index, arguments.split, arguments.captions, arguments.shards)
    if arguments.data is None and any(of_data):
        parser.error("--index, --split, --captions and --shards need --data")
    if bool(arguments.index) != bool(arguments.run):
        parser.error("--index and --run need each other")
    if arguments.rows_per_file < 1:
        parser.error("--rows-per-file: an integer >= 1 is needed")
    return main_of("beam_embed", lambda: _run(arguments, flags))


def _run(arguments: argparse.Namespace, flags: list[str]) -> int:
    from pipelines.beam import embed_index
    from pipelines.beam import embed_job as job
    from vsemb.acts import chosen
    from vsemb.data.store import StoredDataset
    from vsemb.errors import invalid_argument, reason_of
    from vsemb.files import sha256_file
    from vsemb.runs.run import Run
    from vsemb.searching.backends.backend import SearchBackend

    kind = "text" if arguments.texts or arguments.captions else "image"
    model = job.Model.open(arguments.model, kind)
    split = arguments.split or "all"
    backend = chosen(SearchBackend, "backend", arguments.backend, {"dtype": arguments.dtype})
    run = dataset = None
    if arguments.data:
        dataset = StoredDataset.open(arguments.data)
        content = job.dataset_content(dataset, split)
    else:
        try:
            content = sha256_file(arguments.images or arguments.texts)
        except OSError as error:
            name = "images" if arguments.images else "texts"
            raise invalid_argument(name, getattr(arguments, name), "a text file", reason_of(error)) from error
    if arguments.run:
        run = Run.open(arguments.run)
        embed_index.check_index(model, run, arguments.index, kind, backend)

    def units(folder: str) -> list[Unit]:
        if dataset is not None:
            return job.dataset_units(dataset, split, kind, arguments.rows_per_file, arguments.shards)
        listed = arguments.images or arguments.texts
        return job.list_units(listed, kind, folder, arguments.rows_per_file)

    manifest = job.embed(
        model,
        arguments.out,
        units,
        kind=kind,
        content=f"{content} {arguments.rows_per_file}",
        format=arguments.format,
        flags=flags,
        overwrite=arguments.overwrite,
        report=lambda line: print(line, file=sys.stderr),
    )
    print(f"rows    {manifest['rows']:,} {kind}s of {manifest['dim']} numbers")
    print(f"where   {arguments.out}, {len(manifest['files'])} files")
    if manifest["bad"]:
        first = manifest["bad"][0]
        print(f"bad     {len(manifest['bad']):,}, first {first['key']!r}: {first['reason']}")
    if run is not None and dataset is not None:
        embed_index.build_index(run, dataset, split, kind, arguments.out, arguments.index, backend).close()
        print(f"index   {arguments.index}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
