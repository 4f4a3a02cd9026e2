"""Run the quickstart in about three minutes: data, training, evaluation, SavedModel, index, search.

    python -m pipelines.quickstart [--out quickstart]

Every step is a `vsemb` command, printed before it runs, so that it can be copied. After an interruption the same
command resumes.
"""

from __future__ import annotations

import shlex
import sys
import time
from pathlib import Path

from pipelines.running import parser_of
from vsemb.cli.__main__ import main as vsemb

QUERIES = ("two yellow shapes", "a large blue shape on a black background", "a red circle")

# Small towers and few epochs, for useful results in a short time.
SETTINGS = (
    "embedding_dim=128",
    "text.encoder.words.dim=64",
    "text.encoder.units=128",
    "batches.size=128",
    "training.epochs=5",
    "image.dropout=0.1",
    "text.encoder.dropout=0.1",
    "optimizer.learning_rate=0.003",
)


def commands(out: Path) -> list[list[str]]:
    """Return the commands of the quickstart, with outputs in `out`."""
    data, run, model = str(out / "scenes"), str(out / "run"), str(out / "savedmodels" / "scenes")
    settings = [part for setting in SETTINGS for part in ("--set", setting)]
    steps = [
        ["scenes", "--out", data, "--train", "6000", "--val", "300", "--test", "300", "--compositional", "300"],
        ["train", "contrastive", "--data", data, "--out", run, "--fine-tune", "SmallConvNet", *settings],
        ["evaluate", run, "--data", data, "--split", "test", "--json", str(out / "test.json")],
        ["export", run, model],
        ["index", run, "--data", data, "--split", "test"],
    ]
    return steps + [["search", run, query, "--data", data, "--split", "test", "-k", "3"] for query in QUERIES]


def main(argv: list[str] | None = None) -> int:
    """Run the quickstart and return the exit status of the first command that fails, or 0."""
    parser = parser_of("quickstart", __doc__)
    parser.add_argument("--out", type=Path, default=Path("quickstart"), help="where everything goes (%(default)s)")
    out: Path = parser.parse_args(argv).out
    started = time.monotonic()
    for step in commands(out):
        print(f"\n$ vsemb {shlex.join(step)}", flush=True)
        status = vsemb(step)
        if status:
            return status
    print(
        f"""
Done in {time.monotonic() - started:.0f} s. What there is now:
  {out / "scenes"}               the dataset (vsemb scenes --help)
  {out / "run"}                  recipe, weights, metrics; tensorboard --logdir {out / "run" / "logs"}
  {out / "test.json"}            the metrics of the test split
  {out / "savedmodels" / "scenes"}   what TensorFlow Serving loads
What to do next (after: source {Path(sys.prefix) / "bin" / "activate"}):
  vsemb search {out / "run"} "a small green ring" --data {out / "scenes"}
  vsemb search {out / "run"} --help      (search by image; image - word + word)
  vsemb verify {out / "savedmodels" / "scenes"}   (what it answers, through TensorFlow's C library)
  vsemb serve {out / "savedmodels" / "scenes"}    (first: pip install -e '.[serving]')
  vsemb report {out / "run"}             (first: pip install -e '.[report]')
  vsemb demo {out / "run"} --open-browser        (first: pip install -e '.[demo]')
  vsemb prepare --help                 (your own images and captions)"""
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
