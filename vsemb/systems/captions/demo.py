"""Demonstration of a captioning run: captions of dropped images and of images of the dataset."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

from vsemb.data.store import StoredDataset
from vsemb.demo.answers import Demonstration, Written, decoded
from vsemb.demo.page import Page
from vsemb.errors import VsembError, invalid_argument
from vsemb.runs.indexing import ALL, split_names
from vsemb.runs.run import Run
from vsemb.systems.captions.captioner import CaptionOptions
from vsemb.systems.captions.captioning import CaptionWriter
from vsemb.systems.captions.task import NextWordTask


class CaptionDemo(Demonstration):
    """Caption generation with a captioning run.

    Images are bytes in any format that a dataset accepts, or keys of images of the dataset.

    Args:
        run: the run.
        dataset: the dataset with images to choose from.
        split: name of its split; default `all`, for all splits.
        options: options of the beam search; None for the defaults.

    Raises:
        VsembError: if run and dataset do not match, or the split is missing.

    Example:

        demo = CaptionDemo(open_captioning_run("runs/captions"), Dataset.open("data/flickr8k"), "val")
        text, log_prob = demo.written(demo.items[0].key)[0]
    """

    def __init__(
        self, run: Run, dataset: StoredDataset, split: str = ALL, options: CaptionOptions | None = None
    ) -> None:
        super().__init__(dataset, split_names(dataset, split))
        self.run = run
        self._writer = CaptionWriter(run, options or CaptionOptions())

    @property
    def facts(self) -> str:
        recipe = self.run.recipe
        return f"{recipe.name}, {recipe.model_name}; {len(self):,} images of {self.dataset.name}"

    @property
    def takes_files(self) -> bool:
        return self.run.image_input is not None

    def warm_up(self) -> None:
        # A damaged first image must not stop the demonstration.
        with contextlib.suppress(VsembError):
            self.written(self._first())

    def written(self, image: bytes | str) -> tuple[Written, ...]:
        """Generate captions of an image, best first.

        Args:
            image: its bytes or key.

        Raises:
            InvalidArgumentError: for an unknown key.
            DataError: if it cannot be decoded.
        """
        if isinstance(image, str):
            return tuple(self._writer.of_split_row(self.dataset, *self.places[self.place_of(image)]))
        return tuple(self._writer.of_bytes(decoded(image, self.dataset)))

    def add(self, page: Page) -> None:
        dropped, key, _ = page.image_inputs("caption")
        go = page.gr.Button("Generate captions", variant="primary", elem_id="caption-go")
        out = page.result("Captions appear here, each with the logarithm of its probability.", "caption-out")

        def write(dropped: Any, key: Any) -> str:
            return page.cards.written(self.written(page.image(dropped, key)))

        page.when([go.click, dropped.upload, key.input], write, [dropped, key], out)


def tabs(
    run: Run, dataset: StoredDataset, split: str, report: Callable[[str], None], captioning: Demonstration | None
) -> CaptionDemo | None:
    """Open the demonstration of a captioning run, see `vsemb.demo.page.TabMaker`; None for other runs.

    Args:
        run: the run.
        dataset: the dataset.
        split: its split, or `all`.
        report: not used.
        captioning: must be None.

    Raises:
        InvalidArgumentError: for a second captioning run.
    """
    if not isinstance(run.recipe, NextWordTask):
        return None
    if captioning is not None:
        raise invalid_argument("captions", str(run.path), "omitted for a run that generates captions itself")
    return CaptionDemo(run, dataset, split)
