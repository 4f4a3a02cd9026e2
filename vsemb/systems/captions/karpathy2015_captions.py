"""Karpathy, Fei-Fei 2015: Deep Visual-Semantic Alignments (arXiv:1412.2306), the multimodal RNN.

| equation | content | code |
| --- | --- | --- |
| 13 | b_v = W_hi CNN(I) | `vsemb.encoders.ImageEncoder`, without bias |
| 14 | h_t = f(W_hx x_t + W_hh h_(t-1) + b_h + 1(t=1) b_v) | `vsemb.systems.captions.multimodal_rnn.MultimodalRNN` |
| 15 | y_t = softmax(W_oh h_t + b_o) | `vsemb.systems.captions.multimodal_rnn.MultimodalRNN` |
| section 3.2 | the cost, -log p of every word and END | `vsemb.systems.captions.next_word.NextWordCrossEntropy` |
| section 3.2 | START, END, beam search | `vsemb.systems.captions.decoding` |
| section 6.5 | b_o starts at log frequencies | `vsemb.systems.captions.next_word.frequency_bias` |
| 10-12 | captions cut into snippets of regions | `vsemb.systems.captions.snippets` |
| section 6.4 | [CNN(region); CNN(image)] in place of CNN(I) in 13 | `vsemb.systems.captions.recipe.RegionsInContext` |

Variant `paper` follows sections 3.2 and 3.3: 512 units with ReLU, the image at the first step only, RMSprop, and
a vocabulary of words seen at least five times. It also has what section 3.3 says of the alignment model: batches of
100, gradients clipped elementwise at 5, and dropout of word vectors and of the states that predict words, but not of
the recurrence.

Variant `tuned` (the default) keeps these settings, with three changes. An LSTM replaces equation 14, and the image
goes to all gates (`--set decoder.cell=gru` for a GRU). The image has dropout too. Adam replaces RMSprop, with a
learning rate that falls to 0 over 12 epochs.

Variant `attention` attends to the grid cells of the image's map at every word
(`vsemb.systems.captions.multimodal_rnn.AttentiveRNN`; Xu et al. 2015, arXiv:1502.03044, Luong et al. 2015,
arXiv:1508.04025). It also trains the image network: a small one, or another with `--fine-tune`. It needs many images.
The model and its batches are smaller, because training the image network needs many steps.

Deviations, and choices that the paper leaves open:

- START is a separate vector in the paper. Here it is row 0 of the word embedding, which no word uses.
- The CNN is trained only with `--fine-tune`; otherwise its features are cached: the mean of its last map
  (`image.pooling=mean`) in `paper`, of any pooling in `tuned`. Features are standardized first
  (`vsemb.encoders.FeatureScaling`).
- The paper gives neither learning rate, dropout rate nor weight decay of this model. Here the learning rate is 1e-3,
  the dropout is 0.5, and weights do not decay.
- Captions are cut after 20 words. Training ends after 5 epochs without a better one, and at the latest after 30.
- Training also reads mirror images (`image.augment`), of which the paper says nothing.
- RMSprop's decay is 0.9, the default of Keras; the paper does not give it.
- A ReLU around b_v and W_hx x_t before their sum, which "can help" in the paper, is left out, as in equation 14.
- W_hh is initialized orthogonal. The authors' released code initializes all matrices uniform in +-0.1: `--set
  decoder.init_scale=0.1`.
- The perplexity of the validation captions selects the best epoch. With `--set validation=cider`, the CIDEr of
  captions generated for the validation images selects it.

`multimodal-rnn-regions` is trained on regions and snippets in place of whole images and captions. The snippets are
found by an alignment (`--inputs alignment=RUN`, a run of `dvsa`). Its variant `context` is `tuned` with the whole image
beside each region (`image=regions-in-context`). Section 6.4, on errors "when not enough context is available in the
bounding box": "We found that one effective way of using the contextual information and improving the predictions is to
concatenate the fullframe feature CNN vector to the vector of the region of interest, giving 8192-dimensional input
vector the to RNN. However, we chose to omit these experiments in our paper".

- The paper gives no figure and no further setting of this input. Here the whole image has itself as context, and both
  vectors are scaled to unit length together, before they are standardized.
"""

