"""Demonstration of a captioning run: captions of dropped images and of images of the dataset."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

from vsemb.demo.answers import Demonstration, Written
from vsemb.demo.page import Page, hint
from vsemb.demo.pictures import Opener, Pictures
from vsemb.errors import VsembError, invalid_argument
from vsemb.runs.run import Run
from vsemb.systems.captions.captioner import CaptionOptions
from vsemb.systems.captions.captioning import CaptionWriter
from vsemb.systems.captions.task import NextWordTask


class CaptionDemo(Demonstration):
    """Caption generation with a captioning run.

    Images are bytes in any format that a dataset accepts, or keys of the pictures.

    Args:
        run: the run.
        pictures: the pictures to choose from.
        options: options of the beam search; None for the defaults.

    Raises:
        VsembError: if run and pictures do not match.

    Example:

        demo = CaptionDemo(open_captioning_run("runs/captions"), DatasetPictures(Dataset.open("data/flickr8k")))
        text, log_prob = demo.written(demo.pictures.items[0].key)[0]
    """

    def __init__(self, run: Run, pictures: Pictures, options: CaptionOptions | None = None) -> None:
        super().__init__(pictures)
        self.run = run
        self._writer = CaptionWriter(run, options or CaptionOptions())

    @property
    def facts(self) -> str:
        recipe = self.run.recipe
        return f"{recipe.name}, {recipe.model_name}; {self.pictures.described}"

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
        if not isinstance(image, str):
            return tuple(self._writer.of_bytes(self.pictures.stored(image)))
        place = self.pictures.place_of(image)
        row = self.pictures.in_dataset(place)
        written = (
            self._writer.of_bytes(self.pictures.encoded(place)) if row is None else self._writer.of_split_row(*row)
        )
        return tuple(written)

    def add(self, page: Page) -> None:
        dropped, key, _ = page.image_inputs("caption")
        go = page.gr.Button("Generate captions", variant="primary", elem_id="caption-go")
        out = page.result(hint("Captions appear here, each with the logarithm of its probability."), "caption-out")

        def write(dropped: Any, key: Any) -> str:
            return page.cards.written(self.written(page.image(dropped, key)))

        page.when([go.click, dropped.upload, key.input], write, [dropped, key], out)


def tabs(
    run: Run, opener: Opener, report: Callable[[str], None], captioning: Demonstration | None
) -> CaptionDemo | None:
    """Open the demonstration of a captioning run, see `vsemb.demo.page.TabMaker`; None for other runs.

    Args:
        run: the run.
        opener: opens the pictures.
        report: not used.
        captioning: must be None.

    Raises:
        InvalidArgumentError: for a second captioning run.
    """
    if not isinstance(run.recipe, NextWordTask):
        return None
    if captioning is not None:
        raise invalid_argument("captions", str(run.path), "omitted for a run that generates captions itself")
    return CaptionDemo(run, opener())
