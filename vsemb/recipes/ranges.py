"""The ranges of a recipe's numbers, checked before anything is read or written.

Names, such as that of an encoder, are checked where they are looked up.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

from vsemb.errors import invalid_argument

_Range = tuple[Callable[[float], bool], str]

_COUNT: _Range = (lambda value: value >= 1, "an integer >= 1")
# Far beyond any use, and where memory and integers of 32 bits end.
_SIZE: _Range = (lambda value: 1 <= value <= 65536, "an integer from 1 to 65536")
# A tree's encoder has 2 slots * (3 + 2 slots) recurrent matrices.
_SLOTS: _Range = (lambda value: 1 <= value <= 16, "an integer from 1 to 16")
# A matrix for each word of the context, and for each part of speech.
_FEW: _Range = (lambda value: 1 <= value <= 64, "an integer from 1 to 64")
_AHEAD: _Range = (lambda value: 0 <= value <= 64, "an integer from 0 to 64")
_BEAM: _Range = (lambda value: 1 <= value <= 1024, "an integer from 1 to 1024")
_WORDS: _Range = (lambda value: 1 <= value <= 512, "an integer from 1 to 512")
_PAIRS: _Range = (lambda value: value >= 2, "an integer >= 2")
_SHARE: _Range = (lambda value: 0 <= value < 1, "a number in [0, 1)")
_POSITIVE: _Range = (lambda value: 0 < value < math.inf, "a finite number > 0")
_NOT_NEGATIVE: _Range = (lambda value: 0 <= value < math.inf, "a finite number >= 0")
_FINITE: _Range = (math.isfinite, "a finite number")
_PROBABILITY: _Range = (lambda value: 0 <= value <= 1, "a number in [0, 1]")
_MAGNITUDE: _Range = (lambda value: 0 <= value <= 30, "a number in [0, 30]")
_LAYERS: _Range = (lambda value: 1 <= value <= 16, "an integer from 1 to 16")
# Seeds and epochs are added up as int32.
_SEED: _Range = (lambda value: 0 <= value <= 10**9, "an integer from 0 to 1000000000")

#: Path of a field -> its range; null passes where the field's type allows it.
RANGES: dict[str, _Range] = {
    "embedding_dim": _SIZE,
    "text.min_count": _COUNT,
    "text.max_words": _COUNT,
    "text.max_length": _SIZE,
    "text.word_dim": _SIZE,
    "text.word_init_scale": _POSITIVE,
    "text.word_dropout": _SHARE,
    "text.embedding_dropout": _SHARE,
    "text.units": _SIZE,
    "text.layers": _FEW,
    "text.heads": _SIZE,
    "text.feed_forward": _SIZE,
    "text.slots": _SLOTS,
    "text.dropout": _SHARE,
    "text.bag_dropout": _SHARE,
    "text.init_scale": _POSITIVE,
    "image.most_regions": _COUNT,
    "image.size": _SIZE,
    "image.policy_magnitude": _MAGNITUDE,
    "image.policy_layers": _LAYERS,
    "image.erasing": _PROBABILITY,
    "image.dropout": _SHARE,
    "image.init_scale": _POSITIVE,
    "caption.units": _SIZE,
    "caption.heads": _AHEAD,
    "caption.dropout": _SHARE,
    "caption.init_scale": _POSITIVE,
    "caption.affinity": _NOT_NEGATIVE,
    "caption.context": _FEW,
    "caption.structure": _AHEAD,
    "caption.factors": _SIZE,
    "caption.beam": _BEAM,
    "caption.length_penalty": _NOT_NEGATIVE,
    "caption.max_words": _WORDS,
    "caption.candidates": _SIZE,
    "caption.neighbours": _COUNT,
    "loss.margin": _NOT_NEGATIVE,
    "loss.warmup_epochs": _NOT_NEGATIVE,
    "loss.temperature": _POSITIVE,
    "loss.bias": _FINITE,
    "loss.block_size": _COUNT,
    "loss.infonce_weight": _NOT_NEGATIVE,
    "loss.label_smoothing": _SHARE,
    "loss.image_weight": _NOT_NEGATIVE,
    "loss.text_weight": _NOT_NEGATIVE,
    "loss.l2": _NOT_NEGATIVE,
    "optimizer.learning_rate": _POSITIVE,
    "optimizer.decay_rate": _POSITIVE,
    "optimizer.decay_epochs": _POSITIVE,
    "optimizer.decay_steps": _COUNT,
    "optimizer.warmup_epochs": _NOT_NEGATIVE,
    "optimizer.weight_decay": _NOT_NEGATIVE,
    "optimizer.momentum": _SHARE,
    "optimizer.momentum_start": _SHARE,
    "optimizer.momentum_steps": _POSITIVE,
    "optimizer.clip": _POSITIVE,
    "optimizer.clip_value": _POSITIVE,
    "optimizer.ema": _SHARE,
    "batches.size": _PAIRS,
    "batches.captions_per_image": _COUNT,
    "training.epochs": _COUNT,
    "training.patience": _COUNT,
    "training.seed": _SEED,
    "training.chunk_size": _COUNT,
}


def check_ranges(recipe: Any) -> None:
    """Checks every number of a recipe.

    Args:
        recipe: a `vsemb.recipes.schema.Recipe`.

    Raises:
        InvalidArgumentError: for a number outside its range; NaN is outside of all.
    """
    for path, (fits, allowed) in RANGES.items():
        value = functools.reduce(getattr, path.split("."), recipe)
        if value is not None and not fits(value):
            raise invalid_argument(path, value, allowed)
