"""InfoNCE with a learned temperature, as in CLIP (Radford et al. 2021, arXiv:2103.00020).

| equation | what | where |
| --- | --- | --- |
| figure 3 | symmetric cross entropy over the batch | `vsemb.losses.InfoNCE` |
| section 2.5 | learned temperature, start 0.07, factor at most 100 | `vsemb.models.LogitScale` |

Deviations: the towers are those of VSE++ (a map of image features, a recurrent network over words),
not transformers, and batches are small. The reduction is the mean over queries, of both directions
added up, where CLIP halves the sum. The variant `transformer` reads pieces of words with a Transformer,
as section 2.4 does: a smaller one, since captions are few, of WordPiece's pieces in place of byte pairs,
without a causal mask, and with the mean of all places in place of the last.
"""

from __future__ import annotations

import dataclasses

from vsemb.recipes.schema import (
    BatchConfig,
    LossConfig,
    OptimizerConfig,
    Recipe,
    TextConfig,
    TrainingConfig,
)

_DEFAULT = Recipe(
    name="contrastive",
    variant="default",
    paper="Radford et al. 2021, arXiv:2103.00020",
    embedding_dim=512,
    text=TextConfig(encoder="gru", units=512, directions="average", pooling="mean+max", min_count=2),
    loss=LossConfig(name="infonce", temperature=0.07, learn_temperature=True),
    optimizer=OptimizerConfig(
        name="adam", learning_rate=1e-3, schedule="cosine", warmup_epochs=0.5, clip=2.0
    ),
    batches=BatchConfig(size=256),
    training=TrainingConfig(epochs=15, precision="auto"),
)

CONTRASTIVE = {
    "default": _DEFAULT,
    "transformer": dataclasses.replace(
        _DEFAULT,
        variant="transformer",
        text=TextConfig(
            tokenizer="wordpiece",
            max_length=40,
            encoder="transformer",
            word_dim=256,
            units=256,
            layers=2,
            heads=4,
            pooling="mean",
            dropout=0.1,
        ),
    ),
}
