"""Checkpoints of the transformers library: their embeddings are the library's."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import numpy as np
import pytest

import vsemb
from tests.systems.presets.checkpoint_files import (
    CHECKPOINTS,
    unigram_tokenizer,
    write_clip_checkpoint,
    write_siglip2_checkpoint,
)
from tests.systems.presets.library import asks_library, cosines, mixed_images, outputs_of, published_ids, unit
from tests.systems.presets.peers import IMAGES, PUBLISHED, TEXTS
from tests.systems.presets.texts import odd_texts, photographs
from vsemb.errors import DataError
from vsemb.runs.run import Run


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("VSEMB_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("checkpoints")
    return {kind: write(folder / kind) for kind, write in CHECKPOINTS.items()}


@pytest.mark.parametrize("kind", CHECKPOINTS)
def test_embeddings_are_those_of_the_library(kind: str, checkpoints: dict[str, Path]) -> None:
    expected = {name: np.array(value) for name, value in json.loads(PUBLISHED.read_text())[kind].items()}
    run = Run.open(f"hub:{checkpoints[kind]}")
    ids = published_ids(run, TEXTS, expected["ids"].shape[1])
    np.testing.assert_array_equal(ids, expected["ids"])
    model = vsemb.load(run)
    # Float32 of another library, rounded to 1e-5; CLIP's last normalization has epsilon 1e-6 in keras-hub, not 1e-5.
    np.testing.assert_allclose(model.encode_texts(TEXTS), unit(expected["texts"]), atol=1e-4)
    # Pixels differ by a level of 255 where the two bicubic resizes round differently.
    assert min(cosines(model.encode_images(photographs()[1][:IMAGES]), expected["images"])) > 0.9995
    assert float(run.model.logit_scale.parameters()[0]) == pytest.approx(float(expected["scale"]), rel=1e-4)


def test_the_newer_and_the_older_files_of_a_tokenizer_are_equal(tmp_path: Path) -> None:
    older = write_clip_checkpoint(tmp_path / "older")
    newer = Path(shutil.copytree(older, tmp_path / "newer"))
    pairs = [line.split(" ") for line in (older / "merges.txt").read_text().splitlines()[1:]]
    model = {"type": "BPE", "end_of_word_suffix": "</w>", "merges": pairs}
    model["vocab"] = json.loads((newer / "vocab.json").read_text())
    (newer / "tokenizer.json").write_text(json.dumps({"model": model}))
    (newer / "vocab.json").unlink(), (newer / "merges.txt").unlink()
    processor = json.loads((newer / "preprocessor_config.json").read_text())
    side = {"height": processor["crop_size"], "width": processor["crop_size"]}
    newest = processor | {"size": {"shortest_edge": processor["size"]}, "crop_size": side}
    (newer / "processor_config.json").write_text(json.dumps({"image_processor": newest}))
    (newer / "preprocessor_config.json").unlink()
    models = [vsemb.load(folder) for folder in (older, newer)]
    for rows in (model.encode_texts(TEXTS) for model in models[1:]):
        np.testing.assert_array_equal(rows, models[0].encode_texts(TEXTS))
    images = photographs()[1][:IMAGES]
    np.testing.assert_array_equal(models[1].encode_images(images), models[0].encode_images(images))


@pytest.mark.parametrize("kind", ["metaclip-2", "siglip"])
def test_a_unigram_model_may_be_in_a_file_of_the_tokenizers_library(kind: str, tmp_path: Path) -> None:
    older = CHECKPOINTS[kind](tmp_path / "older")
    newer = Path(shutil.copytree(older, tmp_path / "newer"))
    for file in newer.glob("*.model"):
        (newer / "tokenizer.json").write_text(json.dumps(unigram_tokenizer(file.read_bytes(), kind == "metaclip-2")))
        file.unlink()
    texts = [text for text in odd_texts(60) if text.strip()]
    ids = [Run.open(f"hub:{folder}").tokenizer(texts).numpy() for folder in (older, newer)]
    np.testing.assert_array_equal(*ids)
    np.testing.assert_array_equal(*(vsemb.load(folder).encode_texts(TEXTS) for folder in (older, newer)))


@pytest.mark.parametrize(
    ("field", "value", "named"),
    [("normalizer", {"type": "Lowercase"}, "Lowercase"), ("added_tokens", None, "tokenizer.json")],
)
def test_other_tokenizers_with_a_unigram_model_are_refused(
    field: str, value: object, named: str, tmp_path: Path
) -> None:
    checkpoint = CHECKPOINTS["metaclip-2"](tmp_path / "newer")
    model = checkpoint / "sentencepiece.bpe.model"
    content = unigram_tokenizer(model.read_bytes(), True)
    model.unlink()
    (checkpoint / "tokenizer.json").write_text(json.dumps(content | {field: value}))
    with pytest.raises(DataError, match=named):
        vsemb.load(checkpoint)


def test_weights_may_be_in_several_files(tmp_path: Path) -> None:
    from safetensors.numpy import load_file, save_file

    whole = write_siglip2_checkpoint(tmp_path / "whole")
    parts = Path(shutil.copytree(whole, tmp_path / "parts"))
    weights = load_file(parts / "model.safetensors")
    (parts / "model.safetensors").unlink()
    places = {name: f"model-0000{1 + number % 2}-of-00002.safetensors" for number, name in enumerate(weights)}
    for file in set(places.values()):
        save_file({name: weights[name] for name in weights if places[name] == file}, parts / file)
    (parts / "model.safetensors.index.json").write_text(json.dumps({"weight_map": places}))
    expected, received = (vsemb.load(folder).encode_texts(TEXTS) for folder in (whole, parts))
    np.testing.assert_array_equal(received, expected)


def test_a_run_in_the_cache_is_made_once_and_again_for_other_weights(tmp_path: Path, cache: Path) -> None:
    checkpoint = write_clip_checkpoint(tmp_path / "clip")
    first, second = (Run.open(f"hub:{checkpoint}").path for _ in range(2))
    assert first == second and first.is_relative_to(cache)
    os.utime(checkpoint / "model.safetensors", ns=(1, 1))
    assert Run.open(f"hub:{checkpoint}").path != first
    # The first stays as it was, and does not need the checkpoint.
    shutil.rmtree(checkpoint)
    assert vsemb.load(first).encode_texts(["a dog"]).shape == (1, 12)


@pytest.mark.parametrize(
    ("file", "change", "named"),
    [
        ("config.json", {"text_config": {"hidden_act": "relu"}}, "hidden_act"),
        ("config.json", {"vision_config": {"num_channels": 4}}, "num_channels"),
        ("config.json", {"vision_config": {"layer_norm_eps": 1e-3}}, "layer_norm_eps"),
        ("config.json", {"text_config": {"eos_token_id": 7}}, "eos_token_id"),
        ("preprocessor_config.json", {"do_rescale": False}, "do_rescale"),
        ("preprocessor_config.json", {"do_normalize": False}, "do_normalize"),
        ("preprocessor_config.json", {"resample": 0}, "resample"),
        ("preprocessor_config.json", {"size": 40}, "crop_size"),
        ("preprocessor_config.json", {"size": {"height": 32, "width": 40}}, "size"),
        ("preprocessor_config.json", {"image_std": [0.5, None, 0.5]}, "image_std"),
    ],
)
def test_settings_that_cannot_be_honoured_are_refused_by_name(
    file: str, change: dict, named: str, tmp_path: Path
) -> None:
    path = write_clip_checkpoint(tmp_path / "clip") / file
    content = json.loads(path.read_text())
    for field, value in change.items():
        content[field] = content[field] | value if file == "config.json" else value
    path.write_text(json.dumps(content))
    with pytest.raises(DataError, match=named):
        vsemb.load(path.parent)


@pytest.mark.parametrize("file", ["model.safetensors", "vocab.json", "merges.txt", "preprocessor_config.json"])
def test_a_missing_file_is_named(file: str, tmp_path: Path) -> None:
    checkpoint = write_clip_checkpoint(tmp_path / "clip")
    (checkpoint / file).unlink()
    with pytest.raises(DataError, match=file):
        vsemb.load(checkpoint)


@pytest.mark.parametrize(
    "name",
    [
        "text_model.embeddings.token_embedding.weight",
        "text_model.encoder.layers.0.mlp.fc1.weight",
        "text_model.encoder.layers.1.self_attn.k_proj.weight",
        "vision_model.encoder.layers.0.self_attn.out_proj.bias",
        "vision_model.embeddings.patch_embedding.weight",
    ],
)
def test_weights_of_another_size_are_refused(name: str, tmp_path: Path) -> None:
    from safetensors.numpy import load_file, save_file

    path = write_clip_checkpoint(tmp_path / "clip") / "model.safetensors"
    weights = load_file(path)
    save_file(weights | {name: weights[name][:-1]}, path)
    # Parts of an attention layer are named together.
    with pytest.raises(DataError, match=name.partition(".self_attn")[0]):
        vsemb.load(path.parent)


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("config.json", {"model_type": "clip", "text_config": [1], "vision_config": 3}),
        ("config.json", {"model_type": "clip", "projection_dim": "x"}),
        ("preprocessor_config.json", []),
        ("model.safetensors.index.json", {}),
    ],
)
def test_malformed_files_are_one_error(file: str, content: object, tmp_path: Path) -> None:
    checkpoint = write_clip_checkpoint(tmp_path / "clip")
    (checkpoint / file).write_text(json.dumps(content))
    with pytest.raises(DataError):
        vsemb.load(checkpoint)


def test_left_padding_is_refused(tmp_path: Path) -> None:
    path = write_siglip2_checkpoint(tmp_path / "siglip2") / "tokenizer_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"padding_side": "left"}))
    with pytest.raises(DataError, match="padding_side"):
        vsemb.load(path.parent)


def test_subwords_across_words_are_refused(tmp_path: Path) -> None:
    path = write_siglip2_checkpoint(tmp_path / "siglip2") / "tokenizer.json"
    content = json.loads(path.read_text())
    content["model"]["vocab"]["a▁b"] = len(content["model"]["vocab"])
    path.write_text(json.dumps(content))
    with pytest.raises(DataError, match="within words"):
        vsemb.load(path.parent)


def test_a_download_without_a_network_says_what_to_fetch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(DataError, match=r"model\.safetensors"):
        vsemb.load("hf://nobody/nothing")


def test_a_repository_of_the_hub_is_downloaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checkpoint, asked = write_clip_checkpoint(tmp_path / "clip"), []

    def snapshot_download(name: str, *, allow_patterns: list[str]) -> str:
        asked.append((name, "model.safetensors" in allow_patterns))
        return str(checkpoint)

    monkeypatch.setattr("huggingface_hub.snapshot_download", snapshot_download)
    monkeypatch.setattr("huggingface_hub.HfApi.list_repo_files", lambda api, name: ["config.json"])
    model = vsemb.load("hf://user/clip")
    np.testing.assert_array_equal(model.encode_texts(TEXTS), vsemb.load(checkpoint).encode_texts(TEXTS))
    # Its description first, so that a checkpoint of another kind costs no download of weights.
    assert asked == [("user/clip", False), ("user/clip", True)]


def test_encode_says_which_function_to_call(tmp_path: Path) -> None:
    model = vsemb.load(write_clip_checkpoint(tmp_path / "clip"))
    with pytest.raises(AttributeError, match="encode_texts"):
        model.encode(["a dog"])
    assert not hasattr(model, "encode")


@pytest.mark.slow
@asks_library
@pytest.mark.parametrize("kind", CHECKPOINTS)
def test_checkpoints_saved_by_the_library(kind: str, checkpoints: dict[str, Path], tmp_path: Path) -> None:
    """5,000 odd texts and 100 photographs of mixed sizes; the library runs in a process of its own."""
    texts, images = odd_texts(5000), mixed_images(tmp_path, 100)
    saved, expected = outputs_of(checkpoints[kind], texts, tmp_path, images)
    run = Run.open(f"hub:{saved}")
    for start in range(0, len(texts), 1000):
        part = slice(start, start + 1000)
        ids = published_ids(run, texts[part], expected["ids"].shape[1])
        different = np.flatnonzero(np.any(ids != expected["ids"][part], axis=1))
        assert [texts[start + row] for row in different] == []
    model = vsemb.load(run)
    received = model.encode_images(images)
    assert min(cosines(received, expected["images"])) >= 0.9995
    embedded = model.encode_texts(texts, on_bad="nan")
    there = ~np.isnan(embedded[:, 0])
    assert there.mean() > 0.97
    np.testing.assert_allclose(embedded[there], unit(expected["texts"][there]), atol=1e-4)
    # The ten nearest images of a text.
    queries = unit(expected["texts"][there][:50]), embedded[there][:50]
    theirs, own = (side @ unit(rows).T for side, rows in zip(queries, (expected["images"], received), strict=True))
    ranked = np.argsort(-own)[:, :10]
    # Of random weights, several images score nearly alike: lists are equal but for such images.
    np.testing.assert_allclose(np.take_along_axis(theirs, ranked, 1), -np.sort(-theirs)[:, :10], atol=0.01)
    vsemb.export(run, tmp_path / "model")
    served = vsemb.load(tmp_path / "model").encode_texts(texts[:50], on_bad="nan")
    np.testing.assert_allclose(served, embedded[:50], atol=1e-5)
