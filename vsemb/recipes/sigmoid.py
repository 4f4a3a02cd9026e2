"""The sigmoid loss with a learned temperature and bias, as in SigLIP (Zhai et al. 2023, arXiv:2303.15343).

| equation | content | code |
| --- | --- | --- |
| section 3.2 | a logistic regression for each pair of the batch | `vsemb.losses.SigmoidLoss` |
| section 3.2 | learned factor and bias, start 10 and -10 | `vsemb.models.LogitScale` |
| section 3.3 | scores in blocks, one device's texts at a time | `vsemb.ops.chunks`, `vsemb.ops.replicas` |

Deviations:

- The towers are small, as in the recipe `contrastive`: a linear map of image features, and a bidirectional GRU over
  words.
- Batches have 256 pairs.
- The factor is at most 100, as in CLIP.
- In the variant `default`, the bias starts at -5.5, which is minus the logarithm of the batch size. With this bias, own
  pairs and negatives have the same weight at the start. In the variant `paper` it starts at -10, the paper's value for
  batches of 16,384.
"""

from __future__ import annotations

from dataclasses import replace

from vsemb.losses.contrastive import Sigmoid
from vsemb.recipes.contrastive import CONTRASTIVE
from vsemb.recipes.schema import Training

# The loss sums over all pairs, so both directions have the same value, and the paper's loss is one of them.
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
