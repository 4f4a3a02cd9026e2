"""Recognition of classes by their descriptions or attributes."""

from vsemb.registry import System

SYSTEM = System(
    name="zero_shot",
    commands={"classify": ("vsemb.systems.zero_shot.classify_command", "classify images by the names of classes")},
    modes={"evaluate": {"zero-shot": "vsemb.systems.zero_shot.evaluate_zero_shot"}},
    options={"export": ("vsemb.systems.zero_shot.class_options",)},
)
