"""Vendrov, Kiros, Fidler, Urtasun 2016: Order-Embeddings of Images and Language (arXiv:1511.06361).

| equation | content | code |
| --- | --- | --- |
| 2 | order violation E(x, y) = max(0, y - x) squared and summed | `vsemb.ops.order` |
| section 4 | S(c, i) = -E(image, caption): captions above images | `vsemb.similarities.OrderViolation` |
| 5 | pairwise ranking loss over the other pairs of the batch | `vsemb.losses.PairwiseRanking` |
| 6 | W CNN(i), no bias; absolute value and unit length | `ImageEncoder`, `OrderViolation.normalize` |
| section 4.2 | GRU over words, state after the last word | `vsemb.encoders.RecurrentSentenceEncoder` |

Variant `paper` (the default) follows section 4.4: a GRU of 1024 units over trained word vectors of 300 entries, 1024
dimensions, margin 0.05, batches of 128 random pairs, Adam at 1e-3, and 30 epochs with early stopping. Deviations, and
choices that the paper leaves open:

- An epoch takes one random caption per image, so a batch never contains an image twice. The paper says "random
  image-caption pairs". On datasets much smaller than COCO, an epoch then has few steps; `--set batches.captions=all`
  takes all captions.
- Features come from the dataset's cache, with the mean of the network's last map (`image.pooling=mean`). For the
  features of the paper, run `vsemb features --backbone VGG19 --layer
  fc7 --crops 10 --resize short-side`; its "1-crop" is `--crops 1 --resize short-side`. Without `--resize`, the whole
  image is squashed to a square, of 256 pixels for ten crops.
- The paper refers to the GRU of Cho et al. 2014, which resets the state before the recurrent matrix. The default here
  resets after the matrix, as the Toronto code, Keras and cuDNN do. `--set text.encoder.cell=gru-reset-before` is the
  original.
- The epoch with the best recall sum is selected. Training ends after 10 epochs without a better one.
- Features are not standardized (`image.standardize=false`). The absolute value maps a vector and its opposite to the
  same point, so centred features would lose their sign.

`order-embedding-symmetric` is the baseline of table 2: cosine similarity, entries of either sign, margin 0.2.

`--set similarity=order-reversed` puts images above captions. In the paper this is much worse on COCO: R@1 of 11.2 in
place of 46.7. Here, `tuned` after 8 epochs has a recall sum of 204 in place of 231 on Flickr8k's validation split.

Variant `tuned` keeps the order similarity, its margin and its loss. It takes these settings from `vsepp`, `tuned`: a
bidirectional GRU of 256 units with mean and maximum over its states, a bag of words, dropout, mirror images, all
captions in batches of 256, and a cosine schedule, here over 16 epochs. It does not take the initialization by canonical
correlation, the standardized features or the loss of `vsepp`. After 8 epochs on Flickr8k's validation split, the recall
sum was 231 with and without these three. The mean rank from texts to images was 40.4 with them and 31.8 without.
"""

from __future__ import annotations

from dataclasses import replace

from vsemb.data.batches import Pairs
from vsemb.encoders.image import Affine
from vsemb.encoders.recurrent import Recurrent
from vsemb.losses.ranking import Ranking
from vsemb.recipes.retrieval import Retrieval
from vsemb.recipes.schema import Training
from vsemb.recipes.towers import Features, Text
from vsemb.recipes.vsepp import VSEPP
from vsemb.similarities import Cosine, OrderViolation
from vsemb.training.optimizers import Adam

_TUNED = VSEPP["tuned"]

_PAPER = Retrieval(
    name="order-embedding",
    variant="paper",
    paper="Vendrov, Kiros, Fidler, Urtasun 2016, arXiv:1511.06361",
    embedding_dim=1024,
    similarity=OrderViolation(),
    text=Text(encoder=Recurrent(cell="gru", units=1024)),
    image=Features(pooling="mean", projection=Affine(use_bias=False), augment=False),
    loss=Ranking(margin=0.05),
    optimizer=Adam(learning_rate=1e-3),
    batches=Pairs(size=128, captions="one"),
    training=Training(epochs=30, patience=10),
)

ORDER_EMBEDDING = {
    "paper": _PAPER,
    "tuned": replace(
        _PAPER,
        variant="tuned",
        text=_TUNED.text,
        image=Features(projection=Affine(use_bias=False), dropout=0.2),
        optimizer=_TUNED.optimizer,
        batches=_TUNED.batches,
        training=Training(epochs=16),
    ),
}

ORDER_EMBEDDING_SYMMETRIC = {
    "paper": replace(
        _PAPER,
        name="order-embedding-symmetric",
        paper=f"{_PAPER.paper}, table 2",
        similarity=Cosine(),
        loss=Ranking(margin=0.2),
    ),
}
