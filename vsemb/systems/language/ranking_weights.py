"""Tuning, on validation, what the parts of a caption's score count (Kiros et al. 2014, supplement 5.2).

The authors "tuned the weights by hand on qualitative results alone". Here the candidates of validation images
are written once, and of all weights in a grid those are kept whose best captions have the highest CIDEr-D.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from tqdm import tqdm

from vsemb.systems.captions.caption_metrics import cider
from vsemb.systems.captions.captioner import detokenize
from vsemb.systems.language.candidates import StructureContentCaptioner
from vsemb.systems.language.ranking import RankingWeights

_RATIOS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)

#: What is tried: the cosine alone, then with more and more of the language model, at last that alone.
GRID = (
    RankingWeights(),
    *(RankingWeights(1.0, ratio, per_word) for per_word in (False, True) for ratio in _RATIOS),
    *(RankingWeights(0.0, 1.0, per_word) for per_word in (False, True)),
)


def tune_weights(
    captioner: StructureContentCaptioner,
    images: np.ndarray,
    references: Sequence[Sequence[str]],
    grid: Sequence[RankingWeights] = GRID,
) -> tuple[RankingWeights, list[dict[str, Any]]]:
    """Chooses the weights whose best captions come closest to what people wrote.

    Args:
        captioner: whose candidates are ranked; its own weights are not read.
        images: (n, ...) validation images, as the captioner takes them.
        references: for each image what people wrote.
        grid: the weights to try; of equally good ones the first is chosen.

    Returns:
        weights: the chosen ones.
        tried: for each weights of the grid their fields, and `cider`, the mean CIDEr-D of the best captions,
            times 100.
    """
    best: list[list[tf.Tensor]] = [[] for _ in grid]
    write = tf.function(captioner.write, autograph=False)
    embed = tf.function(captioner.encoder.encode_images, autograph=False)
    for row in tqdm(range(len(images)), desc="tuning", unit="image", disable=None, leave=False):
        embedding = tf.cast(embed(images[row : row + 1])[0], tf.float32)
        found = write(embedding)
        for weights, chosen in zip(grid, best, strict=True):
            chosen.append(found.ids[int(tf.argmax(found.scores(weights)))])
    scored: dict[tuple[str, ...], float] = {}
    tried: list[dict[str, Any]] = []
    for weights, chosen in zip(grid, best, strict=True):
        texts = detokenize(tf.stack(chosen), captioner.vocabulary.tokens).numpy()
        captions = tuple(text.decode() for text in texts)
        if captions not in scored:
            scored[captions] = 100.0 * cider(captions, references)[0]
        tried.append({**weights.to_json(), "cider": scored[captions]})
    winner = int(np.argmax([each["cider"] for each in tried]))
    return grid[winner], tried
