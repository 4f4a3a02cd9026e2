"""Faghri, Fleet, Kiros, Fidler 2018: VSE++, hardest negatives (arXiv:1707.05612).

| equation | what | where |
| --- | --- | --- |
| 2, 3 | linear image map, GRU over words, both to unit length | `vsemb.encoders` |
| 5 | sum of hinges | `vsemb.losses.PairwiseRanking(negatives="all")` |
| 6 | max of hinges | `vsemb.losses.PairwiseRanking(negatives="hardest")` |
"""

from __future__ import annotations

from vsemb.recipes.schema import (
    BatchConfig,
    ImageConfig,
    LossConfig,
    OptimizerConfig,
    Recipe,
    TextConfig,
    TrainingConfig,
)

_PAPER = "Faghri, Fleet, Kiros, Fidler 2018, arXiv:1707.05612"

VSEPP = {
    "tuned": Recipe(
        name="vsepp",
        variant="tuned",
        paper=_PAPER,
        embedding_dim=512,
        text=TextConfig(
            encoder="gru",
            units=256,
            directions="concat",
            pooling="mean+max",
            min_count=4,
            word_dropout=0.1,
            embedding_dropout=0.2,
            dropout=0.2,
            bag=True,
            bag_dropout=0.3,
        ),
        image=ImageConfig(dropout=0.4, standardize=True),
        loss=LossConfig(
            margin=0.2, negatives="hardest", infonce_weight=1.0, temperature=0.05, reduction="mean"
        ),
        optimizer=OptimizerConfig(
            name="adam", learning_rate=1e-3, schedule="cosine", warmup_epochs=0.6, clip=2.0
        ),
        batches=BatchConfig(size=256),
        training=TrainingConfig(epochs=6, start="cca"),
    ),
    "paper": Recipe(
        name="vsepp",
        variant="paper",
        paper=_PAPER,
        embedding_dim=1024,
        text=TextConfig(encoder="gru", units=1024, min_count=4),
        loss=LossConfig(margin=0.2, negatives="hardest", warmup_epochs=1.0),
        optimizer=OptimizerConfig(
            name="adam", learning_rate=2e-4, schedule="step", decay_rate=0.1, decay_epochs=15.0, clip=2.0
        ),
        batches=BatchConfig(size=128),
        training=TrainingConfig(epochs=30),
    ),
}
