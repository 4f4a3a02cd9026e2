"""Data room: datasets on disk, cached features, and the batches that `fit` takes."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from vsemb.data.batches import PairBatches
    from vsemb.data.detections import Detections, read_detections
    from vsemb.data.entailment import EntailmentData
    from vsemb.data.features import FeatureStore, cache_features
    from vsemb.data.hypernym_pairs import PairSet, PairSplit
    from vsemb.data.parses import Parses, match_sentences, write_parses
    from vsemb.data.pixel_service import ServicePixels
    from vsemb.data.regions import RegionStore, cache_regions
    from vsemb.data.sentence_pairs import SentencePairBatches
    from vsemb.data.sources import FeatureImages, PixelImages
    from vsemb.data.store import Dataset, Split
    from vsemb.data.wordnet import WordNet, read_wordnet

__all__ = [
    "Dataset",
    "Detections",
    "EntailmentData",
    "FeatureImages",
    "FeatureStore",
    "PairBatches",
    "PairSet",
    "PairSplit",
    "Parses",
    "PixelImages",
    "RegionStore",
    "SentencePairBatches",
    "ServicePixels",
    "Split",
    "WordNet",
    "cache_features",
    "cache_regions",
    "match_sentences",
    "read_detections",
    "read_wordnet",
    "write_parses",
]

# Looked up on first use, so that `vsemb prepare --help` need not wait for TensorFlow.
_HOMES = {
    "Dataset": "store",
    "Detections": "detections",
    "EntailmentData": "entailment",
    "FeatureImages": "sources",
    "FeatureStore": "features",
    "PairBatches": "batches",
    "PairSet": "hypernym_pairs",
    "PairSplit": "hypernym_pairs",
    "Parses": "parses",
    "PixelImages": "sources",
    "RegionStore": "regions",
    "SentencePairBatches": "sentence_pairs",
    "ServicePixels": "pixel_service",
    "Split": "store",
    "WordNet": "wordnet",
    "cache_features": "features",
    "cache_regions": "regions",
    "match_sentences": "parses",
    "read_detections": "detections",
    "read_wordnet": "wordnet",
    "write_parses": "parses",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
