"""Inputs of a served model: raw texts that are tokenized in graph, and image bytes that are decoded in graph."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import keras
import numpy as np

from vsemb.errors import invalid_argument
from vsemb.exporting.reference_outputs import Arrays, golden_images, golden_texts
from vsemb.exporting.signatures import Outputs, Signature, embedding_rows, first_rows, one_row_at_least
from vsemb.image.backbones import BackboneConfig
from vsemb.image.decode import MAX_PIXELS
from vsemb.image.views import decode_views, encode_images, encode_views
from vsemb.ops.tensorflow import tf
from vsemb.text.normalize import MAX_BYTES
from vsemb.text.vocabulary import UNKNOWN_ID


class TextInput:
    """Text input of a served model: raw strings, tokenized in graph. Systems subclass it for other inputs.

    Args:
        tokenizer: string (batch,) -> int ids (batch, steps), 0 for padding; its lookup tables become part of the
            SavedModel.

    Class attributes:
        name: suffix of the signatures `encode_NAME` and `search_NAME`.
        specs: inputs of `encode_NAME`.
        max_bytes: bytes read of a text; None for no limit.
    """

    name: ClassVar[str] = "text"
    specs: tuple[tf.TensorSpec, ...] = (tf.TensorSpec([None], tf.string, name="text"),)
    max_bytes: ClassVar[int | None] = MAX_BYTES

    def __init__(self, tokenizer: Callable[[tf.Tensor], tf.Tensor]) -> None:
        self.tokenizer: Any = tokenizer

    @property
    def takes(self) -> str:
        """Plural noun for the texts, for the model card."""
        return "sentences"

    @property
    def instance(self) -> Mapping[str, Any]:
        """Example row as the REST API takes it, with a word that the tokenizer knows."""
        sentence = "a dog running on a beach"
        words: Sequence[str] = getattr(getattr(self.tokenizer, "vocabulary", None), "words", ())
        known = not words or any(word in words for word in sentence.split())
        return {"text": sentence if known else words[0]}

    @property
    def max_tokens(self) -> int | None:
        """Maximum number of tokens read of a text; None for no limit or an unknown one."""
        return getattr(self.tokenizer, "max_length", None)

    @property
    def tables(self) -> list[Any]:
        """Lookup tables of the tokenizer."""
        return tables_of(self.tokenizer)

    def ids(self, text: tf.Tensor) -> tf.Tensor:
        """Tokenize a batch, of one row and one step at least; takes the inputs of `specs` by name."""
        ids = self.tokenizer(one_row_at_least(text))
        if ids.shape[1] is not None:
            return ids
        # A batch of empty texts has no steps, at which Keras' recurrent layers fail in a graph.
        none = tf.cast(tf.equal(tf.shape(ids)[1], 0), tf.int32)
        return tf.pad(ids, [[0, 0], [0, none], *[[0, 0]] * (ids.shape.rank - 2)])

    def known_share(self, ids: tf.Tensor) -> tf.Tensor:
        """Compute the share of known tokens of each text.

        A text is valid if the share is above 0. A layer in place of a tokenizer, such as Keras' `TextVectorization`,
        uses id 1 for unknown words.

        Args:
            ids: the result of `ids`.

        Returns:
            (batch,) float32 from 0 to 1; 0 for a text without tokens.
        """
        known = getattr(self.tokenizer, "is_known", lambda ids: ids > UNKNOWN_ID)(ids)
        tokens = tf.reduce_any(tf.not_equal(ids, 0), axis=list(range(2, ids.shape.rank)))
        count = tf.reduce_sum(tf.cast(tokens, tf.float32), axis=1)
        return tf.math.divide_no_nan(tf.reduce_sum(tf.cast(known, tf.float32), axis=1), count)

    def from_strings(self, served: Any) -> Callable[[tf.Tensor], dict[str, tf.Tensor]]:
        """Return the function from raw strings to embeddings, for callers in Python.

        Args:
            served: the `vsemb.exporting.ServedModel`.
        """
        return served.default.function

    def examples(self, short: bool = False) -> Arrays:
        """Return golden rows of `specs`.

        Args:
            short: whether to leave out long texts.
        """
        return {"text": np.array(golden_texts(self.tokenizer, short), object)}

    def limits(self) -> list[str]:
        """Return sentences about limits, for the model card."""
        limits = [f"The first {self.max_bytes:,} bytes of a text are read."]
        if self.max_tokens is not None:
            limits.append(f"The first {self.max_tokens} tokens of a text are read.")
        return [*limits, "A text without a known word is invalid; `known` is the share of known words."]

    def cannot(self) -> list[str]:
        """Return sentences about unsupported tasks, for the model card."""
        return []


class BaseImageInput:
    """Image input of a served model; base of `ImageInput` and of inputs of other images than encoded ones.

    Class attributes:
        multi_vector: whether an image gives a set of vectors.
    """

    multi_vector: bool = False

    def __call__(self, encoded: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Decode images: string (batch,) -> ((batch, ...) float32, valid (batch,) bool)."""
        raise NotImplementedError

    @property
    def specs(self) -> tuple[tf.TensorSpec, ...]:
        """Inputs of `encode_image`, the bytes first."""
        return (tf.TensorSpec([None], tf.string, name="image_bytes"),)

    @property
    def instance(self) -> Mapping[str, Any]:
        """Example row of `encode_image`, as `Signature.instance`."""
        return {"image_bytes": {"b64": "photo.jpg"}}

    def rows(self, model: Any, image_bytes: tf.Tensor, **more: tf.Tensor) -> Outputs:
        """Compute `encode_image`.

        Args:
            model: the trained model.
            image_bytes: (batch,) string.
            **more: the other inputs of `specs`.

        Returns:
            `embedding`, `valid`, and further outputs of a subclass.
        """
        assert not more
        rows = tf.shape(image_bytes)[0]
        images, valid = self(one_row_at_least(image_bytes))
        return first_rows(embedding_rows(model.encode_images(images), valid), rows)

    def examples(self) -> Arrays:
        """Return golden rows of `specs`."""
        return {"image_bytes": np.array(golden_images(), object)}

    def signatures(self, served: Any) -> Sequence[Signature]:
        """Return additional signatures of models with these images.

        Args:
            served: the `vsemb.exporting.ServedModel`.
        """
        return ()

    def limits(self) -> list[str]:
        """Return sentences about limits, for the model card."""
        return [
            f"Images are JPEG or PNG of at most {MAX_PIXELS:,} pixels, decoded by the rules of `vsemb prepare`.",
            "An image is turned upright by its EXIF orientation, or by that of XMP. Transparent pixels are white.",
            "A CMYK JPEG without Adobe's marker is unreadable, because its colours are not known.",
        ]


