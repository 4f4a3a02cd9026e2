"""Images: safe decoding of bytes to pixels, crops, and backbones that compute features."""
