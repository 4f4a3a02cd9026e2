"""A recipe of the parts of this package: retrieval by Euclidean distance."""

from outsider.euclidean import Euclidean
from outsider.gated_mean import GatedMean
from outsider.soft_margin import SoftMargin
from outsider.trigrams import Trigrams
from vsemb.data.batches import Pairs
from vsemb.encoders.text_encoder import WordVectors
from vsemb.recipes.retrieval import Retrieval
from vsemb.recipes.schema import Training
from vsemb.recipes.towers import Pixels, Text
from vsemb.training.optimizers import Adam

OUTSIDER = {
    "default": Retrieval(
        name="outsider",
        embedding_dim=16,
        text=Text(tokenizer=Trigrams(), encoder=GatedMean(words=WordVectors(dim=16), dropout=0.1)),
        image=Pixels("SmallConvNet", size=32, frozen_statistics=False, augment=False),
        similarity=Euclidean(scale=2.0),
        loss=SoftMargin(sharpness=4.0),
        optimizer=Adam(learning_rate=0.01),
        batches=Pairs(size=8),
        training=Training(epochs=1),
    )
}
