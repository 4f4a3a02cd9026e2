"""Regions of an image: candidate boxes, the best of them, and their features."""

from __future__ import annotations

from vsemb.systems.regions.image.config import REGIONS_VERSION, RegionConfig
from vsemb.systems.regions.image.cutting import crop_regions
from vsemb.systems.regions.image.extractor import RegionExtractor, Regions
from vsemb.systems.regions.image.grid import grid_boxes
from vsemb.systems.regions.image.networks import build_classifier, feature_maps, save_classifier_weights
from vsemb.systems.regions.image.objectness import objectness
from vsemb.systems.regions.image.pooling import pool_regions
from vsemb.systems.regions.image.proposals import propose
from vsemb.systems.regions.image.ranking import best_boxes
from vsemb.systems.regions.image.selective_search import propose_boxes, selective_search

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
    "propose_boxes",
    "save_classifier_weights",
    "selective_search",
]
