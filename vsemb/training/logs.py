"""Where the metrics of a training are logged, besides metrics.jsonl: parts of the family `log`.

TensorBoard is the default. Weights & Biases and MLflow log through the Keras callbacks of their own libraries, and take
their settings, such as the project or the server, from the environment variables of these libraries.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from vsemb.errors import needs_extra
from vsemb.parts import Part

if TYPE_CHECKING:
    import keras

#: The folder of TensorBoard's logs in a run directory.
LOGS = "logs"

#: Settings of a training by their path, such as `optimizer.learning_rate`.
Settings = Mapping[str, bool | int | float | str]


def settings_of(recipe: Part) -> Settings:
    """Return the fields of a recipe by their path, as numbers and texts.

    Example:

    >>> from vsemb import recipes
    >>> settings_of(recipes.get("vsepp"))["text.encoder.words.dim"]
    300
    """
    return dict(_flat("", recipe.to_json()))


def _flat(path: str, value: Any) -> Iterator[tuple[str, bool | int | float | str]]:
    if isinstance(value, Mapping):
        for name, each in value.items():
            yield from _flat(f"{path}.{name}" if path else name, each)
    else:
        yield path, value if isinstance(value, bool | int | float) else str(value)


@dataclass(frozen=True)
class Log(Part, family="log"):
    """A place where metrics are logged after every epoch.

    To add one, write a class with `opened` and register its kind in a `vsemb.registry.System`.
    """

    @contextlib.contextmanager
    def opened(self, out: Path, settings: Settings) -> Iterator[list[keras.callbacks.Callback]]:
        """Open the log for the time of a training, and yield callbacks for `fit`.

        A training that goes on after an interruption opens it again.

        Args:
            out: the run directory.
            settings: fields of the recipe.
        """
        raise NotImplementedError


@dataclass(frozen=True)
class TensorBoardLog(Log, kind="tensorboard"):
    """TensorBoard: metrics, and the fields of the recipe under *HParams*, in `logs` of the run directory."""

    #: Steps of which the profiler writes a trace: the first and the last; 0 for none.
    profiled: ClassVar[tuple[int, int] | int] = 0

    @contextlib.contextmanager
    def opened(self, out: Path, settings: Settings) -> Iterator[list[keras.callbacks.Callback]]:
        from vsemb.ops.tensorflow import tf

        if not tf:
            # A recipe on features trains on JAX alone.
            yield []
            return
        import keras
        from tensorboard.plugins.hparams import api

        folder = out / LOGS
        # The plugin's own callback serves one `fit`; a training that goes on within an epoch has two.
        writer = tf.summary.create_file_writer(str(folder))
        with writer.as_default():
            api.hparams(dict(settings), trial_id=out.name)
        writer.close()
        yield [keras.callbacks.TensorBoard(folder, write_graph=False, profile_batch=self.profiled)]


@dataclass(frozen=True)
class ProfileLog(TensorBoardLog, kind="profile"):
    """TensorBoard, with a trace of the steps 10 to 20 for its profiler (pip install tensorboard-plugin-profile)."""

    profiled: ClassVar[tuple[int, int] | int] = (10, 20)


@dataclass(frozen=True)
class WeightsAndBiasesLog(Log, kind="wandb"):
    """Weights & Biases; WANDB_PROJECT names the project (pip install 'vsemb[wandb]')."""

    @contextlib.contextmanager
    def opened(self, out: Path, settings: Settings) -> Iterator[list[keras.callbacks.Callback]]:
        with needs_extra("wandb", "wandb"):
            import wandb
        # It writes to WANDB_DIR: its folder has links, which a run directory must not have.
        with wandb.init(name=out.name, config=dict(settings)):
            from wandb.integration.keras import WandbMetricsLogger

            yield [WandbMetricsLogger()]


@dataclass(frozen=True)
class MLflowLog(Log, kind="mlflow"):
    """MLflow; MLFLOW_TRACKING_URI and MLFLOW_EXPERIMENT_NAME say where (pip install 'vsemb[mlflow]')."""

    @contextlib.contextmanager
    def opened(self, out: Path, settings: Settings) -> Iterator[list[keras.callbacks.Callback]]:
        with needs_extra("mlflow", "mlflow"):
            import mlflow
            from mlflow.keras import MlflowCallback

        class Renamed(MlflowCallback):
            def on_epoch_end(self, epoch: int, logs: Mapping[str, Any]) -> None:
                # MLflow refuses the @ of R@1.
                super().on_epoch_end(epoch, {name.replace("@", "_at_"): logs[name] for name in logs})

        with mlflow.start_run(run_name=out.name):
            mlflow.log_params(dict(settings))
            yield [Renamed()]
