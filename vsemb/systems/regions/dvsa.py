"""Karpathy, Fei-Fei 2015: Deep Visual-Semantic Alignments (arXiv:1412.2306), the alignment model.

| equation | content | code |
| --- | --- | --- |
| section 3.1.1 | the 19 best boxes and the whole image | `vsemb.systems.regions.proposals`, `vsemb regions` |
| 1 | v = W_m CNN(I_b) + b_m | `vsemb.systems.regions.encoders.RegionEncoder` |
| 2-6 | bidirectional network over words | `vsemb.systems.regions.encoders.ContextualTokenEncoder` |
| 7 | score of an image and a sentence, all regions | `vsemb.systems.regions.similarities.SumSim` |
| 8 | the same score with each word's best region only | `vsemb.systems.regions.similarities.MaxSim` |
| 9 | max-margin in both directions | `vsemb.losses.PairwiseRanking(margin=1)` |
| DeFrag | multiple-instance objective beside equation 7 | `vsemb.systems.regions.fragment_loss.FragmentAlignment` |
| DeFrag, equation 1 | dependency edges | `vsemb.systems.trees.dependency_edges.DependencyEdgeEncoder` |
| 10-12 | Markov random field over neighbouring words | `vsemb.systems.regions.viterbi.best_chain` |
| section 6.1 | norms of words and regions | `vsemb analyze norms` |

Variant `paper` is section 3.3: batches of 100, SGD with momentum 0.9, gradients clipped elementwise at 5, words with at
least five occurrences. Deviations, and values missing in the paper:

- The paper has dropout in all layers except the recurrent ones, and does not give its rate. Here half of the features
  of a region are dropped, and nothing in the text layers. With Adam and 20 regions, this raises the recall sum from 181
  to 211. With a rate of 0.3 in all layers, it was 53 after two epochs, in place of 145.
- Features are scaled to unit length and standardized, and the map to the embedding is initialized uniformly in +- 0.01.
  The paper gives neither. Without standardization, SGD learns more slowly, and Adam becomes unstable after a few
  epochs.
- The learning rate is 1e-5. At 1e-4, the loss diverges on Flickr8k within an epoch.
- The paper's regions are the detections of an R-CNN. Here `vsemb regions` takes them from a detector's results, a
  grid or selective search.
- Equation 9 also sums over l = k, which adds a constant without gradient. Pairs of an image and its own captions are
  left out here.
- h is 1000 and the hidden size 512, inside the paper's ranges. The paper cross-validates learning rate and weight
  decay, and does not give them. Here weights do not decay.
- Captions are cut after 40 words. Training ends after 3 epochs without a better one, and at the latest after 15.
- With `loss=ranking-fragments`, the objective of DeFrag is added to equation 9 with a weight of 1.
- `--set text.tokenizer=labelled-trees --set text.encoder=dependency-edges` replaces the network over words with
  dependency edges, as in the row "DepTree edges"; with `similarity=sum-sim` and `loss=ranking-fragments` it is DeFrag.
  The root has an edge, too, with a vector of zeros as head. The relations are the 59 of
  `vsemb.systems.trees.relations.RELATIONS`. Word vectors are trained, in place of fixed ones.
- In the paper, word vectors are fixed 300-d word2vec vectors. `--set text.encoder.words.vectors=PATH --set
  text.encoder.words.trainable=false` does the same. By default they are random and trained; the paper finds "little
  change" with such vectors.

Variant `adam` is `paper` with Adam at 3e-4 instead of SGD. Its recall sum with 20 regions is 211, the mean of three
seeds between 196 and 220, and the paper's 200. With SGD, it stays below 134, so `adam` reproduces the paper best.
Variant `tuned` (the default) keeps the regions, the network over words and the best region of each word. It changes
three parts. All vectors have unit length, and the score of a sentence is the mean over its words
(`vsemb.systems.regions.similarities.LateInteraction`). The loss is the ranking loss with the hardest negatives, plus
InfoNCE. The optimizer is Adam. `cross-attention` is `tuned` with the score of Lee et al. 2018 (arXiv:1803.08024)
instead of equation 8. With `--set image.max_regions=1`, each variant uses only the whole image, as a baseline without
regions.

Later work, measured in docs/results/captions.md: `--set loss=ranking-sparse` adds SPARC's alignment, and `--set
similarity=mutual-late-interaction` is FILIP's score.
"""

from __future__ import annotations

from dataclasses import replace

from vsemb.data.batches import Pairs
from vsemb.encoders.text_encoder import WordVectors
from vsemb.losses.ranking import Hardest, Ranking, RankingInfoNCE
from vsemb.recipes.retrieval import Retrieval
from vsemb.recipes.schema import Training
from vsemb.recipes.towers import Text
from vsemb.systems.regions.cross_attention import CrossAttention
from vsemb.systems.regions.encoders import ContextualTokens
from vsemb.systems.regions.image_tower import Regions
from vsemb.systems.regions.similarities import LateInteraction, MaxSim
from vsemb.text.tokenizers import Words
from vsemb.training.optimizers import SGD, Adam, Cosine

_PAPER = Retrieval(
    name="dvsa",
    variant="paper",
    paper="Karpathy, Fei-Fei 2015, arXiv:1412.2306",
    embedding_dim=1000,
    similarity=MaxSim(),
    text=Text(
        tokenizer=Words(min_count=5, max_length=40),
        encoder=ContextualTokens(words=WordVectors(), cell="brnn", units=512),
    ),
    image=Regions(standardize=True, dropout=0.5, init_scale=0.01),
    loss=Ranking(margin=1.0),
    optimizer=SGD(learning_rate=1e-5, momentum=0.9, clipvalue=5.0),
    batches=Pairs(size=100),
    training=Training(epochs=15, patience=3),
)

_TUNED = replace(
    _PAPER,
    variant="tuned",
    embedding_dim=512,
    similarity=LateInteraction(),
    text=Text(
        tokenizer=Words(min_count=4, max_length=40),
        encoder=ContextualTokens(words=WordVectors(word_dropout=0.1, dropout=0.3), cell="brnn", units=300, dropout=0.3),
    ),
    image=Regions(standardize=True, dropout=0.5),
    loss=RankingInfoNCE(margin=0.2, negatives=Hardest(), infonce_weight=1.0, temperature=0.05, reduction="mean"),
    optimizer=Adam(learning_rate=1e-3, schedule=Cosine(warmup_epochs=0.5), global_clipnorm=2.0),
    training=Training(epochs=8),
)

DVSA = {
    "tuned": _TUNED,
    "paper": _PAPER,
    "adam": replace(
        _PAPER,
        variant="adam",
        optimizer=Adam(learning_rate=3e-4, schedule=Cosine(warmup_epochs=0.5), clipvalue=5.0),
        training=Training(epochs=10),
    ),
    "cross-attention": replace(_TUNED, variant="cross-attention", similarity=CrossAttention()),
}
