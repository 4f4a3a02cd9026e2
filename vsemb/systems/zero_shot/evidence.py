"""The score of an image and a text as a sum over the steps of the text (Reed et al. 2016, section 4.2).

An encoder that averages its states gives a score that is a sum over steps, too: F(v, t) = sum of theta(v) . h_i / L.
The paper calls this a linear accumulation of evidence.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from vsemb.console import say
from vsemb.data.store import StoredDataset
from vsemb.drawing.pictures import INK, PAPER, cut_text, read_picture, scaled_to, with_picture
from vsemb.errors import invalid_argument, printable
from vsemb.printing import table
from vsemb.results import Result
from vsemb.runs.images import embed_image
from vsemb.runs.run import Run
from vsemb.runs.searching import read_text
from vsemb.similarities import Dot

#: Shown for steps that read padding alone.
_NOTHING = "·"
_FOR, _AGAINST = "#1d7a35", "#c2281d"
_SIDE, _TEXT, _BAR, _GAP, _SIZE = 320, 320, 240, 16, 15


@dataclass(frozen=True)
class StepEvidence:
    """A step of a text.

    Attributes:
        text: the text that is read at this step and not before; empty for padding.
        evidence: the step's term of the score.
        score: sum of the terms of this step and of all before.
    """

    text: str
    evidence: float
    score: float


@dataclass(frozen=True, eq=False, repr=False)
class TracedScore(Result):
    """The score of an image and a text, by steps.

    Attributes:
        image: file or key of the image.
        text: the text.
        steps: the steps, in the order of the text.
        picture: the image.
        out: file of the drawing, if there is one.
    """

    image: str
    text: str
    steps: tuple[StepEvidence, ...]
    picture: Image.Image
    out: str | None = None

    @property
    def score(self) -> float:
        """The score, which is the sum of all evidence."""
        return self.steps[-1].score

    def drawn(self) -> Image.Image:
        """Draw the image, and beside it a bar for each step: green for the image, red against it."""
        return draw_evidence(self.picture, self.steps)

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        return {
            "image": printable(self.image),
            "text": self.text,
            "score": self.score,
            "steps": [dataclasses.asdict(step) for step in self.steps],
        }

    def __str__(self) -> str:
        rows = [[step.text or _NOTHING, f"{step.evidence:+.4f}", f"{step.score:.4f}"] for step in self.steps]
        about = f"{printable(self.image)}: {self.score:.4f}"
        return with_picture(f"{about}\n{table(['text', 'evidence', 'score so far'], rows)}", self.out)


def trace_score(run: Run, image: str, text: str, dataset: StoredDataset | None = None) -> TracedScore:
    """Split the score of an image and a text into terms of the text's steps.

    Args:
        run: a run whose score is an inner product or a cosine, and whose text encoder adds up states or averages them.
            Words that it does not know are reported.
        image: image file, or key of an image of the dataset.
        text: the text.
        dataset: dataset of the keys; None for files only.

    Raises:
        InvalidArgumentError: for another run, or a text without a known word.
        DataError: if the image cannot be read.
    """
    encoder = run.model.text_encoder
    # A correction for hubs is not part of the sum.
    additive = isinstance(run.recipe.similarity, Dot) and not run.recipe.added_dim
    if not additive or not hasattr(encoder, "step_terms"):
        fix = "The recipes ds-sje-char-cnn-rnn, ds-sje-word-lstm and kiros2014-linear make such runs."
        allowed = "a run whose score is an inner product with a sum or mean over the steps of a text"
        raise invalid_argument("run", f"{run.path}, of recipe {run.recipe.name!r}", allowed, fix)
    read = read_text(run, text, "text", say)
    ids = run.tokenizer(read)
    terms = encoder.step_terms(ids).numpy()[0].astype(np.float32)
    embedding, source = embed_image(run, dataset, image)
    whole = terms.sum(axis=0)
    # A cosine divides the sum by its length.
    length = np.linalg.norm(whole) / max(float(np.linalg.norm(run.model.encode_texts(ids)[0])), 1e-12)
    evidence = terms @ embedding / length
    pieces = [piece.decode() for piece in run.tokenizer.pieces(read).flat_values.numpy()]
    spans = getattr(encoder, "step_spans", [(step, step + 1) for step in range(len(terms))])
    steps, done = [], 0
    for (_, end), value, score in zip(spans, evidence.tolist(), np.cumsum(evidence).tolist(), strict=True):
        steps.append(StepEvidence(run.tokenizer.between.join(pieces[done:end]), value, score))
        done = end
    encoded = source if isinstance(source, bytes) else source[0].read_image(source[1])
    return TracedScore(image, text, tuple(steps), read_picture(encoded, image))


def draw_evidence(image: Image.Image, steps: tuple[StepEvidence, ...]) -> Image.Image:
    """Draw an image, and beside it the steps of a text with bars of their evidence.

    Args:
        image: RGB image.
        steps: the steps.

    Returns:
        RGB picture.

    Example:

    >>> draw_evidence(Image.new("RGB", (64, 48)), (StepEvidence("red", 0.5, 0.5), StepEvidence("dog", -0.1, 0.4))).size
    (960, 352)
    """
    line = round(1.6 * _SIZE)
    height = max(_SIDE, len(steps) * line) + 2 * _GAP
    picture = Image.new("RGB", (_SIDE + _TEXT + _BAR + 5 * _GAP, height), PAPER)
    picture.paste(scaled_to(image, _SIDE), (_GAP, _GAP))
    pen, font = ImageDraw.Draw(picture), ImageFont.load_default(size=_SIZE)
    left = _SIDE + 2 * _GAP
    middle = left + _TEXT + _GAP + _BAR // 2
    most = max(abs(step.evidence) for step in steps) or 1.0
    for number, step in enumerate(steps):
        y = _GAP + number * line + line // 2
        pen.text((left, y), cut_text(step.text or _NOTHING, font, _TEXT), INK, font, "lm")
        end = middle + round(_BAR / 2 * step.evidence / most)
        colour = _FOR if step.evidence >= 0 else _AGAINST
        pen.rectangle((min(middle, end), y - line // 3, max(middle, end), y + line // 3), colour)
    pen.line((middle, _GAP, middle, _GAP + len(steps) * line), INK)
    return picture
