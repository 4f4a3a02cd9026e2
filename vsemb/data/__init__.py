"""Data room: datasets on disk, cached features, and the batches that `fit` takes."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from vsemb.data.batches import PairBatches
    from vsemb.data.entailment import EntailmentData
    from vsemb.data.features import FeatureStore, cache_features
    from vsemb.data.hypernym_pairs import PairSet, PairSplit
    from vsemb.data.sentence_pairs import SentencePairBatches
    from vsemb.data.sources import FeatureImages, PixelImages
    from vsemb.data.store import Dataset, Split
    from vsemb.data.wordnet import WordNet, read_wordnet

__all__ = [
    "Dataset",
    "EntailmentData",
    "FeatureImages",
    "FeatureStore",
    "PairBatches",
    "PairSet",
    "PairSplit",
    "PixelImages",
    "SentencePairBatches",
    "Split",
    "WordNet",
    "cache_features",
    "read_wordnet",
]

# Looked up on first use, so that `vsemb prepare --help` need not wait for TensorFlow.
_HOMES = {
    "Dataset": "store",
    "EntailmentData": "entailment",
    "FeatureImages": "sources",
    "FeatureStore": "features",
    "PairBatches": "batches",
    "PairSet": "hypernym_pairs",
    "PairSplit": "hypernym_pairs",
    "PixelImages": "sources",
    "SentencePairBatches": "sentence_pairs",
    "Split": "store",
    "WordNet": "wordnet",
    "cache_features": "features",
    "read_wordnet": "wordnet",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
