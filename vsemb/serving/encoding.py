"""`encode_texts` and `encode_images`: the same methods for a run, a SavedModel and a server's client."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from vsemb import console
from vsemb.errors import DataError, invalid_argument, listed, one_line, unknown_name
from vsemb.parts import Count, in_order, require
from vsemb.quantization import Precision, check_quantizable, quantize
from vsemb.unicode import has_surrogate

if TYPE_CHECKING:
    from vsemb.data.images import ImageLike

#: Embeddings, (rows, dim), and valid, (rows,) bool, of a batch.
Rows = tuple[np.ndarray, np.ndarray]
Embed = Callable[[list[Any]], Rows]
OnBad = Literal["fail", "nan"]


class EncodingMixin:
    """Embed texts and images in batches; base of `vsemb.Model` and `vsemb.serving.Client`.

    Subclasses define `embed_texts` and `embed_images`, each of one batch, and `compared_by`.

    Attributes:
        compared_by: similarity of images and texts; None if it is unknown.
    """

    # `Similarity | None`, without Keras: the types of a client's fields are read when it is made.
    compared_by: Any

    def embed_texts(self, texts: list[str]) -> Rows:
        """Embed one batch of texts."""
        raise NotImplementedError

    def embed_images(self, images: list[bytes]) -> Rows:
        """Embed one batch of images, JPEG or PNG bytes."""
        raise NotImplementedError

    def encode_texts(
        self,
        texts: str | Iterable[str],
        *,
        batch_size: int = 256,
        precision: Precision = "float32",
        on_bad: OnBad = "fail",
        progress: bool | None = None,
    ) -> np.ndarray:
        """Embed texts.

        Args:
            texts: one text, or n texts.
            batch_size: texts per call of the model.
            precision: `float32`; or, for cosine similarity, `int8`, one byte per number, or `ubinary`, one bit.
            on_bad: for texts without words or with a lone surrogate: `fail` raises an error, `nan` returns their rows
                as NaN and names them in a notice.
            progress: whether a progress bar is shown; default: on a terminal.

        Returns:
            (n, dim) float32 in the geometry of the model's similarity; (dim,) for one text. A multi-vector model, such
            as `dvsa`, returns (n, items, dim), padded with zeros. With `int8`, (n, dim) int8; with `ubinary`,
            (n, dim / 8) uint8.

        Raises:
            DataError: for a text without words or with a lone surrogate.
            InvalidArgumentError: for a precision that does not fit the similarity, the size, or `on_bad`.

        Example:

            model.encode_texts(["a dog on a beach", "a cat"])
        """
        if isinstance(texts, str):
            return self.encode_texts([texts], precision=precision, on_bad=on_bad, progress=False)[0]
        rows = in_order("texts", texts, "one string, or a list of strings")
        for row, text in enumerate(rows):
            if not isinstance(text, str):
                raise invalid_argument(f"texts[{row}]", text, "a string", "Pass one string, or a list of strings.")
        embed = self._quantized(self.embed_texts, precision, on_bad)
        return _encoded("texts", rows, _valid_text, embed, _no_words, batch_size, on_bad, progress)

    def encode_images(
        self,
        images: ImageLike | Iterable[ImageLike],
        *,
        batch_size: int = 32,
        precision: Precision = "float32",
        on_bad: OnBad = "fail",
        progress: bool | None = None,
    ) -> np.ndarray:
        """Embed images.

        Args:
            images: one image, or n images. An image is the path of a file, the bytes of a file, a PIL image, or an
                array, uint8 (height, width, 3). An array (n, height, width, 3) holds n images.
            batch_size: images per call of the model.
            precision: `float32`; or, for cosine similarity, `int8`, one byte per number, or `ubinary`, one bit.
            on_bad: for images that cannot be read: `fail` raises one error that names all of them, `nan` returns their
                rows as NaN and names them in a notice.
            progress: whether a progress bar is shown; default: on a terminal.

        Returns:
            (n, dim) float32 in the geometry of the model's similarity; (dim,) for one image. A multi-vector model, such
            as `dvsa`, returns (n, items, dim), padded with zeros. With `int8`, (n, dim) int8; with `ubinary`,
            (n, dim / 8) uint8.

        Raises:
            DataError: for an image that cannot be read, and for a model without an image network.
            InvalidArgumentError: for a precision that does not fit the similarity, the size, or `on_bad`.

        Example:

            model.encode_images(["dog.jpg", PIL.Image.open("cat.png")])
        """
        from vsemb.data.images import check_image, image_bytes, is_image

        if is_image(images):
            return self.encode_images([images], precision=precision, on_bad=on_bad, progress=False)[0]
        allowed = "one image, or a list of images"
        if hasattr(images, "read"):
            raise invalid_argument("images", type(images).__name__, allowed, "Of an open file: file.read()")
        rows = in_order("images", images, allowed)
        for row, image in enumerate(rows):
            check_image(image, f"images[{row}]" if len(rows) > 1 else "image")
        embed = self._quantized(self.embed_images, precision, on_bad)
        return _encoded("images", rows, image_bytes, embed, _no_pixels, batch_size, on_bad, progress)

    def _quantized(self, embed: Embed, precision: Precision, on_bad: str) -> Embed:
        """Return the function that embeds a batch in a precision."""
        if precision == "float32":
            return embed
        check_quantizable(precision, self.compared_by)
        if on_bad == "nan":
            raise invalid_argument("on_bad", on_bad, f"'fail' with precision={precision!r}, which has no NaN")

        def quantized(batch: list[Any]) -> Rows:
            embeddings, valid = embed(batch)
            return quantize(embeddings, precision), valid

        return quantized


def _encoded(
    what: str,
    rows: list[Any],
    read: Callable[[Any], Any],
    embed: Embed,
    refused: Callable[[Any], str],
    batch_size: int,
    on_bad: str,
    progress: bool | None,
) -> np.ndarray:
    require("batch_size", batch_size, Count)
    if on_bad not in ("fail", "nan"):
        raise unknown_name("on_bad", on_bad, ("fail", "nan"))
    if not rows:
        raise invalid_argument(what, rows, f"one or more {what}")
    vectors: dict[int, np.ndarray] = {}
    bad: dict[int, str] = {}
    hidden = None if progress is None else not progress
    with console.progress(total=len(rows), desc=what, unit=what[:-1], delay=1.0, disable=hidden) as bar:
        for start in range(0, len(rows), batch_size):
            batch = {}
            for place in range(start, min(start + batch_size, len(rows))):
                try:
                    batch[place] = read(rows[place])
                except DataError as error:
                    bad[place] = str(error)
            # After a bad image, the others are only read, so that one error names all bad ones.
            if batch and not (bad and on_bad == "fail"):
                embeddings, valid = embed(list(batch.values()))
                vectors.update(zip(batch, embeddings, strict=True))
                bad |= {place: refused(rows[place]) for place, known in zip(batch, valid, strict=True) if not known}
            bar.update(min(batch_size, len(rows) - start))
    if bad:
        problems = listed([f"row {place}: {reason}" for place, reason in sorted(bad.items())])
        if on_bad == "nan" and vectors:
            console.say(f"{len(bad)} of {len(rows)} {what} are rows of NaN: {problems}.")
        else:
            fix = " Correct them, or pass on_bad='nan' for rows of NaN." if on_bad == "fail" else ""
            several = f"{len(bad)} of {len(rows)} {what} cannot be embedded: {problems}.{fix}"
            raise DataError(several if len(rows) > 1 else bad[0])
    # Sets of vectors may have different lengths.
    dtype = next(iter(vectors.values())).dtype
    embedded = np.zeros((len(rows), *max(each.shape for each in vectors.values())), dtype)
    for place, each in vectors.items():
        embedded[place, : len(each)] = each
    if bad:
        embedded[list(bad)] = np.nan
    return embedded


def _valid_text(text: str) -> str:
    if has_surrogate(text):
        raise DataError(f"A text must be valid Unicode, without lone surrogates; got {one_line(repr(text), 80)}.")
    return text


def _no_words(row: Any) -> str:
    return f"A text must have at least one word that the model reads; got {one_line(repr(row), 80)}."


def _no_pixels(row: Any) -> str:
    name = os.fspath(row) if isinstance(row, str | os.PathLike) else f"({type(row).__name__})"
    return f"An image must decode as JPEG or PNG; the model refused {name}."
