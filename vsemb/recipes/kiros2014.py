"""Kiros, Salakhutdinov, Zemel 2014: Unifying Visual-Semantic Embeddings (arXiv:1411.2539).

| equation | what | where |
| --- | --- | --- |
| 1-5 | LSTM with full peephole matrices, output gate sees the new cell | `vsemb.encoders.cells.PeepholeLSTMCell` |
| x = W_I q | image embedding, no bias | `vsemb.encoders.ImageEncoder` |
| s(x, v) | cosine | `vsemb.similarities.Cosine` |
| 6 | pairwise ranking loss | `vsemb.losses.PairwiseRanking` |
| section 3.2, v = sum of w_i | linear encoder | `vsemb.encoders.LinearSentenceEncoder` |
| 12-15 | image - word + word, re-sorting | `vsemb.searching.arithmetic` |

Variant `paper` (the default) is the text of the paper: K = 300, margin 0.2, weights from
U[-0.08, 0.08], plain SGD from learning rate 1, decayed exponentially, batches of 40 (the paper's size
for Flickr8K; 100 for Flickr30K, `--set batches.size=100`). Deviations and gaps we filled:

- The paper starts from 300-d CBOW vectors and keeps them fixed. None are shipped here: give your own
  with `--set text.encoder.words.vectors=PATH --set text.encoder.words.trainable=false`; without, random
  ones are trained.
- "Contrastive terms are chosen randomly from the training set and resampled every epoch", their
  number is not given. Default are the other pairs of the batch, as in the authors' code;
  `--set batches.negatives=sampled` draws as many as the batch has pairs from the whole set.
- The decay rate and number of epochs are not given: times 0.9 an epoch here, for 30 epochs.
- The loss is a sum over the batch, at learning rate 1 too large a step for batches of 40: gradients
  are clipped to norm 2, which the authors' code does.
- Forget biases start at 1.

Variant `released` follows the authors' code (visual-semantic-embedding) instead. It has a GRU of 1024
units, 1024 dimensions, trained word vectors of 300 entries and an image map with a bias. It trains with Adam 2e-4 (its
Adam has almost no bias correction, which we do not copy), global norm clipped to 2, batches of 128,
Xavier-like and orthogonal initial weights, for 15 epochs. Its image vectors are not normalised in the
training loss, only at test time; we normalise in both.

`kiros2014-linear` is section 3.2: the sum of trained word vectors.
"""

from __future__ import annotations

from dataclasses import replace

from vsemb.data.batches import Pairs
from vsemb.encoders.bag import Linear
from vsemb.encoders.image import Affine
from vsemb.encoders.recurrent import Recurrent
from vsemb.encoders.text_encoder import WordVectors
from vsemb.losses.ranking import Ranking
from vsemb.recipes.retrieval import Retrieval
from vsemb.recipes.schema import Training
from vsemb.recipes.towers import Features, Text
from vsemb.training.optimizers import SGD, Adam, Exponential

_PAPER = "Kiros, Salakhutdinov, Zemel 2014, arXiv:1411.2539"

KIROS2014 = {
    "paper": Retrieval(
        name="kiros2014",
        variant="paper",
        paper=_PAPER,
        embedding_dim=300,
        text=Text(
            encoder=Recurrent(
                words=WordVectors(dim=300, init_scale=0.08), cell="peephole-lstm", units=300, init_scale=0.08
            )
        ),
        image=Features(projection=Affine(use_bias=False, init_scale=0.08), augment=False),
        loss=Ranking(margin=0.2),
        optimizer=SGD(learning_rate=1.0, schedule=Exponential(factor=0.9, every=1.0), global_clipnorm=2.0),
        batches=Pairs(size=40),
        training=Training(epochs=30, patience=5),
    ),
    "released": Retrieval(
        name="kiros2014",
        variant="released",
        paper=_PAPER,
        embedding_dim=1024,
        text=Text(encoder=Recurrent(cell="gru", units=1024)),
        image=Features(augment=False),
        loss=Ranking(margin=0.2),
        optimizer=Adam(learning_rate=2e-4, global_clipnorm=2.0),
        batches=Pairs(size=128),
        training=Training(epochs=15, patience=5),
    ),
}

KIROS2014_LINEAR = {
    "paper": replace(
        KIROS2014["paper"],
        name="kiros2014-linear",
        paper=_PAPER + ", section 3.2",
        text=Text(encoder=Linear(words=WordVectors(dim=300, init_scale=0.08))),
    ),
    "released": replace(
        KIROS2014["released"],
        name="kiros2014-linear",
        paper=_PAPER + ", section 3.2",
        text=Text(encoder=Linear(words=WordVectors(dim=1024))),
    ),
}
