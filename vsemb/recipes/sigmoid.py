"""The sigmoid loss with a learned temperature and bias, as in SigLIP (Zhai et al. 2023, arXiv:2303.15343).

| equation | what | where |
| --- | --- | --- |
| section 3.2 | a logistic regression for each pair of the batch | `vsemb.losses.SigmoidLoss` |
| section 3.2 | learned factor and bias, start 10 and -10 | `vsemb.models.LogitScale` |
| section 3.3 | scores in blocks, one device's texts at a time | `vsemb.ops.chunks`, `vsemb.ops.replicas` |

Deviations: the towers come from VSE++ (a map of image features, a recurrent network over words), not
transformers, and batches are small. The factor is at most 100, as in CLIP. The bias starts at -10 for the
paper's batches of 16,384; minus the logarithm of the batch's size, -5.5 for 256 pairs, is where negatives
and own pairs weigh the same, and where the default starts. Variant `paper` starts at -10.
"""

from __future__ import annotations

from dataclasses import replace

from vsemb.losses.contrastive import Sigmoid
from vsemb.recipes.contrastive import CONTRASTIVE
from vsemb.recipes.schema import Training

# Both directions are one sum over all pairs, so one of them is the paper's loss.
_LOSS = Sigmoid(temperature=0.1, bias=-5.5, learn_temperature=True, text_weight=0.0)

_DEFAULT = replace(
    CONTRASTIVE["default"],
    name="sigmoid",
    paper="Zhai et al. 2023, arXiv:2303.15343",
    loss=_LOSS,
    training=Training(epochs=15),
)

SIGMOID = {
    "default": _DEFAULT,
    "paper": replace(_DEFAULT, variant="paper", loss=replace(_LOSS, bias=-10.0)),
}
