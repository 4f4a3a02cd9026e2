"""Multimodal language models over a joint embedding (Kiros et al. 2014)."""
