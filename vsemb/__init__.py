"""vsemb: visual-semantic embeddings, one space for images and sentences."""

__version__ = "0.1.0"
