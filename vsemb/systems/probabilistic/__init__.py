"""Probabilistic embeddings of images and texts (PCME++): normal distributions, whose variance is uncertainty."""

from vsemb.registry import System

SYSTEM = System(
    name="probabilistic",
    recipes={"pcme": "vsemb.systems.probabilistic.pcme:PCME"},
    parts={
        "similarity": {"csd": "vsemb.systems.probabilistic.similarity"},
        "loss": {"matching": "vsemb.systems.probabilistic.matching_loss"},
        "projection": {"gaussian-affine": "vsemb.systems.probabilistic.heads"},
        "text encoder": {"gaussian": "vsemb.systems.probabilistic.heads"},
        "analysis": {"uncertainty": "vsemb.systems.probabilistic.uncertainty"},
    },
    examples={
        "train": ("vsemb train pcme --data data/flickr8k --out runs/pcme",),
        "analyze": ("vsemb analyze uncertainty runs/pcme --split val",),
    },
)
