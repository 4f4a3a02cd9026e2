"""Recognition of classes by their descriptions or attributes."""

from vsemb.registry import System

SYSTEM = System(name="zero_shot")
