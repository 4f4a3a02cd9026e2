"""A user's script with every public call of `vsemb`, which is never run: `make lint` checks its types with pyright.

The package marks itself as typed (`py.typed`), so an editor tells users what each call returns.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, assert_type

import numpy as np

import vsemb
from vsemb.results import Result
from vsemb.runs.protocols import Retrieval


def data(pictures: Sequence[Path], captions: Sequence[str]) -> vsemb.Dataset:
    """Datasets of files, tables and other readers."""
    assert_type(vsemb.Dataset.from_pairs(pictures, captions), vsemb.Dataset)
    assert_type(vsemb.Dataset.from_csv("pairs.csv", images="photos"), vsemb.Dataset)
    assert_type(vsemb.prepare(["coco"], "data/coco", format="coco", split="val"), vsemb.Dataset)
    made = vsemb.scenes("data/scenes", train=10, val=2)
    vsemb.check(made).to_json()
    vsemb.convert(made, "shards", "webdataset")
    vsemb.features(made, "MobileNetV2", weights="imagenet")
    vsemb.annotate(made, "dependencies", model="en_core_web_sm")
    return made


def train(made: vsemb.Dataset) -> vsemb.Run:
    """Training, measuring and comparing."""
    run = vsemb.train("best", made, "runs/mine", backbone="MobileNetV2", epochs=5, learning_rate=1e-3)
    assert_type(run, vsemb.Run)
    vsemb.train("vsepp", made, "runs/seeds", seeds=3)
    assert_type(vsemb.evaluate(run, protocol=Retrieval(folds=5)), vsemb.RetrievalMetrics)
    metrics: vsemb.RetrievalMetrics = vsemb.evaluate(run, split="test", bootstrap=100)
    print(metrics.text_to_image["R@10"], metrics.recall_sum)
    measured: Result = vsemb.evaluate(run, protocol="zero-shot", curve=True)
    print(measured.to_json())
    assert_type(vsemb.evaluate(run, protocol="pointing", bootstrap=9), Result)
    vsemb.analyze("lengths", [run, "runs/other"], pairs=10)
    vsemb.compare(run, "runs/other", split="test")
    return run


def search(run: vsemb.Run, pictures: Sequence[Path]) -> None:
    """Embedding, searching, exporting and serving."""
    model = vsemb.load(run)
    assert_type(model, vsemb.Model)
    images = model.encode_images(pictures)
    texts = model.encode_texts(["a dog on a beach", "a cat"])
    scores = model.similarity(images, texts)
    assert np.asarray(scores).shape
    hits = vsemb.search(model, "a dog on a beach", np.asarray(images), k=5)
    assert_type(hits, vsemb.Hits)
    vsemb.find(run, "a dog on a beach", k=3)
    vsemb.index(run, out="indexes/photos", images=["photos"])
    vsemb.embed(run, texts=["a dog"], out="texts.npy")
    exported = vsemb.export(run, "savedmodels/mine", precision="float32")
    print(exported.path)
    print(vsemb.export(run, "exports/mine", format="onnx", tower="text").facts)
    vsemb.verify("savedmodels/mine")
    client = vsemb.Client("http://localhost:8501", "mine")
    client.encode_text(["a dog"])
    vsemb.write_report(run, shown=4)
    vsemb.write_projector(run, images=100)
    print(vsemb.info("runs/mine"), vsemb.doctor(), vsemb.recipes.get("vsepp", "paper"))


def serve() -> None:
    """Servers, which run until they are stopped."""
    vsemb.serve("savedmodels/mine", port=0, rest_port=0)
    vsemb.serve_demo("runs/mine", port=0)


def keywords() -> dict[str, Any]:
    """Recipe fields by their whole path."""
    return {"text.encoder.dropout": 0.1}
