"""Faghri, Fleet, Kiros, Fidler 2018: VSE++, hardest negatives (arXiv:1707.05612).

| equation | content | code |
| --- | --- | --- |
| 2, 3 | linear image map, GRU over words, both to unit length | `vsemb.encoders` |
| 5 | sum of hinges | `vsemb.losses.PairwiseRanking(negatives="all")` |
| 6 | max of hinges | `vsemb.losses.PairwiseRanking(negatives="hardest")` |

Variant `paper` (the default) has the settings of the authors: the last state of a GRU of 1024 units over 300-d word
vectors, and a vocabulary of words that occur at least four times. It trains with Adam at 2e-4 for 30 epochs, a tenth of
this rate after 15 epochs, gradients clipped to global norm 2, and batches of 128. Deviations:

- Features are the mean of a network's last map, as the authors' ResNet152, or `fc7` of their VGG19. The networks are
  frozen; the authors also train them.
- Mirror images replace the authors' random crops, if `vsemb features` has stored them.
- The loss changes gradually from the sum of hinges to the hardest negative during the first epoch. The authors start
  with the hardest negative, or train with the sum first. From random weights, the hardest negative alone can make all
  embeddings equal.

Variant `tuned` keeps the hardest negatives and changes the other settings. Figures in brackets are the
gain of each change in recall sum on Flickr8k's validation split. They were measured in a prototype with one seed; seeds
differ by about 3.

- InfoNCE is added to the hinge loss, which makes the warm-up unnecessary (+9 over the hinge loss with warm-up).
- Word vectors and image map are initialized by canonical correlation of training captions and features (+12).
- A bag of words, in which rare words have larger weights, is added to the recurrent encoder (+8).
- Features of any pooling are read. With MobileNetV2's default they come from several layers (+12). They are scaled to
  unit length and standardized. Training reads features of mirror images at random (not measured separately).
- The encoder is a bidirectional GRU of 256 units with mean and maximum over its states, and dropout throughout. Larger
  encoders overfit the 6,000 training images.
- Training uses Adam at 1e-3 with a cosine schedule, batches of 256 and 8 epochs.
- Below 3,000 training images, words are composed of their n-grams (`ngrams_below`), see docs/results.
- Training uses bfloat16 on processors that multiply it faster (`training.precision`), which only saves time.
"""

from __future__ import annotations

from vsemb.data.batches import Pairs
from vsemb.encoders.recurrent import Recurrent
from vsemb.encoders.sequence_and_bag import SequenceAndBag
from vsemb.encoders.text_encoder import WordVectors
from vsemb.losses.ranking import Hardest, Ranking, RankingInfoNCE
from vsemb.recipes.retrieval import Retrieval
from vsemb.recipes.schema import Training
from vsemb.recipes.towers import Features, Text
from vsemb.text.tokenizers import Words
from vsemb.training.initialization import CCA
from vsemb.training.optimizers import Adam, Cosine, Step

_PAPER = "Faghri, Fleet, Kiros, Fidler 2018, arXiv:1707.05612"

VSEPP = {
    "paper": Retrieval(
        name="vsepp",
        variant="paper",
        paper=_PAPER,
        embedding_dim=1024,
        text=Text(tokenizer=Words(min_count=4), encoder=Recurrent(cell="gru", units=1024)),
        image=Features(pooling="mean"),
        loss=Ranking(margin=0.2, negatives=Hardest(warmup_epochs=1.0)),
        optimizer=Adam(learning_rate=2e-4, schedule=Step(factor=0.1, every=15.0), global_clipnorm=2.0),
        batches=Pairs(size=128),
        training=Training(epochs=30),
    ),
    "tuned": Retrieval(
        name="vsepp",
        variant="tuned",
        paper=_PAPER,
        embedding_dim=512,
        text=Text(
            tokenizer=Words(min_count=4),
            encoder=SequenceAndBag(
                sequence=Recurrent(
                    words=WordVectors(word_dropout=0.15, dropout=0.2),
                    cell="gru",
                    units=256,
                    directions="concat",
                    pooling="mean+max",
                    dropout=0.3,
                ),
                bag_dropout=0.4,
            ),
        ),
        image=Features(dropout=0.5, standardize=True),
        loss=RankingInfoNCE(margin=0.2, negatives=Hardest(), temperature=0.05, reduction="mean"),
        optimizer=Adam(learning_rate=1e-3, schedule=Cosine(warmup_epochs=0.6), global_clipnorm=2.0),
        batches=Pairs(size=256),
        initialization=CCA(),
        ngrams_below=3000,
        training=Training(epochs=8, precision="auto"),
    ),
}
