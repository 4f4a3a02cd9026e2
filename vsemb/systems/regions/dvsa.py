"""Karpathy, Fei-Fei 2015: Deep Visual-Semantic Alignments (arXiv:1412.2306), the alignment model.

| equation | what | where |
| --- | --- | --- |
| section 3.1.1 | the 19 best boxes and the whole image | `vsemb.systems.regions.image`, `vsemb regions` |
| 1 | v = W_m CNN(I_b) + b_m | `vsemb.systems.regions.region_encoder.RegionEncoder` |
| 2-6 | bidirectional network over words | `vsemb.systems.regions.word_sequence.WordSequenceEncoder` |
| 7, 8 | score of an image and a sentence | `vsemb.systems.regions.similarities.RegionWord` |
| 9 | max-margin in both directions | `vsemb.losses.PairwiseRanking(margin=1)` |
| 10-12 | words of one phrase on one region | `vsemb.systems.regions.viterbi.best_chain` |
| section 6.1 | magnitudes of words and regions | `vsemb magnitudes` |

Variant `paper` is section 3.3: batches of 100, SGD with momentum 0.9, gradients cut elementwise at 5, dropout
everywhere but in the recurrence, words seen at least five times. Deviations and gaps we filled:

- The paper's regions are the detections of an R-CNN. Here they are what `vsemb regions` made of the dataset:
  a detector's results where they are at hand, else a grid or selective search.
- Equation 9 sums over l = k too, which adds a constant without gradient; an image's own pairs are left out.
- h is 1000 and the network's state 512, inside the ranges that the paper gives. Learning rate and weight
  decay were cross-validated there and are not given.
- Words start from 300-d word2vec vectors there and stay fixed; `--set text.word_vectors=PATH --set
  text.train_words=false` does so. The paper finds "little change" with random vectors that are trained.

Variant `adam` is `paper` with Adam in the place of SGD. Variant `tuned` (the default) keeps the regions, the
network over words and each word's best region, and changes what stands around them: all vectors have unit
length and a sentence's score is the mean over its words
(`vsemb.systems.regions.similarities.LateInteraction`), the hardest
negatives count, with InfoNCE beside them, and Adam trains. `cross-attention` is `tuned` with the score of Lee
et al. 2018 (arXiv:1803.08024) in the place of equation 8. With `--set image.most_regions=1` any of them reads
the whole image alone: what regions are worth.
"""

from __future__ import annotations

import dataclasses

from vsemb.recipes.schema import (
    BatchConfig,
    ImageConfig,
    LossConfig,
    OptimizerConfig,
    Recipe,
    TextConfig,
    TrainingConfig,
)

_PAPER = "Karpathy, Fei-Fei 2015, arXiv:1412.2306"

_DVSA = Recipe(
    name="dvsa",
    variant="paper",
    paper=_PAPER,
    embedding_dim=1000,
    similarity="region-word",
    text=TextConfig(encoder="brnn", units=512, min_count=5, max_length=40, embedding_dropout=0.3, dropout=0.3),
    image=ImageConfig(regions=True, standardize=True, dropout=0.3, init_scale=0.01),
    loss=LossConfig(margin=1.0),
    optimizer=OptimizerConfig(name="sgd", learning_rate=1e-4, momentum=0.9, clip_value=5.0),
    batches=BatchConfig(size=100),
    training=TrainingConfig(epochs=15, patience=3),
)

_TUNED = Recipe(
    name="dvsa",
    variant="tuned",
    paper=_PAPER,
    embedding_dim=512,
    similarity="late-interaction",
    text=TextConfig(
        encoder="brnn",
        units=300,
        min_count=4,
        max_length=40,
        word_dropout=0.1,
        embedding_dropout=0.3,
        dropout=0.3,
    ),
    image=ImageConfig(regions=True, standardize=True, dropout=0.5),
    loss=LossConfig(margin=0.2, negatives="hardest", infonce_weight=1.0, temperature=0.05, reduction="mean"),
    optimizer=OptimizerConfig(name="adam", learning_rate=1e-3, schedule="cosine", warmup_epochs=0.5, clip=2.0),
    batches=BatchConfig(size=100),
    training=TrainingConfig(epochs=8),
)


_ADAM = dataclasses.replace(
    _DVSA,
    variant="adam",
    optimizer=OptimizerConfig(name="adam", learning_rate=1e-3, schedule="cosine", warmup_epochs=0.5, clip_value=5.0),
    training=TrainingConfig(epochs=10),
)

DVSA = {
    "tuned": _TUNED,
    "paper": _DVSA,
    "adam": _ADAM,
    "cross-attention": dataclasses.replace(_TUNED, variant="cross-attention", similarity="cross-attention"),
}
