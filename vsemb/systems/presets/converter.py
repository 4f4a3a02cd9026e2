"""Preprocessing of pixels of a preset: keras-hub's `ImageConverter`, or an image processor of the transformers library.

Each field of `image_converter.json` or `preprocessor_config.json` is honoured in the graph, has no effect on the
embedding of an image, or is refused by its name. keras-hub's order is: crop or pad to the aspect ratio, resize, round,
scale, add the offset. The transformers library resizes first and then crops.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import keras
import numpy as np

from vsemb.errors import DataError
from vsemb.files import read_json
from vsemb.image.resizing import INTERPOLATIONS, Resizing
from vsemb.systems.presets.files import CONVERTER, opening, read_part
from vsemb.systems.presets.layouts import EVEN_OFFSET, PROCESSORS

# Fields without an effect on the embedding: pixels are scaled in float32, images have no boxes.
_WITHOUT_EFFECT = ("name", "trainable", "dtype", "bounding_box_format")
# Fields of older presets, which keras-hub converts to `image_size`, `scale` and `offset`.
_OLDER = ("height", "width", "mean", "variance")
_RESIZING = tuple(name for name in Resizing._fields if name not in ("crop_after_resize", "even_offset"))
_HONOURED = ("image_size", "scale", "offset", "data_format", *_RESIZING)
_CHANNELS = 3
# Interpolations of Pillow that the graph has, by their number.
_RESAMPLES = {2: "bilinear", 3: "bicubic"}
# Steps of the transformers library -> the values that are honoured; absent is true.
_STEPS = {"do_resize": (True,), "do_rescale": (True,), "do_normalize": (True,), "do_center_crop": (True, False)}
# Its mean and deviation of CLIP, which old files leave out.
_CLIP_MEAN, _CLIP_DEVIATION = [0.48145466, 0.4578275, 0.40821073], [0.26862954, 0.26130258, 0.27577711]


@dataclass(frozen=True)
class Converter:
    """Settings of keras-hub's `ImageConverter`, checked.

    Attributes:
        image_size: height and width of the result in pixels; None for the network's.
        resizing: how images are resized to this size.
        scale: factor for pixels in 0..255, one number or one per channel; None for no scaling.
        offset: added after scaling, one number or one per channel; None for no offset.
    """

    image_size: tuple[int, int] | None
    resizing: Resizing
    scale: float | list[float] | None = None
    offset: float | list[float] | None = None

    @classmethod
    def read(cls, directory: Path) -> Converter | None:
        """Read the converter of a preset.

        Args:
            directory: the preset's directory.

        Returns:
            Its settings; None for a preset without a converter.

        Raises:
            DataError: for a malformed file, and for a class, field or value that the graph cannot honour.

        Example:

        >>> import keras_hub, tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     keras_hub.layers.ImageConverter((224, 224), 1 / 255).save_to_preset(folder)
        ...     Converter.read(Path(folder)).resizing.crop_to_aspect_ratio
        True
        """
        content = read_part(directory, CONVERTER)
        if content is None:
            paths = [directory / name for name in PROCESSORS if (directory / name).is_file()]
            return cls._of_processor(paths[0]) if paths else None
        import keras_hub  # noqa: F401  # Registers the classes.

        path = directory / CONVERTER
        for name, value in content["config"].items():
            if name not in (*_HONOURED, *_WITHOUT_EFFECT, *_OLDER):
                raise _refused(path, name, value, f"absent, because it is not one of {', '.join(_HONOURED)}")
        if content["config"].get("crop_to_aspect_ratio") and content["config"].get("pad_to_aspect_ratio"):
            raise _refused(path, "pad_to_aspect_ratio", True, "false with crop_to_aspect_ratio=true")
        with opening(str(directory)):
            # keras-hub adds the defaults of the class.
            read = keras.saving.deserialize_keras_object(content)
            return cls._checked(path, read, content)

    @classmethod
    def _checked(cls, path: Path, read: Any, content: dict[str, Any]) -> Converter:
        """Return the settings of a converter that keras-hub has built from a file."""
        import keras_hub

        base = keras_hub.layers.ImageConverter
        usual = isinstance(read, base) and type(read).call is base.call
        if not usual or not isinstance(read.resizing, keras.layers.Resizing):
            allowed = "a class that converts images as ImageConverter does"
            raise _refused(path, "class_name", content["class_name"], allowed)
        # keras-hub does not store the layout, so images are in Keras' default one unless the file says otherwise.
        layout = content["config"].get("data_format") or "channels_last"
        if layout != "channels_last":
            raise _refused(path, "data_format", layout, "channels_last")
        if read.interpolation not in INTERPOLATIONS:
            raise _refused(path, "interpolation", read.interpolation, f"one of {', '.join(INTERPOLATIONS)}")
        values = {name: getattr(read, name) for name in _RESIZING}
        for name in ("antialias", "crop_to_aspect_ratio", "pad_to_aspect_ratio"):
            if not isinstance(values[name], bool):
                raise _refused(path, name, values[name], "true or false")
        scale, offset = _numbers(path, "scale", read.scale), _numbers(path, "offset", read.offset)
        return cls(_size(path, read.image_size), Resizing(**values), scale, offset)

    @classmethod
    def _of_processor(cls, path: Path) -> Converter:
        """Return the settings of an image processor of the transformers library, as CLIP's and SigLIP's."""
        content = read_json(path, "image processor")
        content = content.get("image_processor", content) if isinstance(content, dict) else {}
        for step, honoured in _STEPS.items():
            if content.get(step, True) not in honoured:
                raise _refused(path, step, content[step], " or ".join(json.dumps(value) for value in honoured))
        # Absent for SigLIP, which squashes images.
        crops = content.get("do_center_crop", "crop_size" in content)
        size, crop = _side(path, "size", content.get("size")), _side(path, "crop_size", content.get("crop_size"))
        if crops and crop != size:
            raise _refused(path, "crop_size", content.get("crop_size"), f"{size}, the size before the crop")
        resample = content.get("resample", 3)
        if resample not in _RESAMPLES:
            allowed = ", ".join(f"{number} ({name})" for number, name in _RESAMPLES.items())
            raise _refused(path, "resample", resample, f"one of {allowed}")
        defaults = {"rescale_factor": 1 / 255, "image_mean": _CLIP_MEAN, "image_std": _CLIP_DEVIATION}
        values = {name: _numbers(path, name, content.get(name, default)) for name, default in defaults.items()}
        for name, value in values.items():
            if value is None:
                raise _refused(path, name, None, f"a number, or {_CHANNELS} numbers")
        factor, mean, deviation = (np.broadcast_to(np.asarray(value, float), _CHANNELS) for value in values.values())
        scale, offset = factor / deviation, -mean / deviation
        # The last field is in the files that are made of open_clip's settings.
        even = bool(content.get(EVEN_OFFSET, False))
        resizing = Resizing(_RESAMPLES[resample], antialias=True, crop_after_resize=bool(crops), even_offset=even)
        return cls((size, size), resizing, scale.tolist(), offset.tolist())


def _refused(path: Path, name: str, value: object, allowed: str) -> DataError:
    return DataError(f"`{name}` in {path} must be {allowed}; got {value!r}. Use another preset, or its authors' code.")


def _size(path: Path, value: Any) -> tuple[int, int] | None:
    """Return the image size; an exception is raised for anything but two whole numbers above 0."""
    if value is None:
        return None
    whole = [side for side in value if isinstance(side, int) and not isinstance(side, bool) and side > 0]
    if len(value) != 2 or len(whole) != 2:
        raise _refused(path, "image_size", value, "null or two whole numbers above 0")
    return whole[0], whole[1]


def _side(path: Path, name: str, value: Any) -> int:
    """Return the side of a square from a number, `shortest_edge`, or equal `height` and `width`; 0 for None."""
    sides = set(value.values()) if isinstance(value, dict) else {value or 0}
    if len(sides) != 1 or not all(isinstance(side, int) and not isinstance(side, bool) for side in sides):
        raise _refused(path, name, value, "the side of a square")
    return int(sides.pop())


def _numbers(path: Path, name: str, value: Any) -> float | list[float] | None:
    """Return a number or one per channel as floats; an exception is raised for anything else."""
    if value is None:
        return None
    value = value.tolist() if isinstance(value, np.ndarray) else value
    several = list(value) if isinstance(value, list | tuple) else [value]
    real = [one for one in several if isinstance(one, int | float) and not isinstance(one, bool)]
    finite = len(real) == len(several) and all(map(math.isfinite, real))
    if not finite or len(several) not in (1, _CHANNELS):
        raise _refused(path, name, value, f"null, a number, or {_CHANNELS} numbers")
    numbers = [float(one) for one in real]
    return numbers if isinstance(value, list | tuple) else numbers[0]
