"""Dependency trees: parses, Tree-LSTM, the twin network."""

from vsemb.registry import System

SYSTEM = System(
    name="trees",
    modes={"annotate": {"dependencies": "vsemb.systems.trees.annotate_command"}},
    options={"run": ("vsemb.systems.trees.parser_option",)},
)
