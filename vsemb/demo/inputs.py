"""What the pages of demonstrations share: how an image is given, a question asked and an answer shown."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from html import escape
from pathlib import Path
from typing import Any

import numpy as np

from vsemb.demo.cards import Cards, hint, notes
from vsemb.demo.images import ShownImages
from vsemb.errors import DataError, VsembError, invalid_argument, one_line

_LISTED = 200
_WAITING = 16
# Fonts that machines have: a named one would be fetched, or be a part of Gradio's own look.
_FONTS = ("system-ui", "sans-serif")
_MONO = ("ui-monospace", "monospace")


def theme(gradio: Any) -> Any:
    """Returns the page's theme, which needs no font from anywhere."""
    return gradio.themes.Default(
        primary_hue="blue", neutral_hue="slate", radius_size="md", font=_FONTS, font_mono=_MONO
    )


class PageParts:
    """The parts of a page.

    Args:
        gradio: the module, imported by the caller, since it is optional.
        images: those that the page offers by their keys.

    Example:

        parts = PageParts(gradio, images)
        dropped, key = parts.image_inputs("image")
    """

    def __init__(self, gradio: Any, images: ShownImages) -> None:
        self.gr, self.cards = gradio, Cards(images)
        # The form of keys, and not the first ones alone.
        spread = np.unique(np.linspace(0, len(images) - 1, min(_LISTED, len(images))).astype(int))
        self._keys = [images.items[place].key for place in spread]

    def queue(self, blocks: Any) -> None:
        """Lets one request at a time have the model; some may wait."""
        blocks.queue(max_size=_WAITING, api_open=False, default_concurrency_limit=1)

    def image_inputs(self, name: str) -> tuple[Any, Any]:
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
        self.when([key.input], self.asked(self.cards.preview), [key], preview)
        return dropped, key

    def image(self, dropped: Any, key: Any) -> bytes | str:
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
        return self.gr.HTML(hint(line), elem_id=name, min_height=60)

    def asked(self, answer: Callable[..., str]) -> Callable[..., str]:
        """Returns `answer` with errors as a line on the page."""

        def ask(*values: Any) -> str:
            try:
                return answer(*values)
            except VsembError as error:
                self.gr.Warning(escape(one_line(error)))
                return notes([one_line(error)])

        return ask

    def when(self, triggers: Sequence[Any], answer: Callable[..., str], inputs: list[Any], output: Any) -> None:
        # Unprocessed inputs: Gradio's own reading of an image that is none would end in a traceback.
        options: dict[str, Any] = {
            "preprocess": False,
            "show_progress": "minimal",
            "concurrency_id": "model",
            "concurrency_limit": 1,
            "api_visibility": "private",
        }
        for trigger in triggers:
            trigger(answer, inputs, output, **options)


async def _as_it_is(path: Any) -> Any:
    return path
