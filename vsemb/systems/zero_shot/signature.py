"""Recognition in a served model: names of classes as texts, and `classify`, which tells images apart."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np
import tensorflow as tf

from vsemb.errors import invalid_argument
from vsemb.export import ServedModel, Signature, TextInput
from vsemb.export.exportable import Outputs
from vsemb.export.served_model import score_scale
from vsemb.similarities import Similarity


class ClassNamesInput(TextInput):
    """Names of classes, of which the model knows what is stored of them, in place of sentences."""

    @property
    def takes(self) -> str:
        return f"names of {len(self.tokenizer.vocabulary.words)} classes"

    def limits(self) -> list[str]:
        return [
            f"Of a text, what is behind {self.max_bytes:,} bytes is not read.",
            f"A text is one of the {self.takes}, written as in training.",
            "A text that is none of the names of classes is valid too, and embedded as an unknown class.",
        ]


@dataclass(frozen=True, eq=False)
class ClassPrompts:
    """Classes to tell images apart by, each the same number of prompts made from its name.

    Attributes:
        names: c names, in the order in which scores are given.
        embeddings: (c, prompts, dim) float32 text embeddings in the geometry of the model's similarity;
            (c, prompts, words, dim) where these are sets.

    Example:

    >>> prompts = ClassPrompts(("dog", "cat"), np.zeros((2, 1, 4), np.float32))
    """

    names: tuple[str, ...]
    embeddings: np.ndarray

    def __post_init__(self) -> None:
        if self.embeddings.ndim not in (3, 4) or len(self.embeddings) != len(self.names):
            allowed = f"a shape ({len(self.names)}, prompts, dim)"
            raise invalid_argument("embeddings", self.embeddings.shape, allowed)

    def scores(self, images: tf.Tensor, similarity: Similarity) -> tf.Tensor:
        """Scores images against the classes by the mean of the scores of their prompts, in graph.

        Args:
            images: (n, dim) float32 embeddings.
            similarity: the model's.

        Returns:
            (n, c) float32.
        """
        if similarity.linear:
            means = self.embeddings.mean(axis=1, dtype=np.float64).astype(np.float32)
            return similarity.scores(images, tf.constant(means))
        # Not `scores`: an order's is compiled for the shapes at hand, which a served graph does not know.
        prompts = tf.constant(self.embeddings)
        each = [
            similarity.pair_scores(images[:, None], prompts[None, :, number])
            for number in range(self.embeddings.shape[1])
        ]
        return tf.add_n(each) / float(len(each))

    def signature(self, served: ServedModel) -> Signature:
        """Returns the signature `classify`, for `extras` of a served model.

        `image_bytes` string (batch,) -> {"classes" string (batch, c), the names in the order given, "scores" float32
        (batch, c), "valid" bool (batch,)}.

        Args:
            served: the model.

        Raises:
            InvalidArgumentError: where images cannot be embedded, or become sets of vectors.
        """
        names = list(self.names)
        images = served.image
        if images is None:
            fix = "A run on precomputed features, or one for sentences alone, holds no image network."
            raise invalid_argument("classes", names, "none where images cannot be embedded", fix)
        if served.multi_vector:
            allowed = "no classes, since a served class is one vector, and the model embeds images as sets of vectors"
            raise invalid_argument("classes", names, allowed, "Classify with the run: vsemb classify RUN")

        def rows(image_bytes: tf.Tensor) -> Outputs:
            outputs = images.rows(image_bytes=image_bytes)
            scores = self.scores(outputs["embedding"], served.model.similarity)
            scores = tf.where(outputs["valid"][:, None], scores, 0.0)
            classes = tf.tile(tf.constant([self.names], tf.string), [tf.shape(scores)[0], 1])
            return {"classes": classes, "scores": scores, "valid": outputs["valid"]}

        scale = partial(score_scale, images, self.embeddings)
        return Signature("classify", images.inputs, rows, images.examples, scale)
