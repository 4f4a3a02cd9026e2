"""The dual encoder: an image tower and a text tower with a shared embedding space."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from types import GeneratorType
from typing import Any

import keras
import numpy as np
from keras import ops

from vsemb import losses, similarities
from vsemb.configured import Configured, build_layers
from vsemb.errors import InvalidArgumentError, VsembError, invalid_argument, one_line
from vsemb.hubs import HubCorrection
from vsemb.models.in_batch import INPUTS, InBatchObjective, LogitScale, check_pairs
from vsemb.models.replicated import ReplicatedModel, named_arguments
from vsemb.ops.backend import holds_strings
from vsemb.ops.chunks import map_in_chunks
from vsemb.ops.replicas import batch_spec
from vsemb.parts import Count, NonNegative
from vsemb.registry import load
from vsemb.unicode import require_unicode

Tensor = Any


@keras.saving.register_keras_serializable("vsemb")
class DualEncoder(Configured, ReplicatedModel):
    """Embed images and sentences into one space, trained with an in-batch loss in both directions.

    `fit` takes batches of inputs without targets, from `vsemb.data.batches.PairBatches` or your own
    `tf.data.Dataset`. Pairs (images, texts) work too:

        image           (n, ...) features or pixels; or (n,) bytes of JPEG or PNG images for a `PixelEncoder`
        text            (n, steps) int token ids, row i describing image i; (n, steps, 2) for trees; or (n,) raw
                        strings for a model with a tokenizer
        image_id        (n,) int64 optional: rows with the same id are not negatives of each other. Without ids, every
                        row counts as a different image, so pass them if images have several captions.
        negative_image, negative_image_id   (m, ...), (m,)  optional: more negatives for the texts
        negative_text, negative_text_id     (m, steps), (m,)  optional: more negatives for the images;
                        with them, the other rows of the batch are not negatives (Kiros et al. 2014:
                        "contrastive terms are chosen randomly from the training set")
        class_id        (n,) int64 optional: rows of one class are not negatives of each other, and a
                        loss over classes (`StructuredJointEmbedding`) compares these
        text_image_id   (k,) int64 optional: for k texts of n images, the id of the image of each text; every
                        text then makes a pair with its image

    `compile` takes any Keras optimizer, a loss of `vsemb.losses` or a `keras.losses.Loss` of (labels, scores),
    and Keras metrics of (labels, scores), one-hot labels of shape (queries, candidates). Metrics see the images of a
    batch as queries and then its texts; `"accuracy"` is the share whose own pair scores best.

    Similarities of sets (`Similarity.multi_vector`), such as `"max-sim"`, compare a set of regions with a set of words:
    features are (n, regions, size), embeddings (n, regions, dim) and (n, steps, dim), and a row of zeros is
    padding in all of them. Sampled negatives may have another number of regions or steps than the batch.

    Under a distribution strategy, candidates come from all replicas, and a step is equivalent to a step on one device
    with the whole batch, also where the batch does not divide evenly. Batch normalization uses the statistics of the
    whole batch, except with `chunk_size`.

    Args:
        image_encoder: layer from images to (n, dim), or (n, regions, dim) for sets. Any Keras layer works; only a
            `PixelEncoder` decodes bytes.
        text_encoder: layer from token ids to (n, dim), or (n, steps, dim) for sets. Any Keras layer works.
        similarity: a kind such as `"cosine"`, or a `Similarity`.
        logit_scale: a `LogitScale`, the learned temperature of `InfoNCE` and `SigmoidLoss`.
        image_weight: weight of the loss whose queries are images.
        text_weight: weight of the loss whose queries are texts. A weight of 0 disables the direction.
        l2: weight of the L2 penalty: half the sum of squares of all trained matrices, added to the loss once per step.
            Biases, scales and word vectors (`WordEmbedding`) are excluded.
        chunk_size: rows that each encoder embeds at a time in training (gradient caching); None for all. Only the
            activations of one chunk are in memory, and gradients do not change. Each chunk is embedded again for its
            gradient, which takes about a third more time. Dropout masks differ from training without chunks.
        block_size: queries of the loss that are scored at a time; None for all. The matrix of all scores is never in
            memory, and loss and gradients do not change. Each direction computes its own scores. `SigmoidLoss` computes
            both directions at once; under a strategy, it scores the candidates of one replica at a time
            (`vsemb.ops.replicas`).
        hubs: a `vsemb.hubs.HubCorrection`, which is applied except in training; None for none. Fill its bank with
            `vsemb.training.HubBankValidation`, or after training.
        tokenizer: callable from (n,) strings to (n, steps) int token ids, in graph: a tokenizer of `vsemb.text`, or a
            `keras.layers.TextVectorization`. The model then also takes raw strings, in training and when it is
            saved or exported. TensorFlow backend only.
        **kwargs: arguments of `keras.Model`.

    Call args:
        inputs: the mapping above, with `image`, `text` or both.
        training: whether dropout is applied.

    Returns:
        {"image": (n, dim) float32, "text": (n, dim) float32}, normalized, for the given inputs; for sets, (n, regions,
        dim) and (n, steps, dim).

    Raises:
        InvalidArgumentError: for a batch without the inputs above or with others, targets, weights, strings that the
            model cannot read, an infinite dataset without a number of steps, or encoders that embed into different
            sizes.

    Example: a model that reads image bytes and raw strings.

    >>> import numpy as np
    >>> from vsemb.encoders import ImageEncoder, LinearSentenceEncoder, PixelEncoder, WordEmbedding
    >>> from vsemb.image.backbones import BackboneConfig, build_backbone
    >>> from vsemb.text.tokenizers import WordTokenizer
    >>> from vsemb.text.vocabulary import Vocabulary
    >>> vocabulary = Vocabulary.from_captions(["a dog", "a cat"])
    >>> model = DualEncoder(
    ...     PixelEncoder(build_backbone(BackboneConfig("SmallConvNet")), ImageEncoder(8)),
    ...     LinearSentenceEncoder(WordEmbedding(len(vocabulary), 8)),
    ...     tokenizer=WordTokenizer(vocabulary),
    ... )
    >>> model.compile("adam", loss=losses.InfoNCE(0.1), metrics=["accuracy"])
    >>> model.predict({"text": np.array(["a dog", "a cat"])}, verbose=0)["text"].shape
    (2, 8)

    To load a saved model with Keras, import `vsemb.models` first:

        import vsemb.models

        model.save("mine.keras")
        model = keras.saving.load_model("mine.keras")
    """

    input_names = INPUTS

    def __init__(
        self,
        image_encoder: keras.layers.Layer,
        text_encoder: keras.layers.Layer,
        similarity: str | similarities.Similarity = "cosine",
        *,
        logit_scale: LogitScale | None = None,
        image_weight: float = 1.0,
        text_weight: float = 1.0,
        l2: NonNegative = 0.0,
        chunk_size: Count | None = None,
        block_size: Count | None = None,
        hubs: HubCorrection | None = None,
        tokenizer: Callable[[Tensor], Tensor] | None = None,
        **kwargs: Any,
    ) -> None:
        # Pixels stay as they are: above 128, bfloat16 has every second whole number alone.
        super().__init__(**{"autocast": False, **kwargs})
        self.keep_arguments(locals())
        if not (image_weight >= 0 and text_weight >= 0 and image_weight + text_weight > 0):
            received = (image_weight, text_weight)
            raise invalid_argument("image_weight, text_weight", received, "numbers >= 0, one of them > 0")
        for name, encoder in (("image_encoder", image_encoder), ("text_encoder", text_encoder)):
            if not isinstance(encoder, keras.layers.Layer):
                raise invalid_argument(name, encoder, "a Keras layer", "Put a function in a keras.layers.Lambda.")
        if tokenizer is not None and not callable(tokenizer):
            fix = "Pass WordTokenizer(vocabulary), or an adapted TextVectorization."
            raise invalid_argument("tokenizer", tokenizer, "a function or layer from strings to token ids", fix)
        self.similarity = similarities.get(similarity)
        if logit_scale is not None and not logit_scale.built:
            logit_scale.build()

    def build(self, input_shape: Any) -> None:
        shapes = dict(input_shape) if isinstance(input_shape, Mapping) else {}
        if "text" in shapes and len(shapes["text"]) == 1:
            shapes["text"] = (None, None, *getattr(self.tokenizer, "token_shape", ()))
        for name, encoder, dtype in (("image", self.image_encoder, "float32"), ("text", self.text_encoder, "int32")):
            if name not in shapes:
                continue
            try:
                build_layers((encoder, tuple(shapes[name])), dtype=dtype)
            except (TypeError, ValueError) as error:
                if isinstance(error, VsembError):
                    raise
                allowed = f"what {type(encoder).__name__}, the model's {name}_encoder, reads"
                raise invalid_argument(name, f"shape {tuple(shapes[name])}", allowed, one_line(error, 300)) from error

    def _reader(self, side: str, inputs: Any) -> Callable[[Tensor], Tensor] | None:
        """Return the function from strings to the encoder's inputs; None for inputs that are numbers.

        Raises:
            InvalidArgumentError: for strings that the model cannot read.
        """
        if not holds_strings(inputs):
            return None
        if side == "image":
            if not hasattr(self.image_encoder, "decode"):
                fix = "Use a `vsemb.encoders.PixelEncoder`, which decodes images to its backbone's size."
                raise invalid_argument(
                    "image", "bytes", f"what {type(self.image_encoder).__name__} reads: numbers", fix
                )
            return self._decoded
        if self.tokenizer is None:
            fix = "Pass one: DualEncoder(..., tokenizer=WordTokenizer(vocabulary))."
            raise invalid_argument("text", "strings", "token ids for a model without a tokenizer", fix)
        return self.tokenizer

    def _decoded(self, encoded: Tensor) -> Tensor:
        # Models do without TensorFlow, which `vsemb.image` imports.
        from vsemb.image.decode import require_valid

        return require_valid(*self.image_encoder.decode(encoded))

    def _numbers(self, side: str, inputs: Any) -> Tensor:
        read = self._reader(side, inputs)
        return inputs if read is None else read(string_tensors(inputs, side))

    def encode_images(self, images: Tensor, training: bool = False) -> Tensor:
        """Embed images.

        Args:
            images: (n, ...) features or pixels, or (n,) strings, the bytes of JPEG or PNG images.
            training: whether dropout is applied.

        Returns:
            (n, dim) float32, normalized by the similarity; (n, regions, dim) for sets.
        """
        with _named_rows():
            embeddings = self.similarity.normalize(
                self.image_encoder(self._numbers("image", images), training=training)
            )
        return embeddings if training or self.hubs is None else self.hubs(embeddings, side="image")

    def encode_texts(self, texts: Tensor, training: bool = False) -> Tensor:
        """Embed texts.

        Args:
            texts: (n, steps) int token ids, or (n,) raw strings for a model with a tokenizer.
            training: whether dropout is applied.

        Returns:
            (n, dim) float32, normalized by the similarity; (n, steps, dim) for sets.
        """
        with _named_rows():
            embeddings = self.similarity.normalize(self.text_encoder(self._numbers("text", texts), training=training))
        return embeddings if training or self.hubs is None else self.hubs(embeddings, side="text")

    def call(self, inputs: Mapping[str, Tensor], training: bool = False) -> dict[str, Tensor]:
        if not isinstance(inputs, Mapping) or not {"image", "text"} & set(inputs):
            received = sorted(inputs) if isinstance(inputs, Mapping) else "a tensor"
            raise invalid_argument("inputs", received, "a dictionary with image, text or both: {'text': texts}")
        sides = {
            "image": (self.image_encoder, partial(self.encode_images, training=training)),
            "text": (self.text_encoder, partial(self.encode_texts, training=training)),
        }
        outputs = {}
        for name in ("image", "negative_image", "text", "negative_text"):
            if name in inputs:
                side = name.removeprefix("negative_")
                (encoder, encode), rows = sides[side], self._numbers(side, inputs[name])
                if training and self.chunk_size is not None:
                    outputs[name] = encode_in_chunks(encoder, encode, rows, self.chunk_size)
                else:
                    outputs[name] = encode(rows)
        return outputs

    def compute_loss(
        self, x: Any = None, y: Any = None, y_pred: Any = None, sample_weight: Any = None, training: bool = True
    ) -> Tensor:
        """Compute the loss of both directions, with candidates from all replicas.

        Args:
            x: the inputs, see the class.
            y: not used; the ids in `x` define the pairs.
            y_pred: the output of `call` for `x`.
            sample_weight: not used.
            training: whether a gradient will be computed.

        Raises:
            InvalidArgumentError: if the model was compiled with a loss that is not row-wise, or `x` has
                classes together with negatives or ids of their own for the texts.
        """
        objective = self._objective()
        members = {name: self.similarity.split(output) for name, output in y_pred.items()}
        losses_of_members = []
        for embeddings in zip(*members.values(), strict=True):
            outputs = dict(zip(members, embeddings, strict=True))
            losses_of_members.append(objective(x, outputs, training))
        return self.with_penalties(sum(losses_of_members) / len(losses_of_members))

    def compute_metrics(self, x: Any, y: Any, y_pred: Any, sample_weight: Any = None) -> dict[str, Tensor]:
        """Update the metrics of (labels, scores) that the model was compiled with; called by Keras.

        Args:
            x: the inputs, see the class.
            y: not used.
            y_pred: the return value of `call` for `x`.
            sample_weight: not used.

        Returns:
            The metrics so far, by name.
        """
        if self._compile_metrics is not None:
            y, y_pred = self._objective().labels_and_scores(x, y_pred)
        try:
            return super().compute_metrics(x, y, y_pred)
        except (TypeError, ValueError) as error:
            allowed = "metrics of one-hot labels and scores, (queries, candidates), such as 'accuracy', not sparse ones"
            raise invalid_argument("metrics", self._compile_metrics._user_metrics, allowed) from error

    def _objective(self) -> InBatchObjective:
        row_loss = losses.get(self.loss)
        if self.optimizer is not None:
            row_loss.bind_step(self.finished_steps)
        weights = self.image_weight, self.text_weight
        return InBatchObjective(row_loss, self.similarity, self.logit_scale, *weights, self.block_size)

    def _call(self, method: str, *arguments: Any, cut: bool = True, **options: Any) -> Any:
        """Call a method of `keras.Model` with strings as tensors; `cut` as in `_prepare`."""
        call = named_arguments(method, *arguments, **options)
        with _named_rows():
            # Of validation in `fit`, the inputs are prepared already.
            _prepare(call.arguments, cut)
            return getattr(super(), method)(*call.args, **call.kwargs)

    def fit(self, x: Any = None, y: Any = None, *arguments: Any, **options: Any) -> keras.callbacks.History:
        """Train as `keras.Model.fit` does; texts and image bytes may be lists, too."""
        return self._call("fit", x, y, *arguments, **options)

    def evaluate(self, x: Any = None, y: Any = None, *arguments: Any, **options: Any) -> Any:
        """Compute loss and metrics as `keras.Model.evaluate` does; texts and image bytes may be lists, too."""
        return self._call("evaluate", x, y, *arguments, **options)

    def predict(self, x: Any, *arguments: Any, **options: Any) -> dict[str, np.ndarray]:
        """Embed as `keras.Model.predict` does; texts and image bytes may be lists, too."""
        with _named_rows():
            return super().predict(_arrays(x, None)[0], *arguments, **options)

    def train_on_batch(self, x: Any, y: Any = None, *arguments: Any, **options: Any) -> Any:
        """Train on a batch as `keras.Model.train_on_batch` does; texts and image bytes may be lists, too."""
        return self._call("train_on_batch", x, y, *arguments, cut=False, **options)

    def test_on_batch(self, x: Any, y: Any = None, *arguments: Any, **options: Any) -> Any:
        """Evaluate a batch as `keras.Model.test_on_batch` does; texts and image bytes may be lists, too."""
        return self._call("test_on_batch", x, y, *arguments, cut=False, **options)

    def predict_on_batch(self, x: Any) -> Any:
        """Embed a batch as `keras.Model.predict_on_batch` does; texts and image bytes may be lists, too."""
        with _named_rows():
            return super().predict_on_batch(string_tensors(x))

    def train_step(self, *arguments: Any) -> Any:
        """Train on a batch; called by Keras."""
        return super().train_step(*arguments[:-1], inputs_of(arguments[-1]))

    def test_step(self, *arguments: Any) -> Any:
        """Evaluate a batch; called by Keras."""
        return super().test_step(*arguments[:-1], inputs_of(arguments[-1]))

    def predict_step(self, *arguments: Any) -> Any:
        """Embed a batch; called by Keras."""
        return super().predict_step(*arguments[:-1], inputs_of(arguments[-1]))

    def _maybe_symbolic_build(self, iterator: Any = None, data_batch: Any = None) -> None:
        # Before a step is traced: a trace that fails takes with it the variables that are made there.
        data = data_batch if iterator is None else batch_spec(iterator._distributed_dataset)
        x, y, _ = keras.utils.unpack_x_y_sample_weight(data)
        if isinstance(x, Mapping) and y is not None:
            raise _refused("y", "the second part of the batch")
        if getattr(self._compile_loss, "_user_loss_weights", None) is not None:
            fix = "Pass image_weight and text_weight to the model."
            raise invalid_argument("loss_weights", self._compile_loss._user_loss_weights, "omitted", fix)
        x = inputs_of(data)
        check_pairs(x)
        self.check_names(x)
        strings = [name for name in ("image", "text") if self._reader(name, x[name]) is not None]
        if strings and self.jit_compile and keras.backend.backend() == "tensorflow":
            # XLA would end the process.
            raise invalid_argument("jit_compile", True, f"False for batches whose {' and '.join(strings)} are strings")
        with contextlib.nullcontext() if self._distribute_strategy is None else self._distribute_strategy.scope():
            if not (self.image_encoder.built and self.text_encoder.built):
                self.build({name: (None, *x[name].shape[1:]) for name in ("image", "text")})
            if self.optimizer is not None and not self.optimizer.built:
                self.optimizer.build(self.trainable_variables)
            if self._compile_metrics is not None and not self._compile_metrics.built:
                table = keras.KerasTensor((None, None))
                self._compile_metrics.build(table, table)

    def export(
        self,
        filepath: str | os.PathLike[str],
        format: str = "tf_saved_model",
        verbose: bool | None = None,
        **options: Any,
    ) -> None:
        """Write the model as a SavedModel with signatures for TensorFlow Serving and `vsemb serve`.

        `encode_text`, which is also `serving_default`, takes `text`, raw strings; without a tokenizer it takes
        `token_ids`, int32 (batch, steps). `encode_image` takes `image_bytes`; an encoder that cannot decode takes
        `image`, float32. Both return `embedding`, float32 (batch, dim), and `valid`, bool (batch,).

        Args:
            filepath: directory of the SavedModel.
            format: `tf_saved_model`; other formats are written by `keras.Model.export`.
            verbose: of `keras.Model.export`.
            **options: of `keras.Model.export`, which then writes its own signature.

        Raises:
            InvalidArgumentError: for a model that was not built, or a model of sets without a tokenizer.

        Example:

            model.export("savedmodels/mine/1")
        """
        if format != "tf_saved_model" or options:
            super().export(filepath, format=format, verbose=verbose, **options)
        else:
            # Serving stands on models, so it is found by name.
            load("vsemb.exporting.keras_model:export_model")(self, filepath)


@contextlib.contextmanager
def _named_rows() -> Iterator[None]:
    """Raise an error that names token ids or rows of images, where TensorFlow's names an index or its graph."""
    try:
        yield
    except VsembError:
        raise
    except Exception as error:
        rows = re.search(r"(`image` must be the bytes [^:]*:)\W+([\d \n.,]*)", str(error))
        if rows:
            fix = "Read files first: dataset.map(lambda row: {**row, 'image': tf.io.read_file(row['image'])})."
            raise InvalidArgumentError(f"{rows[1]} {rows[2].strip()}. {fix}") from error
        refused = re.search(r"(`\w+` must [^;]*; got)[\W]*?(-?\d+)", str(error))
        if refused:
            raise InvalidArgumentError(
                f"{refused[1]} {refused[2]}. Batch rows with all that belongs to them."
            ) from error
        unknown_id = re.search(r"indices\[[\d,]*\] = (-?\d+) is not in \[0, (\d+)\)", str(error))
        if unknown_id is None:
            raise
        received, words = int(unknown_id[1]), int(unknown_id[2])
        # See `vsemb.encoders.text_encoder.outside_if_negative`.
        received -= next((2**bits for bits in (31, 63) if 0 < 2**bits - received <= 2**30), 0)
        fix = "Build the embedding for the vocabulary that the ids are of: WordEmbedding(len(vocabulary), ...)."
        raise invalid_argument("text", received, f"token ids from 0 to {words - 1}", fix) from error


