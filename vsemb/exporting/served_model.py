"""What is served and written as a SavedModel: signatures, and a trained model with raw strings and image bytes in.

Serving, search and export share these functions, so that what TensorFlow Serving answers is what was searched and
measured. A system that serves something else than embeddings either adds a `Signature` to a `ServedModel`, or writes an
`Exportable` of its own.
"""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any, ClassVar

import keras
import numpy as np
import tensorflow as tf

from vsemb.errors import invalid_argument
from vsemb.exporting.contract import About
from vsemb.exporting.corpus import Corpus
from vsemb.exporting.reference_outputs import Arrays, Tie, golden_images, golden_k, golden_texts
from vsemb.image.backbones import BackboneConfig
from vsemb.image.decode import MAX_PIXELS, decode_images
from vsemb.image.views import encode_images
from vsemb.text.normalize import MAX_BYTES

#: Values by the name of an output, each with the batch as 0th dimension.
Outputs = dict[str, tf.Tensor]

# Largest difference from the Keras model that a reload may show, relative to the largest entry (1 for unit
# vectors). A graph adds the same numbers in another order and over rows padded to another length: up to
# 5e-7 in float32 and, since it rounds in other places, 1e-3 in bfloat16 were seen with all recipes. A wrong
# weight, a lost table or another preprocessing is 1e-2 and more.
_TOLERANCES = {"float32": 1e-5, "bfloat16": 5e-3}
#: Why `tolerance_of` allows as much as it does.
REASON = (
    "Relative to the largest entry (1 at least). Other batches, processors and libraries add the same "
    "numbers in another order: up to 5e-7 was seen in float32 and 1e-3 in bfloat16. Other weights, tables or "
    "preprocessing make 1e-2 and more."
)
_K = tf.TensorSpec([None], tf.int32, name="k")
_RANKED = {"ids": Tie("ranked", "scores"), "keys": Tie("ranked", "scores")}


@dataclass(frozen=True, eq=False)
class Signature:
    """One signature of a SavedModel.

    Attributes:
        name: its name.
        inputs: its named inputs, each with the batch as 0th dimension.
        rows: computes the outputs, step by step where it is called outside a graph; takes the inputs by name. One of
            the outputs is `valid`, bool (batch,).
        examples: gives golden rows, good and bad, that the signature is tried with before it is published.
        scale: gives, by output, the least that differences are relative to: 1 where it says nothing.
        ties: by output, which differences count for nothing, see `vsemb.exporting.reference_outputs.Tie`.
        instance: one row as TensorFlow Serving's REST API takes it, for a command that people try; `{"b64": FILE}`
            for the content of a file.
        limits: sentences for the model card.
    """

    name: str
    inputs: tuple[tf.TensorSpec, ...]
    rows: Callable[..., Outputs]
    examples: Callable[[], Arrays]
    scale: Callable[[], Mapping[str, float]] = dict
    ties: Mapping[str, Tie] = field(default_factory=dict)
    instance: Any = None
    limits: Sequence[str] = ()

    @cached_property
    def function(self) -> Any:
        """The compiled function."""
        return function_of(self.rows, *self.inputs)


class Exportable:
    """Something that `vsemb.exporting.export_savedmodel` can write, try out and publish.

    Attributes:
        offered: the signatures; the first is also `serving_default`.
    """

    offered: Sequence[Signature]

    @property
    def default(self) -> Signature:
        """The signature that is also `serving_default`."""
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
        """Lookup tables that the functions read."""
        return []

    @property
    def tolerance(self) -> float:
        """The largest relative difference that two computations of one row may show."""
        return tolerance_of(["float32"])

    @property
    def promises(self) -> dict[str, Any]:
        """The fields of the contract that only this kind of model knows."""
        return {}

    @property
    def about(self) -> About:
        """The model in sentences, for the model card."""
        raise NotImplementedError


def tolerance_of(dtypes: Iterable[str]) -> float:
    """Returns the largest relative difference between two computations in these types.

    Example:

    >>> tolerance_of(["float32", "bfloat16"])
    0.005
    """
    return max(_TOLERANCES.get(dtype, 0.0) for dtype in dtypes)


