"""Weights files: whatever byte of one changes, the weights are those that were written or the file is refused."""

from __future__ import annotations

import h5py
import keras
import numpy as np
import pytest

from vsemb.errors import DataError
from vsemb.weights import load_safetensors, load_weights, named_weights, save_safetensors, save_weights


def small() -> keras.Model:
    keras.utils.set_random_seed(1)
    return keras.Sequential([keras.Input((3,)), keras.layers.Dense(5), keras.layers.BatchNormalization()])


@pytest.mark.slow
def test_every_flipped_byte_is_found_or_harmless(tmp_path):
    model, other, path = small(), small(), tmp_path / "best.weights.h5"
    save_weights(model, path)
    whole, wanted = path.read_bytes(), model.get_weights()
    # All bytes of the kernel, and others by chance.
    kernel = whole.index(wanted[0].tobytes())
    chance = np.random.default_rng(0).integers(0, len(whole), 200)
    refused = 0
    for place in [*range(kernel, kernel + wanted[0].nbytes), *chance.tolist()]:
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 0x20]) + whole[place + 1 :])
        other.set_weights([np.full_like(weight, 7.0) for weight in wanted])
        try:
            load_weights(other, path)
        except (DataError, ValueError):
            refused += 1
            continue
        for found, weight in zip(other.get_weights(), wanted, strict=True):
            np.testing.assert_array_equal(found, weight)
    assert refused >= wanted[0].nbytes


def test_the_damaged_file_is_named(tmp_path):
    model, path = small(), tmp_path / "best.weights.h5"
    save_weights(model, path)
    whole, kernel = path.read_bytes(), model.get_weights()[0].tobytes()
    path.write_bytes(whole.replace(kernel, kernel[::-1]))
    with pytest.raises(DataError, match=r"The weights file .*best\.weights\.h5 is damaged: it holds other values"):
        load_weights(model, path)
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(DataError, match=r"The weights file .*best\.weights\.h5 cannot be read: .* Restore it\."):
        load_weights(model, path)


def test_a_file_of_keras_itself_is_read(tmp_path):
    model, path = small(), tmp_path / "own.weights.h5"
    model.save_weights(path)
    wanted = model.get_weights()
    model.set_weights([np.zeros_like(weight) for weight in wanted])
    load_weights(model, path)
    for found, weight in zip(model.get_weights(), wanted, strict=True):
        np.testing.assert_array_equal(found, weight)


def test_what_a_killed_process_left_is_removed(tmp_path):
    (tmp_path / ".best.weights.h5.00aa11bb.tmp").mkdir()
    (tmp_path / ".best.weights.h5.00aa11bb.tmp" / "model.weights.h5").touch()
    beside: list[str] = []

    class Seen(keras.Sequential):
        def save_weights(self, path, **options):
            beside.extend(each.name for each in tmp_path.rglob("*"))
            super().save_weights(path, **options)

    save_weights(Seen([keras.Input((3,)), keras.layers.Dense(5)]), tmp_path / "best.weights.h5")
    # All that is unfinished is in one folder, which the next writer removes.
    assert len(beside) == 1 and beside[0].endswith(".tmp")
    assert [each.name for each in tmp_path.iterdir()] == ["best.weights.h5"]


def test_the_optimizer_is_not_written_and_goes_on(tmp_path):
    model, path = small(), tmp_path / "best.weights.h5"
    model.compile("adam", "mse")
    rows = np.ones((4, 3), np.float32), np.zeros((4, 5), np.float32)
    model.fit(*rows, verbose=0)
    save_weights(model, path)
    wanted, steps = model.get_weights(), int(model.optimizer.iterations)
    with h5py.File(path) as file:
        names: list[str] = []
        file.visit(names.append)
    assert names and not any("optimizer" in name for name in names)
    model.fit(*rows, verbose=0)
    assert int(model.optimizer.iterations) == steps + 1
    load_weights(model, path)
    assert int(model.optimizer.iterations) == steps + 1
    for found, weight in zip(model.get_weights(), wanted, strict=True):
        np.testing.assert_array_equal(found, weight)


def test_safetensors_hold_all_weights_by_name(tiny_run, tmp_path):
    safetensors = pytest.importorskip("safetensors", reason="the extra hf is not installed")
    model, path = tiny_run.model, tmp_path / "run.safetensors"
    named = named_weights(model)
    assert {id(weight) for weight in named.values()} == {id(weight) for weight in model.weights}
    assert {"text_encoder.words.table", "text_encoder.recurrent.cell.kernel"} < set(named)
    save_safetensors(model, path, {"made": "here"})
    with safetensors.safe_open(path, "numpy") as file:
        assert set(file.keys()) == set(named) and file.metadata() == {"made": "here"}
    other = tiny_run.recipe.build(len(tiny_run.vocabulary), tiny_run.info, "float32")
    for weight in other.weights:
        weight.assign(np.full(weight.shape, 7.0, weight.dtype))
    load_safetensors(other, path)
    for name, weight in named_weights(other).items():
        np.testing.assert_array_equal(weight, named[name])


def test_safetensors_of_another_model_are_refused(tmp_path):
    pytest.importorskip("safetensors", reason="the extra hf is not installed")
    path, other = tmp_path / "small.safetensors", keras.Sequential([keras.Input((4,)), keras.layers.Dense(5)])
    save_safetensors(small(), path)
    before = other.get_weights()
    with pytest.raises(DataError, match="must hold the weights of this model"):
        load_safetensors(other, path)
    path.write_bytes(path.read_bytes()[:-3])
    with pytest.raises(DataError, match="cannot be read"):
        load_safetensors(small(), path)
    np.testing.assert_array_equal(other.get_weights()[0], before[0])
