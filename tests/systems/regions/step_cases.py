"""Dual encoders over sets of vectors for `tests.systems.test_steps`."""

from __future__ import annotations

import keras
import numpy as np

from tests.models.replica_cases import DIM, STEPS, WORDS, batches
from vsemb.encoders import WordEmbedding
from vsemb.losses import PairwiseRanking
from vsemb.models import DualEncoder
from vsemb.systems.regions.encoders import ContextualTokenEncoder, RegionEncoder


def sets() -> tuple[DualEncoder, dict[str, np.ndarray]]:
    """A model of regions and words, built, and its batches, of one number of regions and steps each.

    Images have one to three regions and sentences one to four words; a replica's share may have no long one.
    """
    keras.utils.set_random_seed(5)
    words = WordEmbedding(WORDS, 3, init_scale=1.0)
    model = DualEncoder(RegionEncoder(DIM), ContextualTokenEncoder(words, DIM, units=6), "max-sim")
    model.build({"image": (None, None, 5), "text": (None, None)})
    optimizer = keras.optimizers.SGD(0.01, momentum=0.9, clipvalue=0.5)
    model.compile(optimizer, loss=PairwiseRanking(1.0), jit_compile=False)
    generator, rows = np.random.default_rng(2), batches(sampled=True)
    for name in ("", "negative_"):
        # Sampled images have other regions and sampled sentences other steps than those of the batch.
        regions, steps = (5, 6) if name else (3, 4)
        ids = rows[f"{name}image_id"] - 2**24 + 2
        pictures = generator.normal(size=(6, regions, 5)).astype(np.float32)
        for number, picture in enumerate(pictures):
            picture[1 + number % regions :] = 0
        text = generator.integers(1, WORDS, (len(ids), steps)).astype(np.int32)
        lengths = np.tile([1, 2, 1, 2, 3, 4, 1, 4], STEPS)
        text[np.arange(steps) >= lengths[:, None] + steps - 4] = 0
        rows |= {f"{name}image": pictures[ids], f"{name}text": text}
    # Images meet sampled texts, and texts the images of the batch.
    return model, {name: each for name, each in rows.items() if not name.startswith("negative_image")}


REPLICAS = {"sets": sets}
