"""Caption metrics as defined by the COCO caption evaluation (Chen et al. 2015), and novelty.

BLEU, ROUGE-L and CIDEr-D are computed by `pycocoevalcap`, the code of that evaluation. METEOR is computed by its own
Java program. Words are split as in the evaluation, see `caption_tokens`. Novelty compares captions with the training
captions, see `TrainingCaptions`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from vsemb.errors import DataError, invalid_argument, needs_extra
from vsemb.systems.captions.caption_tokens import caption_tokens
from vsemb.systems.captions.meteor import meteor_of_tokens
from vsemb.systems.captions.training_captions import TrainingCaptions
from vsemb.text.normalize import words_of

Tokens = dict[int, list[str]]
"""Captions of each image, words joined by single spaces, as `pycocoevalcap` takes them."""

_ONE_IMAGE = "CIDEr is 0 where there is one image: every n-gram of its references is in all images."


@dataclass(frozen=True)
class CaptionMetrics:
    """Caption metrics; scores in percent.

    Attributes:
        images: number of images, each with one caption.
        bleu: BLEU-1 to BLEU-4 of the corpus.
        rouge_l: mean ROUGE-L.
        cider: CIDEr-D times 100, as usually reported. Document frequencies are counted in the references. Values for
            other images, or for fewer images, cannot be compared.
        meteor: METEOR 1.5 of the corpus; None if not measured.
        words: mean number of words per caption.
        vocabulary: number of distinct words of all captions.
        novelty: percent of captions that differ from every training caption, compared as words; None without
            training captions.
        train_vocabulary: number of distinct words of the training captions, or None.
        per_image: score -> (images,) float64 in percent: `rouge_l`, `cider` and, if measured, `meteor`,
            `clip_score` and `ref_clip_score`.
        notes: notes on the metrics, one line each.
        clip_score: mean CLIPScore; None if not measured.
        ref_clip_score: mean RefCLIPScore; None if not measured.
    """

    images: int
    bleu: tuple[float, float, float, float]
    rouge_l: float
    cider: float
    meteor: float | None
    words: float
    vocabulary: int
    novelty: float | None = None
    train_vocabulary: int | None = None
    per_image: Mapping[str, np.ndarray] = field(default_factory=dict, compare=False, repr=False)
    notes: tuple[str, ...] = ()
    clip_score: float | None = None
    ref_clip_score: float | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the scores of the corpus, without `per_image`.

        Example:

        >>> metrics = CaptionMetrics(1, (100.0, 50.0, 25.0, 12.5), 60.0, 0.0, None, 5.0, 5)
        >>> metrics.to_json()["BLEU-4"], metrics.to_json()["METEOR"]
        (12.5, None)
        """
        return {
            "images": self.images,
            **{f"BLEU-{order}": value for order, value in enumerate(self.bleu, 1)},
            "METEOR": self.meteor,
            "ROUGE-L": self.rouge_l,
            "CIDEr": self.cider,
            "CLIPScore": self.clip_score,
            "RefCLIPScore": self.ref_clip_score,
            "novel": self.novelty,
            "vocabulary": self.vocabulary,
            "train_vocabulary": self.train_vocabulary,
            "words": self.words,
            "notes": list(self.notes),
        }


