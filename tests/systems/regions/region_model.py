"""A tiny model of regions and words, not trained, shared by the tests of what is exported and served."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import tensorflow as tf

DIM, COUNT, LONGEST = 6, 5, 9
WORDS = ["a", "red", "circle", "above", "the", "blue", "square"]
TEXTS = ["a red circle", "a blue square above the red circle", "Square!"]


def region_parts(similarity: str = "max-sim", dtype: str | None = None, **options: Any):
    """Returns a model, its tokenizer and its image input; options are those of the regions."""
    from vsemb.encoders import WordEmbedding
    from vsemb.image.backbones import BackboneConfig, build_backbone
    from vsemb.models import DualEncoder
    from vsemb.systems.regions.encoders import ContextualTokenEncoder, RegionEncoder
    from vsemb.systems.regions.extractor import RegionExtractor
    from vsemb.systems.regions.region_store import RegionConfig
    from vsemb.systems.regions.signature import RegionInput
    from vsemb.text import Vocabulary, WordTokenizer

    keras.utils.set_random_seed(8)
    tokenizer = WordTokenizer(Vocabulary(WORDS), max_length=LONGEST)
    config = BackboneConfig("SmallConvNet", size=32)
    backbone = build_backbone(config, seed=3)
    regions = RegionConfig(**{"count": COUNT - 1, "pooling": "crops", **options})
    extractor = RegionExtractor(config, regions, backbone)
    words = WordEmbedding(len(tokenizer.vocabulary), 5, dtype=dtype)
    text = ContextualTokenEncoder(words, DIM, units=4, dtype=dtype)
    model = DualEncoder(RegionEncoder(DIM, dtype=dtype), text, similarity)
    model.build({"image": (None, None, extractor.dim), "text": (None, None)})
    # Without training, words are nearly alike, and so are regions.
    random = np.random.default_rng(9)
    affine = model.image_encoder.affine
    for matrix in (words.table, text.outer.kernel, affine.kernel):
        matrix.assign(random.normal(size=matrix.shape))
    text.outer.bias.assign(np.full(DIM, 0.5))
    return model, tokenizer, RegionInput.of(extractor)


def pictures(count: int = 2) -> list[bytes]:
    """Returns PNG images with a square each on a plain background."""
    found = []
    for number in range(count):
        pixels = np.full((48, 64, 3), 40 + 10 * number, np.uint8)
        pixels[8 : 24 + 4 * number, 10 + 6 * number : 30 + 6 * number] = (220, 30 * number, 60)
        found.append(tf.io.encode_png(pixels).numpy())
    return found


def candidates(rows: int) -> np.ndarray:
    """Returns candidate boxes of images, best first, with padding: (rows, 4, 4) float32."""
    boxes = [[0.1, 0.1, 0.3, 0.4], [0.5, 0.5, 0.4, 0.4], [0.0, 0.6, 0.3, 0.3], [0, 0, 0, 0]]
    return np.repeat(np.float32([boxes]), rows, axis=0)
