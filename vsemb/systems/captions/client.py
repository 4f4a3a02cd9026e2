"""Client method `caption`: captions from a served model."""

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
    """One caption of an image.

    Attributes:
        text: the caption.
        log_prob: natural logarithm of its probability.
    """

    text: str
    log_prob: float


@dataclass(frozen=True)
class ImageCaptions:
    """The captions of one image.

    Attributes:
        captions: best first. The list is empty for an invalid image, and may be shorter than requested.
        valid: whether the image was decoded.
    """

    captions: list[Caption]
    valid: bool


def caption(
    client: Client, images: Sequence[bytes | str | os.PathLike[str]], n: int | None = None
) -> list[ImageCaptions]:
    """Write captions of images.

    Args:
        client: the client of the model.
        images: see `Client.encode_image`.
        n: maximum number of captions per image; None for the number fixed by the export.

    Returns:
        One entry per image, captions best first; an invalid image has no captions.

    Raises:
        InvalidArgumentError: if the model writes no captions, or fewer than `n`.
        DataError: if a file cannot be read.
        ServingError: see `Client.predict`.

    Example:

        print(client.caption(["dog.jpg"])[0].captions[0].text)
    """
    contents = to_images(images)
    check_n(n, client.signature("caption").outputs)
    return captions_of(client.predict("caption", image_bytes=contents), n)


def captions_of(answer: dict[str, np.ndarray], n: int | None) -> list[ImageCaptions]:
    """Convert the outputs of the signature `caption`.

    Args:
        answer: outputs of the signature.
        n: maximum number of captions per image; None for all.

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
    images = []
    for texts, log_probs, valid in rows:
        captions = [
            Caption(text.decode(errors="replace"), log_prob) for text, log_prob in zip(texts, log_probs, strict=True)
        ]
        # If fewer captions were found, the last ones are empty.
        images.append(ImageCaptions([caption for caption in captions[:n] if caption.text], valid))
    return images


def check_n(n: int | None, outputs: Mapping[str, TensorInfo]) -> None:
    """Check that the model can write `n` captions.

    Args:
        n: maximum number of captions per image; None for all.
        outputs: output specifications of the signature `caption`.

    Raises:
        InvalidArgumentError: if `n` is not an integer from 1 to the number fixed by the export.

    Example:

    >>> check_n(2, {"captions": TensorInfo(np.dtype(object), (None, 5))})
    """
    shape = outputs["captions"].shape
    most = shape[1] if shape is not None and len(shape) == 2 else None
    span = at_least(1) if most is None else between(1, most)
    allowed = f"{span.allowed}, as many as the model was exported with (vsemb export RUN OUT --n-best N),"
    require("n", n, Annotated[int, Range(allowed, span.holds)] | None)
