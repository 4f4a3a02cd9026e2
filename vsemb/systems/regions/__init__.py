"""Regions and words: detections, alignment, pointing."""

from vsemb.registry import System

SYSTEM = System(name="regions")
