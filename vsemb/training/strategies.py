"""Devices of a training: one device, all devices of this machine, or several workers.

Every replica computes its share of a batch. Embeddings are gathered, losses and gradients are summed, and the sum is
clipped, so a step is equivalent to a step on one device with the whole batch.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import keras
import numpy as np

from vsemb.console import say
from vsemb.data.batches import BatchSource
from vsemb.errors import WorkerError, invalid_argument, unknown_name
from vsemb.ops.tensorflow import tf
from vsemb.parts import Count, require
from vsemb.training.cluster import Task, read_task

STRATEGIES = ("none", "mirrored", "multiworker")

#: Maximum seconds that a worker waits for the others to start.
START_SECONDS = 600.0

Result = TypeVar("Result")

# What TensorFlow raises where another worker does not answer any more.
_LOST = ("Unavailable", "Aborted", "Cancelled", "DeadlineExceeded", "FailedPrecondition", "Internal")


class DistributionContext:
    """Devices and workers of a training, from `open_distribution`.

    Models are built and trained within `scope`. All workers run the same program; only worker 0 evaluates and writes
    files.

    Args:
        strategy: the strategy; None for one device.
        task: number of this worker; None for a single process.

    Attributes:
        replicas: number of devices that share a batch, over all workers.
        workers: number of processes.
        worker: number of this process, from 0.
        writes: whether this process evaluates and writes files: true for worker 0.
    """

    def __init__(self, strategy: tf.distribute.Strategy | None = None, task: Task | None = None) -> None:
        self.strategy = strategy
        self.replicas = 1 if strategy is None else int(strategy.num_replicas_in_sync)
        self.workers = 1 if task is None else task.workers
        self.worker = 0 if task is None else task.number
        self.writes = self.worker == 0
        self._failed = 0

    def check_batch_size(self, size: int) -> None:
        """Check that a batch size is a multiple of the number of replicas.

        Args:
            size: rows of a whole batch.

        Raises:
            InvalidArgumentError: for another size; the message has both numbers.
        """
        if size % self.replicas:
            near = max(round(size / self.replicas), 1) * self.replicas
            allowed = f"a multiple of the {self.replicas} replicas"
            raise invalid_argument("batches.size", size, allowed, f"For example batches.size={near}.")

    @contextlib.contextmanager
    def scope(self) -> Iterator[None]:
        """Return the scope in which models are built on these devices, in the same way by all workers.

        Raises:
            WorkerError: as `guarded`.
        """
        with self.guarded(), contextlib.nullcontext() if self.strategy is None else self.strategy.scope():
            yield

    @contextlib.contextmanager
    def guarded(self) -> Iterator[None]:
        """Return a context for actions that all workers do together.

        Raises:
            WorkerError: if another worker has stopped.
        """
        try:
            yield
        except BaseException as error:
            self._failed = 130 if isinstance(error, KeyboardInterrupt) else 1
            if self.workers == 1:
                raise
            lost = tuple(getattr(tf.errors, f"{name}Error") for name in _LOST)
            if not isinstance(error, lost):
                raise
            raise WorkerError(
                f"Worker {self.worker} of {self.workers}: another worker is gone or does not answer. Start "
                "all of them again with the same command; training goes on from the last stored state."
            ) from error

    def distribute(self, dataset: tf.data.Dataset) -> Any:
        """Distribute batches among the replicas.

        Args:
            dataset: whole batches, the same in all workers; the number of rows is a multiple of `replicas`. Replica i
                gets the i-th part.

        Returns:
            A dataset for `fit`.
        """
        if self.strategy is None or self.workers == 1:
            # Keras distributes this dataset by itself, and requests only the batches that exist. It would count a
            # request without a batch as a step.
            return dataset
        local = self.replicas // self.workers
        own = slice(self.worker * local, (self.worker + 1) * local)

        def part(x: tf.Tensor) -> tf.Tensor:
            rows = None if x.shape[0] is None else x.shape[0] // self.replicas
            parts = tf.reshape(x, tf.concat([[self.replicas, -1], tf.shape(x)[1:]], axis=0))
            return tf.ensure_shape(parts, (self.replicas, rows, *x.shape[1:]))[own]

        @tf.autograph.experimental.do_not_convert
        def parts(*batch: Any) -> Any:
            return tf.nest.map_structure(part, batch if len(batch) > 1 else batch[0])

        shared = dataset.map(parts, num_parallel_calls=2, deterministic=True).unbatch().prefetch(2 * local)
        return self.strategy.distribute_datasets_from_function(lambda _: shared)

    def fit_arguments(self, batches: BatchSource, epoch: int, step: int) -> dict[str, Any]:
        """Return the arguments of `fit` for the batches of an epoch from a step on, and of the epochs after it."""
        return {"x": self.distribute(batches.dataset(epoch, step))}

    def total(self, *values: float) -> np.ndarray:
        """Add numbers of all workers; every worker must make this call.

        Args:
            *values: numbers of this worker.

        Returns:
            (values,) float64, the same in each worker.
        """
        numbers = np.array(values, np.float64)
        if self.workers == 1:
            return numbers
        with self.guarded():
            return self._sum(tf.constant(numbers)).numpy()

    @functools.cached_property
    def _sum(self) -> Callable[[tf.Tensor], tf.Tensor]:
        strategy, local = self.strategy, self.replicas // self.workers
        assert strategy is not None

        def of_replica(values: tf.Tensor) -> tf.Tensor:
            context = tf.distribute.get_replica_context()
            first = tf.equal(tf.cast(context.replica_id_in_sync_group, tf.int32) % local, 0)
            return context.all_reduce("SUM", tf.where(first, values, 0.0))

        @tf.function(autograph=False)
        def of_workers(values: tf.Tensor) -> tf.Tensor:
            return strategy.experimental_local_results(strategy.run(of_replica, args=(values,)))[0]

        return of_workers

    def of_first_worker(self, value: float) -> float:
        """Return the value of worker 0 in all workers, bit for bit.

        Args:
            value: value of this worker; only the value of worker 0 is used.
        """
        return float(self.total(value if self.writes else 0.0)[0])

    def first_worker_first(self, work: Callable[[], Result]) -> Result:
        """Run a function in worker 0, and then in the other workers.

        Args:
            work: the function; it reuses results that already exist.
        """
        with self.guarded():
            result = work() if self.writes else None
            self.total(0.0)
            return work() if result is None else result

    def _leave(self) -> None:
        """End the process after a failure, because TensorFlow would wait for the other workers."""
        if self._failed:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(self._failed)


class JaxDevices(DistributionContext):
    """Devices of a training on the JAX backend, from `open_distribution`: one, or several of this machine.

    JAX compiles a step for the whole batch and divides it among the devices by itself, so candidates come from all.

    Args:
        names: the devices, as `keras.distribution.list_devices` names them; none for the default device.
    """

    def __init__(self, names: Sequence[str] = ()) -> None:
        super().__init__()
        self.replicas = max(len(names), 1)
        self._distribution = keras.distribution.DataParallel(devices=[*names]) if self.replicas > 1 else None

    @contextlib.contextmanager
    def guarded(self) -> Iterator[None]:
        with contextlib.nullcontext() if self._distribution is None else self._distribution.scope():
            yield

    def fit_arguments(self, batches: BatchSource, epoch: int, step: int) -> dict[str, Any]:
        return {"x": batches.arrays(epoch, step), "steps_per_epoch": batches.steps_per_epoch - step}


def _jax_devices(count: int | None) -> list[str]:
    import jax

    if count is not None:
        with contextlib.suppress(RuntimeError):  # JAX runs already.
            jax.config.update("jax_num_cpu_devices", count)
    names = keras.distribution.list_devices()
    if count is not None and count > len(names):
        raise invalid_argument("devices", count, f"at most the {len(names)} devices that JAX has")
    return names[:count]


def open_distribution(strategy: str = "none", count: int | None = None) -> DistributionContext:
    """Open the devices of a training. Call it before any other function of TensorFlow.

    GPUs then allocate memory as needed, and not all of it at once.

    Args:
        strategy: `none`: one device. `mirrored`: the GPUs of this machine, or `count` logical CPU devices if it has no
            GPU. `multiworker`: one of several processes, on this machine or others, each with the environment variable
            `TF_CONFIG` as for `tf.distribute.MultiWorkerMirroredStrategy`.
        count: number of devices for `mirrored`; None for all GPUs.

    Returns:
        The devices. In one process, calls with the same arguments return the same object.

    Raises:
        InvalidArgumentError: for an unknown strategy, missing devices, or an invalid `TF_CONFIG`.

    Example:

        devices = open_distribution("mirrored", 2)
        run = train(recipes.get("vsepp"), dataset, "runs/vsepp", strategy=devices)
    """
    if strategy not in STRATEGIES:
        raise unknown_name("strategy", strategy, STRATEGIES)
    if count is not None and strategy != "mirrored":
        raise invalid_argument("devices", count, f"omitted with strategy {strategy!r}: it is for 'mirrored'")
    require("devices", count, Count | None)
    if keras.backend.backend() == "jax":
        if strategy == "multiworker":
            raise invalid_argument("strategy", strategy, "none or mirrored on the JAX backend")
        return JaxDevices() if strategy == "none" else JaxDevices(_jax_devices(count))
    for gpu in tf.config.list_physical_devices("GPU"):
        # TensorFlow raises this error if it is already initialized. Training also works with the earlier setting.
        with contextlib.suppress(RuntimeError):
            tf.config.experimental.set_memory_growth(gpu, True)
    if strategy == "none":
        return DistributionContext()
    return _mirrored(count) if strategy == "mirrored" else _multiworker()


@functools.cache
def _mirrored(count: int | None) -> DistributionContext:
    # A second strategy in one process would conflict with the first, because each counts its collectives separately.
    gpus = len(tf.config.list_physical_devices("GPU"))
    if gpus:
        if count is not None and count > gpus:
            raise invalid_argument("devices", count, f"at most the {gpus} GPUs of this machine")
        return DistributionContext(tf.distribute.MirroredStrategy([f"GPU:{i}" for i in range(count or gpus)]))
    if count is None:
        fix = "With a number, the CPU is taken for that many devices."
        raise invalid_argument("devices", None, "a number, for this machine has no GPU", fix)
    cpu = tf.config.list_physical_devices("CPU")[0]
    try:
        configured = tf.config.get_logical_device_configuration(cpu) or []
        if len(configured) < count:
            logical = [tf.config.LogicalDeviceConfiguration()] * count
            tf.config.set_logical_device_configuration(cpu, logical)
    except RuntimeError as error:
        fix = "Call open_distribution('mirrored', N) before anything else of TensorFlow runs."
        allowed = f"at most {max(len(configured), 1)}: TensorFlow runs already and cannot be given more"
        raise invalid_argument("devices", count, allowed, fix) from error
    return DistributionContext(tf.distribute.MirroredStrategy([f"CPU:{i}" for i in range(count)]))


@functools.cache
def _multiworker() -> DistributionContext:
    task = read_task()
    say(f"worker {task.number} of {task.workers} waits for the others")
    with task.waiting(START_SECONDS):
        try:
            strategy = tf.distribute.MultiWorkerMirroredStrategy()
        except RuntimeError as error:
            fix = "Call open_distribution('multiworker') before anything else of TensorFlow runs."
            raise invalid_argument("strategy", "multiworker", "another: TensorFlow runs already", fix) from error
        devices = DistributionContext(strategy, task)
        devices.total(0.0)
    atexit.register(devices._leave)
    return devices


@dataclass(eq=False)
class FirstWorkerValidation(keras.callbacks.Callback):
    """Evaluate a split in worker 0 only, and send the monitored value to all workers.

    Args:
        validation: adds the value of `monitor` to an epoch's logs.
        monitor: the name; workers other than 0 add nothing else.
        devices: the workers.
    """

    validation: keras.callbacks.Callback
    monitor: str
    devices: DistributionContext

    def __post_init__(self) -> None:
        super().__init__()

    def set_model(self, model: keras.Model) -> None:
        super().set_model(model)
        self.validation.set_model(model)

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        logs = {} if logs is None else logs
        if self.devices.writes:
            self.validation.on_epoch_end(epoch, logs)
        logs[self.monitor] = self.devices.of_first_worker(float(logs.get(self.monitor, 0.0)))
