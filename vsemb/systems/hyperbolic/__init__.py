"""Hyperbolic embeddings of images and texts (MERU): texts near the root, images far from it."""

from vsemb.registry import Command, System

SYSTEM = System(
    name="hyperbolic",
    recipes={"meru": "vsemb.systems.hyperbolic.meru:MERU"},
    parts={
        "similarity": {"lorentz": "vsemb.systems.hyperbolic.similarity"},
        "loss": {"infonce-entailment": "vsemb.systems.hyperbolic.entailment_loss"},
        "projection": {"scaled-affine": "vsemb.systems.hyperbolic.scaling"},
        "text encoder": {"scaled": "vsemb.systems.hyperbolic.scaling"},
        "analysis": {"root-distances": "vsemb.systems.hyperbolic.root_distances"},
    },
    commands={
        "traverse": Command(
            "vsemb.systems.hyperbolic.api:traverse",
            "find texts on the way from an image to the root",
            (
                "vsemb traverse runs/meru dog.jpg --split train --out traversal.png",
                "vsemb traverse runs/meru dog.jpg --texts words.txt --entailing",
            ),
        ),
    },
    examples={
        "train": ("vsemb train meru --data data/flickr8k --out runs/meru",),
        "analyze": ("vsemb analyze root-distances runs/meru --data data/flickr8k --out distances.png",),
    },
)
