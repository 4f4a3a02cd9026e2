"""The imgcap report (Stanford, 2015): dependency tree LSTM and a twin network (github.com/pveerina/imgcap).

| equation | what | where |
| --- | --- | --- |
| 1 | hinges over all contrastive pairs of the batch, margin 1 | `vsemb.losses.PairwiseRanking` |
| 2 | h and c of children beyond the last slot are summed | `vsemb.systems.trees.ops` |
| 3, 4 | h = o tanh(c); c = i u + a forget gate times each slot's c | `vsemb.systems.trees.ops` |
| 5, 6 | forget gates, each with matrices of its own over all slots' h | `vsemb.systems.trees.ops` |
| 7-9 | u, o and i, with a matrix for each slot | `vsemb.systems.trees.ops` |
| section 3.1 | capitalisation by maximum vote over the corpus | `vsemb.systems.trees.tree_tokenizer` |
| section 3.1 | words without a vector: from a normal distribution | `vsemb.text.read_word_vectors` |
| section 3.2 | to the shared dimension; affine map, leaky ReLU of 0.01 | `vsemb.encoders.ProjectionMLP` |
| section 3.2 | the h of the root is the sentence | `vsemb.systems.trees.tree_lstm.TreeLSTMEncoder` |
| section 3.2 | x y, the inner product of the columns | `vsemb.similarities.Dot` |
| section 4 | momentum that grows from 0.5 to 0.95 | `vsemb.training.RisingMomentumSGD` |
| section 4 | rate times 0.95 every 2,500 steps | `optimizer.schedule=step`, `optimizer.decay_steps` |

Variants `vs`, `s`, `m1`, `m2` and `l` are the five models of tables 1 and 2: units of the tree LSTM, its
slots on each side, the columns' dimension, batch size and learning rate. `vs` is the default, and the
report's best. The captions need parses: `vsemb parse`. `--set text.encoder=child-sum-tree-lstm` is the other
tree LSTM (Tai et al. 2015, arXiv:1503.00075, equations 2-8), and `--set text.tokenizer=words --set
text.encoder=gru` reads the words in their order behind the same columns.

Variant `tuned` keeps the trees and takes all else from `vsepp`: both sides at unit length, the hardest
negatives with InfoNCE, words and image map that start from canonical correlation, a bag of words beside the
encoder, mean and maximum over the nodes' states in place of the root's. There are no columns then. With
`--set text.tokenizer=words --set text.encoder=gru` it is `vsepp` itself.

Deviations, and gaps that we filled:

- No GloVe file comes with vsemb: word vectors start at random. `--set text.word_vectors=PATH` takes a file;
  theirs had 300 entries. Words that it lacks are then drawn one by one, each entry from the distribution of
  that entry; theirs were all one unknown word, drawn from one distribution of all entries.
- Word vectors are trained, with or without a file: the report does not say so, and the released code does it.
- The report's text has no nonlinearity behind a column's first layer. The released code has one there, and so
  have we; `--set twin_activate_first=false` leaves it out. The configuration in that code asks for a third
  layer, the report has two.
- Neither the report nor the versions of the code that we have seen say how momentum grows: here the distance
  to 0.95 shrinks by the factor e every 2,500 steps.
- Equation 1 is the cost of one pair, and the report does not say whether those of a batch are added up. We
  take their mean. The released code divides by the contrastive pairs of a batch of B, B (B - 1), which is
  `loss.image_weight` and `loss.text_weight` of 1 / (B - 1) here. After 600 steps of `vs` on Flickr8k, with a
  GRU, the median rank of the image of a text among 1,000 was 498 with the sum, 266 with the mean and 374 with
  the mean over contrastive pairs.
- Weights start from the layers' own distributions, biases of forget gates at 1 and others at 0; in the
  released code from normal ones of deviation 0.01 (tree LSTM) and 0.1 (columns), with all biases at 0.
- An epoch takes every caption once. Two captions of an image may meet in a batch, and are then no contrastive
  pair; the report lets no image come twice.
- The gradients of the report's appendix B are not used: automatic differentiation gives them.
- Features are those of the dataset's cache, brought to unit length and standardised first, since networks
  differ in scale; `--set image.standardize=false` takes them as they are, as the report does. Its own are
  `vsemb features --backbone VGG16 --layer fc7`, with VGG19 for `m2`.
- L2 is off, as in the released script for training; `--set loss.l2=1e-4` is what its configuration names.
- The report's models saw less than one epoch of COCO and Flickr30k together. Here the epoch with the best
  recall sum on validation is kept, and training ends five epochs after it.
"""

from __future__ import annotations

import dataclasses

from vsemb.recipes import vsepp
from vsemb.recipes.schema import (
    BatchConfig,
    ImageConfig,
    LossConfig,
    OptimizerConfig,
    Recipe,
    TextConfig,
    TrainingConfig,
)

_PAPER = "imgcap report, Stanford 2015, github.com/pveerina/imgcap"
_TUNED = vsepp.VSEPP["tuned"]


def _recipe(variant: str, units: int, slots: int, dim: int, batch: int, rate: float) -> Recipe:
    """A row of table 1 and the same row of table 2."""
    return Recipe(
        name="tree-twin",
        variant=variant,
        paper=_PAPER,
        embedding_dim=dim,
        similarity="dot",
        twin=True,
        text=TextConfig(tokenizer="trees", encoder="tree-lstm", units=units, slots=slots, word_dim=300, pooling="last"),
        image=ImageConfig(augment=False, standardize=True),
        loss=LossConfig(margin=1.0, negatives="all", reduction="mean"),
        optimizer=OptimizerConfig(
            name="sgd",
            learning_rate=rate,
            schedule="step",
            decay_rate=0.95,
            decay_steps=2500,
            momentum=0.95,
            momentum_start=0.5,
            momentum_steps=2500.0,
        ),
        batches=BatchConfig(size=batch),
        training=TrainingConfig(epochs=30, patience=5),
    )


TREE_TWIN = {
    "vs": _recipe("vs", units=300, slots=2, dim=300, batch=10, rate=5e-4),
    "s": _recipe("s", units=350, slots=3, dim=350, batch=50, rate=5e-4),
    "m1": _recipe("m1", units=450, slots=2, dim=450, batch=10, rate=5e-4),
    "m2": _recipe("m2", units=400, slots=2, dim=512, batch=10, rate=1e-4),
    "l": _recipe("l", units=600, slots=2, dim=600, batch=20, rate=1e-3),
    "tuned": dataclasses.replace(
        _TUNED,
        name="tree-twin",
        variant="tuned",
        paper=_PAPER,
        text=dataclasses.replace(_TUNED.text, tokenizer="trees", encoder="tree-lstm"),
    ),
}
