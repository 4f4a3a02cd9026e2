"""The functions that serving, search and export share: raw strings and image bytes in, embeddings out.

They exist once, so that what TensorFlow Serving answers is what was searched and measured.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import tensorflow as tf

from vsemb.errors import invalid_argument
from vsemb.export.contract import About, Golden
from vsemb.export.corpus import Corpus
from vsemb.export.exportable import Exportable, Signature, tensors, tolerance_of
from vsemb.export.image_input import ImageInput
from vsemb.export.reference_outputs import Arrays, Tie, golden_k
from vsemb.export.rows import Outputs, embedding_rows, filled_up, first_rows, kernels_for_any_device
from vsemb.export.text_input import TextInput
from vsemb.image.decode import MAX_PIXELS

_K = tf.TensorSpec([None], tf.int32, name="k")
_RANKED = {"ids": Tie("ranked", "scores"), "keys": Tie("ranked", "scores")}


class ServedModel(Exportable):
    """A trained model as it is served.

    All functions take a batch of any size, zero included, and return `embedding`, float32 (batch, dim) in the
    geometry of the model's similarity, and `valid`, bool (batch,). A text without a word, or bytes that are no image,
    give `valid` false and a zero row, and leave the other rows as they are. They can be called from Python, and are
    what a SavedModel's signatures hold: `encode_text`, `encode_image`, with a corpus `search_text` and `search_image`,
    and those that systems add.

    A model whose similarity compares sets gives `embedding` (batch, items, dim), of texts as many items as the
    tokenizer reads at most, and a row of zeros is none; it has no corpus.

    Args:
        model: the trained model, with `encode_texts` and a `similarity`.
        tokenizer: string (batch,) -> int ids (batch, steps), 0 where there is no token; or a `TextInput` where texts
            are something else than strings.
        image_input: from bytes to the model's image input; None where images cannot be embedded.
        corpus: what is searched, if anything.
        extras: functions of this object that make further signatures, such as
            `vsemb.systems.zero_shot.signature.ClassPrompts.signature`.

    Raises:
        InvalidArgumentError: for a corpus of another size of embedding than the model's, and for a model of sets with
            a corpus, images that are none, or a tokenizer that does not say how long texts may be.

    Attributes:
        encode_text: strings (batch,) -> {"embedding", "valid"}. Where strings cannot be read in a graph, this
            function works in Python alone.
        encode_image: `image_bytes` string (batch,), and what else the image input takes -> {"embedding", "valid"},
            and what else it gives; or None.
        functions: all signatures by name: also `search_text` (`text`, `k` int32 (batch,)) and `search_image`
            (`image_bytes`, `k`) -> {"ids", "scores", "keys", "valid"}, see `Corpus.search`.

    Example:

        served = ServedModel(run.model, run.tokenizer, image_input)
        served.encode_text(tf.constant(["a dog"]))["embedding"]
    """

    made: ClassVar[str] = "embeddings"

    def __init__(
        self,
        model: Any,
        tokenizer: Callable[[tf.Tensor], tf.Tensor] | TextInput,
        image_input: ImageInput | None = None,
        *,
        corpus: Corpus | None = None,
        extras: Sequence[Callable[[ServedModel], Signature]] = (),
    ) -> None:
        self.model = model
        self.text_input = tokenizer if isinstance(tokenizer, TextInput) else TextInput(tokenizer)
        self.tokenizer = self.text_input.tokenizer
        self.image_input = image_input
        self.corpus = corpus
        #: Whether embeddings are sets of vectors.
        self.multi_vector: bool = model.similarity.multi_vector
        self._check()
        name = self.text_input.name
        self._text = Signature(
            f"encode_{name}",
            self.text_input.specs,
            self.text_rows,
            lambda: self.text_input.examples(short=self.multi_vector),
            instance=self.text_input.instance,
        )
        self.offered: list[Signature] = [self._text]
        self.encode_image: Any = None
        if image_input is not None:
            self._image = Signature("encode_image", image_input.specs, self.image_rows, image_input.examples)
            self.encode_image = self._image.function
            self.offered += [self._image, *image_input.signatures(self)]
        self.encode_text: Any = self.text_input.from_strings(self)
        self.offered += [extra(self) for extra in extras]
        if corpus is not None:
            dim = self.signatures["serving_default"].structured_outputs["embedding"].shape[-1]
            if corpus.embeddings.shape[1] != dim:
                raise invalid_argument("corpus", corpus.embeddings.shape, f"embeddings of the model's size, {dim}")
            self.offered.append(self._search(f"search_{name}", self._text, "text"))
            if image_input is not None:
                self.offered.append(self._search("search_image", self._image, "image"))

    def _check(self) -> None:
        if self.image_input is not None and self.image_input.multi_vector != self.multi_vector:
            allowed = "one that gives a set of vectors" if self.multi_vector else "one that gives one vector"
            fix = f"The model compares those ({type(self.model.similarity).__name__})."
            raise invalid_argument("image_input", type(self.image_input).__name__, f"{allowed} an image", fix)
        if not self.multi_vector:
            return
        if self.text_input.max_tokens is None or getattr(self.tokenizer, "token_shape", None):
            allowed = "a tokenizer of words where texts are sets of their words' vectors"
            raise invalid_argument("tokenizer", type(self.tokenizer).__name__, allowed)
        if self.corpus is not None:
            allowed = "no index, since a corpus holds one vector an item, and the model embeds each as a set of vectors"
            fix = "Search with the run: vsemb search RUN"
            raise invalid_argument("index", f"{len(self.corpus)} items", allowed, fix)

    def text_rows(self, **inputs: tf.Tensor) -> Outputs:
        """What `encode_text` computes, step by step where it is called outside a graph."""
        rows = tf.shape(next(iter(inputs.values())))[0]
        return first_rows(self.id_rows(self.text_input.ids(**inputs)), rows)

    def id_rows(self, ids: tf.Tensor) -> Outputs:
        """Embeds texts by their token ids, (batch, steps) or whatever the tokenizer gives."""
        with kernels_for_any_device(self.model):
            embedding = self.model.encode_texts(ids)
        if self.multi_vector:
            assert self.text_input.max_tokens is not None
            embedding = filled_up(embedding, self.text_input.max_tokens)
        return embedding_rows(embedding, tf.reduce_any(tf.not_equal(ids, 0), axis=list(range(1, ids.shape.rank))))

    def image_rows(self, **inputs: tf.Tensor) -> Outputs:
        """What `encode_image` computes, step by step where it is called outside a graph."""
        assert self.image_input is not None
        return self.image_input.rows(self.model, **inputs)

    def _search(self, name: str, query: Signature, kind: str) -> Signature:
        corpus, similarity = self.corpus, self.model.similarity
        assert corpus is not None

        def rows(k: tf.Tensor, **inputs: tf.Tensor) -> Outputs:
            queries = query.rows(**inputs)
            return corpus.search(queries["embedding"], queries["valid"], k, similarity, kind)

        def examples() -> Arrays:
            inputs = query.examples()
            return {**inputs, "k": golden_k(len(next(iter(inputs.values()))))}

        def scale() -> dict[str, float]:
            return {"scores": score_scale(query, corpus.embeddings)}

        return Signature(name, (*query.inputs, _K), rows, examples, scale, _RANKED)

    @property
    def tables(self) -> list[Any]:
        """The tokenizer's lookup tables."""
        return self.text_input.tables

    @property
    def tolerance(self) -> float:
        """The largest relative difference that two computations of one row may show."""
        encoders = [self.model.text_encoder]
        if self.image_input is not None:
            encoders.append(self.model.image_encoder)
        return tolerance_of(encoder.compute_dtype for encoder in encoders)

    def promises(self, golden: Mapping[str, Golden]) -> dict[str, Any]:
        """Returns what the contract says of the embeddings, given what the signatures gave."""
        similarity = self.model.similarity
        return {
            "dim": golden[self.default.name].outputs["embedding"].shape[-1],
            "similarity": {"name": type(similarity).__name__, "config": similarity.get_config()},
            "geometry": similarity.geometry,
            "max_text_bytes": self.text_input.max_bytes,
            "max_tokens": self.text_input.max_tokens,
            "max_pixels": None if self.image_input is None else MAX_PIXELS,
        }

    def about(self, golden: Mapping[str, Golden]) -> About:
        """Returns what the model card says of the model."""
        promised = self.promises(golden)
        each = f"{promised['dim']} numbers each"
        images = "" if self.image_input is None else " and images"
        if self.multi_vector:
            each = f"sets of vectors of {each}, one a word{' or region' if images else ''}"
        config = ", ".join(f"{name}={value}" for name, value in promised["similarity"]["config"].items())
        compared = f"`{promised['similarity']['name']}`{f' ({config})' if config else ''}"
        limits = [*self.text_input.limits(), *(self.image_input.limits() if self.image_input else ())]
        limits += [limit for signature in self.offered for limit in signature.limits]
        return About(
            what=f"Embeds {self.text_input.takes}{images} as {each}, which can be compared.",
            reading=f"Two embeddings are compared by {compared}; their geometry is: {promised['geometry']}.",
            made=self.made,
            invalid=self.invalid,
            limits=[*limits, "Embeddings of two versions are not comparable."],
            cannot=[*self.text_input.cannot(), *self._missing()],
        )

    def _missing(self) -> list[str]:
        found = [] if self.image_input else ["It embeds no images: it holds no image network."]
        if self.multi_vector:
            found.append("It searches nothing, since a corpus holds one vector an item: `vsemb search RUN` does.")
        elif self.corpus is None:
            found.append("It searches nothing: it was exported without a corpus.")
        return [*found, "It makes no captions: it compares what it is given, by no more than the signatures above."]


def score_scale(query: Signature, others: np.ndarray) -> float:
    """Returns how large scores may be: rounding grows with the embeddings, even where scores are near 0.

    Args:
        query: a signature that embeds.
        others: embeddings that its examples are compared with.
    """
    embedded = query.function(**tensors(query.examples()))["embedding"].numpy()
    largest = [np.linalg.norm(side, axis=-1).max() for side in (embedded, others)]
    scale = float(np.prod(largest))
    # What is not finite is reported where it is found.
    return max(1.0, scale) if np.isfinite(scale) else 1.0
