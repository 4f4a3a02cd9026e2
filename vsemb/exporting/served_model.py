"""Signatures of a SavedModel, and a trained model with raw strings and image bytes as inputs.

Serving, search and export share these functions, so TensorFlow Serving returns the results that were measured. A system
with other outputs than embeddings adds a `Signature` to a `ServedModel`, or defines its own `Exportable`.
"""

from __future__ import annotations

import contextlib
import inspect
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any, ClassVar

import keras
import numpy as np

from vsemb.errors import invalid_argument
from vsemb.exporting.contract import About
from vsemb.exporting.corpus import Corpus
from vsemb.exporting.reference_outputs import Arrays, Tie, golden_images, golden_k, golden_texts
from vsemb.image.backbones import BackboneConfig
from vsemb.image.decode import MAX_PIXELS
from vsemb.image.views import decode_views, encode_images, encode_views
from vsemb.ops.tensorflow import tf
from vsemb.text.normalize import MAX_BYTES
from vsemb.text.vocabulary import UNKNOWN_ID

#: Values by the name of an output, each with the batch as 0th dimension.
Outputs = dict[str, tf.Tensor]

# Maximum difference between the reloaded and the Keras model, relative to the largest entry (1 for unit vectors).
# Another order of additions and other padding gave up to 5e-7 in float32 and 1e-3 in bfloat16 over all recipes. Wrong
# weights, a lost table or other preprocessing give 1e-2 and more.
_TOLERANCES = {"float32": 1e-5, "bfloat16": 5e-3}
#: Reason for the values of `tolerance_of`.
REASON = (
    "Relative to the largest entry, at least 1. Other batches, processors and libraries add in another order: up to "
    "5e-7 was measured in float32 and 1e-3 in bfloat16. Other weights, tables or preprocessing give 1e-2 and more."
)
_K = tf.TensorSpec([None], tf.int32, name="k")
#: Default `k` of requests: results per query.
DEFAULT_K = 10
_RANKED = {"ids": Tie("ranked", "scores"), "keys": Tie("ranked", "scores")}


@dataclass(frozen=True, eq=False)
class Signature:
    """One signature of a SavedModel.

    Attributes:
        name: name of the signature.
        inputs: named inputs, each with the batch as 0th dimension.
        rows: computes the outputs from the inputs by name, eagerly if called outside a graph. One output is `valid`,
            bool (batch,).
        examples: returns golden rows, valid and invalid, for the checks before publication.
        scale: returns output -> minimum that differences are relative to; default 1.
        ties: output -> differences that are allowed, see `vsemb.exporting.reference_outputs.Tie`.
        instance: example row for a curl command, input name -> value as TensorFlow Serving's REST API takes it;
            `{"b64": FILE}` for the content of a file.
        limits: sentences for the model card.
        defaults: input -> value of one row for requests without it. These inputs come last.
    """

    name: str
    inputs: tuple[tf.TensorSpec, ...]
    rows: Callable[..., Outputs]
    examples: Callable[[], Arrays]
    scale: Callable[[], Mapping[str, float]] = dict
    ties: Mapping[str, Tie] = field(default_factory=dict)
    instance: Mapping[str, Any] = field(default_factory=dict)
    limits: Sequence[str] = ()
    defaults: Mapping[str, Any] = field(default_factory=dict)

    @cached_property
    def function(self) -> Any:
        """The compiled function."""
        return function_of(self.rows, *self.inputs, **self.defaults)


class Exportable:
    """Base of the models that `vsemb.exporting.export_savedmodel` writes, checks and publishes.

    Attributes:
        offered: the signatures; the first is also `serving_default`.
    """

    offered: Sequence[Signature]

    @property
    def default(self) -> Signature:
        """The signature also named `serving_default`."""
        return self.offered[0]

    @property
    def functions(self) -> dict[str, Any]:
        """The compiled functions by signature name."""
        return {signature.name: signature.function for signature in self.offered}

    @property
    def signatures(self) -> dict[str, Any]:
        """The concrete functions by signature name, `serving_default` first."""
        named = {name: function.get_concrete_function() for name, function in self.functions.items()}
        return {"serving_default": named[self.default.name], **named}

    @property
    def tables(self) -> list[Any]:
        """Lookup tables of the functions."""
        return []

    @property
    def tolerance(self) -> float:
        """Maximum relative difference between two computations of one row."""
        return tolerance_of(["float32"])

    @property
    def promises(self) -> dict[str, Any]:
        """Fields of the contract that are specific to this kind of model."""
        return {}

    @property
    def about(self) -> About:
        """Sentences for the model card."""
        raise NotImplementedError


def tolerance_of(dtypes: Iterable[str]) -> float:
    """Return the maximum relative difference between two computations in these types.

    Example:

    >>> tolerance_of(["float32", "bfloat16"])
    0.005
    """
    return max(_TOLERANCES.get(dtype, 0.0) for dtype in dtypes)


def tables_of(holder: object) -> list[Any]:
    """Return the lookup tables among the attributes of an object, or of a Keras layer and its own layers."""
    kinds = tf.lookup.StaticHashTable | tf.lookup.StaticVocabularyTable
    holders = holder._flatten_layers() if isinstance(holder, keras.layers.Layer) else [holder]
    return [value for each in holders for value in vars(each).values() if isinstance(value, kinds)]