def tables_of(holder: object) -> list[Any]:
    """Returns the lookup tables among an object's attributes."""
    kinds = tf.lookup.StaticHashTable | tf.lookup.StaticVocabularyTable
    return [value for value in vars(holder).values() if isinstance(value, kinds)]


def tensors(inputs: Arrays) -> dict[str, tf.Tensor]:
    """Returns arrays as TensorFlow's tensors."""
    return {key: tf.constant(values, tf.string if values.dtype == object else None) for key, values in inputs.items()}


def function_of(rows: Callable[..., Outputs], *inputs: tf.TensorSpec) -> Any:
    """Returns a compiled function, traced once, whose inputs are named as the specs are."""
    names = [spec.name for spec in inputs]

    def compiled(*tensors: tf.Tensor) -> Outputs:
        return rows(**dict(zip(names, tensors, strict=True)))

    # TensorFlow reads names from here; inputs that `rows` may do without are none of these.
    parameters = [inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD) for name in names]
    compiled.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return tf.function(compiled, input_signature=inputs, autograph=False)


def embedding_rows(embedding: tf.Tensor, valid: tf.Tensor) -> Outputs:
    """Returns embeddings as they are served: zeros where a row is not valid."""
    here = tf.reshape(valid, [-1] + [1] * (embedding.shape.rank - 1))
    return {"embedding": tf.where(here, embedding, 0.0), "valid": valid}


def one_row_at_least(rows: tf.Tensor) -> tf.Tensor:
    """Adds a row of zeros or "" to a batch of none.

    TensorFlow 2.20's optimised convolutions fail on an empty batch in a graph.
    """
    none = tf.cast(tf.equal(tf.shape(rows)[0], 0), tf.int32)
    return tf.pad(rows, [[0, none], *[[0, 0]] * (rows.shape.rank - 1)])


def first_rows(outputs: Outputs, rows: tf.Tensor) -> Outputs:
    """Returns so many rows of each output."""
    return {name: values[:rows] for name, values in outputs.items()}


def filled_up(values: tf.Tensor, steps: int) -> tf.Tensor:
    """Fills rows up with zeros or "" to a fixed number of steps, and cuts longer ones.

    Args:
        values: (batch, any number, ...).
        steps: of the result.

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
    """Keeps cuDNN out of what is traced inside.

    On a machine with a GPU, Keras puts cuDNN's recurrent kernels into the graph, and a SavedModel
    with them cannot be served without a GPU.
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
    """Raw strings, tokenized in graph. Systems whose models take something else bring a subclass.

    Args:
        tokenizer: string (batch,) -> int ids (batch, steps), 0 where there is no token; its lookup tables go into
            the SavedModel.

    Class attributes:
        name: what the signatures are called by: `encode_NAME` and `search_NAME`.
        specs: the inputs of `encode_NAME`.
        max_bytes: what is behind them is not read; None for no limit.
        instance: one row as the REST API takes it.
    """

    name: ClassVar[str] = "text"
    specs: ClassVar[tuple[tf.TensorSpec, ...]] = (tf.TensorSpec([None], tf.string, name="text"),)
    max_bytes: ClassVar[int | None] = MAX_BYTES
    instance: ClassVar[Any] = "a dog running on a beach"

    def __init__(self, tokenizer: Callable[[tf.Tensor], tf.Tensor]) -> None:
        self.tokenizer: Any = tokenizer

    @property
    def takes(self) -> str:
        """What texts are, in the plural, for the model card."""
        return "sentences"

    @property
    def max_tokens(self) -> int | None:
        """The most tokens of a text that are read; None for no limit, or where the tokenizer does not say."""
        return getattr(self.tokenizer, "max_length", None)

    @property
    def tables(self) -> list[Any]:
        """Lookup tables that tokenizing reads."""
        return tables_of(self.tokenizer)

    def ids(self, text: tf.Tensor) -> tf.Tensor:
        """Returns the ids of a batch, of one row at least: the inputs are those of `specs`, by name."""
        return self.tokenizer(one_row_at_least(text))

    def from_strings(self, served: Any) -> Callable[[tf.Tensor], dict[str, tf.Tensor]]:
        """Returns the function from raw strings to embeddings, for callers in Python.

        Args:
            served: the `vsemb.exporting.ServedModel`.
        """
        return served.default.function

    def examples(self, short: bool = False) -> Arrays:
        """Returns golden rows of `specs`.

        Args:
            short: whether long texts are left out.
        """
        return {"text": np.array(golden_texts(self.tokenizer, short), object)}

    def limits(self) -> list[str]:
        """Returns sentences for the model card."""
        found = [f"Of a text, what is behind {self.max_bytes:,} bytes is not read."]
        if self.max_tokens is not None:
            found.append(f"A text is read up to {self.max_tokens} tokens.")
        return found

    def cannot(self) -> list[str]:
        """Returns what the model cannot do with texts, for the model card."""
        return []


