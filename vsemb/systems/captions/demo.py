"""The demonstration of a run that writes captions: of dropped and stored images."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from vsemb.data.store import Dataset
from vsemb.demo.images import ShownImages
from vsemb.demo.inputs import PageParts
from vsemb.demo.page import Tabs
from vsemb.errors import invalid_argument
from vsemb.runs.indexing import ALL, split_names
from vsemb.runs.run import Run
from vsemb.systems.captions.captioner import CaptionOptions
from vsemb.systems.captions.captioning import CaptionWriter, Written
from vsemb.systems.captions.task import NextWordTask


class CaptionDemo(ShownImages):
    """A run that writes captions of images, opened once and asked often.

    An image is given as bytes, of any format that a dataset takes, or as the key of one of the dataset's.

    Args:
        run: the run.
        dataset: whose images are offered.
        split: its split, or `all`.
        options: how captions are looked for.

    Raises:
        VsembError: if run and dataset do not fit, or the split is not there.

    Example:

        demo = CaptionDemo(open_captioning_run("runs/captions"), Dataset.open("data/flickr8k"), "val")
        text, log_prob = demo.captions(demo.items[0].key)[0]
    """

    def __init__(self, run: Run, dataset: Dataset, split: str = ALL, options: CaptionOptions | None = None) -> None:
        super().__init__(dataset, split_names(dataset, split))
        self.run = run
        self._writer = CaptionWriter(run, options or CaptionOptions())

    def captions(self, image: bytes | str) -> tuple[Written, ...]:
        """Writes captions of an image, best first.

        Args:
            image: its bytes or key.

        Raises:
            InvalidArgumentError: for an unknown key.
            DataError: if it cannot be decoded.
        """
        if isinstance(image, str):
            return tuple(self._writer.of_split_row(self.dataset, *self.place(self.place_of(image))))
        return tuple(self._writer.of_bytes(self.as_stored(image)))


def tabs(run: Run, dataset: Dataset, split: str, report: Callable[[str], None], captioning: Tabs | None) -> Tabs | None:
    """Returns what stands in the place of tabs, see `vsemb.demo.page.TabMaker`: an image, and its captions.

    Raises:
        InvalidArgumentError: for a second run that writes captions.
    """
    del report
    if not isinstance(run.recipe, NextWordTask):
        return None
    if captioning is not None:
        raise invalid_argument("captions", str(run.path), "nothing where the run itself writes captions")
    demo = CaptionDemo(run, dataset, split)
    facts = f"{run.recipe.name}, {run.recipe.model_name}; {len(demo):,} images of {dataset.name}"
    return Tabs(demo, facts, lambda parts: _add(parts, demo), written=demo.captions)


def _add(parts: PageParts, demo: CaptionDemo) -> None:
    dropped, key = parts.image_inputs("caption")
    go = parts.gr.Button("Write captions", variant="primary", elem_id="caption-go")
    line = "Captions appear here, each behind the logarithm of its probability."
    out = parts.result(line, "caption-out")

    def write(dropped: Any, key: Any) -> str:
        return parts.cards.written(demo.captions(parts.image(dropped, key)))

    parts.when([go.click, dropped.upload, key.input], parts.asked(write), [dropped, key], out)
