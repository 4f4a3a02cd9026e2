"""Gradio tabs of a retrieval run."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from vsemb.demo.answers import MAX_RESULTS, MAX_SENTENCES, RESORTED, Demo, Demonstration
from vsemb.demo.page import ADDRESS, NO_ADDRESS, Page, hint
from vsemb.demo.pictures import Opener
from vsemb.errors import InvalidArgumentError
from vsemb.recipes.retrieval import Retrieval
from vsemb.runs.run import Run

_SHOWN = 12
_MAX_TEXT = 1000
# Maximum length of a text on a button, and of a word in it, in characters.
_LABEL, _WORD = 60, 24


def tabs(
    run: Run, opener: Opener, report: Callable[[str], None], captioning: Demonstration | None
) -> Demonstration | None:
    """Open the demonstration of a retrieval run, see `vsemb.demo.page.TabMaker`; None for other runs.

    Args:
        run: the run.
        opener: opens the pictures to search.
        report: function to call with messages.
        captioning: demonstration of a captioning run for query images; None for none.
    """
    return SearchTabs(run, opener(), report, captioning) if isinstance(run.recipe, Retrieval) else None


class SearchTabs(Demo):
    """Tabs of a retrieval run."""

    @property
    def facts(self) -> str:
        return f"Search {self.pictures.described} by text or picture"

    def add(self, page: Page) -> None:
        made = {"Sentence": self._sentence_tab, "Image": self._image_tab}
        if self.has_arithmetic:
            made["Arithmetic"] = self._arithmetic_tab
        if self.has_order:
            made["Compose"] = self._order_tab
        with page.gr.Tabs() as tabs:
            for name, add in {**made, "Compare": self._compare_tab}.items():
                with page.gr.Tab(name, id=name):
                    add(page)
        page.more_like_this(tabs, "Image", *self._by_image)

    def _sentence_tab(self, page: Page) -> None:
        gr = page.gr
        text = gr.Textbox(
            label="Sentence",
            placeholder="Describe an image and press Enter",
            max_lines=2,
            max_length=_MAX_TEXT,
            elem_id="sentence",
        )
        picked = self.pictures.examples()
        with gr.Row(elem_classes="vsemb-examples", visible=bool(picked)):
            buttons = [gr.Button(label(each), size="sm", variant="secondary", min_width=130) for each in picked]
        shown, go = _count_and_button(gr, "sentence")
        out = page.result(page.cards.start(_SHOWN), "sentence-out")

        def search(text: str, k: Any) -> str:
            return page.cards.answer(self.by_text(text or "", _count(k)))

        page.when([text.submit, go.click], search, [text, shown], out, ADDRESS)
        page.from_address(text, search, [text, shown], out)
        for button, caption in zip(buttons, picked, strict=True):
            chosen = button.click(lambda caption=caption: caption, None, text, queue=False, api_visibility="private")
            page.when([chosen.then], search, [text, shown], out, ADDRESS)

    def _image_tab(self, page: Page) -> None:
        dropped, key, preview = page.image_inputs("image")
        shown, go = _count_and_button(page.gr, "image")
        out = page.result(hint("The nearest captions and images appear here."), "image-out")

        def search(dropped: Any, key: Any, k: Any) -> str:
            return page.cards.answer(self.by_image(page.image(dropped, key), _count(k)))

        page.when([go.click, dropped.upload, key.input], search, [dropped, key, shown], out, NO_ADDRESS)
        self._by_image = [dropped, key, preview, shown], search, out

    def _arithmetic_tab(self, page: Page) -> None:
        gr = page.gr
        dropped, key, _ = page.image_inputs("arithmetic")
        with gr.Row():
            minus = gr.Textbox(label="Minus", placeholder="words, separated by commas", elem_id="arithmetic-minus")
            plus = gr.Textbox(label="Plus", placeholder="words, separated by commas", elem_id="arithmetic-plus")
        with gr.Row():
            resort = gr.Checkbox(label=f"Re-sort the best {RESORTED}", info="by the distance to their mean")
        shown, go = _count_and_button(gr, "arithmetic")
        out = page.result(hint("The images nearest to image − words + words appear here."), "arithmetic-out")

        def search(dropped: Any, key: Any, minus: str, plus: str, resort: bool, k: Any) -> str:
            image = page.image(dropped, key)
            answer = self.arithmetic(image, _split(minus, ","), _split(plus, ","), _count(k), bool(resort))
            return page.cards.answer(answer)

        page.when([go.click, minus.submit, plus.submit], search, [dropped, key, minus, plus, resort, shown], out)

    def _order_tab(self, page: Page) -> None:
        gr = page.gr
        texts = gr.Textbox(label="Texts, one per line", lines=3, max_length=_MAX_TEXT, elem_id="compose")
        choices = [("All texts together", "compose"), ("What the texts have in common", "abstract")]
        choice = gr.Radio(choices, value="compose", label="Search for")
        shown, go = _count_and_button(gr, "compose")
        out = page.result(hint("The nearest images appear here."), "compose-out")

        def search(texts: str, operation: str, k: Any) -> str:
            return page.cards.answer(self.of_texts(operation, _split(texts, "\n"), _count(k)))

        page.when([go.click], search, [texts, choice, shown], out)

    def _compare_tab(self, page: Page) -> None:
        gr = page.gr
        dropped, key, _ = page.image_inputs("compare")
        label = f"Sentences, one per line, up to {MAX_SENTENCES}"
        texts = gr.Textbox(label=label, lines=4, max_length=4 * _MAX_TEXT, elem_id="compare-texts")
        go = gr.Button("Compare", variant="primary", elem_id="compare-go")
        out = page.result(hint("The similarity of image and sentences appears here."), "compare-out")

        def compare(dropped: Any, key: Any, texts: str) -> str:
            return page.cards.answer(self.compare(page.image(dropped, key), _split(texts, "\n")))

        page.when([go.click], compare, [dropped, key, texts], out)


def _count_and_button(gr: Any, name: str) -> tuple[Any, Any]:
    with gr.Row(equal_height=True):
        count = gr.Slider(1, MAX_RESULTS, value=_SHOWN, step=1, label="Results", scale=3)
        return count, gr.Button("Search", variant="primary", elem_id=f"{name}-go")


def label(caption: str) -> str:
    """Return the part of a caption that fits on a button, without words too long for a line.

    Args:
        caption: the caption.
    """
    short = caption if len(caption) <= _LABEL else caption[: _LABEL - 1] + "…"
    return " ".join(word if len(word) <= _WORD else word[: _WORD - 1] + "…" for word in short.split())


def _count(k: Any) -> int:
    """Return the number of results in a field; raise InvalidArgumentError for a cleared field or NaN."""
    if not isinstance(k, (int, float)) or not math.isfinite(k):
        raise InvalidArgumentError(f"“Results” must be a number from 1 to {MAX_RESULTS}.")
    return int(k)


def _split(text: str, separator: str) -> list[str]:
    """Return the parts of a text that are not blank."""
    return [part.strip() for part in (text or "").split(separator) if part.strip()]
