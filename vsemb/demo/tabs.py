"""The tabs of a run that is searched with, in Gradio: inputs, and which answer each asks for."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from vsemb.data.store import Dataset
from vsemb.demo.answers import MAX_RESULTS, MAX_SENTENCES, RESORTED, Demo, Demonstration
from vsemb.demo.page import Page
from vsemb.errors import invalid_argument
from vsemb.recipes.retrieval import Retrieval
from vsemb.runs.run import Run

_SHOWN = 12
_MAX_TEXT = 1000
_EXAMPLES = 4
# Of the text on a button, and of a word in it, in characters.
_LABEL, _WORD = 120, 24


def tabs(
    run: Run, dataset: Dataset, split: str, report: Callable[[str], None], captioning: Demonstration | None
) -> Demonstration | None:
    """Opens the tabs of a run that is searched with, see `vsemb.demo.page.TabMaker`."""
    return SearchTabs(run, dataset, split, report, captioning) if isinstance(run.recipe, Retrieval) else None


class SearchTabs(Demo):
    """The tabs of a run that is searched with."""

    @property
    def facts(self) -> str:
        similarity = self.run.recipe.similarity.kind
        return f"{len(self):,} images of {self.dataset.name}, compared by {similarity} in {self.dim} dimensions"

    def add(self, page: Page) -> None:
        made = {"Sentence": self._sentence_tab, "Image": self._image_tab}
        if self.has_arithmetic:
            made["Arithmetic"] = self._arithmetic_tab
        if self.has_order:
            made["Compose"] = self._order_tab
        for name, add in {**made, "Compare": self._compare_tab}.items():
            with page.gr.Tab(name):
                add(page)

    def _sentence_tab(self, page: Page) -> None:
        gr = page.gr
        text = gr.Textbox(
            label="Sentence",
            placeholder="Type a sentence and press Enter",
            max_lines=2,
            max_length=_MAX_TEXT,
            elem_id="sentence",
        )
        # Captions of the dataset to start from.
        captions = list(dict.fromkeys(item.caption for item in self.items))
        picked = captions[:: max(1, len(captions) // _EXAMPLES)][:_EXAMPLES]
        with gr.Row():
            buttons = [gr.Button(label(each), size="sm", variant="secondary", min_width=200) for each in picked]
        shown, go = _count_and_button(gr, "sentence")
        out = page.result("The images that fit best appear here.", "sentence-out")

        def search(text: str, k: Any) -> str:
            return page.cards.answer(self.by_text(text or "", _count(k)))

        page.when([text.submit, go.click], search, [text, shown], out)
        for button, caption in zip(buttons, picked, strict=True):
            chosen = button.click(lambda caption=caption: caption, None, text, queue=False, api_visibility="private")
            page.when([chosen.then], search, [text, shown], out)

    def _image_tab(self, page: Page) -> None:
        dropped, key = page.image_inputs("image")
        shown, go = _count_and_button(page.gr, "image")
        out = page.result("The nearest captions and images appear here.", "image-out")

        def search(dropped: Any, key: Any, k: Any) -> str:
            return page.cards.answer(self.by_image(page.image(dropped, key), _count(k)))

        page.when([go.click, dropped.upload, key.input], search, [dropped, key, shown], out)

    def _arithmetic_tab(self, page: Page) -> None:
        gr = page.gr
        dropped, key = page.image_inputs("arithmetic")
        with gr.Row():
            minus = gr.Textbox(label="Minus", placeholder="words, separated by commas", elem_id="arithmetic-minus")
            plus = gr.Textbox(label="Plus", placeholder="words, separated by commas", elem_id="arithmetic-plus")
        with gr.Row():
            resort = gr.Checkbox(label=f"Sort the best {RESORTED} anew", info="by how near they are to their own mean")
        shown, go = _count_and_button(gr, "arithmetic")
        out = page.result("An image, minus what is in it, plus something else.", "arithmetic-out")

        def search(dropped: Any, key: Any, minus: str, plus: str, resort: bool, k: Any) -> str:
            image = page.image(dropped, key)
            answer = self.arithmetic(image, _split(minus, ","), _split(plus, ","), _count(k), bool(resort))
            return page.cards.answer(answer)

        page.when([go.click, minus.submit, plus.submit], search, [dropped, key, minus, plus, resort, shown], out)

    def _order_tab(self, page: Page) -> None:
        gr = page.gr
        texts = gr.Textbox(label="Texts, one per line", lines=3, max_length=_MAX_TEXT, elem_id="compose")
        choices = [("All of them", "compose"), ("What they have in common", "abstract")]
        choice = gr.Radio(choices, value="compose", label="Look for")
        shown, go = _count_and_button(gr, "compose")
        out = page.result("Images of all that the texts say, or of what they share.", "compose-out")

        def search(texts: str, operation: str, k: Any) -> str:
            return page.cards.answer(self.of_texts(operation, _split(texts, "\n"), _count(k)))

        page.when([go.click], search, [texts, choice, shown], out)

    def _compare_tab(self, page: Page) -> None:
        gr = page.gr
        dropped, key = page.image_inputs("compare")
        label = f"Sentences, one per line, up to {MAX_SENTENCES}"
        texts = gr.Textbox(label=label, lines=4, max_length=4 * _MAX_TEXT, elem_id="compare-texts")
        go = gr.Button("Compare", variant="primary", elem_id="compare-go")
        out = page.result("How well each sentence fits the image appears here.", "compare-out")

        def compare(dropped: Any, key: Any, texts: str) -> str:
            return page.cards.answer(self.compare(page.image(dropped, key), _split(texts, "\n")))

        page.when([go.click], compare, [dropped, key, texts], out)


def _count_and_button(gr: Any, name: str) -> tuple[Any, Any]:
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