from __future__ import annotations

from dataclasses import replace

from vsemb.encoders.image import Affine, NoProjection
from vsemb.encoders.text_encoder import WordVectors
from vsemb.recipes.schema import Training
from vsemb.recipes.towers import Features, Pixels
from vsemb.systems.captions.multimodal_rnn import AttentiveDecoder, RecurrentDecoder
from vsemb.systems.captions.recipe import (
    Captioning,
    CaptionText,
    PairBatchesOfCaptions,
    RegionCaptioning,
    RegionsInContext,
    SnippetRegions,
)
from vsemb.systems.captions.task import WordBatches
from vsemb.text.tokenizers import Words
from vsemb.training.optimizers import Adam, Cosine, RMSprop

_PAPER = "Karpathy, Fei-Fei 2015, arXiv:1412.2306"

_TEXT = CaptionText(
    tokenizer=Words(min_count=5, max_length=20),
    words=WordVectors(dim=512, dropout=0.5, dense_gradient=True),
)

_PAPER_DECODER = RecurrentDecoder(cell="rnn", dropout=0.5)
_TUNED_DECODER = RecurrentDecoder(cell="lstm", dropout=0.5)

_RNN = Captioning(
    name="multimodal-rnn",
    variant="paper",
    paper=_PAPER,
    text=_TEXT,
    image=Features(pooling="mean", standardize=True, projection=Affine(use_bias=False)),
    decoder=_PAPER_DECODER,
    optimizer=RMSprop(learning_rate=1e-3, clipvalue=5.0),
    batches=PairBatchesOfCaptions(size=100),
    training=Training(epochs=30, patience=5),
)

_TUNED = replace(
    _RNN,
    variant="tuned",
    image=Features(standardize=True, dropout=0.5, projection=Affine(use_bias=False)),
    decoder=_TUNED_DECODER,
    optimizer=Adam(learning_rate=1e-3, schedule=Cosine(), clipvalue=5.0),
    training=Training(epochs=12, precision="auto"),
)

_ATTENTION = replace(
    _TUNED,
    variant="attention",
    text=CaptionText(
        tokenizer=Words(min_count=1, max_length=20),
        words=WordVectors(dim=128, dropout=0.1, dense_gradient=True),
    ),
    image=Pixels(
        "SmallConvNet",
        pooling="flat",
        frozen_statistics=False,
        augment=False,
        dropout=0.1,
        projection=NoProjection(),
    ),
    decoder=AttentiveDecoder(cell="lstm", units=256, image_steps="all", heads=4, dropout=0.2),
    batches=PairBatchesOfCaptions(size=32, captions="one"),
    training=Training(epochs=8, precision="auto"),
)

MULTIMODAL_RNN = {"tuned": _TUNED, "paper": _RNN, "attention": _ATTENTION}

_REGIONS = {
    recipe.variant: RegionCaptioning(
        name="multimodal-rnn-regions",
        variant=recipe.variant,
        paper=_PAPER,
        text=_TEXT,
        image=SnippetRegions(standardize=True, dropout=dropout, projection=Affine(use_bias=False)),
        decoder=decoder,
        optimizer=recipe.optimizer,
        batches=WordBatches(size=100),
        training=recipe.training,
    )
    for recipe, decoder, dropout in ((_TUNED, _TUNED_DECODER, 0.5), (_RNN, _PAPER_DECODER, 0.0))
}

_CONTEXT = replace(
    _REGIONS["tuned"],
    variant="context",
    image=RegionsInContext(standardize=True, dropout=0.5, projection=Affine(use_bias=False)),
)

MULTIMODAL_RNN_REGIONS = {**_REGIONS, "context": _CONTEXT}
