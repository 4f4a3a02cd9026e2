"""Captions measured in the definitions of the COCO caption evaluation (Chen et al. 2015).

BLEU, ROUGE-L and CIDEr-D are computed by `pycocoevalcap`, the evaluation's own code, and METEOR by its own
Java program; words are split as there, see `vsemb.systems.captions.caption_tokens`. Beside them stands what
the captions repeat of those trained on, see `vsemb.systems.captions.novelty`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from vsemb.errors import DataError, invalid_argument, needs_extra
from vsemb.systems.captions.caption_tokens import caption_tokens
from vsemb.systems.captions.meteor import meteor_of_tokens
from vsemb.systems.captions.novelty import TrainingCaptions
from vsemb.text.normalize import words_of

Tokens = dict[int, list[str]]
"""Captions of each image, words joined by single spaces, as `pycocoevalcap` takes them."""

_ONE_IMAGE = "CIDEr is 0 where there is one image: every n-gram of its references is in all images."


@dataclass(frozen=True)
class CaptionMetrics:
    """How good captions are; scores in percent.

    Attributes:
        images: number of images, each with one caption.
        bleu: BLEU-1 to BLEU-4 of the corpus.
        rouge_l: mean ROUGE-L.
        cider: CIDEr-D times 100, as it is reported. Its document frequencies are those of the references, so
            figures of other images, or of fewer, do not compare.
        meteor: METEOR 1.5 of the corpus, or None where it was not measured.
        words: mean number of words of a caption.
        vocabulary: number of distinct words of all captions.
        novelty: percent of captions that are no training caption, compared as words; None where the training
            captions were not given.
        train_vocabulary: number of distinct words of the training captions, or None.
        each: score -> (images,) float64 in percent: `rouge_l`, `cider` and, where measured, `meteor`.
        notes: what there is to know about the figures, a line each.
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
    each: Mapping[str, np.ndarray] = field(default_factory=dict, compare=False, repr=False)
    notes: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Returns the scores, without those of each caption.

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
    """Measures one caption an image against its references.

    Args:
        candidates: the caption of each image, raw; one without words scores nothing and counts.
        references: the references of each image, raw, one or more.
        train: the training captions, which novelty is measured against.
        meteor: whether METEOR is measured, which takes Java and half a minute. Where it cannot be, a note
            says why.

    Raises:
        InvalidArgumentError: for no images, other numbers of candidates and references, or an image without
            references.
        MissingExtraError: if `pycocoevalcap` is not installed.

    Example:

    >>> references = [["a dog runs", "the dog is running"], ["two cats on a sofa"]]
    >>> metrics = evaluate_captions(["A dog runs.", "two cats"], references, meteor=False)
    >>> [round(score, 1) for score in metrics.bleu[:2]], round(metrics.rouge_l, 1), metrics.vocabulary
    ([54.9, 54.9], 76.5, 5)
    """
    found, wanted = _tokens(candidates, references)
    bleu, _ = _scorer("bleu.bleu", "Bleu")(4).compute_score(wanted, found, verbose=0)
    rouge_l, rouge_each = _scorer("rouge.rouge", "Rouge")().compute_score(wanted, found)
    cider_d, cider_each = _cider(found, wanted)
    each = {"rouge_l": 100 * np.asarray(rouge_each), "cider": 100 * cider_each}
    notes = [_ONE_IMAGE] if len(found) == 1 else []
    score = None
    if meteor:
        try:
            score, meteor_each = meteor_of_tokens([found[row][0] for row in found], list(wanted.values()))
            score, each["meteor"] = 100 * score, 100 * meteor_each
        except DataError as error:
            notes.append(f"METEOR was not measured. {error}")
    words = list(words_of(candidates))
    first, second, third, fourth = (100 * float(value) for value in bleu)
    return CaptionMetrics(
        images=len(found),
        bleu=(first, second, third, fourth),
        rouge_l=100 * float(rouge_l),
        cider=100 * cider_d,
        meteor=score,
        words=float(np.mean([len(caption) for caption in words])),
        vocabulary=len({word for caption in words for word in caption}),
        novelty=None if train is None else train.novelty(candidates),
        train_vocabulary=None if train is None else train.vocabulary,
        each=each,
        notes=tuple(notes),
    )


def cider(candidates: Sequence[str], references: Sequence[Sequence[str]]) -> tuple[float, np.ndarray]:
    """Computes CIDEr-D (Vedantam et al. 2015), sigma 6, n-grams up to 4.

    Args:
        candidates: the caption of each image, raw.
        references: the references of each image, raw, one or more; document frequencies are counted in them.

    Returns:
        corpus: the mean, from 0 to 10; papers give it times 100.
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


def _cider(found: Tokens, wanted: Tokens) -> tuple[float, np.ndarray]:
    if not any(caption for captions in wanted.values() for caption in captions):
        return 0.0, np.zeros(len(found))  # pycocoevalcap fails where no reference has a word.
    corpus, each = _scorer("cider.cider", "Cider")().compute_score(wanted, found)
    return float(corpus), np.asarray(each, np.float64)


def _tokens(candidates: Sequence[str], references: Sequence[Sequence[str]]) -> tuple[Tokens, Tokens]:
    """Checks captions and splits them into words: of candidates (one an image), of references."""
    if isinstance(candidates, str) or not len(candidates):
        raise invalid_argument("candidates", candidates, "the captions of one image or more")
    if len(references) != len(candidates):
        allowed = f"as many as candidates, {len(candidates)}"
        raise invalid_argument("references", f"those of {len(references)} images", allowed)
    for row, captions in enumerate(references):
        if isinstance(captions, str) or not len(captions):
            raise invalid_argument("references", captions, f"a list of captions for image {row}, one or more")
    found = {row: [" ".join(caption_tokens(caption))] for row, caption in enumerate(candidates)}
    wanted = {
        row: [" ".join(caption_tokens(caption)) for caption in captions] for row, captions in enumerate(references)
    }
    return found, wanted


def _scorer(module: str, name: str) -> Any:
    """Returns a class of `pycocoevalcap`."""
    import importlib

    with needs_extra("pycocoevalcap", "captions"):
        return getattr(importlib.import_module(f"pycocoevalcap.{module}"), name)
