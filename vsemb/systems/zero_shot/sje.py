"""Reed, Akata, Lee, Schiele 2016: structured joint embedding of fine-grained descriptions (arXiv:1605.05395).

| equation | content | code |
| --- | --- | --- |
| 2 | F(v, t), the inner product | `vsemb.similarities.Dot` |
| 3, 4, 8 | the class with the highest expected score | `vsemb.systems.zero_shot.metrics` |
| 5, 6, 7 | loss of both directions, over the hardest wrong class | `StructuredJointEmbedding` |
| section 3 | one image of each class, one of its captions | `ClassBatches` |
| 4.1, 4.2 | convolutions, and a recurrent network over their output | `ConvolutionalSentenceEncoder` |
| 4.2 | score of each time step | `vsemb.systems.zero_shot.evidence` |
| 4.3 | average of an LSTM's states | `vsemb.encoders.RecurrentSentenceEncoder` |
| 4.4 | bag of words, word2vec, attributes | `BinaryBagOfWords`, `LinearSentenceEncoder`, `AttributeEncoder` |

There is a recipe for each row and both columns of table 1. `ds-sje-ENCODER` trains both directions. `da-sje-ENCODER`
trains the direction with image queries; its variant `text-side` trains the other direction. `python -m
pipelines.zero_shot` reproduces the table.

Variant `released` (the default, and the loss of `text-side`) sums over all wrong classes, as in the authors' released
code. Variant `paper` takes the hardest wrong class, as in equations 6 and 7. From random weights the hardest class
alone shrank all embeddings to zero within a few epochs on synthetic flowers (`ds-sje-word-cnn`,
`da-sje-word-cnn-rnn`), so training starts with the sum and blends into the maximum over four epochs.

These settings follow the paper: 1024 dimensions, margin 1, batches of 40 classes, RMSprop at 7e-4, texts of at most 201
characters or 30 words. A training image has ten crops, of which one is drawn each time (`vsemb features
--training-crops`): corners, centre, and their mirror images, as in the paper. In evaluation, images are not cropped.
The paper omits filter sizes and the decay of the learning rate. The convolutions follow the authors' released code:
384, 512 and 256 filters of width 4 over characters, pooled to eight steps, then a recurrent network with ReLU and a
linear map.

Deviations:

- The image features are the embedding, as in the paper, so they set its size (1024 in the paper). They are normalized
  and standardized first (`vsemb.encoders.FeatureScaling`). `--set image.projection=affine --set embedding_dim=1024`
  adds an affine map. With it, the CNN-RNN over words did not learn at this rate, and bags of words and attributes had
  their best epoch within the first five.
- The epoch with the best mean of top-1 accuracy and AP@50 on the validation classes is selected. The paper then trains
  on training and validation classes together. To do so, prepare the data with `--val-to-train`, and train with `--set
  validation=last --epochs N`, where N is the selected epoch.
- The vocabulary has all words of the training captions. The paper has "all vocabulary words in the dataset", test
  classes included. Training would not update the vectors of these additional words; here they are the unknown word.
- `word2vec` learns its vectors from the training captions (`vsemb.text.word_vectors`). For vectors of a larger corpus
  pass a file with `--set text.encoder.words.vectors=PATH`.
- Features are the mean of the network's last map (`image.pooling=mean`), as in the paper's GoogLeNet, whose top layer
  has 1024 channels.
- Images are resized to squares before crops are cut. The paper does not say how images are resized.
- RMSprop's decay is 0.9, the default of Keras, and the ReLU recurrence starts at the identity. The paper gives
  neither.
- Training has fewer epochs than the paper's 300, because the best epoch comes early on smaller data.
"""

from __future__ import annotations

from collections.abc import Mapping

from vsemb.encoders.bag import Linear
from vsemb.encoders.image import NoProjection
from vsemb.encoders.recurrent import Recurrent
from vsemb.encoders.text_encoder import WordVectors
from vsemb.losses.ranking import All, Hardest
from vsemb.recipes.retrieval import Retrieval
from vsemb.recipes.schema import Training
from vsemb.recipes.towers import Features, Text
from vsemb.similarities import Dot
from vsemb.systems.zero_shot.class_batches import Classes
from vsemb.systems.zero_shot.class_names import ClassNames
from vsemb.systems.zero_shot.structured_loss import Structured
from vsemb.systems.zero_shot.text_encoders import Attributes, BinaryBagOfWordsPart, Convolutional
from vsemb.systems.zero_shot.validation import ZeroShot
from vsemb.text.tokenizers import Characters, Words
from vsemb.training.optimizers import RMSprop, Step

_PAPER = "Reed, Akata, Lee, Schiele 2016, arXiv:1605.05395"

_WORDS, _WORD = Words(max_length=30), WordVectors(dim=300, dense_gradient=True)
_CHARACTERS, _CHARACTER = Characters(max_length=201), WordVectors(dim=64, dense_gradient=True)
_FIXED = WordVectors(dim=300, dense_gradient=True, vectors="captions", trainable=False)

#: Rows of table 1 -> their text towers.
ENCODERS: Mapping[str, Text] = {
    "attributes": Text(ClassNames(), Attributes()),
    "word2vec": Text(_WORDS, Linear(_FIXED, pooling="mean", projection=True)),
    "bow": Text(_WORDS, BinaryBagOfWordsPart()),
    "char-cnn": Text(_CHARACTERS, Convolutional(_CHARACTER, stages="characters")),
    "char-lstm": Text(_CHARACTERS, Recurrent(_CHARACTER, cell="lstm", units=256, pooling="mean")),
    "char-cnn-rnn": Text(_CHARACTERS, Convolutional(_CHARACTER, stages="characters", recurrent="rnn", units=256)),
    "word-cnn": Text(_WORDS, Convolutional(_WORD)),
    "word-lstm": Text(_WORDS, Recurrent(_WORD, cell="lstm", units=512, pooling="mean")),
    "word-cnn-rnn": Text(_WORDS, Convolutional(_WORD, recurrent="rnn", units=256)),
}

_ALL, _HARDEST = All(), Hardest(warmup_epochs=4.0)

#: Columns of table 1 -> variant -> loss.
LOSSES: Mapping[str, Mapping[str, Structured]] = {
    "ds-sje": {"released": Structured(negatives=_ALL), "paper": Structured(negatives=_HARDEST)},
    "da-sje": {
        "released": Structured(text_weight=0.0, negatives=_ALL),
        "paper": Structured(text_weight=0.0, negatives=_HARDEST),
        "text-side": Structured(image_weight=0.0, negatives=_ALL),
    },
}


def _recipe(name: str, variant: str, encoder: str, loss: Structured) -> Retrieval:
    return Retrieval(
        name=name,
        variant=variant,
        paper=_PAPER,
        embedding_dim=None,
        text=ENCODERS[encoder],
        image=Features(pooling="mean", projection=NoProjection(), standardize=True),
        similarity=Dot(),
        loss=loss,
        optimizer=RMSprop(learning_rate=7e-4, schedule=Step(factor=0.98, every=1.0)),
        batches=Classes(size=40),
        validation=ZeroShot(),
        training=Training(epochs=30, patience=8),
    )


#: Name -> variant -> recipe, of the table's rows and its two columns.
SJE: dict[str, dict[str, Retrieval]] = {
    f"{column}-{encoder}": {
        variant: _recipe(f"{column}-{encoder}", variant, encoder, loss) for variant, loss in losses.items()
    }
    for column, losses in LOSSES.items()
    for encoder in ENCODERS
}