def _prepare(arguments: dict[str, Any], cut: bool) -> None:
    """Prepare the arguments of a method of Keras: strings become tensors.

    Args:
        arguments: the arguments by name, which are changed.
        cut: whether Keras cuts the arrays into batches, so that all need the same number of rows.

    Raises:
        InvalidArgumentError: for weights and targets, which Keras drops or cannot read, and for arrays with
            different numbers of rows.
    """
    for name in ("sample_weight", "class_weight"):
        if arguments.get(name) is not None:
            raise _refused(name, type(arguments[name]).__name__)
    arguments["x"], arguments["y"] = _arrays(arguments["x"], arguments["y"], cut)
    held_out = arguments.get("validation_data")
    if isinstance(held_out, Mapping | tuple | list):
        x, y, weights = keras.utils.unpack_x_y_sample_weight(held_out)
        if weights is not None:
            raise _refused("sample_weight", "a third part of validation_data")
        held_out = keras.utils.pack_x_y_sample_weight(*_arrays(x, y))
    if "validation_data" in arguments:
        arguments["validation_data"] = _batches(held_out)


def _arrays(x: Any, y: Any, cut: bool = True) -> tuple[Any, Any]:
    x, y = _batches(x), string_tensors(y, "y")
    if y is not None and not hasattr(x, "shape"):
        raise _refused("y", type(y).__name__)
    arrays = {"image": x} if y is None else {"image": x, "text": y}
    if isinstance(x, Mapping):
        arrays = dict(x)
    for name, array in arrays.items():
        if array is None:
            raise invalid_argument(name, None, "an array with a row per pair", "Leave out inputs that are not there.")
    rows = {name: array.shape[0] for name, array in arrays.items() if len(getattr(array, "shape", None) or ())}
    if cut and 0 in rows.values():
        raise invalid_argument("x", rows, "arrays with at least one row each")
    if cut and len(set(rows.values())) > 1:
        raise invalid_argument("x", rows, "arrays with as many rows each, one per pair")
    return x, y


