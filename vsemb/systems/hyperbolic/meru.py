"""Desai et al. 2023: Hyperbolic Image-Text Representations (MERU, arXiv:2304.09172).

| equation | content | code |
| --- | --- | --- |
| Lorentz distance | acosh(x_time y_time - x_space . y_space) | `vsemb.ops.lorentz.lorentz_distance` |
| exponential map at the root | x_space = sinh(norm of v) v / (norm of v) | `vsemb.ops.lorentz.exponential_map` |
| learned factors alpha | v = alpha times the tower's output, start 1 / sqrt(dim) | `vsemb.systems.hyperbolic.scaling` |
| contrastive loss | InfoNCE of -d / temperature, start 0.07, mean of both directions | `vsemb.losses.InfoNCE` |
| half aperture of a cone | asin(2 K / norm of x_space), K = 0.1 | `vsemb.ops.lorentz.half_aperture` |
| exterior angle at a text | of the triangle of root, text and image | `vsemb.ops.lorentz.exterior_angle` |
| entailment loss, weight 0.2 | max(0, exterior angle - half aperture) | `vsemb.systems.hyperbolic.entailment_loss` |
| traversals | nearest texts on the way from an image to the root | `vsemb.systems.hyperbolic.traversal` |

An embedding is the tangent vector v. Its length is the distance of the point to the root, and points have no other
parameter. Scores come from lengths and angles of these vectors, without coordinates.

The variant `default` is `contrastive`, variant `default`, with the Lorentz distance in place of the cosine, learned
factors, and the entailment loss. Deviations:

- The curvature is -1 and not learned. A curvature of -c is the same space with tangent vectors multiplied by sqrt(c)
  and distances divided by sqrt(c); cones do not change. So sqrt(c) is a part of the learned factors and of the learned
  temperature, and a factor is at most sqrt(10): the paper's limits are 10 for c and 1 for alpha.
- Distances and angles are computed in a form without cancellation, see `vsemb.ops.lorentz`. The authors' code clips the
  inner product at 1 + 1e-8, which is 1 in float32. As in their code, distances to the root are at most asinh(2^15).
- The towers are small, as in the recipe `contrastive`: a linear map of image features with a bias, and a bidirectional
  GRU over words. The paper has Transformers, and maps without a bias.
- At the start, embeddings have about the length 1, as in the paper. For this, the factor of the texts starts at 2.5,
  since the entries of a GRU's output are small, and image features are standardized.
- Batches have 256 pairs; the paper has 2,048. Adam has no weight decay.
"""

from __future__ import annotations

from dataclasses import replace

from vsemb.recipes.contrastive import CONTRASTIVE
from vsemb.recipes.towers import Features
from vsemb.systems.hyperbolic.entailment_loss import ContrastiveEntailment
from vsemb.systems.hyperbolic.scaling import Scaled, ScaledAffine
from vsemb.systems.hyperbolic.similarity import Lorentz

_CLIP = CONTRASTIVE["default"]

MERU = {
    "default": replace(
        _CLIP,
        name="meru",
        paper="Desai et al. 2023, arXiv:2304.09172",
        similarity=Lorentz(),
        text=replace(_CLIP.text, encoder=Scaled(encoder=_CLIP.text.encoder, initial=2.5)),
        image=Features(standardize=True, projection=ScaledAffine()),
        loss=ContrastiveEntailment(image_weight=0.5, text_weight=0.5),
    ),
}
