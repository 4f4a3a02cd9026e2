"""Checkpoints of open_clip: their embeddings are those of the same weights with the names of transformers."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import vsemb
from tests.systems.presets.checkpoint_files import (
    CHECKPOINTS,
    INSIDE,
    LAYERS,
    WIDTH,
    write_clip_checkpoint,
    write_open_clip,
    write_open_clip_siglip,
)
from tests.systems.presets.texts import photographs
from vsemb.errors import DataError
from vsemb.runs.run import Run
from vsemb.systems.presets import open_clip

CONFIG, WEIGHTS = "open_clip_config.json", "open_clip_model.safetensors"
#: Texts that open_clip does not change before it splits them.
TEXTS = ["a red circle above a blue square", "two dogs are running on the beach", "a photo of 12 cats", "a " * 40]


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VSEMB_CACHE", str(tmp_path / "cache"))


@pytest.fixture(autouse=True)
def tiny_trunk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(open_clip.TRUNKS, "tiny", (WIDTH, LAYERS, 2, INSIDE, "gelu_pytorch_tanh"))


@pytest.fixture
def clip(tmp_path: Path) -> Path:
    """A tiny CLIP of open_clip."""
    return write_open_clip(write_clip_checkpoint(tmp_path / "theirs"), tmp_path / "clip")


def changed(path: Path, change: Callable[[Any], object]) -> None:
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content))


def equal(one: Path, other: Path) -> None:
    """Checks that two checkpoints give equal embeddings and logits."""
    images = photographs()[1][:3]
    models = [vsemb.load(path) for path in (one, other)]
    np.testing.assert_array_equal(*(model.encode_texts(TEXTS) for model in models))
    np.testing.assert_array_equal(*(model.encode_images(images) for model in models))
    scales = [[float(value) for value in Run.open(f"hub:{path}").model.logit_scale.parameters()] for path in (one, other)]
    assert scales[0] == scales[1]


@pytest.mark.parametrize("custom_text", [False, True])
@pytest.mark.parametrize("activation", ["gelu", "quick_gelu"])
def test_clip(activation: str, custom_text: bool, tmp_path: Path) -> None:
    theirs = write_clip_checkpoint(tmp_path / "theirs")
    changed(theirs / "config.json", lambda content: content["text_config"].update(hidden_act=activation))
    changed(theirs / "config.json", lambda content: content["vision_config"].update(hidden_act=activation))
    equal(write_open_clip(theirs, tmp_path / "own", custom_text), theirs)


def test_metaclip_2(tmp_path: Path) -> None:
    theirs = CHECKPOINTS["metaclip-2"](tmp_path / "theirs")
    equal(write_open_clip(theirs, tmp_path / "own"), theirs)


@pytest.mark.parametrize("kind", ["siglip", "siglip-2"])
def test_siglip_with_the_names_of_timm(kind: str, tmp_path: Path) -> None:
    theirs = CHECKPOINTS[kind](tmp_path / "theirs")
    equal(write_open_clip_siglip(theirs, tmp_path / "own"), theirs)


@pytest.mark.parametrize("kind", ["siglip", "siglip-2"])
def test_texts_of_siglip_lose_their_punctuation(kind: str, tmp_path: Path) -> None:
    model = vsemb.load(write_open_clip_siglip(CHECKPOINTS[kind](tmp_path / "theirs"), tmp_path / "own"))
    one, other = model.encode_texts(["A dog's  under_score, (really)!", "a dogs under score really"])
    np.testing.assert_array_equal(one, other)


def test_the_preprocessing_of_pixels_is_honoured(tmp_path: Path) -> None:
    theirs = write_clip_checkpoint(tmp_path / "theirs")
    own = write_open_clip(theirs, tmp_path / "own")
    pixels = {"mean": [0.1, 0.2, 0.3], "std": [0.4, 0.5, 0.6], "interpolation": "bilinear", "resize_mode": "squash"}
    changed(own / CONFIG, lambda content: content.update(preprocess_cfg=pixels))
    processor = {"size": {"height": 32, "width": 32}, "do_center_crop": False, "resample": 2}
    processor |= {"image_mean": pixels["mean"], "image_std": pixels["std"]}
    (theirs / "preprocessor_config.json").write_text(json.dumps(processor))
    equal(own, theirs)


def test_without_preprocessing_it_is_that_of_clip(clip: Path, tmp_path: Path) -> None:
    changed(clip / CONFIG, lambda content: content.pop("preprocess_cfg"))
    equal(clip, tmp_path / "theirs")


def test_texts_may_be_longer_than_those_of_clip(clip: Path) -> None:
    from safetensors.numpy import load_file, save_file

    changed(clip / CONFIG, lambda content: content["model_cfg"]["text_cfg"].update(context_length=100))
    weights = load_file(clip / WEIGHTS)
    weights["positional_embedding"] = np.random.default_rng(0).normal(size=(100, WIDTH)).astype(np.float32)
    save_file(weights, clip / WEIGHTS)
    run = Run.open(f"hub:{clip}")
    assert run.tokenizer(["a " * 200]).shape == (1, 98)


def test_a_directory_with_both_names_needs_the_weights_of_one(clip: Path, tmp_path: Path) -> None:
    theirs = tmp_path / "theirs"
    both = Path(shutil.copytree(theirs, tmp_path / "both"))
    (both / "model.safetensors").unlink()
    for name in (CONFIG, WEIGHTS):
        shutil.copy(clip / name, both / name)
    equal(both, theirs)


def test_settings_of_timm_do_not_hide_those_of_open_clip(clip: Path, tmp_path: Path) -> None:
    (clip / "config.json").write_text(json.dumps({"architecture": "vit_base_patch32_clip_224"}))
    equal(clip, tmp_path / "theirs")


def test_a_repository_is_downloaded_with_the_weights_of_open_clip(
    clip: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def snapshot_download(name: str, *, allow_patterns: list[str]) -> str:
        asked.append([name in allow_patterns for name in (CONFIG, WEIGHTS, "model.safetensors")])
        return str(clip)

    monkeypatch.setattr("huggingface_hub.snapshot_download", snapshot_download)
    monkeypatch.setattr("huggingface_hub.HfApi.list_repo_files", lambda api, name: [CONFIG])
    model = vsemb.load("hf://user/open")
    np.testing.assert_array_equal(model.encode_texts(TEXTS), vsemb.load(tmp_path / "theirs").encode_texts(TEXTS))
    assert asked == [[True, False, False], [True, True, False]]


@pytest.mark.parametrize(
    ("part", "change", "named"),
    [
        ("model_cfg", {"multimodal_cfg": {"layers": 2}}, "multimodal_cfg"),
        ("model_cfg", {"init_logit_bias": -10}, "init_logit_bias"),
        ("model_cfg", {"embed_dim": "x"}, "embed_dim"),
        ("text_cfg", {"hf_model_name": "roberta-base", "hf_proj_type": "linear"}, "text_cfg.hf_model_name"),
        ("text_cfg", {"pool_type": "last"}, "text_cfg.pool_type"),
        ("text_cfg", {"no_causal_mask": True}, "text_cfg.no_causal_mask"),
        ("text_cfg", {"embed_cls": True}, "text_cfg.embed_cls"),
        ("text_cfg", {"tokenizer_kwargs": {"clean": "canonicalize"}}, "text_cfg.tokenizer_kwargs.clean"),
        ("text_cfg", {"tokenizer_kwargs": {"strip_sep_token": True}}, "text_cfg.tokenizer_kwargs.strip_sep_token"),
        ("text_cfg", {"act_kwargs": {"approximate": "tanh"}}, "text_cfg.act_kwargs.approximate"),
        ("text_cfg", {"mlp_ratio": 0}, "text_cfg.mlp_ratio"),
        ("vision_cfg", {"timm_model_name": "convnext_base"}, "vision_cfg.timm_model_name"),
        ("vision_cfg", {"layers": [3, 4, 6, 3]}, "vision_cfg.layers"),
        ("vision_cfg", {"pool_type": "avg"}, "vision_cfg.pool_type"),
        ("vision_cfg", {"attentional_pool": True}, "vision_cfg.attentional_pool"),
        ("vision_cfg", {"no_ln_pre": True}, "vision_cfg.no_ln_pre"),
        ("vision_cfg", {"image_size": [32, 40]}, "vision_cfg.image_size"),
        ("vision_cfg", {"norm_kwargs": {"eps": 1e-3}}, "layer_norm_eps"),
        ("preprocess_cfg", {"resize_mode": "longest"}, "preprocess_cfg.resize_mode"),
        ("preprocess_cfg", {"interpolation": "nearest"}, "preprocess_cfg.interpolation"),
        ("preprocess_cfg", {"mean": [0.5, None, 0.5]}, "image_mean"),
    ],
)
def test_settings_that_cannot_be_honoured_are_refused_by_name(
    part: str, change: dict[str, Any], named: str, clip: Path
) -> None:
    def change_part(content: Any) -> None:
        parts = {**content, **content["model_cfg"]}
        parts[part].update(change)

    changed(clip / CONFIG, change_part)
    with pytest.raises(DataError, match=named) as raised:
        vsemb.load(clip)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("change", [{"proj_bias": False}, {"pool_type": "argmax"}, {"tokenizer_kwargs": {}}])
def test_settings_of_another_siglip_are_refused_by_name(change: dict[str, Any], tmp_path: Path) -> None:
    own = write_open_clip_siglip(CHECKPOINTS["siglip"](tmp_path / "theirs"), tmp_path / "own")
    changed(own / CONFIG, lambda content: content["model_cfg"]["text_cfg"].update(change))
    with pytest.raises(DataError, match=next(iter(change))):
        vsemb.load(own)


@pytest.mark.parametrize("content", [[], {}, {"model_cfg": []}, {"model_cfg": {"vision_cfg": 3}}])
def test_malformed_settings_are_one_error(content: object, clip: Path) -> None:
    (clip / CONFIG).write_text(json.dumps(content))
    with pytest.raises(DataError, match="cfg"):
        vsemb.load(clip)


@pytest.mark.parametrize("file", [WEIGHTS, "merges.txt"])
def test_a_missing_file_is_named(file: str, clip: Path) -> None:
    (clip / file).unlink()
    # A pickle is not read.
    (clip / "open_clip_pytorch_model.bin").write_bytes(b"")
    with pytest.raises(DataError, match=file):
        vsemb.load(clip)


@pytest.mark.parametrize(
    "name", ["visual.proj", "transformer.resblocks.1.ln_2.bias", "visual.transformer.resblocks.0.mlp.c_fc.weight"]
)
def test_weights_that_are_missing_or_of_another_size_are_named(name: str, clip: Path) -> None:
    from safetensors.numpy import load_file, save_file

    weights = load_file(clip / WEIGHTS)
    value = weights.pop(name)
    save_file(weights, clip / WEIGHTS)
    with pytest.raises(DataError, match=name):
        vsemb.load(clip)
    save_file(weights | {name: value[:-1]}, clip / WEIGHTS)
    with pytest.raises(DataError, match=name):
        vsemb.load(clip)
