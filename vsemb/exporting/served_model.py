"""A trained model with raw strings and image bytes as inputs.

Serving, search and export share its functions, so TensorFlow Serving returns the results that were measured.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from vsemb.errors import invalid_argument
from vsemb.exporting.contract import About
from vsemb.exporting.corpus import Corpus
from vsemb.exporting.formats.towers import Tower
from vsemb.exporting.reference_outputs import Arrays, Tie, golden_k
from vsemb.exporting.served_inputs import BaseImageInput, TextInput
from vsemb.exporting.signatures import (
    Exportable,
    Outputs,
    Signature,
    embedding_rows,
    filled_up,
    first_rows,
    kernels_for_any_device,
    score_scale,
    tolerance_of,
)
from vsemb.image.decode import MAX_PIXELS
from vsemb.ops.tensorflow import tf

_K = tf.TensorSpec([None], tf.int32, name="k")
#: Default `k` of requests: results per query.
DEFAULT_K = 10
_RANKED = {"ids": Tie("ranked", "scores"), "keys": Tie("ranked", "scores")}


class ServedModel(Exportable):
    """A trained model with raw strings and image bytes as inputs.

    The functions take a batch of any size, including zero. They return `embedding`, float32 (batch, dim) in the
    geometry of the model's similarity, and `valid`, bool (batch,); for texts also `known`, float32 (batch,), the share
    of known words. A text without a known word and bytes that do not decode give `valid` false and a zero row; other
    rows are unaffected. The functions can be called from Python and become the signatures of a SavedModel:
    `encode_text`, `encode_image`, `describe`, with a corpus `search_text` and `search_image`, and signatures of
    systems.

    A multi-vector model returns `embedding` (batch, items, dim), padded with zeros; texts have as many items as the
    tokenizer's maximum length. It has no corpus.

    Args:
        model: the trained model, with `encode_texts` and a `similarity`.
        tokenizer: string (batch,) -> int ids (batch, steps), 0 for padding; or a `TextInput` for other inputs than
            strings.
        image_input: converts bytes to the model's image input; None for models without images.
        corpus: the searchable items; None for no search.
        extras: functions from this object to further signatures, such as
            `vsemb.systems.zero_shot.classify.ClassPrompts.signature`.

    Raises:
        InvalidArgumentError: for a corpus with another embedding size than the model's; for a multi-vector model with
            a corpus, single-vector images, or a tokenizer without a maximum length.

    Attributes:
        text: the signature that embeds texts.
        image: the signature that embeds images; None without an image input.
        encode_text: strings (batch,) -> {"embedding", "known", "valid"}. Works in Python only if strings cannot be
            read in a graph.
        encode_image: `image_bytes` string (batch,) and further inputs of the image input -> {"embedding", "valid"}
            and its further outputs; None without an image input.
        functions: all signatures by name, including `search_text` (`text`, `k` int32 (batch,)) and `search_image`
            (`image_bytes`, `k`) -> {"ids", "scores", "keys", "valid"}, see `Corpus.search`; `search_text` also returns
            `known`.

    Example:

        served = ServedModel(run.model, run.tokenizer, image_input)
        served.encode_text(tf.constant(["a dog"]))["embedding"]
    """

    def __init__(
        self,
        model: Any,
        tokenizer: Callable[[tf.Tensor], tf.Tensor] | TextInput,
        image_input: BaseImageInput | None = None,
        *,
        corpus: Corpus | None = None,
        extras: Sequence[Callable[[ServedModel], Signature]] = (),
    ) -> None:
        self.model = model
        self.layers = [model]
        self.text_input = tokenizer if isinstance(tokenizer, TextInput) else TextInput(tokenizer)
        self.tokenizer = self.text_input.tokenizer
        self.image_input = image_input
        self.corpus = corpus
        #: Whether embeddings are sets of vectors.
        self.multi_vector: bool = model.similarity.multi_vector
        self._check()
        texts = self.text_input
        examples = partial(texts.examples, short=self.multi_vector)
        self.text = Signature(f"encode_{texts.name}", texts.specs, self.text_rows, examples, instance=texts.instance)
        self.offered: list[Signature] = [self.text]
        self.image: Signature | None = None
        self.encode_image: Any = None
        if image_input is not None:
            self.image = Signature(
                "encode_image",
                image_input.specs,
                self.image_rows,
                image_input.examples,
                instance=image_input.instance,
            )
            self.encode_image = self.image.function
            self.offered += [self.image, *image_input.signatures(self)]
        self.offered.append(described(model.similarity))
        self.encode_text: Any = texts.from_strings(self)
        self.offered += [extra(self) for extra in extras]
        if corpus is not None:
            if corpus.embeddings.shape[1] != self.dim:
                allowed = f"embeddings of the model's size, {self.dim}"
                raise invalid_argument("corpus", corpus.embeddings.shape, allowed)
            self.offered += [self._search(corpus, query) for query in (self.text, self.image) if query is not None]

    def _check(self) -> None:
        if self.image_input is not None and self.image_input.multi_vector != self.multi_vector:
            allowed = "a set of vectors" if self.multi_vector else "one vector"
            fix = f"The model's similarity is {type(self.model.similarity).__name__}."
            raise invalid_argument(
                "image_input", type(self.image_input).__name__, f"an input with {allowed} per image", fix
            )
        if not self.multi_vector:
            return
        if self.text_input.max_tokens is None or getattr(self.tokenizer, "token_shape", None):
            allowed = "a word tokenizer for a multi-vector model"
            raise invalid_argument("tokenizer", type(self.tokenizer).__name__, allowed)
        if self.corpus is not None:
            allowed = "no index for a multi-vector model, since a corpus holds one vector per item"
            fix = "Search with the run: vsemb search RUN"
            raise invalid_argument("index", f"{len(self.corpus)} items", allowed, fix)

    def text_rows(self, **inputs: tf.Tensor) -> Outputs:
        """Compute `encode_text`, eagerly if called outside a graph."""
        rows = tf.shape(next(iter(inputs.values())))[0]
        return first_rows(self.id_rows(self.text_input.ids(**inputs)), rows)

    def id_rows(self, ids: tf.Tensor) -> Outputs:
        """Embed texts by their token ids, (batch, steps) + the tokenizer's `token_shape`."""
        with kernels_for_any_device(self.model):
            embedding = self.model.encode_texts(ids)
        if self.multi_vector:
            assert self.text_input.max_tokens is not None
            embedding = filled_up(embedding, self.text_input.max_tokens)
        known = self.text_input.known_share(ids)
        return {**embedding_rows(embedding, known > 0), "known": known}

    def image_rows(self, **inputs: tf.Tensor) -> Outputs:
        """Compute `encode_image`, eagerly if called outside a graph."""
        assert self.image_input is not None
        return self.image_input.rows(self.model, **inputs)

    def _search(self, corpus: Corpus, query: Signature) -> Signature:
        similarity, kind = self.model.similarity, "image" if query is self.image else "text"

        def rows(k: tf.Tensor, **inputs: tf.Tensor) -> Outputs:
            queries = query.rows(**inputs)
            results = corpus.search(queries["embedding"], queries["valid"], k, similarity, kind)
            return {**results, "known": queries["known"]} if query is self.text else results

        def examples() -> Arrays:
            inputs = query.examples()
            return {**inputs, "k": golden_k(len(next(iter(inputs.values()))))}

        name, scale = query.name.replace("encode_", "search_", 1), partial(score_scale, query, corpus.embeddings)
        inputs, instance, defaults = (*query.inputs, _K), {**query.instance, "k": 3}, {"k": [DEFAULT_K]}
        return Signature(name, inputs, rows, examples, scale, _RANKED, instance, defaults=defaults)

    @property
    def dim(self) -> int:
        """Size of an embedding."""
        return self.text.function.get_concrete_function().structured_outputs["embedding"].shape[-1]

    @property
    def tables(self) -> list[Any]:
        """Lookup tables of the tokenizer."""
        return self.text_input.tables

    @property
    def towers(self) -> Mapping[str, Tower | str]:
        """Name -> the tower, or the reason for its absence, a clause."""
        image: Tower | str = "the model holds no image network"
        if self.image_input is not None:
            image = self.image_input.tower(self.model)
        return {"image": image, "text": self.text_input.tower(self)}

    @property
    def tolerance(self) -> float:
        """Maximum relative difference between two computations of one row."""
        encoders = [self.model.text_encoder] + ([self.model.image_encoder] if self.image_input else [])
        return tolerance_of(encoder.compute_dtype for encoder in encoders)

    @property
    def promises(self) -> dict[str, Any]:
        """Fields of the contract about the embeddings."""
        similarity = self.model.similarity
        return {
            "dim": self.dim,
            "similarity": similarity.to_json(),
            "geometry": similarity.geometry,
            "max_text_bytes": self.text_input.max_bytes,
            "max_tokens": self.text_input.max_tokens,
            "max_pixels": MAX_PIXELS if self.image_input else None,
        }

    @property
    def about(self) -> About:
        """Sentences for the model card."""
        similarity, each = self.model.similarity, f"{self.dim} numbers each"
        images = " and images" if self.image_input else ""
        if self.multi_vector:
            each = f"sets of vectors of {each}, one per word{' or region' if images else ''}"
        config = ", ".join(f"{name}={value}" for name, value in similarity.get_config().items())
        compared = f"`{type(similarity).__name__}`{f' ({config})' if config else ''}"
        limits = [*self.text_input.limits(), *(self.image_input.limits() if self.image_input else ())]
        limits += [limit for signature in self.offered for limit in signature.limits]
        cannot = list(self.text_input.cannot())
        if not images:
            cannot.append("Embedding images: the model holds no image network.")
        if self.multi_vector:
            cannot.append("Search: a corpus holds one vector per item. Use `vsemb search RUN`.")
        elif self.corpus is None:
            cannot.append("Search: the model was exported without a corpus.")
        cannot.append("Writing captions: the model compares texts and images.")
        return About(
            what=f"Embeds {self.text_input.takes}{images} as {each}, which can be compared.",
            reading=f"Embeddings are compared by {compared}. Their geometry: {similarity.geometry}.",
            made="embeddings",
            limits=[*limits, "Embeddings of two versions are not comparable."],
            cannot=cannot,
        )


def described(similarity: Any) -> Signature:
    """Return the signature `describe`, from which clients learn how embeddings are compared.

    Args:
        similarity: the similarity, a part.

    Returns:
        `fact` string (batch,) -> `value` string (batch,), JSON, and `valid` bool (batch,), false for an unknown fact.
        The only fact is `similarity`.

    Example:

    >>> from vsemb.similarities import Cosine
    >>> described(Cosine()).rows(tf.constant(["similarity"]))["value"].numpy()
    array([b'{"kind": "cosine"}'], dtype=object)
    """
    value = json.dumps(similarity.to_json())

    def rows(fact: tf.Tensor) -> Outputs:
        valid = tf.equal(fact, "similarity")
        return {"value": tf.where(valid, value, ""), "valid": valid}

    def examples() -> Arrays:
        return {"fact": np.array([b"similarity", b"unknown"], object)}

    spec = tf.TensorSpec([None], tf.string, name="fact")
    return Signature("describe", (spec,), rows, examples, instance={"fact": "similarity"})
