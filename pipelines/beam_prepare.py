"""Prepare a dataset of millions of images with Apache Beam: `vsemb prepare` on many machines.

    python -m pipelines.beam_prepare photos.csv --format table --images photos/ --out data/photos

The dataset is byte-identical to the dataset of `vsemb prepare` from the same source, for any runner and number of
workers. The source is read on this machine. Workers read, check and write its images, given as paths or URIs
(https://, gs://, s3://, see --images and --uris). Unusable images are skipped and listed with reasons as JSON lines.
After an interruption the same command resumes and reads unreadable images again.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from pipelines.beam.running import RUNNER_HELP, parse
from pipelines.running import main_of
from vsemb.cli.commands import COMMANDS
from vsemb.cli.parser import SHARED, parser_of

EXAMPLE = """  python -m pipelines.beam_prepare photos.csv --format table --out data/photos \\
      --direct_running_mode multi_processing --direct_num_workers 8
  python -m pipelines.beam_prepare urls.jsonl --format table --uris --split train --out data/web
  python -m pipelines.beam_prepare dataset_coco.json --format karpathy --images gs://BUCKET/coco \\
      --out gs://BUCKET/data/coco --runner Dataflow --project P --region europe-west1 \\
      --temp_location gs://BUCKET/tmp --sdk_container_image IMAGE"""


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of the job: arguments of `vsemb prepare` and three more."""
    parser = parser_of("prepare", COMMANDS["prepare"])
    parser.prog = "python -m pipelines.beam_prepare"
    parser.usage = f"{parser.prog} --out OUT SOURCE [SOURCE ...] [options]"
    parser.description = __doc__
    parser.epilog = f"{RUNNER_HELP}\n\nexample:\n{EXAMPLE}"
    job = parser.add_argument_group("options of the job")
    job.add_argument(
        "--dead-letters",
        metavar="FILE",
        help="JSON lines about images that are left out: key, split, image, reason (DATA-dead-letters.jsonl)",
    )
    job.add_argument("--block", type=int, metavar="N", help="images a worker takes at a time (256)")
    job.add_argument("--threads", type=int, metavar="N", help="of a worker; more for slow servers (4)")
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run the job and return the exit status."""
    arguments, flags = parse(build_parser(), argv)
    return main_of("beam_prepare", lambda: _run(arguments, flags))


def _run(arguments: argparse.Namespace, flags: list[str]) -> int:
    from pipelines.beam.preparing import prepare
    from vsemb.data.writing.prepare import summary

    options = {name: value for name, value in vars(arguments).items() if name not in SHARED}
    manifest = prepare(flags=flags, **options)
    print(f"{arguments.out}: {manifest['name']}, fingerprint {manifest['fingerprint'][:16]}")
    for line in summary(manifest):
        print(f"  {line}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
