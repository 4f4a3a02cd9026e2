"""vsemb: visual-semantic embeddings of images and sentences in one vector space.

Example:

    import vsemb

    data = vsemb.Dataset.from_pairs(files, captions)
    run = vsemb.train("best", data, "runs/mine", backbone="MobileNetV2", epochs=5)
    model = vsemb.load(run)
    print(vsemb.search(model, "a dog on a beach", model.encode_images(files), items=files))
"""

from __future__ import annotations

import importlib
import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from vsemb import recipes
    from vsemb.api.data import annotate, prepare, scenes
    from vsemb.api.dataset import Dataset
    from vsemb.api.demo import serve_demo
    from vsemb.api.evaluation import analyze, compare, evaluate
    from vsemb.api.exporting import export, verify
    from vsemb.api.hits import Hit, Hits, search
    from vsemb.api.installation import doctor
    from vsemb.api.model import Model, load
    from vsemb.api.reporting import write_projector, write_report
    from vsemb.api.searching import compare_backends, embed, find, index
    from vsemb.api.serving import serve
    from vsemb.api.sharing import push
    from vsemb.api.training import train
    from vsemb.data.check import check
    from vsemb.data.writing.convert import convert
    from vsemb.errors import VsembError
    from vsemb.evaluation.retrieval import RetrievalMetrics
    from vsemb.recipes.schema import Recipe
    from vsemb.runs.describe import info
    from vsemb.runs.features import features
    from vsemb.runs.run import Run
    from vsemb.serving.client import Client

__version__ = "0.3.0"

# Name -> module, imported when the name is first used, so that `import vsemb` takes no time.
_MODULES = {
    "Client": "vsemb.serving.client",
    "Dataset": "vsemb.api.dataset",
    "Hit": "vsemb.api.hits",
    "Hits": "vsemb.api.hits",
    "Model": "vsemb.api.model",
    "Recipe": "vsemb.recipes.schema",
    "RetrievalMetrics": "vsemb.evaluation.retrieval",
    "Run": "vsemb.runs.run",
    "VsembError": "vsemb.errors",
    "analyze": "vsemb.api.evaluation",
    "annotate": "vsemb.api.data",
    "check": "vsemb.data.check",
    "compare": "vsemb.api.evaluation",
    "compare_backends": "vsemb.api.searching",
    "convert": "vsemb.data.writing.convert",
    "doctor": "vsemb.api.installation",
    "embed": "vsemb.api.searching",
    "evaluate": "vsemb.api.evaluation",
    "export": "vsemb.api.exporting",
    "features": "vsemb.runs.features",
    "find": "vsemb.api.searching",
    "index": "vsemb.api.searching",
    "info": "vsemb.runs.describe",
    "load": "vsemb.api.model",
    "prepare": "vsemb.api.data",
    "push": "vsemb.api.sharing",
    "recipes": "vsemb.recipes",
    "scenes": "vsemb.api.data",
    "search": "vsemb.api.hits",
    "serve": "vsemb.api.serving",
    "serve_demo": "vsemb.api.demo",
    "train": "vsemb.api.training",
    "verify": "vsemb.api.exporting",
    "write_projector": "vsemb.api.reporting",
    "write_report": "vsemb.api.reporting",
}

__all__ = [
    "Client",
    "Dataset",
    "Hit",
    "Hits",
    "Model",
    "Recipe",
    "RetrievalMetrics",
    "Run",
    "VsembError",
    "analyze",
    "annotate",
    "check",
    "compare",
    "compare_backends",
    "convert",
    "doctor",
    "embed",
    "evaluate",
    "export",
    "features",
    "find",
    "index",
    "info",
    "load",
    "prepare",
    "push",
    "recipes",
    "scenes",
    "search",
    "serve",
    "serve_demo",
    "train",
    "verify",
    "write_projector",
    "write_report",
]


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    # As the commands do: TensorFlow's notices are of processors and of GPUs that it did not find; errors are raised.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    module = importlib.import_module(_MODULES[name])
    value = getattr(module, name, module)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*__all__, *(name for name in globals() if name.startswith("__"))})
