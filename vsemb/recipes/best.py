"""The strongest retrieval model from a small image network that was measured here.

| equation | content | code |
| --- | --- | --- |
| VSE++ 6 | maximum of hinges, for each member of the ensemble | `vsemb.losses.PairwiseRanking(negatives="hardest")` |
| | mean of the members' cosines | `vsemb.similarities.MeanCosine` |
| | layers of the network that are trained from cached maps | `vsemb.recipes.towers.Top` |
| | embeddings corrected for hubs | `vsemb.hubs.HubCorrection` |

It is variant `tuned` of the recipe `vsepp` with eight changes:

- The layers of the network above an inner map, `block_13_project_BN` of MobileNetV2, are trained with the text
  encoders, at a tenth of the learning rate and with stored statistics of batch normalization. The layers below are
  computed once.
- Two copies of these layers are trained, each for two of the text encoders.
- Images have 288 x 288 pixels. The network was trained on 224 x 224.
- The maximum of each channel is taken over overlapping regions of the last map, and averaged over them (`regional`
  pooling), in place of the maximum over the map.
- An image's embedding is the mean of its own and its mirror image's, which doubles the time per image.
- Four text encoders with random weights of their own read each caption, and the image has an embedding for each. The
  similarity is the mean of the four cosines, and each pair of embeddings has a loss of its own.
- Batches have two captions of each of 128 images, and each image is embedded once for both.
- Embeddings are corrected for hubs, items that are near to many others, with a bank of 2,000 training images and
  captions. Training itself does not change.

Training takes 4 epochs, which two slow cores finish in 45 minutes. With 6 epochs (`--epochs 6`), the recall sum is
352.4 in place of 347.1.

Variant `frozen` reads features of the whole network, which is not trained. With a preset without maps,
`--set image.pooling=null` chooses its own pooling.

docs/results/best.md has the effect of each change.
"""

from __future__ import annotations

from dataclasses import replace

from vsemb.data.caption_groups import Groups
from vsemb.encoders.ensemble import Ensemble
from vsemb.recipes.retrieval import Retrieval
from vsemb.recipes.schema import Training
from vsemb.recipes.towers import Features, Text, Top
from vsemb.recipes.vsepp import VSEPP
from vsemb.similarities import MeanCosine

_NETWORKS, _MEMBERS = 2, 4
_MEMBER = VSEPP["tuned"]

_TOP: Retrieval = replace(
    _MEMBER,
    name="best",
    variant="top",
    paper=f"none; its loss is that of {_MEMBER.paper}",
    embedding_dim=512 * _MEMBERS,
    text=Text(tokenizer=_MEMBER.text.tokenizer, encoder=Ensemble(_MEMBER.text.encoder, _MEMBERS)),
    image=Top(size=288, dropout=0.5, standardize=True, learning_rate_share=0.1, networks=_NETWORKS),
    similarity=MeanCosine(_MEMBERS),
    batches=Groups(size=128, group_size=2),
    hub_bank=2000,
    training=Training(epochs=4, precision="auto"),
)

BEST = {
    "top": _TOP,
    "frozen": replace(
        _TOP,
        variant="frozen",
        image=Features(size=288, pooling="regional", dropout=0.5, standardize=True),
        training=Training(epochs=6, precision="auto"),
    ),
}
