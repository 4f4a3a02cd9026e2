"""The tabs of the demonstration, in Gradio: inputs, and which answer each asks for."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from html import escape
from pathlib import Path
from typing import Any

import numpy as np

from vsemb.errors import DataError, VsembError, invalid_argument, one_line
from vsemb.recipes.build import similarity_name
from vsemb.recipes.demo.answers import MAX_RESULTS, MAX_SENTENCES, RESORTED, Demo
from vsemb.recipes.demo.cards import Cards, hint, notes

_LISTED = 200
_SHOWN = 12
_MAX_TEXT = 1000
_EXAMPLES = 4
# Of the text on a button, and of a word in it, in characters.
_LABEL, _WORD = 120, 24
_WAITING = 16
# Fonts that machines have: a named one would be fetched, or be a part of Gradio's own look.
_FONTS = ("system-ui", "sans-serif")
_MONO = ("ui-monospace", "monospace")


def theme(gradio: Any) -> Any:
    """Returns the page's theme, which needs no font from anywhere."""
    return gradio.themes.Default(
        primary_hue="blue", neutral_hue="slate", radius_size="md", font=_FONTS, font_mono=_MONO
    )


def build_page(gradio: Any, demo: Demo) -> Any:
    """Builds the page.

    Args:
        gradio: the module, imported by the caller, since it is optional.
        demo: what answers.

    Returns:
        `gradio.Blocks` with a tab for each thing that the run can do.

    Example:

        build_page(gradio, demo)
    """
    return _Page(gradio, demo).blocks


