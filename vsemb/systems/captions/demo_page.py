"""The page of the demonstration of a run that writes captions, in Gradio."""

from __future__ import annotations

from html import escape
from typing import Any

from vsemb.demo.inputs import PageParts
from vsemb.systems.captions.demo import CaptionDemo


def build_caption_page(gradio: Any, demo: CaptionDemo) -> Any:
    """Builds the page.

    Args:
        gradio: the module, imported by the caller, since it is optional.
        demo: what answers.

    Returns:
        `gradio.Blocks` with an image as the question and its captions as the answer.

    Example:

        build_caption_page(gradio, demo)
    """
    run = demo.run
    facts = f"{run.recipe.name}, {run.recipe.caption.decoder}; {len(demo):,} images of {demo.dataset.name}"
    with gradio.Blocks(analytics_enabled=False, title=f"vsemb · {run.path.name}") as blocks:
        parts = PageParts(gradio, demo)
        gradio.HTML(f"<h2>{escape(run.path.name)}</h2><p class='vsemb-hint'>{escape(facts)}</p>")
        dropped, key = parts.image_inputs("caption")
        go = gradio.Button("Write captions", variant="primary", elem_id="caption-go")
        line = "Captions appear here, each behind the logarithm of its probability."
        out = parts.result(line, "caption-out")

        def write(dropped: Any, key: Any) -> str:
            return parts.cards.written(demo.captions(parts.image(dropped, key)))

        parts.when([go.click, dropped.upload, key.input], parts.asked(write), [dropped, key], out)
    parts.queue(blocks)
    return blocks
