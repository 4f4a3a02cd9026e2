"""Selecting the best epoch, patience, the log file, the warning of a collapse."""

from __future__ import annotations

import json

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.models.test_dual_encoder import make_batch, make_model
from vsemb.errors import DataError
from vsemb.losses import CombinedLoss, InfoNCE, PairwiseRanking, SigmoidLoss
from vsemb.training import MetricsLog, SelectBest, StepCallbacks, TrainingState, averaged_weights
from vsemb.training.callbacks import CollapseWarning, RefuseNaN


def one_weight() -> keras.Model:
    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1, use_bias=False)])
    model.compile("sgd", "mse")
    return model


def play(select: SelectBest, values: list[float]) -> int:
    """Feeds a value an epoch, the weight being the epoch's number; returns the epochs played."""
    model = one_weight()
    select.set_model(model)
    for epoch, value in enumerate(values):
        model.set_weights([np.array([[float(epoch)]])])
        select.on_epoch_end(epoch, {"val_recall_sum": value})
        if model.stop_training:
            return epoch + 1
    return len(values)


def test_the_best_weights_are_kept(tmp_path) -> None:
    select = SelectBest(tmp_path / "best.weights.h5")
    assert play(select, [1.0, 3.0, 3.0, 2.0]) == 4
    # The first of equals.
    assert (select.best, select.best_epoch) == (3.0, 1)
    model = one_weight()
    model.load_weights(tmp_path / "best.weights.h5")
    assert model.get_weights()[0].item() == 1
    # Nothing temporary is left.
    assert [path.name for path in tmp_path.iterdir()] == ["best.weights.h5"]


def test_several_best_epochs_are_kept(tmp_path) -> None:
    select = SelectBest(tmp_path / "best.weights.h5", keep=2)
    play(select, [4.0, 1.0, 5.0, 4.0])
    # The first of equals.
    assert select.kept == [(5.0, 2), (4.0, 0)]
    again = SelectBest(tmp_path / "best.weights.h5", keep=2)
    again.restore(json.loads(json.dumps(select.state())))
    assert again.kept == select.kept
    play(again, [4.5])
    assert again.kept == [(5.0, 2), (4.5, 0)]
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        f"{n}.weights.h5" for n in ("best", "epoch-0", "epoch-2")
    ]
    for name, weight in (("best", 2), ("epoch-0", 0), ("epoch-2", 2)):
        model = one_weight()
        model.load_weights(tmp_path / f"{name}.weights.h5")
        assert model.get_weights()[0].item() == weight


@pytest.mark.parametrize(("patience", "epochs"), [(None, 6), (1, 3), (2, 4), (3, 5), (9, 6)])
def test_patience(tmp_path, patience, epochs: int) -> None:
    # Best at epoch 1; epochs 2, 3, ... are no better.
    select = SelectBest(tmp_path / "best.weights.h5", patience=patience)
    assert play(select, [1.0, 3.0, 2.0, 3.0, 2.0, 1.0]) == epochs


def test_state_goes_on_where_it_was(tmp_path) -> None:
    first = SelectBest(tmp_path / "best.weights.h5", patience=2)
    play(first, [5.0, 4.0])
    again = SelectBest(tmp_path / "best.weights.h5", patience=2)
    again.restore(json.loads(json.dumps(first.state())))
    assert (again.best, again.best_epoch) == (5.0, 0)
    assert not again.out_of_patience(1) and again.out_of_patience(2)


def test_nan_is_never_best(tmp_path) -> None:
    select = SelectBest(tmp_path / "best.weights.h5")
    play(select, [float("nan"), 1.0, float("nan")])
    assert (select.best, select.best_epoch) == (1.0, 1)


def test_a_metric_that_is_not_there(tmp_path) -> None:
    select = SelectBest(tmp_path / "best.weights.h5", monitor="val_x")
    with pytest.raises(DataError, match="val_x"):
        play(select, [1.0])


def test_averages_are_selected_and_weights_come_back(tmp_path) -> None:
    model = make_model()
    model.compile(keras.optimizers.SGD(0.1, use_ema=True, ema_momentum=0.5), loss=PairwiseRanking())
    before = model.get_weights()
    with averaged_weights(model):  # before the first step there is no average
        np.testing.assert_array_equal(model.get_weights()[0], before[0])
    steps = []
    for seed in range(2):
        # Not `fit`, which leaves the average in the weights at its end.
        tensors = {name: tf.constant(value) for name, value in make_batch(range(5), seed=seed).items()}
        model.train_step((tensors,))
        steps.append(model.get_weights())
    stepped = steps[-1]
    select = SelectBest(tmp_path / "best.weights.h5")
    select.set_model(model)
    select.on_epoch_end(0, {"val_recall_sum": 1.0})
    for a, b in zip(model.get_weights(), stepped, strict=True):
        np.testing.assert_array_equal(a, b)
    kept = make_model()
    kept.compile(keras.optimizers.SGD(0.1, use_ema=True, ema_momentum=0.5), loss=PairwiseRanking())
    kept.load_weights(tmp_path / "best.weights.h5")
    # The average starts at the weights behind the first step.
    for average, one, two in zip(kept.get_weights(), *steps, strict=True):
        np.testing.assert_allclose(average, 0.5 * one + 0.5 * two, rtol=1e-5, atol=1e-7)
        assert (average != two).any()


