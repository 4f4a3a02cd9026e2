"""Regions of an image: candidate boxes, the best of them, and their features."""

from __future__ import annotations

from vsemb.image.regions.config import REGIONS_VERSION, RegionConfig
from vsemb.image.regions.cutting import crop_regions
from vsemb.image.regions.extractor import RegionExtractor, Regions
from vsemb.image.regions.grid import grid_boxes
from vsemb.image.regions.networks import build_classifier, feature_maps, save_classifier_weights
from vsemb.image.regions.objectness import objectness
from vsemb.image.regions.pooling import pool_regions
from vsemb.image.regions.proposals import propose
from vsemb.image.regions.ranking import best_boxes
from vsemb.image.regions.selective_search import selective_search

__all__ = [
    "REGIONS_VERSION",
    "RegionConfig",
    "RegionExtractor",
    "Regions",
    "best_boxes",
    "build_classifier",
    "crop_regions",
    "feature_maps",
    "grid_boxes",
    "objectness",
    "pool_regions",
    "propose",
    "save_classifier_weights",
    "selective_search",
]
