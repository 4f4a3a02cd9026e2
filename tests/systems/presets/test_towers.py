"""Towers of presets in ONNX: ids of the published tokenizer in, embeddings out."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

import vsemb
from vsemb.exporting.formats.encode import Encoder
from vsemb.runs.run import Run


@pytest.mark.slow
def test_a_clip_becomes_two_towers_without_its_tokenizer(preset_path, tmp_path):
    pytest.importorskip("tf2onnx", reason="the extra onnx is not installed")
    run = Run.open(f"hub:{preset_path('clip')}")
    made = vsemb.export(run, tmp_path / "towers", format="onnx")
    assert set(made.facts["towers"]) == {"image", "text"} and not (made.path / "tokenizer.json").exists()
    assert "CLIP" not in str(made.facts["absent"]) and "Token ids" in (made.path / "README.md").read_text()
    texts, encoder = ["a dog on a beach", "cat"], Encoder(made.path)
    found = encoder.tower("text")(run.tokenizer(tf.constant(texts)).numpy())["embedding"]
    np.testing.assert_allclose(found, run.encoders().encode_text(tf.constant(texts))["embedding"], atol=1e-5)
    with pytest.raises(ValueError, match="Give ids"):
        encoder.encode_texts(texts)
