"""A tiny captioner, not trained, shared by the tests of what is exported and served."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import tensorflow as tf

WORDS = ["a", "red", "circle", "above", "the", "blue", "square", "'s"]
LONGEST = 6
FACTS = {"words": len(WORDS), "beam": 4, "length_penalty": 0.0, "max_words": LONGEST}


def caption_parts(dtype: str | None = None, **options: Any):
    """Returns a captioner and its image input; options are those of `NeuralCaptioner`."""
    from vsemb.encoders import ImageEncoder, WordEmbedding
    from vsemb.exporting import ImageInput
    from vsemb.image.backbones import BackboneConfig, build_backbone
    from vsemb.systems.captions.captioner import NeuralCaptioner
    from vsemb.systems.captions.decoding import SearchOptions
    from vsemb.systems.captions.multimodal_rnn import MultimodalRNN
    from vsemb.text import Vocabulary

    keras.utils.set_random_seed(8)
    vocabulary = Vocabulary(WORDS)
    config = BackboneConfig("SmallConvNet", size=32)
    backbone = build_backbone(config, seed=3)
    dim = backbone.output.shape[-1]
    words = WordEmbedding(len(vocabulary), 5, dtype=dtype)
    model = MultimodalRNN(ImageEncoder(3 * 4, dtype=dtype), words, cell="gru", units=4)
    model.build({"image": (None, dim), "text": (None, None)})
    # Without training, words are nearly alike, and so are images.
    random = np.random.default_rng(9)
    for weight in model.trainable_weights:
        if len(weight.shape) > 1:
            weight.assign(random.normal(size=weight.shape, scale=1.5))
    captioner = NeuralCaptioner(
        model, vocabulary, SearchOptions(**{"beam": 4, "n_best": 3, "max_words": LONGEST, **options})
    )
    return captioner, ImageInput(config, backbone)


def pictures(count: int = 2) -> list[bytes]:
    """Returns PNG images of a few areas of colour."""
    random = np.random.default_rng(4)
    areas = random.integers(0, 256, (count, 3, 4, 3)).astype(np.uint8)
    return [tf.io.encode_png(image.repeat(14, axis=0).repeat(11, axis=1)).numpy() for image in areas]
