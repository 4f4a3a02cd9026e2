"""Captions: recurrent models that write them, and their metrics."""

from vsemb.registry import System

SYSTEM = System(name="captions")