@dataclass(frozen=True, eq=False)
class ImageInput:
    """How image bytes become what a model's image encoder takes.

    Systems whose models take something else of an image than one row bring a subclass.

    Attributes:
        config: the backbone: its `size` and `crops` say what the bytes are decoded to.
        backbone: the network behind the features that the model was trained on; None where the
            model was trained from pixels and holds its backbone itself.

    Class attributes:
        multi_vector: whether an image becomes a set of vectors.

    Example:

    >>> pixels, valid = ImageInput(BackboneConfig("SmallConvNet"))(tf.constant([b"no image"]))
    >>> pixels.shape, valid.numpy().tolist()
    (TensorShape([1, 64, 64, 3]), [False])
    """

    multi_vector: ClassVar[bool] = False

    config: BackboneConfig
    backbone: keras.Model | None = None

    def __post_init__(self) -> None:
        if self.backbone is None and self.config.crops != 1:
            raise invalid_argument("crops", self.config.crops, "1 for a model from pixels")

    def __call__(self, encoded: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Decodes: string (batch,) to ((batch, ...) float32, valid (batch,) bool)."""
        if self.backbone is None:
            return decode_images(encoded, self.config.size)
        return encode_images(self.backbone, self.config, encoded)

    @property
    def specs(self) -> tuple[tf.TensorSpec, ...]:
        """The inputs of `encode_image`, the bytes first."""
        return (tf.TensorSpec([None], tf.string, name="image_bytes"),)

    def rows(self, model: Any, image_bytes: tf.Tensor, **more: tf.Tensor) -> Outputs:
        """Embeds images: what `encode_image` computes.

        Args:
            model: the trained model.
            image_bytes: (batch,) string.
            **more: the other inputs, see `specs`.

        Returns:
            `embedding`, `valid`, and what else a subclass gives.
        """
        assert not more
        rows = tf.shape(image_bytes)[0]
        images, valid = self(one_row_at_least(image_bytes))
        return first_rows(embedding_rows(model.encode_images(images), valid), rows)

    def examples(self) -> Arrays:
        """Returns golden rows of `specs`."""
        return {"image_bytes": np.array(golden_images(), object)}

    def signatures(self, served: Any) -> Sequence[Signature]:
        """Returns signatures that only models with these images have.

        Args:
            served: the `vsemb.exporting.ServedModel`.
        """
        return ()

    def limits(self) -> list[str]:
        """Returns sentences for the model card."""
        return [f"Images are JPEG or PNG, of {MAX_PIXELS:,} pixels at most."]


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
            `vsemb.systems.zero_shot.classify.ClassPrompts.signature`.

    Raises:
        InvalidArgumentError: for a corpus of another size of embedding than the model's, and for a model of sets with
            a corpus, images that are none, or a tokenizer that does not say how long texts may be.

    Attributes:
        text: the signature that embeds texts.
        image: the signature that embeds images; None where none can be embedded.
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
        texts = self.text_input
        examples = partial(texts.examples, short=self.multi_vector)
        self.text = Signature(f"encode_{texts.name}", texts.specs, self.text_rows, examples, instance=texts.instance)
        self.offered: list[Signature] = [self.text]
        self.image: Signature | None = None
        self.encode_image: Any = None
        if image_input is not None:
            self.image = Signature("encode_image", image_input.specs, self.image_rows, image_input.examples)
            self.encode_image = self.image.function
            self.offered += [self.image, *image_input.signatures(self)]
        self.encode_text: Any = texts.from_strings(self)
        self.offered += [extra(self) for extra in extras]
        if corpus is not None:
            if corpus.embeddings.shape[1] != self.dim:
                allowed = f"embeddings of the model's size, {self.dim}"
                raise invalid_argument("corpus", corpus.embeddings.shape, allowed)
            self.offered += [self._search(corpus, query) for query in (self.text, self.image) if query is not None]

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

    def _search(self, corpus: Corpus, query: Signature) -> Signature:
        similarity, kind = self.model.similarity, "image" if query is self.image else "text"

        def rows(k: tf.Tensor, **inputs: tf.Tensor) -> Outputs:
            queries = query.rows(**inputs)
            return corpus.search(queries["embedding"], queries["valid"], k, similarity, kind)

        def examples() -> Arrays:
            inputs = query.examples()
            return {**inputs, "k": golden_k(len(next(iter(inputs.values()))))}

        name, scale = query.name.replace("encode_", "search_", 1), partial(score_scale, query, corpus.embeddings)
        return Signature(name, (*query.inputs, _K), rows, examples, scale, _RANKED)

    @property
    def dim(self) -> int:
        """Size of an embedding."""
        return self.text.function.get_concrete_function().structured_outputs["embedding"].shape[-1]

    @property
    def tables(self) -> list[Any]:
        """The tokenizer's lookup tables."""
        return self.text_input.tables

    @property
    def tolerance(self) -> float:
        """The largest relative difference that two computations of one row may show."""
        encoders = [self.model.text_encoder] + ([self.model.image_encoder] if self.image_input else [])
        return tolerance_of(encoder.compute_dtype for encoder in encoders)

    @property
    def promises(self) -> dict[str, Any]:
        """The fields of the contract about the embeddings."""
        similarity = self.model.similarity
        return {
            "dim": self.dim,
            "similarity": {"name": type(similarity).__name__, "config": similarity.get_config()},
            "geometry": similarity.geometry,
            "max_text_bytes": self.text_input.max_bytes,
            "max_tokens": self.text_input.max_tokens,
            "max_pixels": MAX_PIXELS if self.image_input else None,
        }

    @property
    def about(self) -> About:
        """The model in sentences, for the model card."""
        similarity, each = self.model.similarity, f"{self.dim} numbers each"
        images = " and images" if self.image_input else ""
        if self.multi_vector:
            each = f"sets of vectors of {each}, one a word{' or region' if images else ''}"
        config = ", ".join(f"{name}={value}" for name, value in similarity.get_config().items())
        compared = f"`{type(similarity).__name__}`{f' ({config})' if config else ''}"
        limits = [*self.text_input.limits(), *(self.image_input.limits() if self.image_input else ())]
        limits += [limit for signature in self.offered for limit in signature.limits]
        cannot = list(self.text_input.cannot())
        if not images:
            cannot.append("It embeds no images: it holds no image network.")
        if self.multi_vector:
            cannot.append("It searches nothing, since a corpus holds one vector an item: `vsemb search RUN` does.")
        elif self.corpus is None:
            cannot.append("It searches nothing: it was exported without a corpus.")
        cannot.append("It makes no captions: it compares what it is given, by no more than the signatures above.")
        return About(
            what=f"Embeds {self.text_input.takes}{images} as {each}, which can be compared.",
            reading=f"Two embeddings are compared by {compared}; their geometry is: {similarity.geometry}.",
            made="embeddings",
            limits=[*limits, "Embeddings of two versions are not comparable."],
            cannot=cannot,
        )


def score_scale(query: Signature, others: np.ndarray) -> dict[str, float]:
    """Returns how large scores may be: rounding grows with the embeddings, even where scores are near 0.

    Args:
        query: a signature that embeds.
        others: embeddings that its examples are compared with.

    Returns:
        `{"scores": scale}`, as `Signature.scale` gives it.
    """
    embedded = query.function(**tensors(query.examples()))["embedding"].numpy()
    scale = float(np.prod([np.linalg.norm(side, axis=-1).max() for side in (embedded, others)]))
    # What is not finite is reported where it is found.
    return {"scores": max(1.0, scale) if np.isfinite(scale) else 1.0}
