"""vsemb: visual-semantic embeddings, one space for images and sentences."""

__version__ = "0.2.0"
