"""Data room: datasets on disk, cached features, and the batches that `fit` takes."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from vsemb.data.batches import PairBatches
    from vsemb.data.features.compute import cache_features
    from vsemb.data.features.store import FeatureStore
    from vsemb.data.pixel_service import ServicePixels
    from vsemb.data.readers.wordnet import WordNet, read_wordnet
    from vsemb.data.sources import FeatureImages, PixelImages
    from vsemb.data.store import Dataset, Split

__all__ = [
    "Dataset",
    "FeatureImages",
    "FeatureStore",
    "PairBatches",
    "PixelImages",
    "ServicePixels",
    "Split",
    "WordNet",
    "cache_features",
    "read_wordnet",
]

# Looked up on first use, so that `vsemb prepare --help` need not wait for TensorFlow.
_HOMES = {
    "Dataset": "store",
    "FeatureImages": "sources",
    "FeatureStore": "features.store",
    "PairBatches": "batches",
    "PixelImages": "sources",
    "ServicePixels": "pixel_service",
    "Split": "store",
    "WordNet": "readers.wordnet",
    "cache_features": "features.compute",
    "read_wordnet": "readers.wordnet",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
