"""What `import vsemb` offers: names, signatures, documentation, and when it is loaded."""

from __future__ import annotations

import importlib
import inspect
import json
import subprocess
import sys
from pathlib import Path

import pytest

import vsemb

ROOT = Path(__file__).parents[2]

#: Public name -> parameters; a change here is one that users notice.
SURFACE = {
    "load": "source, *, similarity=None, token=None, ca_file=None",
    "search": "model, query, embeddings, k=5, *, items=None",
    "train": "recipe, data, out, *, variant=None, epochs=None, backbone=None, weights=None, fine_tune=None, "
    "inputs=mappingproxy({}), seeds=None, strategy='none', devices=None, workers=None, backend=None, "
    "data_service=None, checkpoint_seconds=60.0, log=('tensorboard',), callbacks=(), **values",
    "analyze": "analysis, runs, *, data=None, split='val', **options",
    "prepare": "source, out, *, format=None, name=None, on_bad_image='skip', val_to_train=False, max_side=None, "
    "images_per_shard=1024, overwrite=False, **options",
    "scenes": "out, *, kind='shapes', seed=0, size=64, overwrite=False, **options",
    "check": "data",
    "convert": "data, out, format, *, images_per_file=1024, overwrite=False",
    "features": "data, backbone=None, weights=None, *, crops=1, resize=None, keep_crops=False, training_crops=False, "
    "mirror=None, size=None, pooling=None, layer=None, batch_size=64",
    "info": "path",
    "doctor": "folders=('.',)",
    "annotate": "data, annotation, *, overwrite=False, **options",
    "evaluate": "run, data=None, split='val', *, protocol=None, kept=False, **options",
    "compare": "first, second, *, data=None, split='val', bootstrap=1000, seed=0",
    "export": "run, out, *, version=None, index=None, precision=None, sign=None, measure=None, format='savedmodel', "
    "tower=None, **options",
    "push": "source, repository, *, private=False, licence=None, measure=None",
    "verify": "model, *, version=None, contract=None, key=None, timeout=600.0",
    "write_report": "run, *, data=None, split='val', out=None, shown=12, arithmetic=(), seed=0, **options",
    "write_projector": ("run, *, data=None, split='val', out=None, images=1000, sentences=1000, words=500, seed=0"),
    "serve": (
        "directory=None, *, model=mappingproxy({}), host='127.0.0.1', port=8500, rest_port=8501, token_file=None, "
        "tls_cert=None, tls_key=None, insecure=False, max_body=33554432, max_rows=4096, max_bytes=134217728, "
        "max_pixels=100000000, max_connections=400, concurrency=256, batch_size=64, batch_timeout=0.001, cors=False, "
        "threads=None, versions=('latest',), label=mappingproxy({}), poll=1.0, grace=30.0"
    ),
    "find": "source, text=None, *, image=None, minus=(), plus=(), compose=(), abstract=(), data=None, split=None, "
    "captions=False, k=10, resort=None, candidates=None, keep_query=False, run=None, out=None, **options",
    "index": "run, *, images=None, data=None, split=None, captions=False, out=None, backend='exact', candidates=(), "
    "**options",
    "compare_backends": "source, *, data=None, split=None, captions=False",
    "embed": "run, *, out, images=None, texts=None, precision='float32'",
    "serve_demo": "source, *, images=None, data=None, split=None, run=None, host='127.0.0.1', port=7860, "
    "open_browser=False, token_file=None, tls_cert=None, tls_key=None, insecure=False, **options",
    "Model.encode_texts": "self, texts, *, batch_size=256, precision='float32', on_bad='fail', progress=None",
    "Model.encode_images": "self, images, *, batch_size=32, precision='float32', on_bad='fail', progress=None",
    "Model.similarity": "self, images, texts",
    "Client.encode_texts": "self, texts, *, batch_size=256, precision='float32', on_bad='fail', progress=None",
    "Client.encode_images": "self, images, *, batch_size=32, precision='float32', on_bad='fail', progress=None",
    "Dataset.open": "path",
    "Dataset.from_pairs": "images, captions, out=None, *, splits=None, on_bad='fail', overwrite=False",
    "Dataset.from_csv": "path, out=None, *, images=None, on_bad='fail', overwrite=False, **options",
    "Dataset.from_dataframe": (
        "frame, out=None, *, image=None, caption=None, split=None, images=None, on_bad='fail', overwrite=False"
    ),
    "Dataset.from_huggingface": "dataset, out=None, *, image=None, caption=None, on_bad='fail', overwrite=False",
    "Dataset.to_huggingface": "self, model=None, *, batch_size=64",
    "Dataset.from_tf": "dataset, out=None, *, image=None, caption=None, on_bad='fail', overwrite=False",
    "Run.open": "path, task=None",
    "recipes.get": "name, variant=None",
    "recipes.explain": "name=None, *, variant=None",
    "Hit": "index, score, item=None",
}
NAMES = {name.partition(".")[0] for name in SURFACE} | {"Hits", "Recipe", "RetrievalMetrics", "VsembError", "recipes"}


def found(name: str) -> object:
    value: object = vsemb
    for step in name.split("."):
        value = getattr(value, step)
    return value


def test_the_names_are_these_and_no_others() -> None:
    assert set(vsemb.__all__) == NAMES
    assert vsemb.__all__ == sorted(vsemb.__all__)
    assert {name for name in dir(vsemb) if not name.startswith("__")} == set(vsemb.__all__)
    with pytest.raises(AttributeError, match="no attribute 'lode'"):
        vsemb.__getattr__("lode")


@pytest.mark.parametrize("name", SURFACE)
def test_signatures(name: str) -> None:
    parameters = inspect.signature(found(name)).parameters.values()
    shown = ", ".join(str(each.replace(annotation=inspect.Parameter.empty)) for each in parameters)
    # `*` before the first of those that are keywords alone.
    keywords = [each for each in parameters if each.kind is inspect.Parameter.KEYWORD_ONLY]
    if keywords:
        first = str(keywords[0].replace(annotation=inspect.Parameter.empty))
        shown = shown.replace(first, f"*, {first}", 1)
    assert shown == SURFACE[name]
    assert all(
        each.annotation is not inspect.Parameter.empty for each in parameters if each.name not in ("self", "cls")
    )


@pytest.mark.parametrize("name", sorted({*SURFACE, *vsemb.__all__} - {"recipes"}))
def test_everything_is_documented_with_an_example(name: str) -> None:
    written = inspect.getdoc(found(name)) or ""
    assert "Example:" in written, name


def test_the_typed_names_are_the_loaded_ones() -> None:
    """What type checkers and IDEs see of `vsemb/__init__.py` is what is loaded."""
    source = (ROOT / "vsemb/__init__.py").read_text(encoding="utf-8")
    for name, module in vsemb._MODULES.items():
        loaded = importlib.import_module(module)
        origin, found_there = (module, getattr(loaded, name)) if hasattr(loaded, name) else ("vsemb", loaded)
        assert found_there is getattr(vsemb, name)
        (line,) = [line for line in source.splitlines() if line.strip().startswith(f"from {origin} import ")]
        assert name in line.partition(" import ")[2].split(", ")
    assert set(vsemb._MODULES) == set(vsemb.__all__)


def test_names_load_when_they_are_used() -> None:
    code = (
        "import sys, json, vsemb\n"
        "heavy = lambda: [name for name in ('tensorflow', 'keras', 'PIL', 'grpc') if name in sys.modules]\n"
        "dir(vsemb); vsemb.VsembError\n"
        "first = heavy(); vsemb.Client; print(json.dumps([first, heavy()]))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == [[], []]
