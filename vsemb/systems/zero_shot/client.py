"""Classes of images, as a client gets them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from vsemb.serving.client import Client, to_images


@dataclass(frozen=True, eq=False)
class Classes:
    """How images were classified.

    Attributes:
        classes: the c names, in the order of the scores; none where there are no images.
        scores: (n, c) float32, the higher the better; zero in rows that are not valid.
        valid: (n,) bool.
    """

    classes: list[str]
    scores: np.ndarray
    valid: np.ndarray


def classify(client: Client, images: Sequence[bytes | str | os.PathLike[str]]) -> Classes:
    """Classifies images among the classes that the model was exported with.

    Args:
        client: asks the model.
        images: as `Client.encode_image`.

    Raises:
        ServingError: as `Client.predict`.

    Example:

        print(client.classify(["dog.jpg"]).scores)
    """
    answer = client.predict("classify", image_bytes=to_images(images))
    names = answer["classes"][0] if len(answer["classes"]) else []
    decoded = [name.decode("utf-8", errors="replace") for name in names]
    return Classes(decoded, answer["scores"], answer["valid"])
