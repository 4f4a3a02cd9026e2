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
    from vsemb.api.data import annotate
    from vsemb.api.dataset import Dataset
    from vsemb.api.demo import serve_demo
    from vsemb.api.evaluation import analyze, evaluate
    from vsemb.api.hits import Hit, Hits, search
    from vsemb.api.model import Model, load
    from vsemb.api.searching import compare_backends, embed, find, index
    from vsemb.api.training import export, train
    from vsemb.errors import VsembError
    from vsemb.evaluation.retrieval import RetrievalMetrics
    from vsemb.recipes.schema import Recipe
    from vsemb.runs.run import Run
    from vsemb.serving.client import Client

__version__ = "0.2.0"

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
    "compare_backends": "vsemb.api.searching",
    "embed": "vsemb.api.searching",
    "evaluate": "vsemb.api.evaluation",
    "export": "vsemb.api.training",
    "find": "vsemb.api.searching",
    "index": "vsemb.api.searching",
    "load": "vsemb.api.model",
    "recipes": "vsemb.recipes",
    "search": "vsemb.api.hits",
    "serve_demo": "vsemb.api.demo",
    "train": "vsemb.api.training",
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
    "compare_backends",
    "embed",
    "evaluate",
    "export",
    "find",
    "index",
    "load",
    "recipes",
    "search",
    "serve_demo",
    "train",
]


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    # As the commands do: TensorFlow's notices are of processors and of GPUs that it did not find; errors are raised.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    module = importlib.import_module(_MODULES[name])
    found = getattr(module, name, module)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*__all__, *(name for name in globals() if name.startswith("__"))})