def evaluate_captions(
    candidates: Sequence[str],
    references: Sequence[Sequence[str]],
    *,
    train: TrainingCaptions | None = None,
    meteor: bool = True,
) -> CaptionMetrics:
    """Measure one caption per image against the references of the image.

    Args:
        candidates: the caption of each image, raw. A caption without words counts, with score 0.
        references: the references of each image, raw, one or more.
        train: the training captions, used for novelty; None to leave novelty out.
        meteor: whether METEOR is measured, which needs Java and half a minute. On failure a note gives the reason.

    Raises:
        InvalidArgumentError: if `candidates` is empty, the numbers of candidates and references differ, or an image
            has no references.
        MissingExtraError: if `pycocoevalcap` is not installed.

    Example:

    >>> references = [["a dog runs", "the dog is running"], ["two cats on a sofa"]]
    >>> metrics = evaluate_captions(["A dog runs.", "two cats"], references, meteor=False)
    >>> [round(score, 1) for score in metrics.bleu[:2]], round(metrics.rouge_l, 1), metrics.vocabulary
    ([54.9, 54.9], 76.5, 5)
    """
    written, wanted = _tokens(candidates, references)
    bleu, _ = _scorer("bleu.bleu", "Bleu")(4).compute_score(wanted, written, verbose=0)
    rouge_l, rouge_each = _scorer("rouge.rouge", "Rouge")().compute_score(wanted, written)
    cider_d, cider_each = _cider(written, wanted)
    per_image = {"rouge_l": 100 * np.asarray(rouge_each), "cider": 100 * cider_each}
    notes = [_ONE_IMAGE] if len(written) == 1 else []
    score = None
    if meteor:
        try:
            score, meteor_each = meteor_of_tokens([text for (text,) in written.values()], list(wanted.values()))
            score, per_image["meteor"] = 100 * score, 100 * meteor_each
        except DataError as error:
            notes.append(f"METEOR was not measured. {error}")
    words = list(words_of(candidates))
    first, second, third, fourth = (100 * float(value) for value in bleu)
    return CaptionMetrics(
        images=len(written),
        bleu=(first, second, third, fourth),
        rouge_l=100 * float(rouge_l),
        cider=100 * cider_d,
        meteor=score,
        words=float(np.mean([len(caption) for caption in words])),
        vocabulary=len({word for caption in words for word in caption}),
        novelty=None if train is None else train.novelty(candidates),
        train_vocabulary=None if train is None else train.vocabulary,
        per_image=per_image,
        notes=tuple(notes),
    )


def cider(candidates: Sequence[str], references: Sequence[Sequence[str]]) -> tuple[float, np.ndarray]:
    """Compute CIDEr-D (Vedantam et al. 2015), sigma 6, n-grams up to 4.

    Args:
        candidates: the caption of each image, raw.
        references: the references of each image, raw, one or more. Document frequencies are counted in them.

    Returns:
        corpus: the mean, in [0, 10]; papers report it times 100.
        each: (images,) float64.

    Raises:
        InvalidArgumentError: see `evaluate_captions`.
        MissingExtraError: if `pycocoevalcap` is not installed.

    Example:

    >>> corpus, each = cider(["a dog runs fast", "two cats on a sofa"], [["a dog runs fast"], ["Two men."]])
    >>> round(corpus, 2), each.round(2).tolist()
    (5.35, [10.0, 0.7])
    """
    return _cider(*_tokens(candidates, references))


def _cider(written: Tokens, wanted: Tokens) -> tuple[float, np.ndarray]:
    if not any(map(any, wanted.values())):
        return 0.0, np.zeros(len(written))  # pycocoevalcap fails if no reference has a word.
    corpus, each = _scorer("cider.cider", "Cider")().compute_score(wanted, written)
    return float(corpus), np.asarray(each, np.float64)


def _tokens(candidates: Sequence[str], references: Sequence[Sequence[str]]) -> tuple[Tokens, Tokens]:
    """Check captions and split them into words; return candidates (one per image) and references."""
    if isinstance(candidates, str) or not len(candidates):
        raise invalid_argument("candidates", candidates, "the captions of one image or more")
    if len(references) != len(candidates):
        allowed = f"as many as candidates, {len(candidates)}"
        raise invalid_argument("references", f"references of {len(references)} images", allowed)
    for row, captions in enumerate(references):
        if isinstance(captions, str) or not len(captions):
            raise invalid_argument("references", captions, f"a list of captions for image {row}, one or more")
    written = {row: [_spaced(caption)] for row, caption in enumerate(candidates)}
    wanted = {row: [_spaced(caption) for caption in captions] for row, captions in enumerate(references)}
    return written, wanted


def _spaced(caption: str) -> str:
    return " ".join(caption_tokens(caption))


def _scorer(module: str, name: str) -> Any:
    """Return a class of `pycocoevalcap`."""
    import importlib

    with needs_extra("pycocoevalcap", "captions"):
        return getattr(importlib.import_module(f"pycocoevalcap.{module}"), name)
