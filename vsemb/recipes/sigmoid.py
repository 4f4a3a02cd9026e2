"""The sigmoid loss with a learned temperature and bias, as in SigLIP (Zhai et al. 2023, arXiv:2303.15343).

| equation | what | where |
| --- | --- | --- |
| section 3.2 | a logistic regression for each pair of the batch | `vsemb.losses.SigmoidLoss` |
| section 3.2 | learned factor and bias, start 10 and -10 | `vsemb.models.LogitScale` |
| section 3.3 | scores in blocks, one device's texts at a time | `vsemb.ops.chunks`, `vsemb.ops.replicas` |

Deviations: the towers are those of VSE++ (a map of image features, a recurrent network over words), not
transformers, and batches are small. The factor is at most 100, as in CLIP. The bias starts at -10 for the
paper's batches of 16,384; minus the logarithm of the batch's size, -5.5 for 256 pairs, is where negatives
and own pairs weigh the same, and where the default starts. Variant `paper` starts at -10.
"""

from __future__ import annotations

from dataclasses import replace

from vsemb.data.batches import Pairs
from vsemb.encoders.recurrent import Recurrent
from vsemb.losses.sigmoid import Sigmoid
from vsemb.recipes.retrieval import Retrieval
from vsemb.recipes.schema import Training
from vsemb.recipes.towers import Text
from vsemb.text.tokenizers import Words
from vsemb.training.optimizers import Adam, Cosine

# Both directions are one sum over all pairs, so one of them is the paper's loss.
_LOSS = Sigmoid(temperature=0.1, bias=-5.5, learn_temperature=True, text_weight=0.0)

_DEFAULT = Retrieval(
    name="sigmoid",
    variant="default",
    paper="Zhai et al. 2023, arXiv:2303.15343",
    embedding_dim=512,
    text=Text(
        tokenizer=Words(min_count=2),
        encoder=Recurrent(cell="gru", units=512, directions="average", pooling="mean+max"),
    ),
    loss=_LOSS,
    optimizer=Adam(learning_rate=1e-3, schedule=Cosine(warmup_epochs=0.5), global_clipnorm=2.0),
    batches=Pairs(size=256),
    training=Training(epochs=15),
)

SIGMOID = {
    "default": _DEFAULT,
    "paper": replace(_DEFAULT, variant="paper", loss=replace(_LOSS, bias=-10.0)),
}
