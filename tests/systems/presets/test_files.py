"""Presets by name and directory, what is said where there is none, and what a run keeps of them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from vsemb.errors import DataError
from vsemb.systems.presets import files as presets
from vsemb.systems.presets.files import display_name, keep_preset, kept_name, preset_directory
from vsemb.systems.presets.network import ImagePreset
from vsemb.systems.presets.tokenizer import PresetText


def test_a_name_that_is_none_is_told_the_nearest() -> None:
    with pytest.raises(DataError, match="hub:clip_vit_base_patch16") as raised:
        preset_directory("hub:clip_vit_base_patch61")
    assert "\n" not in str(raised.value)


def test_a_directory_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="nothing"):
        preset_directory(f"hub:{tmp_path / 'nothing'}")


def test_a_directory_without_a_preset(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="config.json"):
        preset_directory(f"hub:{tmp_path}")


def test_a_download_that_fails_is_one_line_and_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    import keras_hub

    def offline(*given: object, **named: object) -> None:
        raise ConnectionError("no\nroute to host")

    monkeypatch.setattr(keras_hub.models.Backbone, "from_preset", offline)
    before = presets._fetched.cache_info().currsize
    with pytest.raises(DataError, match="kaggle://") as raised:
        ImagePreset.open("hub:vit_base_patch16_224_imagenet")
    assert "\n" not in str(raised.value) and "hub:DIRECTORY" in str(raised.value)
    # What failed is tried again.
    assert presets._fetched.cache_info().currsize == before


@pytest.mark.parametrize("dual", ["MetaCLIP2Backbone", "SigLIPBackbone"])
def test_what_is_downloaded_is_described_as_a_directory_is(dual, preset_path, monkeypatch) -> None:
    """keras-hub's own reading and writing of a preset gives what the preset's files say."""
    import keras_hub

    path = preset_path(dual.removesuffix("Backbone").lower())
    there = {"tiny_dual": {"kaggle_handle": "kaggle://a/b/keras/c/1"}}
    monkeypatch.setattr(presets, "_presets", lambda: there)
    for kind in (keras_hub.models.Backbone, getattr(keras_hub.models, presets.DUAL[dual])):
        real = kind.from_preset
        monkeypatch.setattr(
            kind, "from_preset", lambda name, real=real, **given: real(str(path), **given), raising=False
        )
    try:
        fetched, given = ImagePreset.open("hub:tiny_dual"), ImagePreset.open(f"hub:{path}")
        assert fetched == given
        texts, same = PresetText.open("hub:tiny_dual"), PresetText.open(f"hub:{path}")
        assert (texts.pieces, texts.length, texts.end) == (same.pieces, same.length, same.end)
    finally:
        presets._fetched.cache_clear()


def test_a_preset_that_is_kept_says_what_it_was_called(preset_path, tmp_path: Path) -> None:
    name = f"hub:{preset_path('clip')}"
    keep_preset(name, tmp_path / "run", "text")
    keep_preset(kept_name(name, tmp_path / "run", "text"), tmp_path / "again", "text")
    again = kept_name(name, tmp_path / "again", "text")
    assert again != name and display_name(again) == name
    assert not list(tmp_path.rglob("*.h5"))
    assert PresetText.open(again).pieces == PresetText.open(name).pieces


def test_a_preset_without_a_converter_says_how_to_add_one(preset_path, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text((preset_path("vit") / "config.json").read_text())
    with pytest.raises(DataError, match="image_converter.json"):
        ImagePreset.open(f"hub:{tmp_path}")


def test_a_preset_without_texts_is_refused_for_texts(preset_path) -> None:
    with pytest.raises(DataError, match="ViTBackbone"):
        PresetText.open(f"hub:{preset_path('vit')}")


def test_other_json_is_no_preset(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"registered_name": "x"}))
    with pytest.raises(DataError, match="config.json"):
        PresetText.open(f"hub:{tmp_path}")
