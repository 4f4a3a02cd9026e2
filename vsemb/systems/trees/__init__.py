"""Dependency trees: parses, Tree-LSTM, the twin network."""

from vsemb.registry import System

SYSTEM = System(name="trees")
