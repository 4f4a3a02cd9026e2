"""Checkpoints of open_clip: their embeddings are those of the same weights with the names of transformers."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import vsemb
from tests.systems.presets.checkpoint_files import (
    CHECKPOINTS,
    INSIDE,
    LAYERS,
    PATCH,
    TRUNK,
    WIDTH,
    write_clip_checkpoint,
    write_open_clip,
    write_open_clip_siglip,
)
from tests.systems.presets.library import (
    asks_open_clip,
    cosines,
    mixed_images,
    open_clip_outputs,
    published_ids,
    unit,
)
from tests.systems.presets.texts import odd_texts, photographs
from vsemb.errors import DataError
from vsemb.runs.run import Run
from vsemb.systems.presets import open_clip
from vsemb.systems.presets.checkpoints import open_checkpoint
from vsemb.systems.presets.layouts import Layout, TransformersLayout
from vsemb.systems.presets.network import ImagePreset
from vsemb.systems.presets.open_clip import OpenClipLayout
from vsemb.systems.presets.tokenizer import PresetText

CONFIG, WEIGHTS = "open_clip_config.json", "open_clip_model.safetensors"
#: Texts that open_clip does not change before it splits them.
TEXTS = ["a red circle above a blue square", "two dogs are running on the beach", "a photo of 12 cats", "a " * 40]


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VSEMB_CACHE", str(tmp_path / "cache"))


@pytest.fixture(autouse=True)
def tiny_trunk(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = {"hidden_size": WIDTH, "num_hidden_layers": LAYERS, "num_attention_heads": 2, "intermediate_size": INSIDE}
    trunk = {**sizes, "patch_size": PATCH, "hidden_act": "gelu_pytorch_tanh"}
    monkeypatch.setitem(open_clip.TRUNKS, TRUNK, trunk)


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
    runs = [Run.open(f"hub:{path}") for path in (one, other)]
    models = [vsemb.load(run) for run in runs]
    np.testing.assert_array_equal(*(model.encode_texts(TEXTS) for model in models))
    np.testing.assert_array_equal(*(model.encode_images(images) for model in models))
    assert scale_of(runs[0]) == scale_of(runs[1])


def scale_of(run: Run) -> list[float]:
    """Factor of the cosine, and for SigLIP what is added."""
    return [float(value) for value in run.model.logit_scale.parameters()]


@pytest.mark.parametrize(("activation", "custom_text"), [("gelu", False), ("quick_gelu", True)])
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
    assert preprocessing(own) == preprocessing(theirs)


def test_half_a_pixel_beside_the_crop_is_rounded_to_an_even_one(clip: Path, tmp_path: Path) -> None:
    """1.5 of 3 columns: torchvision, which open_clip uses, leaves out 2 of them on the left, and transformers 1."""
    pixels = np.random.default_rng(0).integers(0, 256, (32, 35, 3), dtype=np.uint8)
    for model, left in ((vsemb.load(clip), 2), (vsemb.load(tmp_path / "theirs"), 1)):
        whole, cropped = model.encode_images([pixels, pixels[:, left : left + 32]])
        np.testing.assert_allclose(whole, cropped, atol=1e-5)


def test_without_preprocessing_it_is_that_of_clip(clip: Path, tmp_path: Path) -> None:
    changed(clip / CONFIG, lambda content: content.pop("preprocess_cfg"))
    assert preprocessing(clip) == preprocessing(tmp_path / "theirs")


def preprocessing(path: Path) -> list[object]:
    preset = ImagePreset.open(f"hub:{path}")
    return [preset.size, {**preset.resizing, "even_offset": None}, preset.scale, preset.offset]


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
    assert isinstance(opened(both), OpenClipLayout)
    shutil.copy(theirs / "model.safetensors", both)
    assert isinstance(opened(both), TransformersLayout)


def opened(path: Path) -> Layout:
    checkpoint = open_checkpoint(str(path))
    assert checkpoint is not None
    return checkpoint.layout


def test_settings_of_timm_do_not_hide_those_of_open_clip(clip: Path) -> None:
    (clip / "config.json").write_text(json.dumps({"architecture": "vit_base_patch32_clip_224"}))
    assert isinstance(opened(clip), OpenClipLayout)
    assert PresetText.open(f"hub:{clip}").length == 24


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


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """Settings of tiny models of open_clip, and directories of their tokenizers."""
    folder = tmp_path_factory.mktemp("settings")
    settings = {}
    for kind, write in CHECKPOINTS.items():
        convert = write_open_clip_siglip if kind.startswith("siglip") else write_open_clip
        own = convert(write(folder / kind), folder / f"own-{kind}")
        content = json.loads((own / CONFIG).read_text())
        for name in (CONFIG, WEIGHTS):
            (own / name).unlink()
        settings[kind] = {
            "config": content["model_cfg"],
            "preprocessing": content["preprocess_cfg"],
            "tokenizer": str(own),
        }
    # The first SigLIP has the tokenizer of T5 in published checkpoints.
    names = {"tokenizer_class": "T5Tokenizer", "pad_token": "</s>", "eos_token": "</s>", "unk_token": "<unk>"}
    path = Path(settings["siglip"]["tokenizer"]) / "tokenizer_config.json"
    path.write_text(json.dumps(names | {"extra_ids": 0, "model_max_length": 20}))
    for name, changes in {
        "clip": {"quick_gelu": False},
        "clip-quick": {"quick_gelu": True, "custom_text": True},
    }.items():
        config = settings["clip"]["config"] | changes
        texts = config["text_cfg"] | {"vocab_size": 49408}
        pixels = {"resize_mode": "squash", "interpolation": "bilinear"} if "custom_text" in changes else {}
        settings[name] = settings["clip"] | {"config": config | {"text_cfg": texts}, "tokenizer": None}
        settings[name] |= {"preprocessing": settings["clip"]["preprocessing"] | pixels}
    return settings


@pytest.mark.slow
@asks_open_clip
def test_checkpoints_saved_by_the_library(models: dict[str, dict[str, Any]], tmp_path: Path) -> None:
    """2,000 odd texts, 50 images of mixed sizes, and an image of the size of the network."""
    texts, images = odd_texts(2000), mixed_images(tmp_path, 50)
    pixels = np.random.default_rng(0).integers(0, 256, (32, 32, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(tmp_path / "fitting.png")
    every, trunks = open_clip_outputs(models, texts, [*images, tmp_path / "fitting.png"], tmp_path)
    assert {name: trunk for name, trunk in open_clip.TRUNKS.items() if name != TRUNK} == trunks
    for kind, expected in every.items():
        run = Run.open(f"hub:{tmp_path / kind}")
        # open_clip repairs texts with ftfy; vsemb does not.
        plain = np.flatnonzero(expected["plain"])
        assert len(plain) > 1900
        chosen = [texts[row] for row in plain]
        ids = published_ids(run, chosen, expected["ids"].shape[1])
        different = np.flatnonzero(np.any(ids != expected["ids"][plain], axis=1))
        assert [chosen[row] for row in different] == [], kind
        model = vsemb.load(run)
        embedded = model.encode_texts(chosen, on_bad="nan")
        there = ~np.isnan(embedded[:, 0])
        assert there.mean() > 0.95
        np.testing.assert_allclose(embedded[there], unit(expected["texts"][plain][there]), atol=1e-4, err_msg=kind)
        received = model.encode_images([*images, tmp_path / "fitting.png"])
        np.testing.assert_allclose(received[-1], unit(expected["images"])[-1], atol=1e-4, err_msg=kind)
        # Pixels differ by a level of 255 where two resizes round differently.
        assert min(cosines(received, expected["images"])) >= 0.9995, kind
        np.testing.assert_allclose(scale_of(run), expected["scale"], rtol=1e-5)
