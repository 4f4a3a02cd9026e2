"""Random classes with images and texts, for the tests of zero-shot recognition."""

from __future__ import annotations

import numpy as np

from vsemb.similarities import Dot


class SlowDot(Dot):
    """An inner product that does not know that it is linear."""

    linear = False


def drawn(seed: int = 0, images: int = 40, classes: int = 5, dim: int = 6):
    """Returns embeddings that tell the classes apart now and then, each class with 1 to 9 texts."""
    generator = np.random.default_rng(seed)
    centres = generator.normal(size=(classes, dim))
    of_images = np.arange(images) % classes
    of_texts = np.repeat(np.arange(classes), 1 + 2 * np.arange(classes))
    generator.shuffle(of_texts)
    embedded = [centres[rows] + 0.8 * generator.normal(size=(len(rows), dim)) for rows in (of_images, of_texts)]
    return embedded[0].astype(np.float32), of_images, embedded[1].astype(np.float32), of_texts
