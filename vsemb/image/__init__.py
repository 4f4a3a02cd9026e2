"""Images: guarded decoding, crops and backbones; from bytes to pixels to features."""
