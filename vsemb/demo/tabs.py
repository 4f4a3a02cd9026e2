"""The tabs of a run that is searched with, in Gradio: inputs, and which answer each asks for."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from vsemb.data.store import Dataset
from vsemb.demo.answers import MAX_RESULTS, MAX_SENTENCES, RESORTED, Demo
from vsemb.demo.inputs import PageParts
from vsemb.demo.page import Tabs
from vsemb.errors import invalid_argument
from vsemb.recipes.retrieval import Retrieval
from vsemb.runs.run import Run

_SHOWN = 12
_MAX_TEXT = 1000
_EXAMPLES = 4
# Of the text on a button, and of a word in it, in characters.
_LABEL, _WORD = 120, 24


def tabs(run: Run, dataset: Dataset, split: str, report: Callable[[str], None], captioning: Tabs | None) -> Tabs | None:
    """Returns the tabs of a run that is searched with, see `vsemb.demo.page.TabMaker`."""
    if not isinstance(run.recipe, Retrieval):
        return None
    written = None if captioning is None else captioning.written
    demo = Demo(run, dataset, split, report, written)
    return Tabs(demo, facts_of(demo), lambda parts: _Tabs(parts, demo).add(), close=demo.close)


def facts_of(demo: Demo) -> str:
    """Returns what the page says of the run, a phrase."""
    similarity = demo.run.recipe.similarity.kind
    return f"{len(demo):,} images of {demo.dataset.name}, compared by {similarity} in {demo.dim} dimensions"


class _Tabs:
    def __init__(self, parts: PageParts, demo: Demo) -> None:
        self._parts, self._demo = parts, demo

    def add(self) -> None:
        gr, demo = self._parts.gr, self._demo
        with gr.Tab("Sentence"):
            self._sentence_tab()
        with gr.Tab("Image"):
            self._image_tab()
        if demo.has_arithmetic:
            with gr.Tab("Arithmetic"):
                self._arithmetic_tab()
        if demo.has_order:
            with gr.Tab("Compose"):
                self._order_tab()
        with gr.Tab("Compare"):
            self._compare_tab()

    def _sentence_tab(self) -> None:
        gr = self._parts.gr
        text = gr.Textbox(
            label="Sentence",
            placeholder="Type a sentence and press Enter",
            max_lines=2,
            max_length=_MAX_TEXT,
            elem_id="sentence",
        )
        examples = self._buttons()
        shown, go = self._count_and_button("sentence")
        out = self._parts.result("The images that fit best appear here.", "sentence-out")
        search = self._parts.asked(lambda text, k: self._parts.cards.answer(self._demo.by_text(text or "", _count(k))))
        self._parts.when([text.submit, go.click], search, [text, shown], out)
        for button, caption in examples:
            chosen = button.click(lambda caption=caption: caption, None, text, queue=False, api_visibility="private")
            self._parts.when([chosen.then], search, [text, shown], out)

    def _buttons(self) -> list[tuple[Any, str]]:
        """Captions of the dataset to start from."""
        captions = list(dict.fromkeys(item.caption for item in self._demo.items))
        picked = captions[:: max(1, len(captions) // _EXAMPLES)][:_EXAMPLES]
        with self._parts.gr.Row():
            return [
                (self._parts.gr.Button(label(caption), size="sm", variant="secondary", min_width=200), caption)
                for caption in picked
            ]

    def _image_tab(self) -> None:
        dropped, key = self._parts.image_inputs("image")
        shown, go = self._count_and_button("image")
        out = self._parts.result("The nearest captions and images appear here.", "image-out")

        def search(dropped: Any, key: Any, k: Any) -> str:
            return self._parts.cards.answer(self._demo.by_image(self._parts.image(dropped, key), _count(k)))

        self._parts.when([go.click, dropped.upload, key.input], self._parts.asked(search), [dropped, key, shown], out)

    def _arithmetic_tab(self) -> None:
        gr = self._parts.gr
        dropped, key = self._parts.image_inputs("arithmetic")
        with gr.Row():
            minus = gr.Textbox(label="Minus", placeholder="words, separated by commas", elem_id="arithmetic-minus")
            plus = gr.Textbox(label="Plus", placeholder="words, separated by commas", elem_id="arithmetic-plus")
        with gr.Row():
            resort = gr.Checkbox(label=f"Sort the best {RESORTED} anew", info="by how near they are to their own mean")
        shown, go = self._count_and_button("arithmetic")
        out = self._parts.result("An image, minus what is in it, plus something else.", "arithmetic-out")

        def search(dropped: Any, key: Any, minus: str, plus: str, resort: bool, k: Any) -> str:
            image = self._parts.image(dropped, key)
            answer = self._demo.arithmetic(image, _split(minus, ","), _split(plus, ","), _count(k), bool(resort))
            return self._parts.cards.answer(answer)

        inputs = [dropped, key, minus, plus, resort, shown]
        self._parts.when([go.click, minus.submit, plus.submit], self._parts.asked(search), inputs, out)

    def _order_tab(self) -> None:
        gr = self._parts.gr
        texts = gr.Textbox(label="Texts, one a line", lines=3, max_length=_MAX_TEXT, elem_id="compose")
        choice = gr.Radio(
            [("All of them", "compose"), ("What they have in common", "abstract")],
            value="compose",
            label="Look for",
        )
        shown, go = self._count_and_button("compose")
        out = self._parts.result("Images of all that the texts say, or of what they share.", "compose-out")

        def search(texts: str, operation: str, k: Any) -> str:
            return self._parts.cards.answer(self._demo.of_texts(operation, _split(texts, "\n"), _count(k)))

        self._parts.when([go.click], self._parts.asked(search), [texts, choice, shown], out)

    def _compare_tab(self) -> None:
        gr = self._parts.gr
        dropped, key = self._parts.image_inputs("compare")
        label = f"Sentences, one a line, up to {MAX_SENTENCES}"
        texts = gr.Textbox(label=label, lines=4, max_length=4 * _MAX_TEXT, elem_id="compare-texts")
        go = gr.Button("Compare", variant="primary", elem_id="compare-go")
        out = self._parts.result("How well each sentence fits the image appears here.", "compare-out")

        def compare(dropped: Any, key: Any, texts: str) -> str:
            image = self._parts.image(dropped, key)
            return self._parts.cards.comparison(self._demo.compare(image, _split(texts, "\n")))

        self._parts.when([go.click], self._parts.asked(compare), [dropped, key, texts], out)

    def _count_and_button(self, name: str) -> tuple[Any, Any]:
        gr = self._parts.gr
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
