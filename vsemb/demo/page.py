"""The tabs of the demonstration, in Gradio: inputs, and which answer each asks for."""

from __future__ import annotations

import math
from html import escape
from typing import Any

from vsemb.demo.answers import MAX_RESULTS, MAX_SENTENCES, RESORTED, Demo
from vsemb.demo.inputs import PageParts
from vsemb.errors import invalid_argument
from vsemb.runs.build import similarity_name

_SHOWN = 12
_MAX_TEXT = 1000
_EXAMPLES = 4
# Of the text on a button, and of a word in it, in characters.
_LABEL, _WORD = 120, 24


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


class _Page(PageParts):
    def __init__(self, gradio: Any, demo: Demo) -> None:
        super().__init__(gradio, demo)
        self._demo = demo
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
        self.queue(self.blocks)

    def _heading(self) -> str:
        run, data = self._demo.run, self._demo.dataset
        facts = (
            f"{len(self._demo):,} images of {data.name}, compared by "
            f"{similarity_name(run.recipe)} in {self._demo.dim} dimensions"
        )
        return f"<h2>{escape(run.path.name)}</h2><p class='vsemb-hint'>{escape(facts)}</p>"

    def _sentence_tab(self) -> None:
        gr = self.gr
        text = gr.Textbox(
            label="Sentence",
            placeholder="Type a sentence and press Enter",
            max_lines=2,
            max_length=_MAX_TEXT,
            elem_id="sentence",
        )
        examples = self._buttons()
        shown, go = self._count_and_button("sentence")
        out = self.result("The images that fit best appear here.", "sentence-out")
        search = self.asked(lambda text, k: self.cards.answer(self._demo.by_text(text or "", _count(k))))
        self.when([text.submit, go.click], search, [text, shown], out)
        for button, caption in examples:
            chosen = button.click(lambda caption=caption: caption, None, text, queue=False, api_visibility="private")
            self.when([chosen.then], search, [text, shown], out)

    def _buttons(self) -> list[tuple[Any, str]]:
        """Captions of the dataset to start from."""
        captions = list(dict.fromkeys(item.caption for item in self._demo.items))
        picked = captions[:: max(1, len(captions) // _EXAMPLES)][:_EXAMPLES]
        with self.gr.Row():
            return [
                (self.gr.Button(label(caption), size="sm", variant="secondary", min_width=200), caption)
                for caption in picked
            ]

    def _image_tab(self) -> None:
        dropped, key = self.image_inputs("image")
        shown, go = self._count_and_button("image")
        out = self.result("The nearest captions and images appear here.", "image-out")

        def search(dropped: Any, key: Any, k: Any) -> str:
            return self.cards.answer(self._demo.by_image(self.image(dropped, key), _count(k)))

        self.when([go.click, dropped.upload, key.input], self.asked(search), [dropped, key, shown], out)

    def _arithmetic_tab(self) -> None:
        gr = self.gr
        dropped, key = self.image_inputs("arithmetic")
        with gr.Row():
            minus = gr.Textbox(label="Minus", placeholder="words, separated by commas", elem_id="arithmetic-minus")
            plus = gr.Textbox(label="Plus", placeholder="words, separated by commas", elem_id="arithmetic-plus")
        with gr.Row():
            resort = gr.Checkbox(label=f"Sort the best {RESORTED} anew", info="by how near they are to their own mean")
        shown, go = self._count_and_button("arithmetic")
        out = self.result("An image, minus what is in it, plus something else.", "arithmetic-out")

        def search(dropped: Any, key: Any, minus: str, plus: str, resort: bool, k: Any) -> str:
            image = self.image(dropped, key)
            answer = self._demo.arithmetic(image, _split(minus, ","), _split(plus, ","), _count(k), bool(resort))
            return self.cards.answer(answer)

        inputs = [dropped, key, minus, plus, resort, shown]
        self.when([go.click, minus.submit, plus.submit], self.asked(search), inputs, out)

    def _order_tab(self) -> None:
        gr = self.gr
        texts = gr.Textbox(label="Texts, one a line", lines=3, max_length=_MAX_TEXT, elem_id="compose")
        choice = gr.Radio(
            [("All of them", "compose"), ("What they have in common", "abstract")],
            value="compose",
            label="Look for",
        )
        shown, go = self._count_and_button("compose")
        out = self.result("Images of all that the texts say, or of what they share.", "compose-out")

        def search(texts: str, operation: str, k: Any) -> str:
            return self.cards.answer(self._demo.of_texts(operation, _split(texts, "\n"), _count(k)))

        self.when([go.click], self.asked(search), [texts, choice, shown], out)

    def _compare_tab(self) -> None:
        gr = self.gr
        dropped, key = self.image_inputs("compare")
        label = f"Sentences, one a line, up to {MAX_SENTENCES}"
        texts = gr.Textbox(label=label, lines=4, max_length=4 * _MAX_TEXT, elem_id="compare-texts")
        go = gr.Button("Compare", variant="primary", elem_id="compare-go")
        out = self.result("How well each sentence fits the image appears here.", "compare-out")

        def compare(dropped: Any, key: Any, texts: str) -> str:
            image = self.image(dropped, key)
            return self.cards.comparison(self._demo.compare(image, _split(texts, "\n")))

        self.when([go.click], self.asked(compare), [dropped, key, texts], out)

    def _count_and_button(self, name: str) -> tuple[Any, Any]:
        gr = self.gr
        with gr.Row(equal_height=True):
            count = gr.Slider(1, MAX_RESULTS, value=_SHOWN, step=1, label="Results", scale=3)
            return count, gr.Button("Search", variant="primary", elem_id=f"{name}-go")


def label(caption: str) -> str:
    """Returns as much of a caption as a button holds, with places at which its lines can break."""
    short = caption if len(caption) <= _LABEL else caption[: _LABEL - 1] + "…"
    return " ".join(word if len(word) <= _WORD else word[: _WORD - 1] + "…" for word in short.split())


def _count(k: Any) -> int:
    """Returns a number of results; a field that was cleared has none."""
    if not isinstance(k, (int, float)) or not math.isfinite(k):
        raise invalid_argument("k", k, f"an integer from 1 to {MAX_RESULTS}")
    return int(k)


def _split(text: str, separator: str) -> list[str]:
    """Returns the parts of a text that are not blank."""
    return [part.strip() for part in (text or "").split(separator) if part.strip()]
