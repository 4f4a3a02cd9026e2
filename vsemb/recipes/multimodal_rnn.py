"""Karpathy, Fei-Fei 2015: Deep Visual-Semantic Alignments (arXiv:1412.2306), the multimodal RNN.

| equation | what | where |
| --- | --- | --- |
| 13 | b_v = W_hi CNN(I) | `vsemb.models.MultimodalRNN` |
| 14 | h_t = f(W_hx x_t + W_hh h_(t-1) + b_h + 1(t=1) b_v) | `vsemb.models.MultimodalRNN` |
| 15 | y_t = softmax(W_oh h_t + b_o) | `vsemb.models.MultimodalRNN` |
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
    text=TextConfig(word_dim=512, min_count=5, max_length=20, embedding_dropout=0.5),
    image=ImageConfig(use_bias=False, standardize=True),
    caption=CaptionConfig(decoder="rnn", dropout=0.5),
    optimizer=OptimizerConfig(name="rmsprop", learning_rate=1e-3, clip_value=5.0),
    batches=BatchConfig(size=100),
    training=TrainingConfig(epochs=30, patience=5, select="perplexity"),
)

_TUNED = dataclasses.replace(_RNN, variant="tuned", caption=dataclasses.replace(_RNN.caption, decoder="lstm"))

MULTIMODAL_RNN = {"tuned": _TUNED, "paper": _RNN}

MULTIMODAL_RNN_REGIONS = {
    variant: dataclasses.replace(
        recipe, name="multimodal-rnn-regions", image=dataclasses.replace(recipe.image, regions=True)
    )
    for variant, recipe in MULTIMODAL_RNN.items()
}