def tensors(inputs: Arrays) -> dict[str, tf.Tensor]:
    """Convert arrays to tensors."""
    return {key: tf.constant(values, tf.string if values.dtype == object else None) for key, values in inputs.items()}


def function_of(rows: Callable[..., Outputs], *inputs: tf.TensorSpec, **defaults: Any) -> Any:
    """Compile a function, traced once, with the names of the specs as input names.

    Args:
        rows: computes the outputs from the inputs by name.
        *inputs: specs of the inputs.
        **defaults: default values of the last inputs.
    """
    names = [spec.name for spec in inputs]

    def compiled(*tensors: tf.Tensor) -> Outputs:
        return rows(**dict(zip(names, tensors, strict=True)))

    # TensorFlow reads names and defaults of the inputs from here.
    parameters = [
        inspect.Parameter(
            spec.name,
            inspect.Parameter.POSITIONAL_OR_KEYWORD,
            default=tf.constant(defaults[spec.name], spec.dtype) if spec.name in defaults else inspect.Parameter.empty,
        )
        for spec in inputs
    ]
    compiled.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return tf.function(compiled, input_signature=inputs, autograph=False)


def embedding_rows(embedding: tf.Tensor, valid: tf.Tensor) -> Outputs:
    """Return the outputs `embedding`, with zeros in invalid rows, and `valid`."""
    here = tf.reshape(valid, [-1] + [1] * (embedding.shape.rank - 1))
    return {"embedding": tf.where(here, embedding, 0.0), "valid": valid}


def one_row_at_least(rows: tf.Tensor) -> tf.Tensor:
    """Add a row of zeros or "" to an empty batch.

    Optimised convolutions of TensorFlow 2.20 fail on empty batches in a graph.
    """
    none = tf.cast(tf.equal(tf.shape(rows)[0], 0), tf.int32)
    return tf.pad(rows, [[0, none], *[[0, 0]] * (rows.shape.rank - 1)])


def first_rows(outputs: Outputs, rows: tf.Tensor) -> Outputs:
    """Return the first `rows` rows of each output."""
    return {name: values[:rows] for name, values in outputs.items()}


def filled_up(values: tf.Tensor, steps: int) -> tf.Tensor:
    """Pad rows with zeros or "" to a fixed number of steps, and truncate longer ones.

    Args:
        values: (batch, any number, ...).
        steps: number of steps of the result.

    Returns:
        (batch, steps, ...), the same type.

    Example:

    >>> filled_up(tf.constant([["a", "dog"]]), 3).numpy().tolist()
    [[b'a', b'dog', b'']]
    """
    missing = tf.maximum(steps - tf.shape(values)[1], 0)
    wider = tf.pad(values, [[0, 0], [0, missing], *[[0, 0]] * (values.shape.rank - 2)])
    return tf.ensure_shape(wider[:, :steps], [values.shape[0], steps, *values.shape[2:]])


@contextlib.contextmanager
def kernels_for_any_device(*models: keras.layers.Layer) -> Iterator[None]:
    """Disable cuDNN kernels in functions traced inside this context.

    With a GPU, Keras would put cuDNN's recurrent kernels into the graph, which cannot be served without a GPU.
    """
    found = {id(layer): layer for model in models for layer in model._flatten_layers()}
    layers = [layer for layer in found.values() if hasattr(layer, "use_cudnn")]
    before = [layer.use_cudnn for layer in layers]
    for layer in layers:
        layer.use_cudnn = False
    try:
        yield
    finally:
        for layer, value in zip(layers, before, strict=True):
            layer.use_cudnn = value


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
        words = getattr(getattr(self.tokenizer, "vocabulary", None), "words", ())
        known = self.known_share(self.tokenizer(tf.constant([sentence]))).numpy().any()
        return {"text": sentence if known or not words else words[0]}

    @property
    def max_tokens(self) -> int | None:
        """Maximum number of tokens read of a text; None for no limit or an unknown one."""
        return getattr(self.tokenizer, "max_length", None)

    @property
    def tables(self) -> list[Any]:
        """Lookup tables of the tokenizer."""
        return tables_of(self.tokenizer)

    def ids(self, text: tf.Tensor) -> tf.Tensor:
        """Tokenize a batch, of one row at least; takes the inputs of `specs` by name."""
        return self.tokenizer(one_row_at_least(text))

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
        found = [f"The first {self.max_bytes:,} bytes of a text are read."]
        if self.max_tokens is not None:
            found.append(f"The first {self.max_tokens} tokens of a text are read.")
        return [*found, "A text without a known word is invalid; `known` is the share of known words."]

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
        return [f"Images are JPEG or PNG of at most {MAX_PIXELS:,} pixels."]


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
            found = corpus.search(queries["embedding"], queries["valid"], k, similarity, kind)
            return {**found, "known": queries["known"]} if query is self.text else found

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


def score_scale(query: Signature, others: np.ndarray) -> dict[str, float]:
    """Return the scale of rounding errors of scores, which grows with the length of the embeddings.

    Args:
        query: a signature that embeds.
        others: embeddings that are compared with its examples.

    Returns:
        `{"scores": scale}`, as `Signature.scale` gives it.
    """
    embedded = query.function(**tensors(query.examples()))["embedding"].numpy()
    scale = float(np.prod([np.linalg.norm(side, axis=-1).max() for side in (embedded, others)]))
    # Infinite embeddings are reported by the comparison.
    return {"scores": max(1.0, scale) if np.isfinite(scale) else 1.0}