def _refused(name: str, received: str) -> VsembError:
    reason = "omitted, since all pairs count alike"
    if name == "y":
        reason = "omitted beside a dictionary or dataset of inputs"
    fix = "Put ids into a dictionary: {'image': …, 'text': …, 'image_id': …}."
    return invalid_argument(name, received, reason, fix)


def string_tensors(values: Any, argument: str = "x") -> Any:
    """Return strings as a tensor, and lists of numbers as arrays; other values as they are.

    Args:
        values: a list, an array, a column of a table (pandas, Arrow) or another sequence, or a dictionary of them.
        argument: name of the argument, for errors.

    Raises:
        InvalidArgumentError: for a value other than a string, and for a lone surrogate; the error names its row.

    Example:

    >>> string_tensors({"text": ["a dog"]})["text"].shape
    TensorShape([1])
    """
    if isinstance(values, Mapping):
        return {name: string_tensors(array, name) for name, array in values.items()}
    array = values = _without_library(values)
    if isinstance(values, list):
        strings = any(isinstance(value, str | bytes) for value in values)
        try:
            array = np.asarray(values, object if strings else None)
        except ValueError:  # Lists of different lengths.
            array = np.zeros(0, object)
        if array.dtype == object and not strings:
            allowed = "arrays, or lists of strings, bytes or rows of one length"
            fix = "Read files first: Path(file).read_bytes(). Pad token ids with 0."
            raise invalid_argument(argument, f"a list of {type(values[0]).__name__}", allowed, fix)
    if not isinstance(array, np.ndarray):
        return values
    if holds_strings(array):
        for place, value in np.ndenumerate(np.asarray(values, object)):
            if not isinstance(value, str | bytes):
                fix = "Leave out pairs without a text or an image."
                raise invalid_argument(f"{argument}{list(place[:1])}", value, "a string or bytes", fix)
        require_unicode(argument, values)
        return ops.convert_to_tensor(values, "string")
    return array.astype(keras.config.floatx()) if array.dtype == "float64" else array