@dataclass(frozen=True, eq=False)
class ImageInput(BaseImageInput):
    """Image bytes, decoded in graph. Systems subclass it for other inputs.

    Attributes:
        config: configuration of the backbone; its `size`, `crops` and `resize` set the decoded views.
        backbone: network that computes the features of the training; None for a model trained from pixels, which
            holds its backbone.

    Example:

    >>> pixels, valid = ImageInput(BackboneConfig("SmallConvNet"))(tf.constant([b"no image"]))
    >>> pixels.shape, valid.numpy().tolist()
    (TensorShape([1, 64, 64, 3]), [False])
    """

    config: BackboneConfig
    backbone: keras.Model | None = None

    def __post_init__(self) -> None:
        if self.backbone is None and self.config.crops != 1:
            raise invalid_argument("crops", self.config.crops, "1 for a model from pixels")

    def __call__(self, encoded: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        if self.backbone is None:
            pixels, valid = decode_views(encoded, self.config)
            return pixels[:, 0], valid
        return encode_images(self.backbone, self.config, encoded)


class MirroredInput(ImageInput):
    """Image bytes as features of the image and of its mirror image, (batch, 2, dim)."""

    def __call__(self, encoded: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        pixels, valid = decode_views(encoded, self.config)
        features = encode_views(self.backbone, tf.concat([pixels, pixels[:, :, :, ::-1]], axis=1))
        return tf.where(valid[:, None, None], features, 0.0), valid


def tables_of(holder: object) -> list[Any]:
    """Return the lookup tables among the attributes of an object, or of a Keras layer and its own layers."""
    kinds = tf.lookup.StaticHashTable | tf.lookup.StaticVocabularyTable
    holders = holder._flatten_layers() if isinstance(holder, keras.layers.Layer) else [holder]
    return [value for each in holders for value in vars(each).values() if isinstance(value, kinds)]