class _Page:
    def __init__(self, gradio: Any, demo: Demo) -> None:
        self._gr, self._demo, self._cards = gradio, demo, Cards(demo)
        # The form of keys, and not the first ones alone.
        spread = np.unique(np.linspace(0, len(demo) - 1, min(_LISTED, len(demo))).astype(int))
        self._keys = [demo.items[place].key for place in spread]
        with gradio.Blocks(analytics_enabled=False, title=f"vsemb · {demo.run.path.name}") as self.blocks:
            gradio.HTML(self._heading())
            with gradio.Tab("Sentence"):
                self._sentence_tab()
            with gradio.Tab("Image"):
                self._image_tab()
            if demo.has_arithmetic:
                with gradio.Tab("Arithmetic"):
                    self._arithmetic_tab()
            if demo.has_order:
                with gradio.Tab("Compose"):
                    self._order_tab()
            with gradio.Tab("Compare"):
                self._compare_tab()
        # One request at a time has the model; so many may wait.
        self.blocks.queue(max_size=_WAITING, api_open=False, default_concurrency_limit=1)

    def _heading(self) -> str:
        run, data = self._demo.run, self._demo.dataset
        facts = (
            f"{len(self._demo):,} images of {data.name}, compared by "
            f"{similarity_name(run.recipe)} in {self._demo.dim} dimensions"
        )
        return f"<h2>{escape(run.path.name)}</h2><p class='vsemb-hint'>{escape(facts)}</p>"

    def _sentence_tab(self) -> None:
        gr = self._gr
        text = gr.Textbox(
            label="Sentence",
            placeholder="Type a sentence and press Enter",
            max_lines=2,
            max_length=_MAX_TEXT,
            elem_id="sentence",
        )
        examples = self._buttons()
        shown, go = self._count_and_button("sentence")
        out = self._result("The images that fit best appear here.", "sentence-out")
        search = self._asked(lambda text, k: self._cards.answer(self._demo.by_text(text or "", _count(k))))
        self._when([text.submit, go.click], search, [text, shown], out)
        for button, caption in examples:
            chosen = button.click(
                lambda caption=caption: caption, None, text, queue=False, api_visibility="private"
            )
            self._when([chosen.then], search, [text, shown], out)

    def _buttons(self) -> list[tuple[Any, str]]:
        """Captions of the dataset to start from."""
        captions = list(dict.fromkeys(item.caption for item in self._demo.items))
        picked = captions[:: max(1, len(captions) // _EXAMPLES)][:_EXAMPLES]
        with self._gr.Row():
            return [
                (self._gr.Button(label(caption), size="sm", variant="secondary", min_width=200), caption)
                for caption in picked
            ]

    def _image_tab(self) -> None:
        dropped, key = self._image_inputs("image")
        shown, go = self._count_and_button("image")
        out = self._result("The nearest captions and images appear here.", "image-out")

        def search(dropped: Any, key: Any, k: Any) -> str:
            return self._cards.answer(self._demo.by_image(self._image(dropped, key), _count(k)))

        self._when([go.click, dropped.upload, key.input], self._asked(search), [dropped, key, shown], out)

    def _arithmetic_tab(self) -> None:
        gr = self._gr
        dropped, key = self._image_inputs("arithmetic")
        with gr.Row():
            minus = gr.Textbox(
                label="Minus", placeholder="words, separated by commas", elem_id="arithmetic-minus"
            )
            plus = gr.Textbox(
                label="Plus", placeholder="words, separated by commas", elem_id="arithmetic-plus"
            )
        with gr.Row():
            resort = gr.Checkbox(
                label=f"Sort the best {RESORTED} anew", info="by how near they are to their own mean"
            )
        shown, go = self._count_and_button("arithmetic")
        out = self._result("An image, minus what is in it, plus something else.", "arithmetic-out")

        def search(dropped: Any, key: Any, minus: str, plus: str, resort: bool, k: Any) -> str:
            image = self._image(dropped, key)
            answer = self._demo.arithmetic(
                image, _split(minus, ","), _split(plus, ","), _count(k), bool(resort)
            )
            return self._cards.answer(answer)

        inputs = [dropped, key, minus, plus, resort, shown]
        self._when([go.click, minus.submit, plus.submit], self._asked(search), inputs, out)

    def _order_tab(self) -> None:
        gr = self._gr
        texts = gr.Textbox(label="Texts, one a line", lines=3, max_length=_MAX_TEXT, elem_id="compose")
        choice = gr.Radio(
            [("All of them", "compose"), ("What they have in common", "abstract")],
            value="compose",
            label="Look for",
        )
        shown, go = self._count_and_button("compose")
        out = self._result("Images of all that the texts say, or of what they share.", "compose-out")

        def search(texts: str, operation: str, k: Any) -> str:
            return self._cards.answer(self._demo.of_texts(operation, _split(texts, "\n"), _count(k)))

        self._when([go.click], self._asked(search), [texts, choice, shown], out)

    def _compare_tab(self) -> None:
        gr = self._gr
        dropped, key = self._image_inputs("compare")
        label = f"Sentences, one a line, up to {MAX_SENTENCES}"
        texts = gr.Textbox(label=label, lines=4, max_length=4 * _MAX_TEXT, elem_id="compare-texts")
        go = gr.Button("Compare", variant="primary", elem_id="compare-go")
        out = self._result("How well each sentence fits the image appears here.", "compare-out")

        def compare(dropped: Any, key: Any, texts: str) -> str:
            image = self._image(dropped, key)
            return self._cards.comparison(self._demo.compare(image, _split(texts, "\n")))

        self._when([go.click], self._asked(compare), [dropped, key, texts], out)

    def _image_inputs(self, name: str) -> tuple[Any, Any]:
        gr = self._gr
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
                preview = gr.HTML(self._cards.preview(self._keys[0]))
        # Gradio would fetch an address that stands in the place of an upload, or copy a file of the machine.
        dropped.async_move_resource_to_block_cache = _as_it_is
        self._when([key.input], self._asked(self._cards.preview), [key], preview)
        return dropped, key

    def _image(self, dropped: Any, key: Any) -> bytes | str:
        if dropped:
            # A request can name any file, and Gradio guards only pages that it launched itself.
            path = dropped.get("path") if isinstance(dropped, dict) else None
            uploads = Path(self._gr.utils.get_upload_folder()).resolve()
            if not isinstance(path, str) or not (file := Path(path).resolve()).is_relative_to(uploads):
                raise invalid_argument("image", path, "an image dropped on the page")
            try:
                return file.read_bytes()
            except OSError as error:
                raise DataError(f"The dropped image cannot be read: {error.strerror}.") from error
        if not isinstance(key, str) or not key:
            raise invalid_argument("image", key, "a dropped image, or the key of one of the dataset's")
        return key

    def _count_and_button(self, name: str) -> tuple[Any, Any]:
        gr = self._gr
        with gr.Row(equal_height=True):
            count = gr.Slider(1, MAX_RESULTS, value=_SHOWN, step=1, label="Results", scale=3)
            return count, gr.Button("Search", variant="primary", elem_id=f"{name}-go")

    def _result(self, line: str, name: str) -> Any:
        return self._gr.HTML(hint(line), elem_id=name, min_height=60)

    def _asked(self, answer: Callable[..., str]) -> Callable[..., str]:
        """Returns `answer` with errors as a line on the page."""

        def ask(*values: Any) -> str:
            try:
                return answer(*values)
            except VsembError as error:
                self._gr.Warning(escape(one_line(error)))
                return notes([one_line(error)])

        return ask

    def _when(
        self, triggers: Sequence[Any], answer: Callable[..., str], inputs: list[Any], output: Any
    ) -> None:
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


def label(caption: str) -> str:
    """Returns as much of a caption as a button holds, with places at which its lines can break."""
    short = caption if len(caption) <= _LABEL else caption[: _LABEL - 1] + "…"
    return " ".join(word if len(word) <= _WORD else word[: _WORD - 1] + "…" for word in short.split())


async def _as_it_is(path: Any) -> Any:
    return path


def _count(k: Any) -> int:
    """Returns a number of results; a field that was cleared has none."""
    if not isinstance(k, (int, float)) or not math.isfinite(k):
        raise invalid_argument("k", k, f"an integer from 1 to {MAX_RESULTS}")
    return int(k)


def _split(text: str, separator: str) -> list[str]:
    """Returns the parts of a text that are not blank."""
    return [part.strip() for part in (text or "").split(separator) if part.strip()]
