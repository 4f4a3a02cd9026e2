"""Captions in a served model, from image bytes to sentences; shared by the command line."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import keras
import numpy as np

from vsemb.errors import DataError, invalid_argument
from vsemb.exporting import About, Exportable, ImageInput, Signature
from vsemb.exporting.reference_outputs import Arrays, Tie, golden_images
from vsemb.exporting.served_inputs import tables_of
from vsemb.exporting.signatures import Outputs, first_rows, kernels_for_any_device, one_row_at_least, tolerance_of
from vsemb.image.decode import MAX_PIXELS
from vsemb.ops.tensorflow import tf

if TYPE_CHECKING:
    from vsemb.systems.captions.captioner import Captioner

# Number of golden pictures with stable captions, and maximum number of pictures tried.
_PICTURES, _LOOKED_AT = 2, 12
# Number of noise samples that must not change the captions of a golden picture.
_NOISES = 3
#: Differences of two outputs that are ignored.
TIES = {"captions": Tie("permuted", "log_probs")}


class ServedCaptioner(Exportable):
    """A captioner as a served model.

    Args:
        captioner: function of model inputs, (batch, ...) float32. Returns `vsemb.systems.captions.captioner.Captions`
            with `n_best` columns; works in a graph.
        image_input: function from bytes to model inputs, one row per image.
        facts: settings for the contract and the model card: `words`, the size of the vocabulary, and `beam`,
            `length_penalty`, `max_words` or `candidates`, if they apply.

    Raises:
        InvalidArgumentError: if `image_input` returns sets of regions.

    Attributes:
        caption: function of `image_bytes`, string (batch,), batch >= 0. Returns "captions", string (batch, n), best
            first, "" for a missing caption; "log_probs", float32 (batch, n), natural logarithms, 0 for a missing
            caption; and "valid", bool (batch,). Invalid bytes give `valid` false, "" and 0. They do not change other
            rows.

    Example:

        served = ServedCaptioner(captioner, image_input)
        served.caption(tf.constant([open("dog.jpg", "rb").read()]))["captions"]
    """

    def __init__(
        self, captioner: Captioner, image_input: ImageInput, facts: Mapping[str, int | float] | None = None
    ) -> None:
        if image_input.multi_vector:
            fix = "A caption is of the whole image: see WholeImageInput."
            raise invalid_argument("image_input", type(image_input).__name__, "an input with one row per image", fix)
        self.captioner = captioner
        self.image_input = image_input
        self.facts = {"n_best": captioner.n_best, **(facts or {})}
        caption = Signature(
            "caption",
            image_input.specs,
            self.caption_rows,
            self.examples,
            ties=TIES,
            instance=image_input.instance,
        )
        self.offered = [caption]
        self.caption = caption.function

    def caption_rows(self, image_bytes: tf.Tensor) -> Outputs:
        """Compute `caption`; runs eagerly outside a graph."""
        rows = tf.shape(image_bytes)[0]
        images, valid = self.image_input(one_row_at_least(image_bytes))
        return first_rows(self._written(images, valid), rows)

    def _written(self, images: tf.Tensor, valid: tf.Tensor) -> Outputs:
        with kernels_for_any_device(*self._layers()):
            captions = self.captioner(images)
        shape = [valid.shape[0], self.captioner.n_best]
        here = valid[:, None]
        return {
            "captions": tf.ensure_shape(tf.where(here, captions.texts, ""), shape),
            "log_probs": tf.ensure_shape(tf.where(here, captions.log_probs, 0.0), shape),
            "valid": valid,
        }

    @property
    def tables(self) -> list[Any]:
        """The captioner's lookup tables, if it has any."""
        return tables_of(self.captioner)

    @property
    def tolerance(self) -> float:
        """Maximum relative difference of two computations of one row."""
        # A model may have another precision than its layers.
        dtypes = ["float32"]
        for layer in self._layers():
            dtypes += [part.compute_dtype for part in layer._flatten_layers()]
        return tolerance_of(dtypes)

    def examples(self) -> Arrays:
        """Return the test input of `caption`: two valid images and three invalid rows.

        Raises:
            DataError: if a valid image gets no caption.
        """
        first, second = self._steady_pictures()
        rows = [first, b"not an image", second, second[: len(second) // 2], b""]
        return {"image_bytes": np.array(rows, object)}

    @property
    def promises(self) -> dict[str, Any]:
        """The fields of the contract about captions."""
        return {"max_pixels": MAX_PIXELS, "settings": self.facts}

    @property
    def about(self) -> About:
        """Description of the model, for the model card."""
        facts = self.facts
        most = facts["n_best"]
        captions = "a caption per image" if most == 1 else f"up to {most} captions per image, the best first"
        words = f", with a vocabulary of {facts['words']:,} words" if "words" in facts else ""
        limits = self.image_input.limits()
        if "max_words" in facts:
            limits.append(f"A caption has at most {facts['max_words']} words; longer ones are cut.")
        return About(
            what=f"Writes {captions}{words}.",
            reading=self._reading(),
            made="captions",
            invalid='captions that are ""',
            limits=limits,
            cannot=[
                "The model does not embed or compare images; it writes sentences.",
                "Captions imitate training captions of similar images. On unfamiliar images they are fluent and wrong.",
                "The model does not read text in images, and does not name people.",
            ],
        )

    def _reading(self) -> str:
        facts, sentences = self.facts, []
        if "beam" in facts:
            beam = facts["beam"]
            searched = f"a beam of {beam}" if beam > 1 else "choosing the most probable word at each step"
            sentences.append(f"Captions are found by {searched}.")
        sentences.append("`log_probs` are natural logarithms of the probability of a caption.")
        if facts.get("length_penalty"):
            sentences.append(f"Captions are ordered by `log_probs` / words ** {facts['length_penalty']:g}.")
        if "candidates" in facts:
            sentences.append(f"The best of {facts['candidates']:,} candidates by the model's score are returned.")
        return " ".join(sentences)

    def _steady_pictures(self) -> list[bytes]:
        """Return images whose captions do not change by rounding.

        If two words are almost equally probable, another processor may choose the other word, and the rest of the
        caption changes too. So images whose captions change under noise of the size of the tolerance are only used as
        golden rows if there are no others.
        """
        compiled = tf.function(self._written, reduce_retracing=True, autograph=False)
        random = np.random.default_rng(0)
        steady: list[bytes] = []
        other: list[bytes] = []
        for picture in golden_pictures(_LOOKED_AT):
            images, valid = self.image_input(tf.constant([picture]))
            noise = random.uniform(-1, 1, (_NOISES, *images.shape[1:])).astype(np.float32)
            noisy = images * (1 + self.tolerance * noise)
            outputs = compiled(tf.concat([images, noisy], axis=0), tf.repeat(valid, 1 + _NOISES))
            texts = outputs["captions"].numpy()
            if not texts[0, 0]:
                raise DataError(
                    "The model writes no caption of an image, as where its probabilities hold NaN; it was "
                    "not published."
                )
            if (texts == texts[:1]).all():
                steady.append(picture)
            else:
                other.append(picture)
            if len(steady) == _PICTURES:
                break
        return [*steady, *other][:_PICTURES]

    def _layers(self) -> Iterator[keras.layers.Layer]:
        for value in vars(self.captioner).values():
            if isinstance(value, keras.layers.Layer):
                yield value


def golden_pictures(count: int) -> Iterator[bytes]:
    """Yield valid images to test an export, first the two of `golden_images`.

    Args:
        count: number of images, all different, JPEG and PNG in turn.
    """
    jpeg, _, png, *_ = golden_images()
    yield from (jpeg, png)[:count]
    for number in range(2, count):
        random = np.random.default_rng(number)
        # A few large areas of colour: networks distinguish noise images poorly.
        pixels = random.integers(0, 256, (4, 5, 3)).astype(np.uint8).repeat(12, axis=0).repeat(12, axis=1)
        encode = tf.io.encode_png if number % 2 else tf.io.encode_jpeg
        yield encode(pixels).numpy()