@pytest.mark.parametrize(
    ("left", "kept"),
    [
        ("", []),
        ('{"epoch": 0}\n{"epoch": 1}\n{"epoch": 2}\n', [0, 1]),
        ('{"epoch": 0}\n{"epoch": 1}\n{"epo', [0, 1]),
        # Torn just before its newline: the next line must not be glued to it.
        ('{"epoch": 0}\n{"epoch": 1}', [0, 1]),
        ('{"epoch": 0}\nnull\n{"epoch": null}\n{"epoch": 1}\n', [0, 1]),
        # A byte that is no UTF-8.
        ('{"epoch": 0}\n{"epoch": 1, "lo\udcf3s": 1}\n', [0]),
    ],
)
def test_metrics_log_goes_on_behind_its_start(tmp_path, left: str, kept: list[int]) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text(left, errors="surrogateescape")
    log = MetricsLog(path, start_epoch=2)
    log.on_epoch_begin(2)
    log.on_epoch_end(2, {"loss": np.float32(0.5), "val_recall_sum": 3})
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    assert [row["epoch"] for row in rows] == [*kept, 2]
    assert rows[-1]["loss"] == 0.5 and rows[-1]["seconds"] >= 0


def test_a_new_training_starts_a_new_log(tmp_path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"epoch": 0}\n')
    MetricsLog(path)
    assert path.read_text() == ""


def collapsed(loss, value: float, capsys, rows: int = 128, steps: int = 100) -> bool:
    warning = CollapseWarning(rows)
    warning.set_model(make_model(loss))
    warning.model.optimizer.iterations.assign(steps)
    warning.on_epoch_end(0, {"loss": value})
    assert ("one point" in capsys.readouterr().err) == warning.collapsed
    return warning.collapsed


def test_collapse_warning(capsys) -> None:
    from tests.oracles import oracle

    entry = oracle("ranking_loss_collapsed_128")
    plateau = entry.expected["max_of_hinges_sum_over_queries"]
    margin = entry.inputs["margin"]
    assert collapsed(PairwiseRanking(margin, "hardest"), plateau, capsys)
    assert not collapsed(PairwiseRanking(margin, "hardest"), 0.97 * plateau, capsys)
    # A few steps do not tell it from a model of random weights.
    assert not collapsed(PairwiseRanking(margin, "hardest"), plateau, capsys, steps=99)
    assert not collapsed(PairwiseRanking(margin, "all"), plateau, capsys)
    assert not collapsed(InfoNCE(), plateau, capsys)
    # Twice the logarithm of 128 candidates.
    assert collapsed(InfoNCE(), 2 * np.log(128), capsys)
    # Of a sigmoid loss, and of Keras' own, it is not known.
    assert not collapsed(SigmoidLoss(), plateau, capsys)
    assert not collapsed(keras.losses.CategoricalHinge(), 2.0, capsys)
    assert collapsed("ranking", 2 * 128 * 127 * 0.2, capsys)


@pytest.mark.parametrize(
    ("recalls", "expected"),
    [
        # VSE++ passes the value in its third epoch, with a recall sum that was 100.5 before.
        ((97.7, 100.5, 147.1, 148.0), [True, True, False, True]),
        ((1.5, 1.4, 1.6), [True, True, True]),
        ((None, None), [True, True]),
    ],
)
def test_a_model_that_learns_only_passes_the_value(recalls, expected, capsys) -> None:
    loss = PairwiseRanking(0.2, "hardest")
    warning = CollapseWarning(128)
    warning.set_model(make_model(loss))
    warning.model.optimizer.iterations.assign(100)
    told = []
    for epoch, recall in enumerate(recalls):
        logs = {"loss": loss.collapsed_value(128, 128)}
        warning.on_epoch_end(epoch, logs if recall is None else {**logs, "val_recall_sum": recall})
        told.append("one point" in capsys.readouterr().err)
    assert told == expected


def combined(reduction: str) -> CombinedLoss:
    return CombinedLoss([PairwiseRanking(0.2, "hardest"), InfoNCE(0.05)], [1.0, 0.7], reduction=reduction)


