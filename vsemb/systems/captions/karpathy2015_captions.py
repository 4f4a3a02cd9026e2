"""Karpathy, Fei-Fei 2015: Deep Visual-Semantic Alignments (arXiv:1412.2306), the multimodal RNN.

| equation | what | where |
| --- | --- | --- |
| 13 | b_v = W_hi CNN(I) | `vsemb.encoders.ImageEncoder`, without bias |
| 14 | h_t = f(W_hx x_t + W_hh h_(t-1) + b_h + 1(t=1) b_v) | `MultimodalRNN` |
| 15 | y_t = softmax(W_oh h_t + b_o) | `vsemb.systems.captions.multimodal_rnn.MultimodalRNN` |
| section 3.2 | the cost, -log p of every word and END | `NextWordCrossEntropy` |
| section 3.2 | START, END, beam search | `vsemb.captioning` |
| section 3.3 | b_o starts at log frequencies | `vsemb.systems.captions.next_word.frequency_bias` |
| 10-12 | captions cut into snippets of regions | `vsemb.systems.captions.cut_snippets` |

Variant `paper` is sections 3.2 and 3.3: 512 units with ReLU, the image at the first step alone, RMSprop,
batches of 100, gradients cut elementwise at 5, dropout everywhere but in the recurrence, words seen at least
five times. Variant `tuned` (the default) keeps all of that and has an LSTM in the place of equation 14, where
the image goes to all gates (`--set caption.decoder=gru` for a GRU), dropout on the image too, and Adam for
RMSprop, at a rate that falls to 0 over 12 epochs. Variant `attention` looks at the places of the image's map
again at every word (`vsemb.systems.captions.attentive_rnn.AttentiveRNN`; Xu et al. 2015, arXiv:1502.03044,
Luong et al. 2015,
arXiv:1508.04025), so it trains the image network too: it wants `--fine-tune`, and many images. It is smaller
and its batches are, since it is steps that teach a network to see. Deviations and gaps we filled:

- The paper writes START as a vector of its own; it is row 0 of the table of words, which no word has.
- Its CNN is trained in part; here it is what made the features, unless `--fine-tune` trains it. Features are
  evened out first (`vsemb.encoders.FeatureScaling`).
- Learning rate and dropout were cross-validated there and are not given.
- What "can help" there, a ReLU around b_v and W_hx x_t before they are added, is left out, as in equation 14.
- W_hh starts orthogonal. The authors' released code draws it, as all matrices, uniform in +-0.1: `--set
  caption.init_scale=0.1`.
- Which epoch is kept is decided by the perplexity of the validation captions; `--set training.select=cider`
  by what is written for its images.

`multimodal-rnn-regions` is trained on regions and the snippets that an alignment (`--alignment RUN`, of
`dvsa`) found for them, in the place of whole images and captions.
"""

from __future__ import annotations

import dataclasses

from vsemb.recipes.schema import (
    BatchConfig,
    CaptionConfig,
    ImageConfig,
    OptimizerConfig,
    Recipe,
    TextConfig,
    TrainingConfig,
)

_PAPER = "Karpathy, Fei-Fei 2015, arXiv:1412.2306"

_RNN = Recipe(
    name="multimodal-rnn",
    variant="paper",
    paper=_PAPER,
    task="captions",
    text=TextConfig(word_dim=512, min_count=5, max_length=20, embedding_dropout=0.5, dense_gradient=True),
    image=ImageConfig(use_bias=False, standardize=True),
    caption=CaptionConfig(decoder="rnn", dropout=0.5),
    optimizer=OptimizerConfig(name="rmsprop", learning_rate=1e-3, clip_value=5.0),
    batches=BatchConfig(size=100),
    training=TrainingConfig(epochs=30, patience=5, select="perplexity"),
)

_TUNED = dataclasses.replace(
    _RNN,
    variant="tuned",
    image=dataclasses.replace(_RNN.image, dropout=0.5),
    caption=dataclasses.replace(_RNN.caption, decoder="lstm"),
    optimizer=OptimizerConfig(name="adam", learning_rate=1e-3, schedule="cosine", clip_value=5.0),
    training=TrainingConfig(epochs=12, select="perplexity", precision="auto"),
)

_ATTENTION = dataclasses.replace(
    _TUNED,
    variant="attention",
    text=dataclasses.replace(_TUNED.text, word_dim=128, min_count=1, embedding_dropout=0.1),
    image=dataclasses.replace(_TUNED.image, pooling="flat", dropout=0.1),
    caption=CaptionConfig(decoder="lstm", units=256, image_steps="all", heads=4, dropout=0.2),
    batches=BatchConfig(size=32, captions="one"),
    training=dataclasses.replace(_TUNED.training, epochs=8),
)

MULTIMODAL_RNN = {"tuned": _TUNED, "paper": _RNN, "attention": _ATTENTION}

MULTIMODAL_RNN_REGIONS = {
    recipe.variant: dataclasses.replace(
        recipe, name="multimodal-rnn-regions", image=dataclasses.replace(recipe.image, regions=True)
    )
    for recipe in (_TUNED, _RNN)
}
