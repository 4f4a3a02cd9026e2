"""The page of the demonstration: a heading, the tabs that the base and the systems make for a run, answers as cards.

Thumbnails are made in memory and stand in the HTML itself, so that no file of the dataset is ever served. Whatever
comes from a dataset or a reader is escaped.

A tab maker, named in `vsemb.registry.System.demo_tabs`, opens what the tabs of a run need, or returns None for runs of
another kind.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from html import escape
from pathlib import Path
from typing import Any

import numpy as np

from vsemb import registry
from vsemb.data.store import Dataset
from vsemb.demo.answers import Answer, Demonstration
from vsemb.errors import DataError, VsembError, invalid_argument, one_line
from vsemb.runs.pictures import data_uri, thumbnail
from vsemb.runs.run import Run
from vsemb.runs.templates import page_template
from vsemb.searching import Item

#: Takes a run, a dataset, its split or `all`, a function that is called with lines worth showing, and the demonstration
#: of another run, which writes captions of the images asked about.
TabMaker = Callable[
    [Run, Dataset, str, Callable[[str], None], Demonstration | None],
    Demonstration | None,
]
_LISTED = 200
_WAITING = 16
_SIDE = 256
_REMEMBERED = 1024


def open_tabs(
    run: Run, dataset: Dataset, split: str, report: Callable[[str], None] = print, captioning: Run | None = None
) -> Demonstration:
    """Opens what the page of a run needs.

    Args:
        run: the run.
        dataset: the dataset searched, or whose images are captioned.
        split: its split, or `all`.
        report: called with a line worth showing.
        captioning: another run, which writes captions of the images asked about; None for none.

    Raises:
        DataError: for a run of a task without a demonstration.
        VsembError: if runs and dataset do not fit.
    """
    other = None if captioning is None else open_tabs(captioning, dataset, split, report)
    for reference in registry.references("demo_tabs"):
        maker: TabMaker = registry.load(reference)
        if (shown := maker(run, dataset, split, report, other)) is not None:
            return shown
    raise DataError(f"There is no demonstration of runs for {run.recipe.kind}, as {run.path} is one.")


def build_page(gradio: Any, run: Run, shown: Demonstration) -> Any:
    """Builds the page.

    Args:
        gradio: the module, imported by the caller, since it is optional.
        run: the run.
        shown: what it shows.

    Returns:
        `gradio.Blocks` with a tab for each thing that the run can do.

    Example:

        build_page(gradio, run, open_tabs(run, Dataset.open("data/flickr8k"), "val"))
    """
    name = run.path.name
    with gradio.Blocks(analytics_enabled=False, title=f"vsemb · {name}") as blocks:
        gradio.HTML(f"<h2>{escape(name)}</h2><p class='vsemb-hint'>{escape(shown.facts)}</p>")
        shown.add(Page(gradio, shown))
    # One request at a time has the model; some may wait.
    blocks.queue(max_size=_WAITING, api_open=False, default_concurrency_limit=1)
    return blocks


class Page:
    """What tabs share: how an image is given, a question asked, and an answer shown.

    Args:
        gradio: the module.
        shown: the images that the page offers by their keys.

    Attributes:
        gr: the module.
        cards: renders answers.
    """

    def __init__(self, gradio: Any, shown: Demonstration) -> None:
        self.gr, self.cards = gradio, Cards(shown)
        # The form of keys, and not the first ones alone.
        spread = np.unique(np.linspace(0, len(shown) - 1, min(_LISTED, len(shown))).astype(int))
        self._keys = [shown.items[place].key for place in spread]

    def image_inputs(self, name: str) -> tuple[Any, Any]:
        """Adds inputs for an image, and returns them: that of a dropped file, and that of a key."""
        gr = self.gr
        with gr.Row(equal_height=True):
            dropped = gr.Image(
                label="Drop an image",
                type="filepath",
                image_mode=None,
                sources=["upload", "clipboard"],
                height=220,
                buttons=[],
                elem_id=f"{name}-file",
            )
            with gr.Column():
                key = gr.Dropdown(
                    self._keys,
                    value=self._keys[0],
                    allow_custom_value=True,
                    label="or take one of the dataset's, by its key",
                    info="A dropped image goes first.",
                    elem_id=f"{name}-key",
                )
                preview = gr.HTML(self.cards.preview(self._keys[0]))
        # Gradio would fetch an address that stands in the place of an upload, or copy a file of the machine.
        dropped.async_move_resource_to_block_cache = _as_it_is
        self.when([key.input], self.cards.preview, [key], preview)
        return dropped, key

    def image(self, dropped: Any, key: Any) -> bytes | str:
        """Returns the bytes of a dropped image, or else the key, from the values of `image_inputs`.

        Raises:
            InvalidArgumentError: for neither, or a file that was not dropped.
            DataError: if it cannot be read.
        """
        if dropped:
            # A request can name any file, and Gradio guards only pages that it launched itself.
            path = dropped.get("path") if isinstance(dropped, dict) else None
            uploads = Path(self.gr.utils.get_upload_folder()).resolve()
            if not isinstance(path, str) or not (file := Path(path).resolve()).is_relative_to(uploads):
                raise invalid_argument("image", path, "an image dropped on the page")
            try:
                return file.read_bytes()
            except OSError as error:
                raise DataError(f"The dropped image cannot be read: {error.strerror}.") from error
        if not isinstance(key, str) or not key:
            raise invalid_argument("image", key, "a dropped image, or the key of one of the dataset's")
        return key

    def result(self, line: str, name: str) -> Any:
        """Adds the place of an answer, with a line that stands there until there is one."""
        return self.gr.HTML(hint(line), elem_id=name, min_height=60)

    def when(self, triggers: Sequence[Any], answer: Callable[..., str], inputs: list[Any], output: Any) -> None:
        """Shows the answer to the values of inputs at each trigger; its errors become a line on the page."""

        def ask(*values: Any) -> str:
            try:
                return answer(*values)
            except VsembError as error:
                self.gr.Warning(escape(one_line(error)))
                return notes([one_line(error)])

        # Unprocessed inputs: Gradio's own reading of an image that is none would end in a traceback.
        options: dict[str, Any] = {
            "preprocess": False,
            "show_progress": "minimal",
            "concurrency_id": "model",
            "concurrency_limit": 1,
            "api_visibility": "private",
        }
        for trigger in triggers:
            trigger(ask, inputs, output, **options)


async def _as_it_is(path: Any) -> Any:
    return path


class Cards:
    """Renders the answers of a demonstration.

    Args:
        images: those that are shown.

    Example:

        Cards(demo).answer(demo.by_text("a dog", 12))
    """

    def __init__(self, images: Demonstration) -> None:
        self._images = images
        # Of this object and not of the class, so that nothing outlives it.
        self.thumbnail = functools.lru_cache(_REMEMBERED)(self._thumbnail)

    def answer(self, answer: Answer) -> str:
        """Returns the notes, the captions and the images of an answer, or its sentences with their bars.

        Raises:
            DataError: if an image of the dataset is damaged.
        """
        return str(_macros().answer(answer, [self._source(result.item) for result in answer.images]))

    def written(self, captions: Sequence[tuple[str, float]]) -> str:
        """Returns captions with their log-probabilities."""
        return str(_macros().written(captions))

    def preview(self, key: str) -> str:
        """Returns an image of the dataset by its key.

        Raises:
            VsembError: if there is no such image, or it is damaged.
        """
        item = self._images.items[self._images.place_of(key)]
        return str(_macros().preview(item, self._source(item)))

    def _source(self, item: Item) -> str | None:
        return self.thumbnail(self._images.place_of(item.key))

    def _thumbnail(self, place: int) -> str | None:
        """An image of the index as a data URL; None where the dataset holds features alone."""
        split, row = self._images.places[place]
        return data_uri(thumbnail(split, row, _SIDE)) if split.has_images else None


def notes(lines: Sequence[str]) -> str:
    """Returns lines worth showing, each a box of its own."""
    return str(_macros().notes(lines))


def hint(line: str) -> str:
    """Returns what stands where there is no answer yet."""
    return str(_macros().hint(line))


@functools.cache
def _macros() -> Any:
    return page_template(__package__, "cards.html.jinja").module
