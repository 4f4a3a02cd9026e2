"""Turn millions of images and captions into a dataset, with Apache Beam: `vsemb prepare` on many machines.

    python -m pipelines.beam_prepare photos.csv --format table --images photos/ --out data/photos

The dataset is the one that `vsemb prepare` writes from the same source, byte for byte, whatever the runner
and the number of workers. The source itself is read here; its images, named by paths or URIs (https://,
gs://, s3://, see --images and --uris), are read, checked and written by the workers. Images that cannot be
used are left out and listed, with the reasons, in JSON lines. Interrupted, the same command goes on where it
was; images that could not be read are tried again then.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from pipelines.beam.running import RUNNER_HELP, main_of, parse
from vsemb.cli import prepare as command

EXAMPLE = """  python -m pipelines.beam_prepare photos.csv --format table --out data/photos \\
      --direct_running_mode multi_processing --direct_num_workers 8
  python -m pipelines.beam_prepare urls.jsonl --format table --uris --split train --out data/web
  python -m pipelines.beam_prepare dataset_coco.json --format karpathy --images gs://BUCKET/coco \\
      --out gs://BUCKET/data/coco --runner Dataflow --project P --region europe-west1 \\
      --temp_location gs://BUCKET/tmp --sdk_container_image IMAGE"""


def build_parser() -> argparse.ArgumentParser:
    """Returns the parser of the job's own arguments, which are those of `vsemb prepare` and three more."""
    parser = argparse.ArgumentParser(
        prog="python -m pipelines.beam_prepare",
        description=__doc__,
        epilog=f"{RUNNER_HELP}\n\nexample:\n{EXAMPLE}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    command.configure(parser)
    job = parser.add_argument_group("options of the job")
    job.add_argument(
        "--dead-letters",
        metavar="FILE",
        help="JSON lines about images that are left out: key, split, image, reason (DATA-dead-letters.jsonl)",
    )
    job.add_argument(
        "--block", type=int, default=256, metavar="N", help="images a worker takes at a time (%(default)s)"
    )
    job.add_argument(
        "--threads", type=int, default=4, metavar="N", help="of a worker; more for slow servers (%(default)s)"
    )
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the job; returns the exit status."""
    arguments, flags = parse(build_parser(), argv)
    return main_of("beam_prepare", lambda: _run(arguments, flags))


def _run(arguments: argparse.Namespace, flags: list[str]) -> int:
    from pipelines.beam.preparing import prepare
    from vsemb.data.writing.prepare import summary

    manifest = prepare(flags=flags, report=lambda line: print(line, file=sys.stderr), **vars(arguments))
    print(f"{arguments.out}: {manifest['name']}, fingerprint {manifest['fingerprint'][:16]}")
    for line in summary(manifest):
        print(f"  {line}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
