"""InfoNCE with a learned temperature, as in CLIP (Radford et al. 2021, arXiv:2103.00020).

| equation | what | where |
| --- | --- | --- |
| figure 3 | symmetric cross entropy over the batch | `vsemb.losses.InfoNCE` |
| section 2.5 | learned temperature, start 0.07, factor at most 100 | `vsemb.models.LogitScale` |

Deviations: the towers are those of VSE++ (a map of image features, a recurrent network over words),
not transformers, and batches are small. The reduction is the mean over queries, of both directions
added up, where CLIP halves the sum.
"""

from __future__ import annotations

from vsemb.recipes.schema import (
    BatchConfig,
    LossConfig,
    OptimizerConfig,
    Recipe,
    TextConfig,
    TrainingConfig,
)

CONTRASTIVE = {
    "default": Recipe(
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
    ),
}
