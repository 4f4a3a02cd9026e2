"""Real data: the whole way on Flickr8k, against the recalls that the README reports."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from vsemb.cli.__main__ import main

SOURCE, WEIGHTS = os.environ.get("VSEMB_FLICKR8K"), os.environ.get("VSEMB_MOBILENET_V2")
PARSES = Path(SOURCE or ".") / "captions.conllu.gz"
TAGS = Path(SOURCE or ".") / "pos_tags.txt.gz"


@pytest.mark.slow
@pytest.mark.real_data
@pytest.mark.skipif(not SOURCE, reason="VSEMB_FLICKR8K does not name a folder")
@pytest.mark.skipif(not WEIGHTS, reason="VSEMB_MOBILENET_V2 does not name a weights file")
@pytest.mark.parametrize(
    ("recipe", "variant", "bars"), [("vsepp", "tuned", (27.5, 20.5)), ("best", "top", (37.0, 27.0))]
)
def test_retrieval_on_flickr8k(recipe, variant, bars, tmp_path):
    data, run, out = str(tmp_path / "data"), str(tmp_path / "run"), tmp_path / "val.json"
    network = ["--backbone", "MobileNetV2", "--weights", str(Path(str(WEIGHTS)))]
    assert main(["prepare", str(SOURCE), "--format", "karpathy", "--out", data]) == 0
    assert main(["train", recipe, "--variant", variant, "--data", data, "--out", run, *network]) == 0
    assert main(["evaluate", run, "--split", "val", "--json", str(out)]) == 0
    metrics = json.loads(out.read_text())
    # Two points below what one seed gives; a ridge regression on the same features is far below.
    assert metrics["image_to_text"]["R@1"] > bars[0]
    assert metrics["text_to_image"]["R@1"] > bars[1]


@pytest.mark.slow
@pytest.mark.real_data
@pytest.mark.skipif(not SOURCE, reason="VSEMB_FLICKR8K does not name a folder")
@pytest.mark.skipif(not WEIGHTS, reason="VSEMB_MOBILENET_V2 does not name a weights file")
@pytest.mark.skipif(not PARSES.exists(), reason="the folder of VSEMB_FLICKR8K has no captions.conllu.gz")
def test_trees_on_flickr8k(tmp_path):
    data, run, out = str(tmp_path / "data"), str(tmp_path / "run"), tmp_path / "val.json"
    assert main(["prepare", str(SOURCE), "--format", "karpathy", "--out", data]) == 0
    assert main(["features", data, "--backbone", "MobileNetV2", "--weights", str(Path(str(WEIGHTS)))]) == 0
    assert main(["annotate", data, "dependencies", "--conllu", str(PARSES)]) == 0
    assert main(["train", "tree-twin", "--variant", "tuned", "--data", data, "--out", run]) == 0
    assert main(["evaluate", run, "--split", "val", "--json", str(out), "--pairs", "1000"]) == 0
    metrics = json.loads(out.read_text())
    # As of vsepp, which is the same recipe without trees.
    assert metrics["image_to_text"]["R@1"] > 27.5
    assert metrics["text_to_image"]["R@1"] > 20.5
    # The report's best model has 24.2 after most of an epoch of COCO and Flickr30k.
    assert metrics["pairs"]["image_to_text"]["R@10"] > 50


@pytest.mark.slow
@pytest.mark.real_data
@pytest.mark.skipif(not SOURCE, reason="VSEMB_FLICKR8K does not name a folder")
@pytest.mark.skipif(not WEIGHTS, reason="VSEMB_MOBILENET_V2 does not name a weights file")
@pytest.mark.skipif(not TAGS.exists(), reason="the folder of VSEMB_FLICKR8K has no pos_tags.txt.gz")
def test_captions_on_flickr8k(tmp_path):
    """About an hour: a multimodal RNN, and SC-NLM in the same table."""
    pytest.importorskip("pycocoevalcap", reason="the extra captions is not installed")
    data, captions, kiros, language, out = (
        str(tmp_path / name) for name in ("data", "captions", "kiros", "sc-nlm", "val.json")
    )
    few = ["--set", "training.epochs=7"]
    assert main(["prepare", str(SOURCE), "--format", "karpathy", "--out", data]) == 0
    assert main(["features", data, "--backbone", "MobileNetV2", "--weights", str(Path(str(WEIGHTS)))]) == 0
    assert main(["annotate", data, "pos-tags", "--file", str(TAGS)]) == 0
    assert main(["train", "multimodal-rnn", "--data", data, "--out", captions]) == 0
    assert main(["train", "kiros2014", "--variant", "released", "--data", data, "--out", kiros, *few]) == 0
    assert main(["train", "sc-nlm", "--inputs", f"encoder={kiros}", "--data", data, "--out", language, *few]) == 0
    measure = ["evaluate", captions, "--beside", language, "--protocol", "captions", "--no-meteor", "--json", out]
    assert main([*measure, "--limit", "300"]) == 0
    network, tagged, nearest = json.loads(Path(out).read_text())["measured"]
    # On all images one seed gives 19.9 and 47.4; the published model, on better features, 16.0 and 31.8.
    assert network["BLEU-4"] > 16
    assert network["CIDEr"] > 40
    # SC-NLM's candidates are chosen by the encoder, and beat a caption that is looked up.
    assert tagged["CIDEr"] > nearest["CIDEr"]
