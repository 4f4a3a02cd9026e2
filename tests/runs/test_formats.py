"""Exports of runs to formats that need no TensorFlow, by the act and by its command."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

import vsemb
from tests.raising import raises_argument
from vsemb.cli.__main__ import main
from vsemb.errors import InvalidArgumentError
from vsemb.weights import named_weights

TEXTS = ["a red circle", "two blue squares, and a circle", "", "zyzzyva"]

#: Embeds files and texts in a process that has neither TensorFlow nor vsemb.
ALONE = """
import json, sys
for name in ("tensorflow", "keras", "vsemb"):
    sys.modules[name] = None
sys.path.insert(0, sys.argv[1])
from encode import Encoder
encoder = Encoder()
texts, files = json.loads(sys.argv[2])
print(json.dumps([encoder.encode_texts(texts).tolist(), encoder.encode_images(files).tolist()]))
"""


@pytest.mark.parametrize("kind", ["litert", pytest.param("onnx", marks=pytest.mark.slow)])
def test_the_program_beside_the_towers_embeds_like_the_run(kind, tiny_pixel_run, tmp_path, capsys):
    pytest.importorskip("tf2onnx", reason="the extra onnx is not installed")
    pytest.importorskip("ai_edge_litert", reason="the extra litert is not installed")
    pytest.importorskip("tokenizers", reason="the extra onnx is not installed")
    out = tmp_path / "towers"
    assert main(["export", str(tiny_pixel_run.path), str(out), "--format", kind]) == 0
    assert "embedding float32" in capsys.readouterr().out
    random, files = np.random.default_rng(3), []
    for number, mode in enumerate(("RGB", "RGBA", "L")):
        image = Image.fromarray(random.integers(0, 256, (32, 32, 4), dtype=np.uint8), "RGBA").convert(mode)
        files.append(str(tmp_path / f"{number}.png"))
        image.save(files[-1])
    command = [sys.executable, "-c", ALONE, str(out), json.dumps([TEXTS, files])]
    found = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    encoders = tiny_pixel_run.encoders()
    texts = encoders.encode_text(tf.constant(TEXTS))["embedding"]
    images = encoders.encode_image(tf.stack([tf.io.read_file(file) for file in files]))["embedding"]
    np.testing.assert_allclose(found[0], texts, atol=1e-5)
    # Pillow rounds transparent pixels in another way.
    np.testing.assert_allclose(found[1], images, atol=1e-3)
    facts, card = json.loads((out / "model.json").read_text()), (out / "README.md").read_text()
    assert facts["run"] == tiny_pixel_run.fingerprint and facts["similarity"] == {"kind": "cosine"}
    assert facts["image"]["size"] == 32 and facts["text"]["tokenizer"] == "tokenizer.json"
    assert "tokenizer.json" in card and "32 pixels a side" in card
    assert main(["export", str(tiny_pixel_run.path), str(out), "--format", kind]) == 1


def test_a_run_on_precomputed_features_has_a_text_tower(tiny_run, tmp_path):
    pytest.importorskip("ai_edge_litert", reason="the extra litert is not installed")
    made = vsemb.export(tiny_run, tmp_path / "towers", format="litert-int8", measure="val")
    assert list(made.facts["towers"]) == ["text"] and "image network" in made.facts["absent"]["image"]
    assert made.facts["absent"]["image"] in str(made) and "the split val" in (made.path / "README.md").read_text()
    with raises_argument("tower"):
        vsemb.export(tiny_run, tmp_path / "none", format="litert", tower="image")
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize(
    ("argument", "given"),
    [
        ("version", {"format": "onnx", "version": 3}),
        ("index", {"format": "onnx", "index": "indexes/mine"}),
        ("classes", {"format": "litert", "classes": ["dog"]}),
        ("precision", {"format": "onnx", "precision": "mixed_bfloat16"}),
        ("tower", {"tower": "text"}),
        ("tower", {"format": "safetensors", "tower": "text"}),
        ("format", {"format": "onix"}),
        ("out", {"format": "safetensors"}),
    ],
)
def test_arguments_of_another_format_are_refused(argument, given, tiny_run, tmp_path):
    pytest.importorskip("tf2onnx", reason="the extra onnx is not installed")
    pytest.importorskip("ai_edge_litert", reason="the extra litert is not installed")
    with raises_argument(argument):
        vsemb.export(tiny_run, tmp_path / "out", **given)
    assert not list(tmp_path.iterdir())


def test_weights_of_any_run_are_one_file(caption_run, tmp_path):
    safetensors = pytest.importorskip("safetensors", reason="the extra hf is not installed")
    from safetensors.numpy import save_file

    path = tmp_path / "captions.safetensors"
    made = vsemb.export(caption_run, path, format="safetensors")
    with safetensors.safe_open(path, "numpy") as file:
        assert set(file.keys()) == set(named_weights(caption_run.model)) == set(made.to_json()["weights"])
        assert file.metadata()["run"] == caption_run.fingerprint
    vsemb.export(caption_run, path, format="safetensors")
    save_file({"weight": np.ones(3, np.float32)}, path)
    foreign = path.read_bytes()
    with raises_argument("out"):
        vsemb.export(caption_run, path, format="safetensors")
    assert path.read_bytes() == foreign


def test_an_unknown_format_names_them_all(tiny_run, tmp_path):
    with pytest.raises(InvalidArgumentError, match="savedmodel, onnx"):
        vsemb.export(tiny_run, tmp_path / "out", format="savedmodell")
