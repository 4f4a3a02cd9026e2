"""The demonstration of a run that writes captions: of dropped and stored images."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from vsemb.data.store import Dataset
from vsemb.demo.answers import Demonstration, Written
from vsemb.demo.page import Page
from vsemb.errors import invalid_argument
from vsemb.runs.images import stored_image
from vsemb.runs.indexing import ALL, split_names
from vsemb.runs.run import Run
from vsemb.systems.captions.captioning import CaptionWriter
from vsemb.systems.captions.decoding import CaptionOptions
from vsemb.systems.captions.task import NextWordTask


class CaptionDemo(Demonstration):
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
        text, log_prob = demo.written(demo.items[0].key)[0]
    """

    def __init__(self, run: Run, dataset: Dataset, split: str = ALL, options: CaptionOptions | None = None) -> None:
        super().__init__(dataset, split_names(dataset, split))
        self.run = run
        self._writer = CaptionWriter(run, options or CaptionOptions())

    @property
    def facts(self) -> str:
        recipe = self.run.recipe
        return f"{recipe.name}, {recipe.model_name}; {len(self):,} images of {self.dataset.name}"

    def written(self, image: bytes | str) -> tuple[Written, ...]:
        """Writes captions of an image, best first.

        Args:
            image: its bytes or key.

        Raises:
            InvalidArgumentError: for an unknown key.
            DataError: if it cannot be decoded.
        """
        if isinstance(image, str):
            return tuple(self._writer.of_split_row(self.dataset, *self.places[self.place_of(image)]))
        return tuple(self._writer.of_bytes(stored_image(image, self.dataset).encoded))

    def add(self, page: Page) -> None:
        dropped, key = page.image_inputs("caption")
        go = page.gr.Button("Write captions", variant="primary", elem_id="caption-go")
        out = page.result("Captions appear here, each behind the logarithm of its probability.", "caption-out")

        def write(dropped: Any, key: Any) -> str:
            return page.cards.written(self.written(page.image(dropped, key)))

        page.when([go.click, dropped.upload, key.input], write, [dropped, key], out)


def tabs(
    run: Run, dataset: Dataset, split: str, report: Callable[[str], None], captioning: Demonstration | None
) -> CaptionDemo | None:
    """Opens what stands in the place of tabs, see `vsemb.demo.page.TabMaker`: an image, and its captions.

    Raises:
        InvalidArgumentError: for a second run that writes captions.
    """
    if not isinstance(run.recipe, NextWordTask):
        return None
    if captioning is not None:
        raise invalid_argument("captions", str(run.path), "nothing where the run itself writes captions")
    return CaptionDemo(run, dataset, split)
