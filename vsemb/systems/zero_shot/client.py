"""Client method for the signature `classify`."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from vsemb.serving.client import Client, to_images


@dataclass(frozen=True, eq=False)
class Classes:
    """Classification of images.

    Attributes:
        classes: c names, in the order of the scores; empty for zero images.
        scores: (n, c) float32, higher is better; 0 in invalid rows.
        probabilities: (n, c) float32, the softmax of the scores times the model's scale; 0 in invalid rows.
        valid: (n,) bool.
    """

    classes: list[str]
    scores: np.ndarray
    probabilities: np.ndarray
    valid: np.ndarray


def classify(client: Client, images: Sequence[bytes | str | os.PathLike[str]]) -> Classes:
    """Classify images among the classes of the exported model.

    Args:
        client: client of the model.
        images: as `Client.encode_image`.

    Raises:
        ServingError: as `Client.predict`.

    Example:

        print(client.classify(["dog.jpg"]).scores)
    """
    answer = client.predict("classify", image_bytes=to_images(images))
    names = answer["classes"][0] if len(answer["classes"]) else []
    decoded = [name.decode("utf-8", errors="replace") for name in names]
    return Classes(decoded, answer["scores"], answer["probabilities"], answer["valid"])
