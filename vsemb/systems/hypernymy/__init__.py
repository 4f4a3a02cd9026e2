"""Hypernymy as order of concept vectors."""

from vsemb.registry import System

SYSTEM = System(name="hypernymy")
