"""Reed, Akata, Lee, Schiele 2016: structured joint embedding of fine-grained descriptions (arXiv:1605.05395).

| equation | what | where |
| --- | --- | --- |
| 2 | F(v, t), the inner product | `vsemb.similarities.Dot` |
| 3, 4, 8 | the class of the highest expected score | `vsemb.systems.zero_shot.metrics` |
| 5, 6, 7 | both directions, each the worst wrong class | `StructuredJointEmbedding` |
| section 3 | one image of each class, one of its captions | `vsemb.data.ClassBatches` |
| 4.1, 4.2 | convolutions, a recurrent network on them | `ConvolutionalSentenceEncoder` |
| 4.3 | average of an LSTM's states | `vsemb.encoders.RecurrentSentenceEncoder` |
| 4.4 | bag of words, word2vec, attributes | `BinaryBagOfWords`, `LinearSentenceEncoder`, `AttributeEncoder` |

There is a recipe for every row of table 1 and both columns: `ds-sje-ENCODER` trains both directions,
`da-sje-ENCODER` only the one whose queries are images, its variant `text-side` only the other. Their table is
made by `python -m pipelines.zero_shot`.

Variant `released` (the default, and the loss of `text-side`) sums over all wrong classes, as the authors'
released code does; variant `paper` takes the worst one, as equations 6 and 7 say. From random weights the
worst alone shrank all embeddings to zero within a few epochs on synthetic flowers (`ds-sje-word-cnn`,
`da-sje-word-cnn-rnn`), so the sum passes into it over the first four epochs.

From the paper: 1024 dimensions, margin 1, batches of 40 classes, RMSprop at 7e-4, 201 characters or 30 words,
every word known, ten crops of a training image at random (`vsemb features --training-crops`), the whole
image in tests. The paper gives neither filter sizes nor the decay of the rate; the convolutions are those of
the authors' released code, 384, 512 and 256 filters of width 4 over characters with pools down to eight
steps, then a recurrent network of ReLUs and a linear map.

Deviations:

- The image features are the embedding, as in the paper, and give the space its size: theirs had 1024
  entries, and those of other networks have others. They are brought to unit length and standardised first
  (`vsemb.encoders.FeatureScaling`). `--set image.projection=true` puts an affine map to 1024 dimensions
  behind them; with it the CNN-RNN over words did not learn at this rate, and bags of words and attributes
  had their best epoch within the first five.
- The epoch with the best mean of top-1 accuracy and AP@50 on the validation classes is kept.
- `word2vec` learns its vectors from the training captions (`vsemb.text.cooccurrence`); give a file with
  `--set text.word_vectors=PATH` for those of a larger corpus.
- The epochs are fewer than the 300 of the paper, since the best one comes early on smaller data.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from vsemb.recipes.schema import (
    BatchConfig,
    ImageConfig,
    LossConfig,
    OptimizerConfig,
    Recipe,
    TextConfig,
    TrainingConfig,
)

_PAPER = "Reed, Akata, Lee, Schiele 2016, arXiv:1605.05395"

_CHARACTERS = TextConfig(tokenizer="characters", max_length=201, word_dim=64, dense_gradient=True)
_WORDS = TextConfig(max_length=30, word_dim=300, dense_gradient=True)

#: Rows of table 1 -> their text towers.
ENCODERS: Mapping[str, TextConfig] = {
    "attributes": TextConfig(tokenizer="classes", encoder="attributes"),
    "word2vec": dataclasses.replace(_WORDS, encoder="average", word_vectors="captions", train_words=False),
    "bow": dataclasses.replace(_WORDS, encoder="bow"),
    "char-cnn": dataclasses.replace(_CHARACTERS, encoder="cnn", units=1024),
    "char-lstm": dataclasses.replace(_CHARACTERS, encoder="lstm", units=256, pooling="mean"),
    "char-cnn-rnn": dataclasses.replace(_CHARACTERS, encoder="cnn-rnn", units=256),
    "word-cnn": dataclasses.replace(_WORDS, encoder="cnn", units=1024),
    "word-lstm": dataclasses.replace(_WORDS, encoder="lstm", units=512, pooling="mean"),
    "word-cnn-rnn": dataclasses.replace(_WORDS, encoder="cnn-rnn", units=256),
}


_RELEASED_LOSS = LossConfig(name="structured", margin=1.0, negatives="all")
_PAPER_LOSS = dataclasses.replace(_RELEASED_LOSS, negatives="hardest", warmup_epochs=4.0)


def _recipe(name: str, variant: str, encoder: str, loss: LossConfig) -> Recipe:
    return Recipe(
        name=name,
        variant=variant,
        paper=_PAPER,
        embedding_dim=1024,
        similarity="dot",
        text=ENCODERS[encoder],
        image=ImageConfig(projection=False, standardize=True),
        loss=loss,
        optimizer=OptimizerConfig(
            name="rmsprop", learning_rate=7e-4, schedule="step", decay_rate=0.98, decay_epochs=1.0
        ),
        batches=BatchConfig(size=40, sampling="classes"),
        training=TrainingConfig(epochs=30, patience=8, select="zero-shot"),
    )


def _symmetric(encoder: str) -> dict[str, Recipe]:
    name = f"ds-sje-{encoder}"
    return {
        "released": _recipe(name, "released", encoder, _RELEASED_LOSS),
        "paper": _recipe(name, "paper", encoder, _PAPER_LOSS),
    }


def _asymmetric(encoder: str) -> dict[str, Recipe]:
    name = f"da-sje-{encoder}"
    losses = {
        "released": dataclasses.replace(_RELEASED_LOSS, text_weight=0.0),
        "paper": dataclasses.replace(_PAPER_LOSS, text_weight=0.0),
        "text-side": dataclasses.replace(_RELEASED_LOSS, image_weight=0.0),
    }
    return {variant: _recipe(name, variant, encoder, loss) for variant, loss in losses.items()}


#: Name -> variant -> recipe, of the table's rows and its two columns.
SJE: dict[str, dict[str, Recipe]] = {
    **{f"ds-sje-{encoder}": _symmetric(encoder) for encoder in ENCODERS},
    **{f"da-sje-{encoder}": _asymmetric(encoder) for encoder in ENCODERS},
}
