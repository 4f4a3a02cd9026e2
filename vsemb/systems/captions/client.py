"""Captions, as a client gets them."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated

import numpy as np

from vsemb.parts import Range, at_least, between, require
from vsemb.serving.client import Client, to_images
from vsemb.serving.transports import TensorInfo


@dataclass(frozen=True)
class Caption:
    """A sentence about an image.

    Attributes:
        text: the sentence.
        log_prob: natural logarithm of its probability.
    """

    text: str
    log_prob: float


@dataclass(frozen=True)
class ImageCaptions:
    """What was written about one image.

    Attributes:
        captions: best first; none where the image is not valid, fewer than asked for where there are no more.
        valid: whether there was an image.
    """

    captions: list[Caption]
    valid: bool


def caption(
    client: Client, images: Sequence[bytes | str | os.PathLike[str]], n: int | None = None
) -> list[ImageCaptions]:
    """Writes captions of images.

    Args:
        client: asks the model.
        images: as `Client.encode_image`.
        n: captions of an image at most; None for as many as the model was exported to write.

    Returns:
        One for each image, its captions best first; one that is not valid has none.

    Raises:
        InvalidArgumentError: for a model that writes no captions, or not so many.
        DataError: if a file cannot be read.
        ServingError: as `Client.predict`.

    Example:

        print(client.caption(["dog.jpg"])[0].captions[0].text)
    """
    contents = to_images(images)
    check_n(n, client.signature("caption").outputs)
    return captions_of(client.predict("caption", image_bytes=contents), n)


def captions_of(answer: dict[str, np.ndarray], n: int | None) -> list[ImageCaptions]:
    """Reads the answer of the signature `caption`.

    Args:
        answer: its outputs.
        n: captions of an image at most; None for all.

    Example:

    >>> answer = {
    ...     "captions": np.array([[b"a dog", b"two dogs"], [b"", b""]], object),
    ...     "log_probs": np.float32([[-1.5, -2], [0, 0]]),
    ...     "valid": np.array([True, False]),
    ... }
    >>> [[caption.text for caption in image.captions] for image in captions_of(answer, n=1)]
    [['a dog'], []]
    """
    rows = zip(answer["captions"], answer["log_probs"].tolist(), answer["valid"].tolist(), strict=True)
    return [
        ImageCaptions(
            [
                Caption(text.decode("utf-8", errors="replace"), log_prob)
                for text, log_prob in zip(texts[:n], log_probs[:n], strict=True)
                # Where fewer were found, the last ones are empty.
                if text
            ],
            valid,
        )
        for texts, log_probs, valid in rows
    ]


def check_n(n: int | None, outputs: Mapping[str, TensorInfo]) -> None:
    """Refuses a number of captions that the model does not write.

    Args:
        n: captions of an image at most; None for all.
        outputs: of the signature `caption`.

    Raises:
        InvalidArgumentError: for what is no number from 1 to those that the model was exported with.

    Example:

    >>> check_n(2, {"captions": TensorInfo(np.dtype(object), (None, 5))})
    """
    shape = outputs["captions"].shape
    most = shape[1] if shape is not None and len(shape) == 2 else None
    span = at_least(1) if most is None else between(1, most)
    allowed = f"{span.allowed}; how many captions an image gets is fixed by: vsemb export --n-best"
    require("n", n, Annotated[int, Range(allowed, span.holds)] | None)
