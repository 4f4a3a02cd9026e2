"""The sigmoid loss with a learned temperature and bias, as in SigLIP (Zhai et al. 2023, arXiv:2303.15343).

| equation | what | where |
| --- | --- | --- |
| section 3.2 | a logistic regression for each pair of the batch | `vsemb.losses.SigmoidLoss` |
| section 3.2 | learned factor and bias, start 10 and -10 | `vsemb.models.LogitScale` |
| section 3.3 | scores in blocks, one device's texts at a time | `vsemb.ops.chunks`, `vsemb.ops.ring` |

Deviations: the towers are those of VSE++ (a map of image features, a recurrent network over words), not
transformers, and batches are small. The factor is at most 100, as in CLIP. The bias starts at -10 for the
paper's batches of 16,384; minus the logarithm of the batch's size, -5.5 for 256 pairs, is where negatives
and own pairs weigh the same, and where the default starts. Variant `paper` starts at -10.
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
    name="sigmoid",
    variant="default",
    paper="Zhai et al. 2023, arXiv:2303.15343",
    embedding_dim=512,
    text=TextConfig(encoder="gru", units=512, directions="average", pooling="mean+max", min_count=2),
    # Both directions are one sum over all pairs, so one of them is the paper's loss.
    loss=LossConfig(name="sigmoid", temperature=0.1, learn_temperature=True, bias=-5.5, text_weight=0.0),
    optimizer=OptimizerConfig(
        name="adam", learning_rate=1e-3, schedule="cosine", warmup_epochs=0.5, clip=2.0
    ),
    batches=BatchConfig(size=256),
    training=TrainingConfig(epochs=15),
)

SIGMOID = {
    "default": _DEFAULT,
    "paper": dataclasses.replace(
        _DEFAULT, variant="paper", loss=dataclasses.replace(_DEFAULT.loss, bias=-10.0)
    ),
}
