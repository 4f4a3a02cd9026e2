"""Logs of a training are parts; TensorBoard's is the default."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import keras
import numpy as np
import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData

import vsemb
from tests.raising import raises_argument
from vsemb.training.logs import Log, settings_of


class Noted(keras.callbacks.Callback):
    def __init__(self) -> None:
        super().__init__()
        self.recalls: list[float] = []

    def on_epoch_end(self, epoch, logs=None):
        self.recalls.append(logs["val_recall_sum"])


@dataclass(frozen=True)
class OwnLog(Log):
    """A log of somebody else, which counts how often it is open."""

    noted: tuple = ()

    @contextlib.contextmanager
    def opened(self, out: Path, settings) -> Iterator[list[keras.callbacks.Callback]]:
        events, callback = self.noted
        events.append((out.name, settings["training.epochs"]))
        yield [callback]
        events.append("closed")


@pytest.fixture
def recipe(tiny_recipe):
    return tiny_recipe.with_overrides(["training.epochs=1"])


def test_own_logs_and_callbacks_see_the_validation(recipe, scenes, tmp_path: Path) -> None:
    events, of_log, own = [], Noted(), Noted()
    run = vsemb.train(recipe, scenes, tmp_path / "run", log=[OwnLog((events, of_log))], callbacks=[own])
    assert of_log.recalls == own.recalls == [run.info["best_recall_sum"]]
    assert events == [("run", 1), "closed"]
    # Nothing but what was asked for.
    assert not (tmp_path / "run/logs").exists()


def test_tensorboard_has_the_metrics_and_the_recipe(tiny_run) -> None:
    folders = [tiny_run.path / name for name in ("logs/train", "logs/validation", "logs")]
    train, validation, run = (EventAccumulator(str(folder)).Reload() for folder in folders)
    assert "epoch_loss" in train.Tags()["tensors"] and "epoch_recall_sum" in validation.Tags()["tensors"]
    content = run.SummaryMetadata("_hparams_/session_start_info").plugin_data.content
    said = HParamsPluginData.FromString(content).session_start_info.hparams
    assert said["training.epochs"].number_value == 2


def test_settings_are_numbers_and_texts(tiny_recipe) -> None:
    settings = settings_of(tiny_recipe)
    assert settings["training.epochs"] == 2 and settings["text.tokenizer.kind"] == "words"
    assert all(isinstance(value, bool | int | float | str) for value in settings.values())


def test_an_unknown_log_is_refused_before_training(recipe, scenes, tmp_path: Path) -> None:
    with raises_argument("log"):
        vsemb.train(recipe, scenes, tmp_path / "run", log=["tensorbord"])
    assert not (tmp_path / "run").exists()


def test_workers_take_no_objects(recipe, scenes, tmp_path: Path) -> None:
    with raises_argument("callbacks"):
        vsemb.train(recipe, scenes, tmp_path / "run", callbacks=[Noted()], workers=2)
    with raises_argument("log"):
        vsemb.train(recipe, scenes, tmp_path / "run", log=[OwnLog()], workers=2)
    with raises_argument("log"):
        vsemb.train(recipe, scenes, tmp_path / "run", log=["tensorbord"], workers=2)


def test_mlflow(recipe, scenes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mlflow = pytest.importorskip("mlflow")
    uri = (tmp_path / "mlruns").as_uri()
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    # A server or a data base needs more packages than the extra has.
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    run = vsemb.train(recipe, scenes, tmp_path / "run", log=["mlflow"])
    mlflow.set_tracking_uri(uri)
    (logged,) = mlflow.MlflowClient().search_runs(["0"])
    np.testing.assert_allclose(logged.data.metrics["val_recall_sum"], run.info["best_recall_sum"])
    assert "val_i2t_R_at_1" in logged.data.metrics and logged.data.params["training.epochs"] == "1"
    assert logged.info.status == "FINISHED" and logged.info.run_name == "run"


def test_weights_and_biases(recipe, scenes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    monkeypatch.setenv("WANDB_DIR", str(tmp_path))
    vsemb.train(recipe, scenes, tmp_path / "run", log=["wandb"])
    assert list((tmp_path / "wandb").glob("offline-run-*/run-*.wandb"))
