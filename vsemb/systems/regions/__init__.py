"""Regions and words: detections, alignment, pointing."""
