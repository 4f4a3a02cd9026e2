"""The imgcap report (Stanford, 2015): dependency tree LSTM and a twin network (github.com/pveerina/imgcap).

| equation | content | code |
| --- | --- | --- |
| 1 | hinges over all contrastive pairs of the batch | `vsemb.losses.PairwiseRanking` |
| 2 | sum of h and c of children beyond the last slot | `vsemb.systems.trees.tree_lstm` |
| 3, 4 | h = o tanh(c); c = i u + a forget gate times each slot's c | `vsemb.systems.trees.tree_lstm` |
| 5, 6 | forget gates, each with own matrices for the h of all slots | `vsemb.systems.trees.tree_lstm` |
| 7-9 | u, o and i, with a matrix per slot | `vsemb.systems.trees.tree_lstm` |
| section 3.1 | capitalization by maximum vote over the corpus | `vsemb.systems.trees.tree_tokenizer` |
| section 3.1 | words without a vector: normal distribution | `vsemb.text.word_vectors.read_word_vectors` |
| section 3.2 | map to the shared dimension; affine map, leaky ReLU of 0.01 | `twin_network.ProjectionMLP` |
| section 3.2 | sentence embedding: h of the root | `vsemb.systems.trees.tree_lstm.TreeLSTMEncoder` |
| section 3.2 | x y: inner product of the columns | `vsemb.similarities.Dot` |
| section 4 | momentum rising from 0.5 to 0.95 | `rising_momentum.RisingMomentumSGD` |
| section 4 | learning rate times 0.95 every 2,500 steps | `vsemb.training.optimizers.Step` |

A node of the Tree-LSTM has *slots*, which are child positions with a weight matrix each. The *columns* of the twin
network are the two networks that map images and texts into the shared space. The captions need parses: `vsemb annotate
dependencies`.

Variants `vs`, `s`, `m1`, `m2` and `l` are the five models of tables 1 and 2. They differ in units and slots of the
Tree-LSTM, dimension of the columns, batch size and learning rate. `vs` is the default and the report's best model.

- `--set text.encoder.encoder=child-sum-tree-lstm` selects the other Tree-LSTM (Tai et al. 2015, arXiv:1503.00075,
  equations 2-8).
- `--set text.tokenizer=labelled-trees --set text.encoder.encoder=sdt-rnn` selects the SDT-RNN (Socher et al. 2014), a
  recursive network with a matrix per relation (`vsemb.systems.trees.sdt_rnn.SDTRNNEncoder`). Its paper has a linear map
  of images in place of the columns.
- `--set text.tokenizer=words --set text.encoder.encoder=recurrent` reads the words in sentence order, with the same
  columns.

Variant `tuned` keeps the trees and takes the other settings from the variant `tuned` of `vsepp`: embeddings of unit
length, the hardest negatives with InfoNCE, words and image map initialized by canonical correlation, a bag of words,
and mean and maximum over the states of all nodes. It has no columns. With the text tower of that variant it equals it.

Deviations, and choices that the report leaves open:

- Word vectors start at random, since vsemb ships no GloVe file. `--set text.encoder.encoder.words.vectors=PATH` reads a
  file; the report's vectors have 300 entries. Each word missing in the file is drawn separately, each entry from the
  distribution of that entry. The report has one unknown word, drawn from one distribution of all entries.
- Word vectors are trained, with or without a file, as in the released code. The report does not mention it.
- The first layer of a column has a nonlinearity, as in the released code. In the report's text it is linear: `--set
  text.encoder.activate_first=false --set image.projection.activate_first=false`. Columns have two layers, as in the
  report; the configuration of the released code has a third one.
- The growth of momentum has no formula in the report or in the versions of the code that we read. Here the distance to
  0.95 shrinks by the factor e every 2,500 steps.
- The margin of 1 comes from the released code, its module `twin`; the report does not give it.
- Equation 1 is the cost of one pair; the report does not specify the reduction over a batch. We take the mean. The
  released code divides by B (B - 1), the number of contrastive pairs in a batch of B; for this, set `loss.image_weight`
  and `loss.text_weight` to 1 / (B - 1). The table compares the median text-to-image rank among 1,000 images, after 600
  steps of `vs` on Flickr8k with a GRU:

  | reduction | median rank |
  | --- | --- |
  | sum | 498 |
  | mean (here) | 266 |
  | mean over contrastive pairs | 374 |

- Weights start from the default distributions of the layers, biases of forget gates at 1 and other biases at 0. The
  released code draws normal weights of deviation 0.01 (Tree-LSTM) and 0.1 (columns), with all biases at 0.
- An epoch takes every caption once. Two captions of one image in a batch are not a contrastive pair. In the report, an
  image never occurs twice in a batch.
- The vote on capitals follows parsing. In the report it precedes parsing. Here the parser reads captions as they are
  written, and the vote decides only which spelling of a word has the vector.
- Gradients come from automatic differentiation, not from the report's appendix B.
- Features of the dataset's cache, the mean of a network's last map or `fc7`, are scaled to unit length and
  standardized, since networks differ in scale. `--set image.standardize=false` uses them unchanged, as the report does.
  The report's features are `vsemb features --backbone VGG16 --layer fc7`, with VGG19 for `m2`.
- L2 regularization is off, as in the released training script. The released configuration has `--set l2=1e-4`.
- The report's models were trained for less than one epoch of COCO and Flickr30k together. Here the epoch with
  the best recall sum on validation is selected, and training stops after five epochs without a better one.
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
    """Return the recipe of one row of tables 1 and 2."""
    return Retrieval(
        name="tree-twin",
        variant=variant,
        paper=_PAPER,
        embedding_dim=dim,
        text=Text(tokenizer=Trees(), encoder=MLPText(encoder=TreeLSTM(units=units, slots=slots))),
        image=Features(pooling="mean", augment=False, standardize=True, projection=MLP()),
        similarity=Dot(),
        loss=Ranking(margin=1.0, reduction="mean"),
        optimizer=RisingMomentum(learning_rate=rate, schedule=Step(factor=0.95, every=2500.0, unit="steps")),
        batches=Pairs(size=batch),
        training=Training(epochs=30, patience=5),
    )


def _tuned(vsepp: Retrieval) -> Retrieval:
    """Return the recipe `vsepp` with trees in place of sequences."""
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
