"""Kiros, Salakhutdinov, Zemel 2014: Unifying Visual-Semantic Embeddings (arXiv:1411.2539).

| equation | content | code |
| --- | --- | --- |
| 1-5 | LSTM with full peephole matrices, output gate sees the new cell | `vsemb.encoders.cells.PeepholeLSTMCell` |
| x = W_I q | image embedding, no bias | `vsemb.encoders.ImageEncoder` |
| s(x, v) | cosine | `vsemb.similarities.Cosine` |
| 6 | pairwise ranking loss | `vsemb.losses.PairwiseRanking` |
| section 3.2, v = sum of w_i | linear encoder | `vsemb.encoders.LinearSentenceEncoder` |
| 12-15 | image - word + word, re-sorting | `vsemb.searching.arithmetic` |

Variant `paper` (the default) follows the text of the paper: K = 300, margin 0.2, initial weights from U[-0.08, 0.08],
plain SGD with an initial learning rate of 1 and exponential decay, batches of 40. This is the paper's batch size for
Flickr8K; for Flickr30K it is 100 (`--set batches.size=100`). Deviations, and choices that the paper leaves open:

- The paper starts from 300-d CBOW vectors and keeps them fixed. vsemb ships no word vectors: by default, random ones
  are trained. `--set text.encoder.words.vectors=PATH --set text.encoder.words.trainable=false` reads a file and keeps
  it fixed.
- In the paper, contrastive terms are "chosen randomly from the training set and resampled every epoch". Their number is
  not given. Here they are the other pairs of the batch, as in the authors' code. `--set batches.negatives=sampled`
  draws as many negatives as the batch has pairs from the whole training set.
- The paper gives neither the decay rate nor the number of epochs. Here the learning rate is multiplied by 0.9 after
  every epoch, for 30 epochs, and training ends after 5 epochs without a higher recall sum on validation.
- U[-0.08, 0.08] is the paper's range for the LSTM. Here it is also that of the word vectors and W_I.
- The loss is a sum over the batch. With learning rate 1 and batches of 40, its steps are too large. Gradients are
  therefore clipped to norm 2, as in the authors' code.
- Biases of forget gates start at 1.
- Features are the mean of a network's last map (`image.pooling=mean`), or `fc7` of VGG, which the paper has (`vsemb
  features --layer fc7`). The default of MobileNetV2, which adds inner layers, is a choice of ours and of no paper.
- The paper "did not do any explicit text preprocessing". Here captions are lower-cased and punctuation is
  dropped (`vsemb.text.normalize.split_words`). Every word of the training captions has a vector.

Variant `released` follows the authors' released code (visual-semantic-embedding). It has a GRU of 1024 units, 1024
dimensions, trained word vectors of 300 entries and an image map with a bias. It trains for 15 epochs with Adam at 2e-4,
gradients clipped to global norm 2, batches of 128, and Xavier-like and orthogonal initial weights. It differs from the
released code:

- Its Adam has almost no bias correction; ours is the usual Adam.
- It normalizes image vectors only at test time; we also normalize them in training.
- Its batches have captions of one length, and it reads the end of a sentence as one more word. Here lengths are mixed,
  and the state after the last word is the embedding.
- Another caption of the same image in a batch is a contrastive term there, and not here.
- Its vocabulary has the words of training and validation captions. Here it has the words of training captions.
- It measures validation every 100 updates and never stops early. Here validation follows each epoch, and training ends
  after 5 epochs without a higher recall sum.

`kiros2014-linear` is the model of section 3.2: the sum of trained word vectors. It also is the paper's DeViSE, the mean
of word vectors with the same objective: at unit length, the sum and the mean are the same vector.
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
        image=Features(pooling="mean", projection=Affine(use_bias=False, init_scale=0.08), augment=False),
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
        image=Features(pooling="mean", augment=False),
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
