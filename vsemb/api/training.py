"""`vsemb.train`: train a recipe on a dataset."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any, Literal, overload

from vsemb.acts import Option, act, chosen, signature_of
from vsemb.console import is_quiet, say, without_tracing_advice
from vsemb.errors import WorkerError, invalid_argument
from vsemb.parts import Count, NonNegative, at_least

if TYPE_CHECKING:
    from keras.callbacks import Callback

    from vsemb.recipes.schema import Recipe
    from vsemb.runs.run import Run
    from vsemb.runs.seeds import SeededRuns
    from vsemb.training.logs import Log

_NONE: Mapping[str, Any] = MappingProxyType({})


@overload
def train(
    recipe: Recipe | str | os.PathLike[str],
    data: object | str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    seeds: int,
    **options: Any,
) -> SeededRuns: ...


@overload
def train(
    recipe: Recipe | str | os.PathLike[str],
    data: object | str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    variant: str | None = None,
    epochs: int | None = None,
    backbone: str | None = None,
    weights: str | os.PathLike[str] | None = None,
    fine_tune: str | os.PathLike[str] | Literal[True] | None = None,
    inputs: Mapping[str, Run | str | os.PathLike[str]] = _NONE,
    strategy: Literal["none", "mirrored", "multiworker"] = "none",
    devices: int | None = None,
    workers: int | None = None,
    backend: Literal["tensorflow", "jax"] | None = None,
    data_service: str | None = None,
    checkpoint_seconds: float = 60.0,
    log: Sequence[Log | str] = ("tensorboard",),
    callbacks: Sequence[Callback] = (),
    **values: Any,
) -> Run: ...


@act
def train(
    recipe: Recipe | str | os.PathLike[str],
    data: Annotated[object | str | os.PathLike[str], Option(by_place=False)],
    out: Annotated[str | os.PathLike[str], Option(by_place=False)],
    *,
    variant: str | None = None,
    epochs: Count | None = None,
    backbone: str | None = None,
    weights: str | os.PathLike[str] | None = None,
    fine_tune: str | os.PathLike[str] | Literal[True] | None = None,
    inputs: Mapping[str, Run | str | os.PathLike[str]] = _NONE,
    seeds: Count | None = None,
    strategy: Literal["none", "mirrored", "multiworker"] = "none",
    devices: Count | None = None,
    workers: Annotated[int, at_least(2)] | None = None,
    backend: Literal["tensorflow", "jax"] | None = None,
    data_service: str | None = None,
    checkpoint_seconds: NonNegative = 60.0,
    log: Sequence[Log | str] = ("tensorboard",),
    callbacks: Annotated[Sequence[Callback], Option(in_python=True)] = (),
    **values: Any,
) -> Run | SeededRuns:
    """Train a recipe on a dataset, or resume an interrupted training.

    With a backbone, missing image features are computed first, as `vsemb features` does. The run directory contains the
    recipe, the vocabulary, TensorBoard logs, checkpoints and metrics.jsonl. After an interruption, the same command or
    call resumes exactly where training stopped. To continue a finished run, repeat it with more epochs; the schedule of
    the learning rate then spans all epochs.

    With the backend jax, recipes on image features train without TensorFlow, also on several devices. Other commands
    read the run on any machine with TensorFlow.

    Args:
        recipe: name that `vsemb recipes` lists, or a Python file that defines RECIPE. In Python also a `vsemb.Recipe`.
        data: dataset, or other training data of the recipe.
        out: run directory to write.
        variant: variant of a named recipe; default: the first.
        epochs: total number of epochs; more continue a finished run; default: the recipe's.
        backbone: network of the image features, such as MobileNetV2; missing features are computed.
        weights: weights of the backbone: imagenet, preset, random, a file or a run; default: imagenet or preset.
        fine_tune: train from pixels: a network, hub:PRESET, a run, or nothing more for the network of the features.
            A named network starts from ImageNet weights, SmallConvNet from random ones. Fields named `image_…` are then
            those of this network's tower.
        inputs: other run that the recipe needs, by name, such as encoder=runs/kiros.
        seeds: train this number of runs with different seeds, OUT/seed-0, OUT/seed-1 and so on; default: one run, OUT.
        strategy: one device, all devices of this machine, or one of several workers.
        devices: GPUs or logical CPU devices for mirrored; default: all.
        workers: start this number of workers on this machine; default: none.
        backend: backend of Keras; default: $KERAS_BACKEND, or tensorflow.
        data_service: grpc://HOST:PORT of a tf.data service that decodes images.
        checkpoint_seconds: seconds between checkpoints.
        log: where metrics are logged besides metrics.jsonl: tensorboard, profile (TensorBoard with a trace of some
            steps), wandb, mlflow, or a `vsemb.training.logs.Log`.
        callbacks: further callbacks of Keras, which see the metrics of the validation; logs of a step are tensors.
        **values: field of the recipe: its path (text.encoder.units=512), or the end of it with _ for dots (units=512).
            A part is set by its kind (text.encoder=linear). `vsemb recipes NAME` lists all fields.

    Returns:
        The run, with the weights of its best epoch on the validation split. With `seeds`, the runs, with the mean and
        the standard deviation of their validation metrics.

    Raises:
        InvalidArgumentError: for an unknown recipe or network, or a name that matches no field or several.
        DataError: if data, features and recipe do not match, or if `out` contains something else.
        WorkerError: if a worker fails.

    Example:

        data = vsemb.Dataset.from_pairs(files, captions)
        run = vsemb.train("best", data, "runs/mine", backbone="MobileNetV2", epochs=5)
        tuned = vsemb.train("vsepp", data, "runs/tuned", fine_tune="MobileNetV2", learning_rate=1e-5)
    """
    given = {**locals()}
    _choose_backend(backend)
    from vsemb import recipes
    from vsemb.runs.run import STATE, Run
    from vsemb.runs.seeds import SeededRuns, open_seeds, seeded_recipes
    from vsemb.runs.start import start
    from vsemb.runs.train import train as train_recipe
    from vsemb.training.logs import Log
    from vsemb.training.strategies import open_distribution

    logs = [chosen(Log, "log", each, {}) for each in log]
    # A file or an object is the recipe that its author wants.
    named = recipe in recipes.names()
    if isinstance(recipe, str | os.PathLike):
        recipe = recipes.get(os.fspath(recipe), variant)
    elif variant is not None:
        raise invalid_argument("variant", variant, "omitted with a recipe that is an object")
    if workers is not None:
        _run_workers(given)
        return Run.open(out) if seeds is None else SeededRuns(Path(out), tuple(open_seeds(out)[:seeds]))
    # Before other code of TensorFlow runs.
    context = open_distribution(strategy, devices)
    if epochs is not None:
        if "training.epochs" in values:
            raise invalid_argument("training.epochs", values["training.epochs"], "omitted with `epochs`")
        values["training.epochs"] = epochs
    others = signature_of(train).parameters
    recipe, opened = start(
        recipe, data, values, fine_tune=fine_tune, backbone=backbone, weights=weights, others=others, suit=named
    )
    runs_of_inputs = {name: Run.open(each) for name, each in inputs.items()}
    recipes_of = {Path(out): recipe} if seeds is None else seeded_recipes(recipe, out, seeds)
    runs = []
    for path, each in recipes_of.items():
        try:
            with without_tracing_advice():
                run = train_recipe(
                    each,
                    opened,
                    path,
                    backbone=backbone,
                    # For fine-tuning, the recipe contains them.
                    weights=weights if fine_tune is None else None,
                    inputs=runs_of_inputs,
                    checkpoint_seconds=checkpoint_seconds,
                    data_service=data_service,
                    strategy=context,
                    logs=logs,
                    callbacks=callbacks,
                )
        except KeyboardInterrupt:
            if context.writes and (path / STATE).exists():
                say("The state is stored; the same command or call resumes from there.")
            raise
        runs.append(run)
    return runs[0] if seeds is None else SeededRuns(Path(out), tuple(runs))


def _choose_backend(backend: str | None) -> None:
    """Choose the backend of Keras, which is possible until Keras is imported."""
    if backend is None:
        return
    if "keras" not in sys.modules:
        os.environ["KERAS_BACKEND"] = backend
    import keras

    if keras.backend.backend() != backend:
        allowed = f"{keras.backend.backend()}, which Keras uses in this process already"
        raise invalid_argument("backend", backend, allowed)


def _run_workers(given: dict[str, Any]) -> None:
    """Run a training in workers, processes that call `train` with the same arguments, see `vsemb.api.worker`.

    Args:
        given: the arguments of `train`.
    """
    import keras

    from vsemb.runs.start import typed
    from vsemb.training.cluster import launch

    workers, recipe = given.pop("workers"), given["recipe"]
    for name in ("callbacks", "log"):
        if objects := [each for each in given[name] if not isinstance(each, str)]:
            raise invalid_argument(name, objects, "without objects for `workers`, which are other processes")
    if keras.backend.backend() == "jax":
        raise invalid_argument("workers", workers, "omitted with the backend jax")
    if given["strategy"] == "mirrored":
        raise invalid_argument("workers", workers, "omitted with the strategy mirrored")
    del given["callbacks"]
    plain = given | {
        "recipe": recipe if isinstance(recipe, str | os.PathLike) else recipe.to_json(),
        "strategy": "multiworker",
        "inputs": dict(given["inputs"]),
        "values": typed(given["values"]),
        "quiet": is_quiet(),
    }
    status = launch([sys.executable, "-m", "vsemb.api.worker", json.dumps(plain, default=_path)], workers)
    if status:
        raise WorkerError(f"A worker ended with exit status {status}. Its message is above.")


def _path(value: Any) -> str:
    """Return the path of data or of a run, as text."""
    return os.fspath(getattr(value, "path", value))
