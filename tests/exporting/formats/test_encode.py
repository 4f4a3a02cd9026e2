"""The program beside converted towers: pixels as the graph makes them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

from tests.grey_tiff import grey_tiff
from vsemb.exporting.formats.encode import Encoder
from vsemb.image.decode import decode_images
from vsemb.image.resizing import Resizing, resize_image


def encoder(folder: Path, size: int, **resizing: Any) -> Encoder:
    facts = {"size": size, "crops": 1, "resize": "preset", "resizing": Resizing(**resizing)._asdict()}
    (folder / "model.json").write_text(json.dumps({"image": facts}))
    return Encoder(folder)


@pytest.mark.parametrize("shape", [(40, 61), (61, 40), (15, 19), (224, 224), (65, 40)])
@pytest.mark.parametrize(
    "resizing",
    [
        {"antialias": antialias, "interpolation": interpolation, **crop}
        for antialias in (True, False)
        for interpolation in ("bilinear", "bicubic")
        for crop in ({}, {"crop_to_aspect_ratio": True})
    ]
    + [{"antialias": True, "crop_after_resize": True, "even_offset": even} for even in (True, False)],
    ids=lambda resizing: "-".join(map(str, resizing.values())),
)
def test_pixels_are_those_of_the_graph(tmp_path: Path, shape: tuple[int, int], resizing: dict[str, Any]) -> None:
    rows, columns = np.mgrid[: shape[0], : shape[1]]
    waves = [128 + 100 * np.sin(rows / 5 + k) * np.cos(columns / (4 + k)) for k in range(3)]
    array = np.stack(waves, axis=-1).astype(np.uint8)
    wanted = resize_image(array, 32, Resizing(**resizing)).numpy()
    pixels = encoder(tmp_path, 32, **resizing).pixels(Image.fromarray(array))
    if not resizing["antialias"]:
        np.testing.assert_allclose(pixels, wanted, atol=1e-3)
    # Pillow rounds to whole levels after each direction.
    difference = np.abs(pixels - np.clip(wanted, 0, 255))
    assert difference.max() < 2.5 and difference.mean() < 0.5


@pytest.mark.parametrize("resizing", [{"interpolation": "lanczos3"}, {"pad_to_aspect_ratio": True}])
def test_other_ways_to_resize_are_refused(tmp_path: Path, resizing: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="Pillow cannot"):
        encoder(tmp_path, 32, **resizing).pixels(Image.new("RGB", (40, 30)))


def test_grey_of_16_bits_has_its_upper_bits(tmp_path: Path) -> None:
    values = np.linspace(0, 65535, 32 * 32).reshape(32, 32).astype(np.uint16)
    Image.fromarray(values).save(tmp_path / "deep.png")
    decoded, valid = decode_images(tf.constant([(tmp_path / "deep.png").read_bytes()]), 32)
    pixels = encoder(tmp_path, 32, antialias=True).pixels(tmp_path / "deep.png")
    assert valid.numpy().all()
    np.testing.assert_array_equal(pixels, decoded[0])


@pytest.mark.parametrize(("depth", "white"), [(8, True), (12, False), (16, False), (16, True)])
def test_grey_tiff_has_the_upper_bits_of_the_depth_that_it_declares(tmp_path: Path, depth: int, white: bool) -> None:
    values = np.arange(32 * 32).reshape(32, 32) % 256
    stored = 2**depth - 1 - (values << (depth - 8)) if white else values << (depth - 8)
    (tmp_path / "grey.tif").write_bytes(grey_tiff(stored, depth, white_is_zero=white))
    pixels = encoder(tmp_path, 32, antialias=True).pixels(tmp_path / "grey.tif")
    np.testing.assert_array_equal(pixels[..., 0], values)


@pytest.mark.parametrize(("depth", "signed"), [(32, False), (8, True), (16, True)])
def test_grey_tiff_without_a_known_range_is_refused(tmp_path: Path, depth: int, signed: bool) -> None:
    (tmp_path / "grey.tif").write_bytes(grey_tiff(np.full((32, 32), 100), depth, signed=signed))
    with pytest.raises(ValueError, match="8 bits"):
        encoder(tmp_path, 32, antialias=True).pixels(tmp_path / "grey.tif")


@pytest.mark.parametrize("mode", ["F", "I;16"])
def test_pixels_without_a_known_range_or_colour_are_refused(tmp_path: Path, mode: str) -> None:
    image = Image.new(mode, (32, 32))
    image.info["transparency"] = 0
    with pytest.raises(ValueError, match="8 bits"):
        encoder(tmp_path, 32, antialias=True).pixels(image)