@pytest.mark.parametrize("reduction", ["sum", "sum_over_batch_size"])
@pytest.mark.parametrize(
    ("make_loss", "per_query"),
    [
        (lambda reduction: PairwiseRanking(0.2, "hardest", reduction=reduction), 0.2),
        # What `vsepp` is trained with.
        (combined, 0.2 + 0.7 * np.log(8)),
    ],
    ids=["hardest", "combined"],
)
def test_collapse_warning_of_a_collapsed_model(capsys, reduction: str, make_loss, per_query: float) -> None:
    model = make_model(make_loss(reduction), image_weight=0.5)
    # All images and all texts to one point.
    model.image_encoder.affine.set_weights([np.zeros((6, 4)), np.ones(4)])
    model.text_encoder.words.set_vectors(np.ones((9, 4)))
    loss = model.evaluate(tf.data.Dataset.from_tensors(make_batch(range(8))), verbose=0)
    # Eight queries a direction, one direction at half weight.
    np.testing.assert_allclose(loss, 1.5 * per_query * (8 if reduction == "sum" else 1), rtol=1e-5)
    warning = CollapseWarning(8)
    warning.set_model(model)
    model.optimizer.iterations.assign(100)
    warning.on_epoch_end(0, {"loss": loss})
    assert warning.collapsed
    assert "one point" in capsys.readouterr().err


class Counted:
    """A number that knows how often it was read."""

    def __init__(self, value: float) -> None:
        self.value = value
        self.reads = 0

    def __float__(self) -> float:
        self.reads += 1
        return self.value


def test_the_loss_of_most_steps_is_not_read() -> None:
    callbacks = StepCallbacks([RefuseNaN()], one_weight())
    losses = [Counted(1.0) for _ in range(120)]
    for step, loss in enumerate(losses):
        callbacks.on_train_batch_end(step, {"loss": loss})
    assert [step for step, loss in enumerate(losses) if loss.reads] == [49, 99]


def test_fit_gives_callbacks_tensors() -> None:
    class Seen(keras.callbacks.Callback):
        kinds: set[bool] = set()

        def on_train_batch_end(self, batch, logs=None) -> None:
            self.kinds.add(tf.is_tensor(logs["loss"]))

    model, seen = one_weight(), Seen()
    ones = np.ones((4, 1))
    history = model.fit(ones, ones, batch_size=2, verbose=0, callbacks=StepCallbacks([seen], model))
    assert seen.kinds == {True}
    assert isinstance(history.history["loss"][0], float)


def test_nan_ends_training_where_it_is_looked_for() -> None:
    refuse = RefuseNaN()
    for step in range(49):
        refuse.on_train_batch_end(step, {"loss": float("nan") if step else 1.0})
    with pytest.raises(DataError, match="learning_rate"):
        refuse.on_train_batch_end(49, {"loss": float("nan")})
    with pytest.raises(DataError, match="not finite"):
        refuse.on_epoch_end(0, {"loss": float("inf")})
    refuse = RefuseNaN(lambda epoch, step: f"the batch {epoch}.{step}")
    refuse.start(1, 20)  # resumed
    refuse.on_epoch_begin(1)
    for step in range(99):
        refuse.on_train_batch_end(step, {"loss": float("inf") if step > 60 else 1.0})
    with pytest.raises(DataError, match=r"2.*82.*1\.81"):
        refuse.on_train_batch_end(99, {"loss": float("inf")})
    refuse.on_epoch_begin(2)
    refuse.on_train_batch_end(0, {"loss": float("nan")})
    with pytest.raises(DataError, match=r"3.*1.*2\.0"):
        refuse.on_epoch_end(2, {"loss": float("nan")})
    refuse = RefuseNaN()
    refuse.check()  # before the first step
    refuse.on_train_batch_end(0, {"loss": float("nan")})
    with pytest.raises(DataError, match="not finite"):
        refuse.check()


class Measured(keras.callbacks.Callback):
    """A validation that notes how often it measured."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def on_epoch_end(self, epoch: int, logs=None) -> None:
        self.count += 1
        logs["val_recall_sum"] = 1.0


@pytest.mark.parametrize("every_steps", [1, 3, None])
def test_nan_is_never_stored_or_measured(tmp_path, every_steps: int | None) -> None:
    model = one_weight()
    inputs = np.ones((20, 1), np.float32)
    inputs[5] = np.nan
    data = tf.data.Dataset.from_tensor_slices((inputs, np.ones((20, 1), np.float32))).batch(1)
    refuse, measured, select = RefuseNaN(), Measured(), SelectBest(tmp_path / "best.weights.h5")
    state = TrainingState(tmp_path / "state.npz", [select], every_steps=every_steps, before_store=refuse.check)
    try:
        with pytest.raises(DataError, match="not finite"):
            model.fit(data, verbose=0, callbacks=StepCallbacks([refuse, measured, select, state], model))
    finally:
        state.on_train_end()
    assert measured.count == 0 and not (tmp_path / "best.weights.h5").exists()
    if every_steps is None:
        assert not (tmp_path / "state.npz").exists()
        return
    # The last state is one from before the step with NaN, the sixth.
    again = one_weight()
    assert TrainingState(tmp_path / "state.npz", [select]).restore(again) == (0, 5 // every_steps * every_steps)
    assert all(np.isfinite(weight).all() for weight in again.get_weights())
