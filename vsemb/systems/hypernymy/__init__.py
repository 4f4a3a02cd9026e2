"""Hypernymy as an order of concept vectors."""

from vsemb.registry import System

SYSTEM = System(name="hypernymy")
