"""How far values travel through the package: files on the way, and changes from one file to another.

    python -m tests.trips

Each trip is something that a person asks for. `sys.setprofile` sees every call of a function of `vsemb`; a change is a
call whose file is another than that of the call before.
"""

from __future__ import annotations

import collections
import contextlib
import io
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np

ROOT = Path(__file__).parents[1]
PACKAGE = f"{ROOT / 'vsemb'}/"


@dataclass
class Trip:
    """What happened on the way.

    Attributes:
        files: file -> number of times that the trip came to it from another one.
        last: file of the last call.
    """

    files: collections.Counter[str] = field(default_factory=collections.Counter)
    last: str = ""

    def __call__(self, frame: FrameType, event: str, _: Any) -> None:
        file = frame.f_code.co_filename
        if event == "call" and file.startswith(PACKAGE) and file != self.last:
            self.files[file.removeprefix(PACKAGE)] += 1
            self.last = file

    @property
    def changes(self) -> int:
        """Changes of file."""
        return sum(self.files.values())


def travelled(act: Callable[[], object]) -> Trip:
    """Returns the trip of a call."""
    trip = Trip()
    sys.setprofile(trip)
    try:
        act()
    finally:
        sys.setprofile(None)
    return trip


def trips(folder: Path) -> dict[str, Callable[[], object]]:
    """Returns the name of each trip, and what begins it."""
    from PIL import Image

    import vsemb
    from vsemb.data import synthetic
    from vsemb.data.writing.writer import write_dataset

    counts = {"train": 40, "val": 8}
    source = {"format": "scenes", "path_name": "trips", "sha256": {}, "options": {}}
    data = write_dataset(
        out=folder / "scenes",
        total=sum(counts.values()),
        records=synthetic.generate(counts, seed=0, image_size=32, class_zero_shot_splits=False),
        name="scenes",
        source=source,
    )
    small = {"epochs": 1, "batch_size": 16, "text_encoder": "linear", "encoder_projection": True, "min_count": 1}
    run = vsemb.train("contrastive", data, folder / "run", fine_tune="SmallConvNet", **small)
    picture = folder / "dog.png"
    Image.fromarray(np.full((32, 32, 3), 99, np.uint8)).save(picture)
    (folder / "pairs.csv").write_text("file,caption,split\n" + f"{picture},a red circle,train\n" * 2)
    exported = vsemb.export(run, folder / "models" / "scenes").path

    def batch() -> object:
        from vsemb.data.batches import PairBatches

        dataset = vsemb.Dataset.from_csv(folder / "pairs.csv")
        return dataset, PairBatches

    def served() -> object:
        return vsemb.load(exported).encode_images([picture])

    def built() -> object:
        recipe = vsemb.recipes.get("vsepp").with_overrides(["text.encoder.units=16", "text.encoder.words.dim=8"])
        return recipe.build(20, {"feature_dim": 8}, "float32")

    def hits() -> object:
        return vsemb.search(vsemb.load(run.path), "a red circle", np.eye(3, run.embedding_dim, dtype=np.float32), k=2)

    return {
        "caption of a CSV file to a dataset": batch,
        "first image of a model": served,
        "--set to a built model": built,
        "query to hits, cold": hits,
    }


def main() -> None:
    """Print a row per trip."""
    with tempfile.TemporaryDirectory() as folder:
        with contextlib.redirect_stderr(io.StringIO()), contextlib.redirect_stdout(io.StringIO()):
            found = trips(Path(folder))
        print(f"{'trip':36} files changes")
        for name, act in found.items():
            with contextlib.redirect_stderr(io.StringIO()):
                trip = travelled(act)
            print(f"{name:36} {len(trip.files):5} {trip.changes:7}")
            for file, times in trip.files.most_common(8):
                print(f"    {times:5} {file}")


if __name__ == "__main__":
    main()
