"""Networks that write captions for `tests.systems.test_steps`."""

from __future__ import annotations

import keras
import numpy as np

from tests.models import backend_steps
from tests.models.replica_cases import DIM, STEPS, WORDS, batches
from vsemb.encoders import ImageEncoder, WordEmbedding
from vsemb.systems.captions.multimodal_rnn import MultimodalRNN
from vsemb.systems.captions.next_word import NextWordCrossEntropy


def captions() -> tuple[MultimodalRNN, dict[str, np.ndarray]]:
    """A network that writes captions, built, and its batches; replicas have sentences of other lengths."""
    keras.utils.set_random_seed(6)
    words = WordEmbedding(WORDS, 3, init_scale=1.0, dense_gradient=True)
    model = MultimodalRNN(ImageEncoder(4 * DIM), words, units=DIM, l2=0.1)
    model.build({"image": (None, 5), "text": (None, None)})
    model.compile(keras.optimizers.SGD(0.02, momentum=0.9), loss=NextWordCrossEntropy(), jit_compile=False)
    rows = batches()
    text = np.concatenate([rows["text"], rows["text"][::-1]], axis=1)
    text[np.arange(6) >= np.tile([1, 2, 1, 2, 3, 6, 1, 4], STEPS)[:, None]] = 0
    return model, {"image": rows["image"], "text": text}


def on_backends() -> backend_steps.Case:
    """A network that writes captions and its batches, for training on several backends."""
    model = MultimodalRNN(ImageEncoder(16), backend_steps.word_vectors(), units=4, l2=0.1)
    model.build({"image": (None, 5), "text": (None, None)})
    rows = backend_steps.ROWS
    given = [
        ({"image": generator.normal(size=(rows, 5)).astype(np.float32), "text": text[0]},)
        for generator, text in backend_steps.random_texts()
    ]
    return model, NextWordCrossEntropy(), given


REPLICAS = {"captions": captions}
BACKENDS = {"captions": on_backends}
