"""The imgcap report (Stanford, 2015): dependency tree LSTM and a twin network (github.com/pveerina/imgcap).

| equation | what | where |
| --- | --- | --- |
| 1 | hinges over all contrastive pairs of the batch, margin 1 | `vsemb.losses.PairwiseRanking` |
| 2 | h and c of children beyond the last slot are summed | `vsemb.systems.trees.tree_lstm` |
| 3, 4 | h = o tanh(c); c = i u + a forget gate times each slot's c | `vsemb.systems.trees.tree_lstm` |
| 5, 6 | forget gates, each with matrices of its own over all slots' h | `vsemb.systems.trees.tree_lstm` |
| 7-9 | u, o and i, with a matrix for each slot | `vsemb.systems.trees.tree_lstm` |
| section 3.1 | capitalisation by maximum vote over the corpus | `vsemb.systems.trees.tree_tokenizer` |
| section 3.1 | words without a vector: from a normal distribution | `vsemb.text.word_vectors.read_word_vectors` |
| section 3.2 | to the shared dimension; affine map, leaky ReLU of 0.01 | `twin_network.ProjectionMLP` |
| section 3.2 | the h of the root is the sentence | `vsemb.systems.trees.tree_lstm.TreeLSTMEncoder` |
| section 3.2 | x y, the inner product of the columns | `vsemb.similarities.Dot` |
| section 4 | momentum that grows from 0.5 to 0.95 | `rising_momentum.RisingMomentumSGD` |
| section 4 | rate times 0.95 every 2,500 steps | `vsemb.training.optimizers.Step` |

Variants `vs`, `s`, `m1`, `m2` and `l` are the five models of tables 1 and 2: units of the tree LSTM, its
slots on each side, the columns' dimension, batch size and learning rate. `vs` is the default, and the
report's best. The captions need parses: `vsemb annotate --dependencies`. With
`--set text.encoder.encoder=child-sum-tree-lstm` it is the other tree LSTM (Tai et al. 2015, arXiv:1503.00075,
equations 2-8), and `--set text.tokenizer=words --set text.encoder.encoder=recurrent` reads the words in their order
behind the same columns.

Variant `tuned` keeps the trees and takes all else from `vsepp`: both sides at unit length, the hardest
negatives with InfoNCE, words and image map that start from canonical correlation, a bag of words beside the
encoder, mean and maximum over the nodes' states in place of the root's. There are no columns then. With the
text tower of `vsepp` it is `vsepp` itself.

Deviations, and gaps that we filled:

- No GloVe file comes with vsemb: word vectors start at random. `--set text.encoder.encoder.words.vectors=PATH`
  takes a file; theirs had 300 entries. Words that it lacks are then drawn one by one, each entry from the
  distribution of that entry; theirs were all one unknown word, drawn from one distribution of all entries.
- Word vectors are trained, with or without a file: the report does not say so, and the released code does it.
- The report's text has no nonlinearity behind a column's first layer. The released code has one there, and so
  have we; `--set text.encoder.activate_first=false --set image.projection.activate_first=false` leaves it out. The
  configuration in that code asks for a third layer, the report has two.
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
- L2 is off, as in the released script for training; `--set l2=1e-4` is what its configuration names.
- The report's models saw less than one epoch of COCO and Flickr30k together. Here the epoch with the best
  recall sum on validation is kept, and training ends five epochs after it.
"""

from __future__ import annotations

import dataclasses

from vsemb.data.batches import Pairs
from vsemb.encoders.sequence_and_bag import SequenceAndBag
from vsemb.losses.ranking import Ranking
from vsemb.recipes.retrieval import Retrieval
from vsemb.recipes.schema import Training
from vsemb.recipes.towers import Features, Text
from vsemb.recipes.vsepp import VSEPP
from vsemb.similarities import Dot
from vsemb.systems.trees.parse_texts import Trees
from vsemb.systems.trees.rising_momentum import RisingMomentum
from vsemb.systems.trees.tree_lstm import TreeLSTM
from vsemb.systems.trees.twin_network import MLP, MLPText
from vsemb.training.optimizers import Step

_PAPER = "imgcap report, Stanford 2015, github.com/pveerina/imgcap"


def _recipe(variant: str, units: int, slots: int, dim: int, batch: int, rate: float) -> Retrieval:
    """A row of table 1 and the same row of table 2."""
    return Retrieval(
        name="tree-twin",
        variant=variant,
        paper=_PAPER,
        embedding_dim=dim,
        text=Text(tokenizer=Trees(), encoder=MLPText(encoder=TreeLSTM(units=units, slots=slots))),
        image=Features(augment=False, standardize=True, projection=MLP()),
        similarity=Dot(),
        loss=Ranking(margin=1.0, reduction="mean"),
        optimizer=RisingMomentum(learning_rate=rate, schedule=Step(factor=0.95, every=2500.0, unit="steps")),
        batches=Pairs(size=batch),
        training=Training(epochs=30, patience=5),
    )


def _tuned(vsepp: Retrieval) -> Retrieval:
    """The recipe `vsepp` with trees in place of sequences."""
    encoder = vsepp.text.encoder
    assert isinstance(encoder, SequenceAndBag)
    shared = {name: getattr(encoder.sequence, name) for name in ("words", "units", "pooling", "dropout")}
    text = Text(tokenizer=Trees(min_count=4), encoder=dataclasses.replace(encoder, sequence=TreeLSTM(**shared)))
    return dataclasses.replace(vsepp, name="tree-twin", variant="tuned", paper=_PAPER, text=text)


TREE_TWIN = {
    "vs": _recipe("vs", units=300, slots=2, dim=300, batch=10, rate=5e-4),
    "s": _recipe("s", units=350, slots=3, dim=350, batch=50, rate=5e-4),
    "m1": _recipe("m1", units=450, slots=2, dim=450, batch=10, rate=5e-4),
    "m2": _recipe("m2", units=400, slots=2, dim=512, batch=10, rate=1e-4),
    "l": _recipe("l", units=600, slots=2, dim=600, batch=20, rate=1e-3),
    "tuned": _tuned(VSEPP["tuned"]),
}
