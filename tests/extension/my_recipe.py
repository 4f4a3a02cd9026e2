"""A recipe in a file: `vsemb train my_recipe.py --data DATA --out RUN`. It brings a similarity of its own."""

from dataclasses import dataclass

import keras
from keras import ops

from vsemb.data.batches import Pairs
from vsemb.encoders.bag import Linear
from vsemb.encoders.text_encoder import WordVectors
from vsemb.recipes.retrieval import Retrieval
from vsemb.recipes.schema import Training
from vsemb.recipes.towers import Text
from vsemb.similarities import Dot
from vsemb.training.optimizers import Adam


@keras.saving.register_keras_serializable("my_recipe")
@dataclass(frozen=True)
class SquashedDot(Dot, kind="squashed-dot"):
    """Inner product of embeddings whose entries pass a hyperbolic tangent."""

    def normalize(self, embeddings):
        return ops.tanh(ops.cast(embeddings, "float32"))


RECIPE = Retrieval(
    name="mine",
    embedding_dim=16,
    text=Text(encoder=Linear(words=WordVectors(dim=16))),
    similarity=SquashedDot(),
    optimizer=Adam(learning_rate=0.01),
    batches=Pairs(size=8),
    training=Training(epochs=1),
)
