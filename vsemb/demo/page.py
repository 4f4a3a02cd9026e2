"""The Gradio page of the demonstration: heading, tabs from the base and from systems, results as cards.

Thumbnails are data URLs in the HTML; no file of the dataset is served. All text from datasets and users is escaped.

A tab maker, named in `vsemb.registry.System.demo_tabs`, opens the demonstration of a run, or returns None for runs of
another task.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from vsemb import registry
from vsemb.data.store import StoredDataset
from vsemb.demo.answers import Answer, Demonstration
from vsemb.drawing.pictures import data_uri, thumbnail
from vsemb.drawing.templates import page_template
from vsemb.errors import DataError, InvalidArgumentError, VsembError, one_line
from vsemb.files import read_bytes
from vsemb.runs.run import Run
from vsemb.searching.index import Item

#: A function of a run, a dataset, its split or `all`, a function to call with messages, and the demonstration of a
#: captioning run for query images or None.
TabMaker = Callable[
    [Run, StoredDataset, str, Callable[[str], None], Demonstration | None],
    Demonstration | None,
]
_LISTED = 200
_WAITING = 16
# Longer side of a picture in pixels. Cards show it smaller, and the enlarged view shows it in this size.
_SIDE = 480
_REMEMBERED = 1024
# Handles clicks inside results.
_SCRIPT = Path(__file__).with_name("page.js")


def open_tabs(
    run: Run, dataset: StoredDataset, split: str, report: Callable[[str], None] = print, captioning: Run | None = None
) -> Demonstration:
    """Open the demonstration of a run.

    Args:
        run: the run.
        dataset: the dataset to search, or with images to caption.
        split: its split, or `all`.
        report: function to call with messages.
        captioning: captioning run for query images; None for none.

    Raises:
        DataError: if the task of the run has no demonstration.
        VsembError: if runs and dataset do not match.
    """
    other = None if captioning is None else open_tabs(captioning, dataset, split, report)
    for reference in registry.references("demo_tabs"):
        maker: TabMaker = registry.load(reference)
        if (shown := maker(run, dataset, split, report, other)) is not None:
            return shown
    raise DataError(
        f"`run` must be of a task with a demonstration, such as retrieval; got {run.recipe.kind} ({run.path})."
    )


def build_page(gradio: Any, run: Run, shown: Demonstration) -> Any:
    """Build the page.

    Args:
        gradio: the module `gradio`, an optional dependency that the caller imports.
        run: the run.
        shown: the demonstration of the run.

    Returns:
        `gradio.Blocks`.

    Example:

        build_page(gradio, run, open_tabs(run, Dataset.open("data/flickr8k"), "val"))
    """
    name = run.path.name
    with gradio.Blocks(analytics_enabled=False, title=f"vsemb · {name}") as blocks:
        gradio.HTML(str(_macros().heading(name, shown.facts)), elem_classes="vsemb-head", apply_default_css=False)
        shown.add(Page(gradio, shown))
    # One request at a time runs the model; up to `_WAITING` wait.
    blocks.queue(max_size=_WAITING, api_open=False, default_concurrency_limit=1)
    return blocks


class Page:
    """Elements that tabs share: image inputs, events and areas for results.

    Args:
        gradio: the module.
        shown: the demonstration, whose images can be chosen by key.

    Attributes:
        gr: the module.
        cards: renders results.
        results: areas for results, in the order of the tabs.
    """

    def __init__(self, gradio: Any, shown: Demonstration) -> None:
        self.gr, self.cards = gradio, Cards(shown)
        self.results: list[Any] = []
        self._takes_files = shown.takes_files
        # List keys at equal distances in the dataset.
        spread = np.unique(np.linspace(0, len(shown) - 1, min(_LISTED, len(shown))).astype(int))
        self._keys = [shown.items[place].key for place in spread]

    def image_inputs(self, name: str) -> tuple[Any, Any, Any]:
        """Add inputs for an image.

        Args:
            name: prefix of the elements' ids.

        Returns:
            The input for a dropped file, hidden if the run cannot embed new images; the input for a key; the preview
            of the image with this key.
        """
        gr = self.gr
        with gr.Row(equal_height=True):
            dropped = gr.Image(
                label="Drop an image",
                type="filepath",
                image_mode=None,
                sources=["upload", "clipboard"],
                height=240,
                buttons=[],
                visible=self._takes_files,
                elem_id=f"{name}-file",
            )
            with gr.Column():
                key = gr.Dropdown(
                    self._keys,
                    value=self._keys[0],
                    allow_custom_value=True,
                    label="Image of the dataset",
                    info="Used if no image is dropped." if self._takes_files else None,
                    elem_id=f"{name}-key",
                )
                preview = self._place(self.cards.preview(self._keys[0]), f"{name}-preview")
        # Otherwise Gradio accepts a URL or a local path in place of an upload, and downloads or copies it.
        dropped.async_move_resource_to_block_cache = _as_it_is
        self.when([key.input], self.cards.preview, [key], preview)
        return dropped, key, preview

    def image(self, dropped: Any, key: Any) -> bytes | str:
        """Return the bytes of the dropped image, or else the key.

        Args:
            dropped: value of the first of `image_inputs`.
            key: value of the second.

        Raises:
            InvalidArgumentError: if both are empty, or the file was not dropped.
            DataError: if the file cannot be read.
        """
        if dropped:
            # A request can name any file of this machine. Gradio checks paths only for pages that it launched itself.
            path = dropped.get("path") if isinstance(dropped, dict) else None
            uploads = Path(self.gr.utils.get_upload_folder()).resolve()
            if not isinstance(path, str) or not (file := Path(path).resolve()).is_relative_to(uploads):
                raise InvalidArgumentError("The image must be an image dropped on the page.")
            try:
                return read_bytes(file)
            except OSError as error:
                raise DataError(f"The dropped image cannot be read: {error.strerror}. Drop it again.") from error
        if not isinstance(key, str) or not key:
            raise InvalidArgumentError("Drop an image, or choose an image of the dataset.")
        return key

    def result(self, line: str, name: str) -> Any:
        """Add an area for results.

        Args:
            line: text shown before the first query.
            name: id of the element.
        """
        self.results.append(self._place(hint(line), name))
        return self.results[-1]

    def _place(self, html: str, name: str) -> Any:
        script = _SCRIPT.read_text(encoding="utf-8")
        options: dict[str, Any] = {"js_on_load": script, "apply_default_css": False, "min_height": 96}
        return self.gr.HTML(html, elem_id=name, elem_classes="vsemb-place", **options)

    def when(self, triggers: Sequence[Any], answer: Callable[..., str], inputs: list[Any], output: Any) -> None:
        """Show an answer after any of some events; for an error, show its message.

        Args:
            triggers: functions that add event listeners, such as `button.click`.
            answer: function from the values of the inputs to HTML.
            inputs: the inputs.
            output: area for the answer.
        """

        def ask(*values: Any) -> str:
            try:
                return answer(*values)
            except VsembError as error:
                return failure(one_line(error))

        # Inputs are not preprocessed, because Gradio's decoding of a broken image would end in a traceback.
        options: dict[str, Any] = {
            "preprocess": False,
            "show_progress": "full",
            "concurrency_id": "model",
            "concurrency_limit": 1,
            "api_visibility": "private",
        }
        for trigger in triggers:
            trigger(ask, inputs, output, **options)

    def more_like_this(
        self, tabs: Any, tab: str, inputs: Sequence[Any], search: Callable[..., str], output: Any
    ) -> None:
        """Search by image after a click on "More like this" in any area of results.

        Args:
            tabs: the `gradio.Tabs`.
            tab: id of the tab with image inputs.
            inputs: the three inputs of `image_inputs`, and the further inputs of `search`.
            search: function from the values of all inputs except the preview to HTML.
            output: area for the results of the tab.
        """
        dropped, key, preview, *further = inputs

        def choose(event: Any) -> tuple[Any, ...]:
            chosen = str(event.key)
            return self.gr.Tabs(selected=tab), None, chosen, self.cards.preview(chosen)

        # Gradio passes the event to a parameter with this annotation.
        choose.__annotations__["event"] = self.gr.EventData
        for place in self.results:
            chosen = place.select(choose, None, [tabs, dropped, key, preview], queue=False, api_visibility="private")
            self.when([chosen.success], search, [dropped, key, *further], output)


async def _as_it_is(path: Any) -> Any:
    return path


class Cards:
    """Render results as HTML.

    Args:
        images: the demonstration.

    Example:

        Cards(demo).answer(demo.by_text("a dog", 12))
    """

    def __init__(self, images: Demonstration) -> None:
        self._images = images
        # A cache per object, so that it is freed with the object.
        self.thumbnail = functools.lru_cache(_REMEMBERED)(self._thumbnail)

    def answer(self, answer: Answer) -> str:
        """Return the notes, captions, images and compared sentences of an answer.

        Args:
            answer: the answer.

        Raises:
            DataError: if an image of the dataset is damaged.
        """
        return str(_macros().answer(answer, [self._source(result.item) for result in answer.images]))

    def written(self, captions: Sequence[tuple[str, float]]) -> str:
        """Return captions with their log-probabilities.

        Args:
            captions: pairs of caption and natural logarithm of its probability.
        """
        return str(_macros().written(captions))

    def preview(self, key: str) -> str:
        """Return an image of the dataset.

        Args:
            key: its key.

        Raises:
            VsembError: if the image is missing or damaged.
        """
        item = self._images.items[self._images.place_of(key)]
        return str(_macros().preview(item, self._source(item)))

    def _source(self, item: Item) -> str | None:
        return self.thumbnail(self._images.place_of(item.key))

    def _thumbnail(self, place: int) -> str | None:
        """Return an image as a data URL; None if the dataset has no image bytes."""
        split, row = self._images.places[place]
        return data_uri(thumbnail(split, row, _SIDE)) if split.has_images else None


def notes(lines: Sequence[str]) -> str:
    """Return messages, one box each.

    Args:
        lines: the messages.
    """
    return str(_macros().notes(lines))


def failure(line: str) -> str:
    """Return an error message.

    Args:
        line: the message.
    """
    return str(_macros().failure(line))


def hint(line: str) -> str:
    """Return the text that is shown before the first query.

    Args:
        line: the text.
    """
    return str(_macros().hint(line))


@functools.cache
def _macros() -> Any:
    return page_template(__package__, "cards.html.jinja").module
