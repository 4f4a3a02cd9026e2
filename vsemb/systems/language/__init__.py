"""Multimodal language models over a joint embedding (Kiros et al. 2014)."""

from vsemb.registry import System

SYSTEM = System(name="language")
