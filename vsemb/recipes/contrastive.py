"""InfoNCE with a learned temperature, as in CLIP (Radford et al. 2021, arXiv:2103.00020).

| equation | content | code |
| --- | --- | --- |
| figure 3 | symmetric cross entropy over the batch | `vsemb.losses.InfoNCE` |
| section 2.5 | learned temperature, start 0.07, factor at most 100 | `vsemb.models.LogitScale` |

Deviations:

- The towers are small: a linear map of image features, and a bidirectional GRU over words. CLIP has Transformers.
- Batches have 256 pairs; CLIP has 32,768.
- The losses of both directions are added. CLIP takes their mean, which is half of it.

Variant `transformer` has a Transformer over subwords as text encoder, as in section 2.4. It is smaller than CLIP's,
since there are fewer captions. Its tokenizer is WordPiece in place of byte pair encoding, it has no causal mask, and
its output is the mean over all positions in place of the last position.
"""

from __future__ import annotations

from dataclasses import replace

from vsemb.data.batches import Pairs
from vsemb.encoders.recurrent import Recurrent
from vsemb.encoders.text_encoder import WordVectors
from vsemb.encoders.transformer import Transformer
from vsemb.losses.contrastive import Contrastive
from vsemb.recipes.retrieval import Retrieval
from vsemb.recipes.schema import Training
from vsemb.recipes.towers import Text
from vsemb.text.subwords import WordPiece
from vsemb.text.tokenizers import Words
from vsemb.training.optimizers import Adam, Cosine

_DEFAULT = Retrieval(
    name="contrastive",
    variant="default",
    paper="Radford et al. 2021, arXiv:2103.00020",
    embedding_dim=512,
    text=Text(
        tokenizer=Words(min_count=2),
        encoder=Recurrent(cell="gru", units=512, directions="average", pooling="mean+max"),
    ),
    loss=Contrastive(temperature=0.07, learn_temperature=True),
    optimizer=Adam(learning_rate=1e-3, schedule=Cosine(warmup_epochs=0.5), global_clipnorm=2.0),
    batches=Pairs(size=256),
    training=Training(epochs=15, precision="auto"),
)

CONTRASTIVE = {
    "default": _DEFAULT,
    "transformer": replace(
        _DEFAULT,
        variant="transformer",
        text=Text(
            tokenizer=WordPiece(max_length=40),
            encoder=Transformer(words=WordVectors(dim=256), units=256, layers=2, heads=4, pooling="mean", dropout=0.1),
        ),
    ),
}
