"""Inputs of a served model: raw texts that are tokenized in graph, and image bytes that are decoded in graph."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import keras
import numpy as np

from vsemb.errors import invalid_argument
from vsemb.exporting.formats.towers import Tower
from vsemb.exporting.reference_outputs import Arrays, golden_images, golden_texts
from vsemb.exporting.signatures import Outputs, Signature, embedding_rows, first_rows, one_row_at_least, tensors
from vsemb.image.backbones import BackboneConfig
from vsemb.image.decode import MAX_PIXELS
from vsemb.image.views import decode_views, encode_views
from vsemb.ops.tensorflow import tf
from vsemb.text.normalize import MAX_BYTES
from vsemb.text.vocabulary import PADDING_ID, UNKNOWN_ID

#: File of the tokenizer beside a converted tower.
TOKENIZER = "tokenizer.json"


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

    def tower(self, served: Any) -> Tower | str:
        """Return the tower from token ids to embeddings, or the reason for its absence, a clause.

        Args:
            served: the `vsemb.exporting.ServedModel`.
        """
        tokenizer = self.tokenizer
        spec = tf.TensorSpec((None, None, *tokenizer.token_shape), tf.int32, name="token_ids")

        def rows(token_ids: tf.Tensor) -> Outputs:
            return served.id_rows(token_ids)

        def examples() -> np.ndarray:
            return self.ids(**tensors(self.examples(served.multi_vector))).numpy()

        def files() -> dict[str, str]:
            return {} if content is None else {TOKENIZER: json.dumps(content, ensure_ascii=False, indent=1) + "\n"}

        content = tokenizer.to_tokenizer_json()
        reads = f"Token ids are made by {TOKENIZER}, for the library tokenizers."
        if tokenizer.ngrams is not None:
            reads += " `encode.py` shows how the n-grams of a word follow its id."
        if content is None:
            reads = f"Token ids are those of vsemb's {type(tokenizer).__name__}. No format for other programs holds it."
        facts = {
            "tokenizer": TOKENIZER if content is not None else "its format cannot hold the tokenizer of this model",
            "max_length": self.max_tokens,
            "padding_id": PADDING_ID,
            "unknown_id": UNKNOWN_ID,
            "ngrams": tokenizer.ngrams,
        }
        return Tower("text", spec, rows, examples, self.max_tokens, facts, files, (reads,))

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

    def tower(self, model: Any) -> Tower | str:
        """Return the tower from pixels to embeddings, or the reason for its absence, a clause.

        Args:
            model: the trained model.
        """
        return "its image input is not one array of pixels"

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
        views, valid = decode_views(encoded, self.config)
        images = self.of_views(views)
        return tf.where(tf.reshape(valid, [-1] + [1] * (images.shape.rank - 1)), images, 0.0), valid

    def of_views(self, views: tf.Tensor) -> tf.Tensor:
        """Convert decoded views, (batch, crops, size, size, 3) float32, to inputs of the model."""
        if self.backbone is None:
            return views[:, 0]
        return tf.reduce_mean(encode_views(self.backbone, views), axis=1)

    def tower(self, model: Any) -> Tower | str:
        size, crops = self.config.size, self.config.crops
        views = (size, size, 3) if crops == 1 else (crops, size, size, 3)

        def rows(pixels: tf.Tensor) -> Outputs:
            return {"embedding": model.encode_images(self.of_views(tf.reshape(pixels, (-1, crops, size, size, 3))))}

        def examples() -> np.ndarray:
            return np.random.default_rng(0).integers(0, 256, (2, *views)).astype(np.float32)

        resizing = self.config.resizing
        facts = {
            "size": size,
            "crops": crops,
            "resize": self.config.resize,
            "resizing": None if resizing is None else resizing._asdict(),
            "colours": "RGB",
            "range": [0, 255],
        }
        how = self.config.resize if resizing is None else resizing.describe()
        limits = (
            f"Pixels are RGB from 0 to 255, {size} pixels a side ({how}). The tower scales them itself.",
            *([f"An image is {crops} crops, in the order of `vsemb.image.views.ten_crops`."] if crops > 1 else []),
        )
        spec = tf.TensorSpec((None, *views), tf.float32, name="pixels")
        return Tower("image", spec, rows, examples, facts=facts, limits=limits)


class MirroredInput(ImageInput):
    """Image bytes as features of the image and of its mirror image, (batch, 2, dim)."""

    def of_views(self, views: tf.Tensor) -> tf.Tensor:
        return encode_views(self.backbone, tf.concat([views, views[:, :, :, ::-1]], axis=1))


def tables_of(holder: object) -> list[Any]:
    """Return the lookup tables among the attributes of an object, or of a Keras layer and its own layers."""
    kinds = tf.lookup.StaticHashTable | tf.lookup.StaticVocabularyTable
    holders = holder._flatten_layers() if isinstance(holder, keras.layers.Layer) else [holder]
    return [value for each in holders for value in vars(each).values() if isinstance(value, kinds)]
