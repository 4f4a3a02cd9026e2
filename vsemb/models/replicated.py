"""Training of all models: steps under a distribution strategy, and the L2 penalty."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, ClassVar

import keras
from keras import ops

from vsemb.configured import import_classes
from vsemb.encoders import WordEmbedding
from vsemb.errors import invalid_argument, unknown_name
from vsemb.ops.gradients import freed_with_graph
from vsemb.ops.replicas import (
    batch_spec,
    clip_after_sum,
    divided,
    draw_apart,
    normalize_together,
    on_one_batch,
    replica_count,
    row_weight,
    spans_workers,
    step_of_workers,
    weigh_rows_alike,
)

Tensor = Any


class ReplicatedModel(keras.Model):
    """Train under a distribution strategy in steps that equal the steps of one device on the whole batch.

    It replaces habits of Keras:

    - Keras builds a model on the mean of the replicas' first batches, where token ids are fractions, and skips that
      batch. Here models are built by shapes.
    - Keras clips each replica's gradients before it sums them. Here the sum is clipped.
    - Keras draws the same dropout mask on every replica. Here each replica draws its own.
    - Keras takes the mean of the replicas' mean losses, for any numbers of rows. Here all rows count alike.
    - Keras normalizes a replica's rows by their own statistics. Here batch normalization uses the statistics of the
      whole batch, except in chunks.
    - Keras gives each replica all rows of `train_on_batch`. Here they are divided, as in `fit`.
    - Keras and TensorFlow keep the graphs of all steps, with the weights in them, until the process ends. Here they are
      freed with the model.
    - Keras averages the logs of several workers along an axis that scalars do not have. Here scalars are averaged.

    Inputs with other names than `input_names` are refused, since they would not be read. A subclass that overrides
    `call` or `compute_loss` may read more, and declares its own.
    """

    #: Names of the inputs that the model reads; other names are refused. Empty for any.
    input_names: ClassVar[tuple[str, ...]] = ()
    # The counter of steps as the compiled step of JAX sees it, while that is made.
    _finished_steps: Any = None

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        """Compute outputs as `keras.Model` does."""
        self.check_names(arguments[0] if arguments else options.get("inputs"))
        return super().__call__(*arguments, **options)

    def check_names(self, x: Any) -> None:
        """Check that a batch has only inputs that the model reads.

        Args:
            x: the inputs, or their specification.

        Raises:
            InvalidArgumentError: for a name that it does not read, such as a misspelt one.
        """
        names = self._names_read()
        if not names or not isinstance(x, Mapping):
            return
        for name in x:
            if name not in names:
                raise unknown_name("x", name, names, "Remove it from the rows: dataset.map(lambda row: {…}).")

    def _names_read(self) -> tuple[str, ...]:
        for attributes in map(vars, type(self).__mro__):
            if "input_names" in attributes:
                return attributes["input_names"]
            if "call" in attributes or "compute_loss" in attributes:
                return ()
        return ()

    def fit(self, *arguments: Any, **options: Any) -> keras.callbacks.History:
        """Train as `keras.Model.fit` does.

        Raises:
            InvalidArgumentError: for a dataset without end and no number of steps.
        """
        named = named_arguments("fit", *arguments, **options).arguments
        _require_end("x", named, "steps_per_epoch")
        _require_end("validation_data", named, "validation_steps")
        return super().fit(*arguments, **options)

    def evaluate(self, *arguments: Any, **options: Any) -> Any:
        """Compute loss and metrics as `keras.Model.evaluate` does; raises as `fit`."""
        if "_use_cached_eval_dataset" not in options:
            _require_end("x", named_arguments("evaluate", *arguments, **options).arguments, "steps")
        return super().evaluate(*arguments, **options)

    def predict(self, *arguments: Any, **options: Any) -> Any:
        """Compute outputs as `keras.Model.predict` does; raises as `fit`."""
        _require_end("x", named_arguments("predict", *arguments, **options).arguments, "steps")
        return super().predict(*arguments, **options)

    def make_train_function(self, force: bool = False) -> Any:
        """Make the function of a training step; called by Keras."""
        # Not in `compile`: Keras does not compile what it loads where that is overridden.
        optimizer = getattr(self.optimizer, "inner_optimizer", self.optimizer)
        if optimizer is not None:
            clip_after_sum(optimizer)
        if isinstance(optimizer, keras.optimizers.Adafactor):
            optimizer.update_step = partial(_dense_step, optimizer)
        strategy = getattr(self, "_distribute_strategy", None)
        accumulated = getattr(optimizer, "gradient_accumulation_steps", None)
        if accumulated and getattr(strategy, "num_replicas_in_sync", 1) > 1:
            fix = "Use a larger batch."
            if hasattr(self, "chunk_size"):
                fix = "Use a larger batch, and chunk_size if it does not fit into memory."
            raise invalid_argument("gradient_accumulation_steps", accumulated, "None under a strategy", fix)
        if strategy is not None:
            weigh_rows_alike(self._loss_tracker)
            together = getattr(self, "chunk_size", None) is None
            for layer in self._flatten_layers():
                generator = getattr(layer, "seed_generator", None)
                if isinstance(generator, keras.random.SeedGenerator):
                    draw_apart(generator)
                if isinstance(layer, keras.layers.BatchNormalization):
                    normalize_together(layer, together)
        return super().make_train_function(force)

    def make_test_function(self, force: bool = False) -> Any:
        """Make the function of an evaluation step; called by Keras."""
        if getattr(self, "_distribute_strategy", None) is not None:
            weigh_rows_alike(self._loss_tracker)
        return super().make_test_function(force)

    def predict_on_batch(self, x: Any) -> Any:
        """Embed a batch as `keras.Model.predict_on_batch` does."""
        return super().predict_on_batch(divided(getattr(self, "_distribute_strategy", None), x))

    def compute_loss(
        self, x: Any = None, y: Any = None, y_pred: Any = None, sample_weight: Any = None, training: bool = True
    ) -> Tensor:
        """Compute the compiled loss; called by Keras.

        Args:
            x: the inputs.
            y: the targets.
            y_pred: the output of `call` for `x`.
            sample_weight: (n,) weights of the rows; None for 1.
            training: whether a gradient will be computed.
        """
        if replica_count() > 1:
            sample_weight = self.row_weights(ops.shape(y_pred)[0], sample_weight)
        return super().compute_loss(x, *_columns(y, y_pred), sample_weight, training)

    def compute_metrics(self, x: Any, y: Any, y_pred: Any, sample_weight: Any = None) -> dict[str, Tensor]:
        """Update the compiled metrics; called by Keras.

        Args:
            x: the inputs.
            y: the targets.
            y_pred: the output of `call` for `x`.
            sample_weight: (n,) weights of the rows; None for 1.

        Returns:
            The metrics so far, by name.
        """
        return super().compute_metrics(x, *_columns(y, y_pred), sample_weight)

    def row_weights(self, rows: int, sample_weight: Tensor | None = None) -> Tensor | None:
        """Return the weights of this replica's rows in a Keras loss, so that all rows of the batch count alike.

        Args:
            rows: number of this replica's rows.
            sample_weight: (n,) weights of the rows; None for 1.
        """
        if replica_count() == 1 or getattr(self.loss, "reduction", "mean") in (None, "none", "sum"):
            return sample_weight
        weight = row_weight(rows)
        return ops.full((rows,), weight) if sample_weight is None else ops.cast(sample_weight, "float32") * weight

    @property
    def finished_steps(self) -> Any:
        """The number of optimizer steps before this one, for losses that change with it."""
        return self.optimizer.iterations if self._finished_steps is None else self._finished_steps

    def compute_loss_and_updates(
        self, *args: Any, optimizer_variables: list[Tensor] | None = None, **kwargs: Any
    ) -> Any:
        """Compute the function that Keras' step for JAX differentiates; called by Keras."""
        # The variables of the optimizer are inputs of the compiled step there. Read by itself, its counter
        # would stay what it was when the step was compiled.
        for variable, value in zip(self.optimizer.variables, optimizer_variables or (), strict=False):
            if variable is self.optimizer.iterations:
                self._finished_steps = value
        try:
            return super().compute_loss_and_updates(*args, optimizer_variables=optimizer_variables, **kwargs)
        finally:
            self._finished_steps = None

    def with_penalties(self, loss: Tensor) -> Tensor:
        """Add the losses of layers and the L2 penalty of the attribute `l2` to a replica's loss."""
        for extra in [*self.losses, *l2_penalties(self, self.l2)]:
            # A regulariser is the same on each replica, and the replicas' losses are summed.
            loss = loss + ops.cast(extra, loss.dtype) / replica_count()
        return loss

    def compile_from_config(self, config: dict[str, Any]) -> None:
        """Compile a loaded model; called by Keras."""
        import_classes(config)
        super().compile_from_config(config)

    def _maybe_symbolic_build(self, iterator: Any = None, data_batch: Any = None) -> None:
        # Here, too: Keras takes the error for one of its own where it builds a model.
        data = data_batch if iterator is None else batch_spec(iterator._distributed_dataset)
        self.check_names(keras.utils.unpack_x_y_sample_weight(data)[0])
        if self._distribute_strategy is None or not self.built:
            super()._maybe_symbolic_build(iterator=iterator, data_batch=data_batch)
        elif self.optimizer is not None and not self.optimizer.built:
            with self._distribute_strategy.scope():
                self.optimizer.build(self.trainable_variables)

    def _make_function(self, step_function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        strategy = getattr(self, "_distribute_strategy", None)
        steps = self.steps_per_execution
        if steps != 1 and getattr(strategy, "num_replicas_in_sync", 1) > 1:
            fix = "Leave it out of compile(): replicas meet in each step."
            raise invalid_argument("steps_per_execution", steps, "1 under a strategy", fix)
        step_function = freed_with_graph(step_function)
        if spans_workers(strategy):
            return step_of_workers(strategy, step_function)
        function = super()._make_function(step_function, *args, **kwargs)
        if getattr(strategy, "num_replicas_in_sync", 1) == 1:
            return function
        return on_one_batch(strategy, function, self.get_metrics_result)


def _columns(y: Any, y_pred: Any) -> tuple[Any, Any]:
    """Return one number per row as (n, 1): Keras takes the axis of (n,) for classes, and means over it."""
    if len(getattr(y, "shape", ())) == len(getattr(y_pred, "shape", ())) == 1:
        return ops.expand_dims(y, 1), ops.expand_dims(y_pred, 1)
    return y, y_pred


def named_arguments(method: str, *arguments: Any, **options: Any) -> inspect.BoundArguments:
    """Return the arguments of a call of a method of Keras' models by name.

    Raises:
        TypeError: as the call would.

    Example:

    >>> named_arguments("fit", [3], batch_size=2).arguments
    {'x': [3], 'batch_size': 2}
    """
    return inspect.signature(partial(getattr(keras.Model, method), None)).bind(*arguments, **options)


def _require_end(name: str, arguments: Mapping[str, Any], steps: str) -> None:
    """Refuse a dataset without end, the argument `name`, unless the argument `steps` has a number of batches."""
    if arguments.get(steps) is not None:
        return
    data = arguments.get(name)
    count = getattr(data, "cardinality", None)
    endless = callable(count) and int(count()) == -1
    if isinstance(data, keras.utils.PyDataset):
        endless = data.num_batches is None
    if endless:
        fix = f"Pass {steps}, the number of batches to take, or leave out .repeat()."
        raise invalid_argument(name, "an infinite dataset", f"a dataset that ends, without {steps}", fix)


def l2_penalties(model: keras.Model, l2: float) -> list[Tensor]:
    """Return the L2 penalty of each trained matrix other than biases and tables of word vectors."""
    if not l2:
        return []
    layers = model._flatten_layers(include_self=False)
    tables = {id(table) for layer in layers if isinstance(layer, WordEmbedding) for table in layer.tables}
    penalties = []
    for variable in model.trainable_variables:
        if len(variable.shape) >= 2 and "bias" not in variable.name and id(variable) not in tables:
            penalties.append(0.5 * l2 * ops.sum(ops.square(ops.cast(variable, "float32"))))
    return penalties


def _dense_step(optimizer: keras.optimizers.Optimizer, gradient: Tensor, variable: Tensor, rate: Tensor) -> None:
    # Keras' Adafactor takes wrong steps, to NaN in the end, for gradients of embeddings in which a word occurs twice.
    dense = ops.add(gradient, ops.zeros_like(variable))
    type(optimizer).update_step(optimizer, dense, variable, rate)
