"""Chun 2024: Improved Probabilistic Image-Text Representations (PCME++, arXiv:2305.18171).

| equation | content | code |
| --- | --- | --- |
| 1 | closed-form sampled distance d of two normal distributions | `vsemb.systems.probabilistic.gaussians` |
| section 2.2 | means of unit length, and log variances | `vsemb.systems.probabilistic.similarity` |
| section 2.5 | heads of means and of log variances | `vsemb.systems.probabilistic.heads` |
| 2 | binary cross entropy of sigmoid(-a d + b), learned a and b | `vsemb.losses.SigmoidLoss` |
| section 2.3 | pseudo-positives, weight alpha = 0.1 | `vsemb.systems.probabilistic.matching_loss` |
| section 2.2 | divergence from N(0, 1) (VIB), weight beta = 0.0001 | `vsemb.systems.probabilistic.matching_loss` |
| uncertainty | sum of the variances of an item | `vsemb.systems.probabilistic.gaussians` |

An embedding is a row of means and log variances, so `embedding_dim` is twice the number of dimensions. a is
1 / `loss.temperature`, and b is `loss.bias`.

The variant `default` is `contrastive`, variant `default`, with this distance in place of the cosine, standardized
features, and the losses above. a and b start at 5, as in the authors' code. Deviations:

- The towers are small, as in the recipe `contrastive`: linear maps of image features, and a bidirectional GRU over
  words. The paper has CLIP's Transformers with pretrained weights, and a block of its own in each for the variances.
- A log variance is the logarithm of an equal share of a total variance of 0.1, plus the output of its linear map. In
  the authors' code, the constant is 0. With it, the variances of 1,024 dimensions outweigh the means at the start.
- The loss of a query is a sum over candidates, and beta is multiplied by their number. So the ratios of the losses are
  the paper's. The paper has means, with which gradients of variances are so small that Adam's epsilon damps them.
- Mixed sample augmentation of images (section 2.4) and the random removal of tokens are left out: they need pixels or
  maps, and towers here read one cached vector per image. The authors' label smoothing of 0.0001 is left out, too.
- Other captions of an image in a batch are ignored, as in all recipes here. The authors' code counts them as positives.
- The logarithm of a is learned, and a is at most 100. The authors' code learns a itself.
- Batches have 256 pairs; the paper has 128. The optimizer is Adam, without AdamP's projection, weight decay and the
  average of weights over epochs.
"""

from __future__ import annotations

from dataclasses import replace

from vsemb.recipes.contrastive import CONTRASTIVE
from vsemb.recipes.towers import Features
from vsemb.systems.probabilistic.heads import Gaussian, GaussianAffine
from vsemb.systems.probabilistic.matching_loss import Matching
from vsemb.systems.probabilistic.similarity import SampledDistance

_CLIP = CONTRASTIVE["default"]

PCME = {
    "default": replace(
        _CLIP,
        name="pcme",
        paper="Chun 2024, arXiv:2305.18171",
        embedding_dim=1024,
        similarity=SampledDistance(),
        text=replace(_CLIP.text, encoder=Gaussian(encoder=_CLIP.text.encoder)),
        image=Features(standardize=True, projection=GaussianAffine()),
        loss=Matching(),
    ),
}
