"""The Gradio page of the demonstration: heading, tabs from the base and from systems, results as cards.

Pictures are named by their places, see `vsemb.demo.thumbnails`; no file is served. All text from datasets, files and
users is escaped.

A tab maker, named in `vsemb.registry.System.demo_tabs`, opens the demonstration of a run, or returns None for runs of
another task.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from vsemb import registry
from vsemb.demo.answers import Answer, Demonstration
from vsemb.demo.pictures import Opener, Pictures
from vsemb.demo.thumbnails import FOLDER
from vsemb.drawing.templates import page_template
from vsemb.errors import DataError, InvalidArgumentError, VsembError, one_line, reason_of
from vsemb.files import read_bytes
from vsemb.runs.run import Run
from vsemb.searching.index import Item

#: A function of a run, a function that opens the pictures, a function to call with messages, and the demonstration of a
#: captioning run for query images or None.
TabMaker = Callable[[Run, Opener, Callable[[str], None], Demonstration | None], Demonstration | None]
#: Scripts that write the text of a search into the address of the page, or take it out, before the search.
ADDRESS, NO_ADDRESS = "(...values) => vsembAddress(values[0], values)", "(...values) => vsembAddress('', values)"
_LISTED = 200
_WAITING = 16


def open_tabs(
    run: Run, opener: Opener, report: Callable[[str], None] = print, captioning: Run | None = None
) -> Demonstration:
    """Open the demonstration of a run.

    Args:
        run: the run.
        opener: opens the pictures to search or to caption.
        report: function to call with messages.
        captioning: captioning run for query images; None for none.

    Raises:
        DataError: if the task of the run has no demonstration.
        VsembError: if runs and pictures do not match.
    """
    opener = functools.cache(opener)
    other = None if captioning is None else open_tabs(captioning, opener, report)
    for reference in registry.references("demo_tabs"):
        maker: TabMaker = registry.load(reference)
        if (shown := maker(run, opener, report, other)) is not None:
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

        build_page(gradio, run, open_tabs(run, lambda: DatasetPictures(Dataset.open("data/flickr8k"), "val")))
    """
    name = run.path.name
    with gradio.Blocks(analytics_enabled=False, title=f"vsemb · {name}") as blocks:
        heading = str(_macros().heading(name, shown.facts))
        gradio.HTML(heading, elem_classes="vsemb-head", apply_default_css=False, js_on_load=_script("keys.js"))
        shown.add(Page(gradio, shown))
    # One request at a time runs the model; up to `_WAITING` wait.
    blocks.queue(max_size=_WAITING, api_open=False, default_concurrency_limit=1)
    return blocks


class Page:
    """Elements that tabs share: image inputs, events and areas for results.

    Args:
        gradio: the module.
        shown: the demonstration, whose pictures can be chosen by key.

    Attributes:
        gr: the module.
        cards: renders results.
        results: areas for results, in the order of the tabs.
    """

    def __init__(self, gradio: Any, shown: Demonstration) -> None:
        pictures = shown.pictures
        self.gr, self.cards = gradio, Cards(pictures)
        self.results: list[Any] = []
        self._takes_files = shown.takes_files
        self._one = pictures.one
        # List keys at equal distances.
        spread = np.unique(np.linspace(0, len(pictures) - 1, min(_LISTED, len(pictures))).astype(int))
        self._keys = [pictures.items[place].key for place in spread]

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
                    label=self._one,
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
                raise DataError(f"The dropped image cannot be read: {reason_of(error)}. Drop it again.") from error
        if not isinstance(key, str) or not key:
            raise InvalidArgumentError("Drop an image, or choose one by its name.")
        return key

    def result(self, html: str, name: str) -> Any:
        """Add an area for results.

        Args:
            html: shown before the first query.
            name: id of the element.
        """
        self.results.append(self._place(html, name))
        return self.results[-1]

    def _place(self, html: str, name: str) -> Any:
        options: dict[str, Any] = {"js_on_load": _script("page.js"), "apply_default_css": False, "min_height": 96}
        return self.gr.HTML(html, elem_id=name, elem_classes="vsemb-place", **options)

    def when(
        self,
        triggers: Sequence[Any],
        answer: Callable[..., str],
        inputs: list[Any],
        output: Any,
        script: str | None = None,
    ) -> None:
        """Show an answer after any of some events; for an error, show its message.

        Args:
            triggers: functions that add event listeners, such as `button.click`.
            answer: function from the values of the inputs to HTML.
            inputs: the inputs.
            output: area for the answer.
            script: `ADDRESS` or `NO_ADDRESS`; None keeps the address.
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
            "js": script,
        }
        for trigger in triggers:
            trigger(ask, inputs, output, **options)

    def from_address(self, text: Any, search: Callable[..., str], inputs: list[Any], output: Any) -> None:
        """Search for the text after `?q=` in the address of the page when it is opened.

        Args:
            text: the input for the text.
            search: function from the values of the inputs to HTML.
            inputs: the inputs.
            output: area for the answer.
        """

        def read(event: Any) -> str:
            return str(event.q)

        self.when([self._event(output.submit, read, text).success], search, inputs, output)

    def _event(self, trigger: Any, answer: Callable[..., Any], outputs: Any) -> Any:
        """Answer an event of a script of the page, without the model."""
        # Gradio passes the event to a parameter with this annotation.
        answer.__annotations__["event"] = self.gr.EventData
        return trigger(answer, None, outputs, queue=False, api_visibility="private")

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

        for place in self.results:
            chosen = self._event(place.select, choose, [tabs, dropped, key, preview])
            self.when([chosen.success], search, [dropped, key, *further], output, NO_ADDRESS)


async def _as_it_is(path: Any) -> Any:
    return path


@dataclass(frozen=True)
class Card:
    """A picture as the page shows it.

    Attributes:
        item: the picture.
        source: its address, relative to the page; None if there is nothing to show.
        lacks: why there is nothing to show.
    """

    item: Item
    source: str | None
    lacks: str | None


class Cards:
    """Render results as HTML.

    Args:
        pictures: the pictures of the page.

    Example:

        Cards(demo.pictures).answer(demo.by_text("a dog", 12))
    """

    def __init__(self, pictures: Pictures) -> None:
        self._pictures = pictures

    def start(self, count: int, generator: np.random.Generator | None = None) -> str:
        """Return some pictures at random, for a page without a query.

        Args:
            count: their number.
            generator: source of randomness; None for other pictures at each call.
        """
        places = self._pictures.drawn(count, generator or np.random.default_rng())
        return str(_macros().start([self._card(place) for place in places]))

    def answer(self, answer: Answer) -> str:
        """Return the notes, captions, images and compared sentences of an answer.

        Args:
            answer: the answer.
        """
        cards = [self._card(self._pictures.place_of(result.item.key)) for result in answer.images]
        return str(_macros().answer(answer, cards))

    def written(self, captions: Sequence[tuple[str, float]]) -> str:
        """Return captions with their log-probabilities.

        Args:
            captions: pairs of caption and natural logarithm of its probability.
        """
        return str(_macros().written(captions))

    def preview(self, key: str) -> str:
        """Return a picture.

        Args:
            key: its key.

        Raises:
            InvalidArgumentError: if the key is unknown.
        """
        return str(_macros().preview(self._card(self._pictures.place_of(key))))

    def _card(self, place: int) -> Card:
        lacks = self._pictures.lacks(place)
        return Card(self._pictures.items[place], None if lacks else f"{FOLDER}/{place}", lacks)


def _script(name: str) -> str:
    return Path(__file__).with_name(name).read_text(encoding="utf-8")


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
