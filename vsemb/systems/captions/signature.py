"""Captions in a served model: image bytes in, sentences out, as the command line shows them too."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import keras
import numpy as np
import tensorflow as tf

from vsemb.errors import DataError, invalid_argument
from vsemb.export.contract import Golden
from vsemb.export.golden import golden_pictures
from vsemb.export.image_input import ImageInput
from vsemb.export.rows import Outputs, first_rows, function_of, kernels_for_any_device, one_row_at_least
from vsemb.export.served import Case, tables_of, tolerance_of
from vsemb.image.decode import MAX_PIXELS

if TYPE_CHECKING:
    from vsemb.systems.captions.captioner import Captioner

# Golden pictures that are good ones, and how many are looked at until so many are found.
_PICTURES, _LOOKED_AT = 2, 12
# Noises that captions of a golden picture must not change under.
_NOISES = 3


class ServedCaptioner:
    """A captioner as it is served.

    Args:
        captioner: takes images as a model does, (batch, ...) float32, and gives
            `vsemb.systems.captions.captioner.Captions` of as many columns as its `n_best`; works in a graph.
        image_input: from bytes to those images. One of regions has the whole image as an image's first
            region, and that is captioned.
        facts: how it writes, for the contract and the model card: `words`, how many it knows, and `beam`,
            `length_penalty`, `max_words` or `candidates`, whatever of them it has.

    Raises:
        InvalidArgumentError: for regions that have to come with an image.

    Attributes:
        caption: `image_bytes` string (batch,) of any size, zero included -> {"captions" string (batch, n),
            best first, "" where there are fewer, "log_probs" float32 (batch, n), natural logarithms, 0 where
            there is no caption, "valid" bool (batch,)}. Bytes that are no image give `valid` false, "" and 0,
            and leave the other rows as they are.

    Example:

        served = ServedCaptioner(captioner, image_input)
        served.caption(tf.constant([open("dog.jpg", "rb").read()]))["captions"]
    """

    #: The only signature.
    default = "caption"

    def __init__(
        self, captioner: Captioner, image_input: ImageInput, facts: Mapping[str, int | float] | None = None
    ) -> None:
        if image_input.wants_boxes:
            fix = "A caption is of the whole image: take the regions of a grid, none beside it."
            raise invalid_argument("image_input", "candidates to be given", "regions found in graph", fix)
        self.captioner = captioner
        self.image_input = image_input
        self.facts = {"n_best": captioner.n_best, **(facts or {})}
        self.caption = function_of(self.caption_rows, tf.TensorSpec([None], tf.string, name="image_bytes"))

    def caption_rows(self, image_bytes: tf.Tensor) -> Outputs:
        """What `caption` computes, step by step where it is called outside a graph."""
        rows = tf.shape(image_bytes)[0]
        images, valid = self._images(one_row_at_least(image_bytes))
        return first_rows(self._written(images, valid), rows)

    def _images(self, image_bytes: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        images, valid = self.image_input(image_bytes)
        return (images if self.image_input.regions is None else images[:, 0]), valid

    def _written(self, images: tf.Tensor, valid: tf.Tensor) -> Outputs:
        with kernels_for_any_device(*self._layers()):
            found = self.captioner(images)
        shape = [valid.shape[0], self.captioner.n_best]
        here = valid[:, None]
        return {
            "captions": tf.ensure_shape(tf.where(here, found.texts, ""), shape),
            "log_probs": tf.ensure_shape(tf.where(here, found.log_probs, 0.0), shape),
            "valid": valid,
        }

    @property
    def signatures(self) -> dict[str, Any]:
        """The concrete functions by signature name, `serving_default` first."""
        caption = self.caption.get_concrete_function()
        return {"serving_default": caption, self.default: caption}

    @property
    def tables(self) -> list[Any]:
        """The captioner's lookup tables, if it has any."""
        return tables_of(self.captioner)

    @property
    def tolerance(self) -> float:
        """The largest relative difference that two computations of one row may show."""
        # A model may be of another precision than its layers.
        layers = [part for layer in self._layers() for part in layer._flatten_layers()]
        return tolerance_of(["float32", *(layer.compute_dtype for layer in layers)])

    def cases(self) -> list[Case]:
        """Returns what `caption` is tried with: two good images, and three rows that are none.

        Raises:
            DataError: if a good image gets no caption.
        """
        first, second = self._steady_pictures()
        rows = [first, b"not an image", second, second[: len(second) // 2], b""]
        return [Case(self.default, self.caption_rows, {"image_bytes": np.array(rows, object)})]

    def promises(self, golden: Mapping[str, Golden]) -> dict[str, Any]:
        """Returns what the contract says of the captions."""
        return {"max_pixels": MAX_PIXELS, "captions": self.facts}

    def _steady_pictures(self) -> list[bytes]:
        """Returns images whose captions rounding does not change.

        Of two words that are as good as equally likely, another processor may take the other, and all that
        is written behind it is another too. So images whose captions change under noise as large as the
        tolerance are no golden rows, unless there are no others.
        """
        compiled = tf.function(self._written, reduce_retracing=True, autograph=False)
        random = np.random.default_rng(0)
        steady: list[bytes] = []
        other: list[bytes] = []
        for picture in golden_pictures(_LOOKED_AT):
            images, valid = self._images(tf.constant([picture]))
            noise = random.uniform(-1, 1, (_NOISES, *images.shape[1:])).astype(np.float32)
            noisy = images * (1 + self.tolerance * noise)
            found = compiled(tf.concat([images, noisy], axis=0), tf.repeat(valid, 1 + _NOISES))
            texts = found["captions"].numpy()
            if not texts[0, 0]:
                raise DataError(
                    "The model writes no caption of an image, as where its probabilities hold NaN; it was "
                    "not published."
                )
            (steady if (texts == texts[:1]).all() else other).append(picture)
            if len(steady) == _PICTURES:
                break
        return [*steady, *other][:_PICTURES]

    def _layers(self) -> Iterator[keras.layers.Layer]:
        for value in vars(self.captioner).values():
            if isinstance(value, keras.layers.Layer):
                yield value