def _without_library(values: Any) -> Any:
    """Return strings in a sequence or a column of a table as a list or an array; other values as they are."""
    if isinstance(values, list | np.ndarray | keras.KerasTensor) or ops.is_tensor(values):
        return values
    if isinstance(values, Sequence):
        return list(values) if len(values) and isinstance(values[0], str | bytes) else values
    with contextlib.suppress(TypeError, ValueError):
        if hasattr(values, "__array__") and holds_strings(array := np.asarray(values)):
            return array
    return values


def _batches(x: Any) -> Any:
    """Return a generator or PyDataset whose batches TensorFlow can read; other values as `string_tensors` does."""
    if isinstance(x, GeneratorType):
        return (_batch(data) for data in x)
    return _TensorBatches(x) if isinstance(x, keras.utils.PyDataset) else string_tensors(x)


def _batch(data: Any) -> tuple[Any, ...]:
    # Of generators, Keras takes tuples alone.
    return tuple(map(string_tensors, data if isinstance(data, tuple) else (data,)))


class _TensorBatches(keras.utils.PyDataset):
    """The batches of another dataset, with strings as tensors: Keras takes no arrays of them."""

    def __init__(self, dataset: keras.utils.PyDataset) -> None:
        super().__init__(dataset.workers, dataset.use_multiprocessing, dataset.max_queue_size)
        self._dataset = dataset
        self.on_epoch_begin, self.on_epoch_end = dataset.on_epoch_begin, dataset.on_epoch_end

    @property
    def num_batches(self) -> int | None:
        return self._dataset.num_batches

    def __getitem__(self, index: int) -> tuple[Any, ...]:
        return _batch(self._dataset[index])


