"""`encode_texts` and `encode_images`: one form for a run, a SavedModel and a server's client."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from vsemb import console
from vsemb.errors import DataError, invalid_argument, one_line
from vsemb.parts import Count, require

if TYPE_CHECKING:
    from vsemb.data.images import ImageLike

#: Embeddings, (rows, dim) float32, and valid, (rows,) bool, of a batch.
Rows = tuple[np.ndarray, np.ndarray]


class EncodingMixin:
    """Embed texts and images in batches; base of `vsemb.Model` and `vsemb.serving.Client`.

    Subclasses define `embed_texts` and `embed_images`, each of one batch.
    """

    def embed_texts(self, texts: list[str]) -> Rows:
        """Embed one batch of texts."""
        raise NotImplementedError

    def embed_images(self, images: list[bytes]) -> Rows:
        """Embed one batch of images, JPEG or PNG bytes."""
        raise NotImplementedError

    def encode_texts(
        self, texts: str | Iterable[str], *, batch_size: int = 256, progress: bool | None = None
    ) -> np.ndarray:
        """Embed texts.

        Args:
            texts: one text, or n texts.
            batch_size: texts per call of the model.
            progress: whether a progress bar is shown; default: on a terminal.

        Returns:
            (n, dim) float32 in the geometry of the model's similarity; (dim,) for one text. A model of sets, such as
            `dvsa`, returns (n, items, dim), padded with zeros.

        Raises:
            DataError: for a text without words.

        Example:

            model.encode_texts(["a dog on a beach", "a cat"])
        """
        if isinstance(texts, str):
            return self.encode_texts([texts], progress=False)[0]
        rows = list(texts)
        for text in rows:
            if not isinstance(text, str):
                raise invalid_argument("texts", text, "one string, or a list of strings")
        return _encoded("texts", rows, self.embed_texts, _invalid_text, batch_size, progress)

    def encode_images(
        self, images: ImageLike | Iterable[ImageLike], *, batch_size: int = 32, progress: bool | None = None
    ) -> np.ndarray:
        """Embed images.

        Args:
            images: one image, or n images. An image is the path of a file, the bytes of a file, a PIL image, or an
                array, uint8 (height, width, 3). An array (n, height, width, 3) holds n images.
            batch_size: images per call of the model.
            progress: whether a progress bar is shown; default: on a terminal.

        Returns:
            (n, dim) float32 in the geometry of the model's similarity; (dim,) for one image. A model of sets, such as
            `dvsa`, returns (n, items, dim), padded with zeros.

        Raises:
            DataError: for an image that cannot be read, and for a model without an image network.

        Example:

            model.encode_images(["dog.jpg", PIL.Image.open("cat.png")])
        """
        from vsemb.data.images import image_bytes, is_image

        if is_image(images):
            return self.encode_images([images], progress=False)[0]
        if not isinstance(images, Iterable):
            raise invalid_argument("images", type(images).__name__, "one image, or a list of images")

        def embed(batch: list[Any]) -> Rows:
            return self.embed_images([image_bytes(image) for image in batch])

        return _encoded("images", list(images), embed, _invalid_image, batch_size, progress)


def _encoded(
    what: str,
    rows: list[Any],
    embed: Callable[[list[Any]], Rows],
    invalid: Callable[[Any], DataError],
    batch_size: int,
    progress: bool | None,
) -> np.ndarray:
    require("batch_size", batch_size, Count)
    if not rows:
        raise invalid_argument(what, rows, f"one or more {what}")
    found: list[np.ndarray] = []
    hidden = None if progress is None else not progress
    with console.progress(total=len(rows), desc=what, unit=what[:-1], delay=1.0, disable=hidden) as bar:
        for start in range(0, len(rows), batch_size):
            batch = rows[start : start + batch_size]
            embeddings, valid = embed(batch)
            if not np.all(valid):
                raise invalid(batch[int(np.argmin(valid))])
            found.append(embeddings)
            bar.update(len(batch))
    # Batches of sets may be padded to different lengths.
    most = max(each.shape[1] for each in found)
    padded = [np.pad(each, [(0, 0), (0, most - each.shape[1]), *[(0, 0)] * (each.ndim - 2)]) for each in found]
    return np.concatenate(padded)


def _invalid_text(row: Any) -> DataError:
    return DataError(f"A text must have at least one word that the model reads; got {one_line(repr(row), 80)}.")


def _invalid_image(row: Any) -> DataError:
    name = os.fspath(row) if isinstance(row, str | os.PathLike) else f"(a {type(row).__name__})"
    return DataError(f"An image must decode as JPEG or PNG; the model refused {name}.")
