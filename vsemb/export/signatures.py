"""The functions that serving, search and export share: raw strings, trees and image bytes in, embeddings out.

They exist once, so that what TensorFlow Serving answers is what was searched and measured.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

from vsemb.errors import invalid_argument
from vsemb.export.contract import Golden
from vsemb.export.corpus import Corpus
from vsemb.export.embedding_cases import embedding_cases, embedding_promises
from vsemb.export.image_input import ImageInput
from vsemb.export.rows import (
    Outputs,
    first_rows,
    function_of,
    kernels_for_any_device,
    one_row_at_least,
)
from vsemb.export.served import Case, tables_of, tolerance_of
from vsemb.models import DualEncoder
from vsemb.similarities import Similarity

if TYPE_CHECKING:
    from vsemb.systems.entailment.model import EntailmentModel
    from vsemb.systems.trees.signature import Parse


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


class ServedModel:
    """A trained model as it is served.

    All functions take a batch of any size, zero included, and return `embedding`, float32
    (batch, dim) in the geometry of the model's similarity (or scores of classes), and `valid`, bool
    (batch,). A text without a word, what is no tree, or bytes that are no image, give `valid` false and a
    zero row, and leave the other rows as they are. They can be called from Python, and are what a
    SavedModel's signatures hold.

    A model that takes dependency trees has `encode_tree` and `search_tree` in place of the signatures of
    texts, since a SavedModel cannot parse; `encode_text` parses in Python and is no signature then.

    A model whose similarity compares sets gives `embedding` (batch, items, dim): items are the words of a
    text, as many as the tokenizer reads at most, or the regions of an image, and a row of zeros is none. It
    has `align`, and neither classes nor a corpus. Where regions are not proposed in graph, `encode_image`
    and `align` take candidates too, `boxes` float32 (batch, candidates, 4), see
    `vsemb.systems.regions.signature.find_regions`.

    Args:
        model: the trained model; one for entailment embeds texts alone.
        tokenizer: string (batch,) -> int ids (batch, steps), 0 where there is no word, or a
            `vsemb.systems.trees.tree_tokenizer.TreeTokenizer`.
        image_input: from bytes to the model's image input; None where images cannot be embedded.
        classes: what images are classified among, if at all.
        corpus: what is searched, if anything.
        parse: for a model that takes trees, from raw texts to parsed texts; None where none is raw.

    Raises:
        InvalidArgumentError: for classes where images cannot be embedded, or a corpus of another size of
            embedding than the model's; for a model of sets see `vsemb.systems.regions.signature.check_sets`.

    Attributes:
        encode_text: `text` string (batch,) -> {"embedding", "valid"}.
        encode_tree: `tokens` string (batch, steps), "" as padding on either side, and `heads` int32
            (batch, steps), the number of each word's head among the words of its row, counted from 1, and 0
            for the root and padding -> {"embedding", "valid"}, or None.
        encode_image: `image_bytes` string (batch,) -> {"embedding", "valid"}, and of a model of sets also
            {"boxes"}, as `align` has them; or None.
        align: `image_bytes` string (batch,), `text` string (batch,), `affinity` float32 (batch,), what two
            neighbouring words on one region are worth -> {"boxes" float32 (batch, regions, 4), `[x, y, w, h]`
            as fractions of the image, the whole of it first; "words" string, "" for padding; "regions"
            int64, the row of each word's box, -1 for padding; "scores" float32, how well the word fits it,
            each (batch, steps); "valid", false where image, text or affinity is not}, or None.
        classify: `image_bytes` string (batch,) -> {"classes" string (batch, c), the names in the order
            given, "scores" float32 (batch, c), "valid"}, or None.
        search_text: `text` string (batch,), `k` int32 (batch,) -> {"ids", "scores", "keys", "valid"}, see
            `Corpus.search`, or None.
        search_tree: `tokens` and `heads` as above, `k` int32 (batch,) -> the same, or None.
        search_image: `image_bytes` string (batch,), `k` int32 (batch,) -> the same, or None.

    Example:

        served = ServedModel(run.model, run.tokenizer, image_input)
        served.encode_text(tf.constant(["a dog"]))["embedding"]
    """

    def __init__(
        self,
        model: DualEncoder | EntailmentModel,
        tokenizer: Callable[[tf.Tensor], tf.Tensor],
        image_input: ImageInput | None = None,
        classes: ClassPrompts | None = None,
        corpus: Corpus | None = None,
        parse: Parse | None = None,
    ) -> None:
        from vsemb.systems.regions.signature import check_sets, of_sets
        from vsemb.systems.trees.signature import takes_trees

        if classes is not None and image_input is None:
            fix = "A run on precomputed features, or one for sentences alone, holds no image network."
            raise invalid_argument("classes", list(classes.names), "none where images cannot be embedded", fix)
        #: Whether embeddings are sets of vectors.
        self.multi_vector = of_sets(model)
        if self.multi_vector:
            regions = None if image_input is None else image_input.regions is not None
            names = None if classes is None else list(classes.names)
            check_sets(tokenizer, regions, names, None if corpus is None else f"{len(corpus)} items")
        self.model = model
        self.tokenizer = tokenizer
        self.image_input = image_input
        self.classes = classes
        self.corpus = corpus
        self.parse = parse
        text, image_bytes = (tf.TensorSpec([None], tf.string, name=name) for name in ("text", "image_bytes"))
        tree = (
            tf.TensorSpec([None, None], tf.string, name="tokens"),
            tf.TensorSpec([None, None], tf.int32, name="heads"),
        )
        k = tf.TensorSpec([None], tf.int32, name="k")
        self.encode_text: Any = self.text_rows
        self.encode_tree: Any = None
        self.encode_image: Any = None
        self.align: Any = None
        self.classify: Any = None
        self.search_text: Any = None
        self.search_tree: Any = None
        self.search_image: Any = None
        #: Which of the signatures embeds texts or trees, and is the default.
        self.default = "encode_tree" if takes_trees(tokenizer) else "encode_text"
        if takes_trees(tokenizer):
            self.encode_tree = function_of(self.tree_rows, *tree)
            # Parsing is none of TensorFlow's business, but what follows it is compiled.
            self._encode_ids = function_of(self._id_rows, tf.TensorSpec([None, None, 2], tf.int32))
        else:
            self.encode_text = function_of(self.text_rows, text)
            self._encode_ids = self._id_rows
        affinity = tf.TensorSpec([None], tf.float32, name="affinity")
        if image_input is not None and image_input.wants_boxes:
            boxes = tf.TensorSpec([None, None, 4], tf.float32, name="boxes")
            self.encode_image = function_of(self.image_rows, image_bytes, boxes)
            self.align = function_of(self.align_rows, image_bytes, text, affinity, boxes)
        elif image_input is not None:
            # Not the methods themselves: boxes, which they may be given too, would be an input that is None.
            self.encode_image = function_of(lambda image_bytes: self.image_rows(image_bytes), image_bytes)
            if self.multi_vector:
                self.align = function_of(
                    lambda image_bytes, text, affinity: self.align_rows(image_bytes, text, affinity),
                    *(image_bytes, text, affinity),
                )
        if classes is not None:
            self.classify = function_of(self.class_rows, image_bytes)
        if corpus is not None:
            dim = self.signatures["serving_default"].structured_outputs["embedding"].shape[-1]
            if corpus.embeddings.shape[1] != dim:
                raise invalid_argument("corpus", corpus.embeddings.shape, f"embeddings of the model's size, {dim}")
            if takes_trees(tokenizer):
                self.search_tree = function_of(self.tree_search_rows, *tree, k)
            else:
                self.search_text = function_of(self.text_search_rows, text, k)
            if image_input is not None:
                self.search_image = function_of(self.image_search_rows, image_bytes, k)

    def text_rows(self, text: tf.Tensor) -> Outputs:
        """What `encode_text` computes, step by step where it is called outside a graph."""
        from vsemb.systems.trees.signature import parsed_texts

        rows = tf.shape(text)[0]
        if self.encode_tree is not None:
            given = tf.convert_to_tensor(text).numpy().tolist()
            text = tf.constant(parsed_texts(given, self.parse), tf.string)
        return first_rows(self._encode_ids(self.tokenizer(one_row_at_least(text))), rows)

    def tree_rows(self, tokens: tf.Tensor, heads: tf.Tensor) -> Outputs:
        """What `encode_tree` computes, step by step where it is called outside a graph."""
        from vsemb.systems.trees.signature import from_the_left, takes_trees

        assert takes_trees(self.tokenizer)
        rows = tf.shape(tokens)[0]
        ids = self.tokenizer.from_tokens(*from_the_left(one_row_at_least(tokens), one_row_at_least(heads)))
        return first_rows(self._id_rows(ids), rows)

    def _id_rows(self, ids: tf.Tensor) -> Outputs:
        from vsemb.systems.regions.signature import filled_up

        with kernels_for_any_device(self.model):
            embedding = self.model.encode_texts(ids)
        if self.multi_vector:
            embedding = filled_up(embedding, self.tokenizer.max_length)  # type: ignore[attr-defined]
        return _outputs(embedding, tf.reduce_any(tf.not_equal(ids, 0), axis=list(range(1, ids.shape.rank))))

    def image_rows(self, image_bytes: tf.Tensor, boxes: tf.Tensor | None = None) -> Outputs:
        """What `encode_image` computes, step by step where it is called outside a graph."""
        from vsemb.systems.regions.signature import find_regions, row_counts

        assert self.image_input is not None
        rows = tf.shape(image_bytes)[0]
        if self.image_input.regions is None:
            images, valid = self.image_input(one_row_at_least(image_bytes))
            return first_rows(_outputs(self.model.encode_images(images), valid), rows)
        if boxes is not None:
            with tf.control_dependencies(row_counts(image_bytes, boxes)):
                boxes = one_row_at_least(boxes)
        found = find_regions(self.image_input.regions, one_row_at_least(image_bytes), boxes)
        outputs = _outputs(self.model.encode_images(found.features), found.valid)
        return first_rows({**outputs, "boxes": tf.where(found.valid[:, None, None], found.boxes, 0.0)}, rows)

    def align_rows(
        self,
        image_bytes: tf.Tensor,
        text: tf.Tensor,
        affinity: tf.Tensor,
        boxes: tf.Tensor | None = None,
    ) -> Outputs:
        """What `align` computes, step by step where it is called outside a graph."""
        from vsemb.systems.regions.signature import aligned, padded_words, row_counts

        rows = tf.shape(image_bytes)[0]
        given = [image_bytes, text, affinity, *([] if boxes is None else [boxes])]
        with tf.control_dependencies(row_counts(*given)):
            image_bytes, text, affinity, *candidates = map(one_row_at_least, given)
        images = self.image_rows(image_bytes, *candidates)
        words = padded_words(self.tokenizer, text)
        found = aligned(self.model.similarity, images, self.text_rows(text), words, affinity)
        return first_rows(found, rows)

    def class_rows(self, image_bytes: tf.Tensor) -> Outputs:
        """What `classify` computes, step by step where it is called outside a graph."""
        assert self.classes is not None
        outputs = self.image_rows(image_bytes)
        scores = self.classes.scores(outputs["embedding"], self.model.similarity)
        scores = tf.where(outputs["valid"][:, None], scores, 0.0)
        names = tf.tile(tf.constant([self.classes.names], tf.string), [tf.shape(scores)[0], 1])
        return {"classes": names, "scores": scores, "valid": outputs["valid"]}

    def text_search_rows(self, text: tf.Tensor, k: tf.Tensor) -> Outputs:
        """What `search_text` computes, step by step where it is called outside a graph."""
        return self._search(self.text_rows(text), k, "text")

    def tree_search_rows(self, tokens: tf.Tensor, heads: tf.Tensor, k: tf.Tensor) -> Outputs:
        """What `search_tree` computes, step by step where it is called outside a graph."""
        return self._search(self.tree_rows(tokens, heads), k, "text")

    def image_search_rows(self, image_bytes: tf.Tensor, k: tf.Tensor) -> Outputs:
        """What `search_image` computes, step by step where it is called outside a graph."""
        return self._search(self.image_rows(image_bytes), k, "image")

    def _search(self, queries: Outputs, k: tf.Tensor, kind: str) -> Outputs:
        assert self.corpus is not None
        return self.corpus.search(queries["embedding"], queries["valid"], k, self.model.similarity, kind)

    @property
    def signatures(self) -> dict[str, Any]:
        """The concrete functions by signature name, `serving_default` first."""
        sentences = getattr(self, self.default).get_concrete_function()
        named = {"serving_default": sentences, self.default: sentences}
        for name in ("encode_image", "align", "classify", "search_text", "search_tree", "search_image"):
            if getattr(self, name) is not None:
                named[name] = getattr(self, name).get_concrete_function()
        return named

    @property
    def tables(self) -> list[Any]:
        """The tokenizer's lookup tables."""
        return tables_of(self.tokenizer)

    @property
    def tolerance(self) -> float:
        """The largest relative difference that two computations of one row may show."""
        encoders = [self.model.text_encoder]
        if self.image_input is not None:
            encoders.append(self.model.image_encoder)
        return tolerance_of(encoder.compute_dtype for encoder in encoders)

    def cases(self) -> list[Case]:
        """Returns what each signature is tried with before it is published."""
        return embedding_cases(self)

    def promises(self, golden: Mapping[str, Golden]) -> dict[str, Any]:
        """Returns what the contract says of the embeddings, given what the signatures gave."""
        return embedding_promises(self, golden)


def _outputs(embedding: tf.Tensor, valid: tf.Tensor) -> Outputs:
    here = tf.reshape(valid, [-1] + [1] * (embedding.shape.rank - 1))
    return {"embedding": tf.where(here, embedding, 0.0), "valid": valid}