def inputs_of(data: Any) -> Any:
    """Return the inputs of a batch as Keras passes it: a tuple (images, texts) becomes a dictionary.

    Raises:
        InvalidArgumentError: for a third part, which Keras takes for weights of rows.

    Example:

    >>> sorted(inputs_of(([[0.5]], [[2, 3]])))
    ['image', 'text']
    """
    x, y, weights = keras.utils.unpack_x_y_sample_weight(data)
    if weights is not None:
        raise _refused("sample_weight", "a third part of the batch")
    return x if isinstance(x, Mapping) or y is None else {"image": x, "text": y}


def encode_in_chunks(
    encoder: keras.layers.Layer, encode: Callable[[Tensor], Tensor], rows: Tensor, chunk_size: int
) -> Tensor:
    """Embed rows chunk by chunk in training, so that activations of one chunk are in memory at a time.

    The gradients for the encoder's weights equal the gradients for all rows at once, up to rounding. Dropout draws each
    chunk's masks once: where a chunk is computed again for its gradient, they are the same. State of
    an encoder, such as the moving averages of a batch normalization, is updated once per chunk.
    The gradient of a table of word vectors has one row per word, see `WordEmbedding`'s `dense_gradient`.

    Args:
        encoder: the layer whose weights are trained.
        encode: from rows to embeddings, with that layer.
        rows: (n, ...) inputs; they get no gradient.
        chunk_size: rows at a time, >= 1.

    Returns:
        (n, ...) float32, what `encode` returns.

    Raises:
        VsembError: if the encoder adds losses of its own while it embeds (`add_loss`, activity
            regularisers), which would be counted for a chunk instead of a batch.

    Where an encoder looks at several rows at once, as a batch normalization with batch statistics does, it
    sees the rows of a chunk. Random numbers must come from `keras.random` with a `SeedGenerator` that the
    encoder owns, as in Keras' layers.

    Example:

    >>> from vsemb.encoders import ImageEncoder
    >>> encoder = ImageEncoder(4)
    >>> encoder.build((None, 8))
    >>> encode_in_chunks(encoder, encoder, keras.ops.ones((5, 8)), 2).shape
    TensorShape([5, 4])
    """
    if not encoder.built:
        encoder.build(rows.shape)
    trained, others = encoder.trainable_variables, encoder.non_trainable_variables
    changed: set[int] = set()

    def function(rows: Tensor, weights: Sequence[Tensor], state: Sequence[Tensor]) -> tuple[Tensor, list[Tensor]]:
        mapping = [*zip(trained, weights, strict=True), *zip(others, state, strict=True)]
        with keras.StatelessScope(mapping, collect_losses=True, initialize_variables=False) as scope:
            embeddings = encode(rows)
        if scope.losses:
            raise VsembError(
                f"{encoder.name} adds losses of its own while it embeds, which chunks would change. Train it "
                "without chunk_size, or without its activity regularisers."
            )
        after = [scope.get_current_value(variable) for variable in others]
        for number, value in enumerate(after):
            if value is not state[number]:
                changed.add(number)
        return embeddings, after

    weights, state = [variable.value for variable in trained], [variable.value for variable in others]
    embeddings, state = map_in_chunks(function, rows, chunk_size, weights, state)
    for number in sorted(changed):
        others[number].assign(state[number])
    return embeddings
