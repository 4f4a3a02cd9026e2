"""Make a run of a pretrained dual encoder of keras-hub, CLIP or SigLIP, without training.

What follows a training takes it as any other run: evaluate, export, index, search, serve, classify. PRESET is
the name of one of keras-hub's presets or a handle of Kaggle or Hugging Face, which keras-hub downloads, or a
directory that holds the files of one, which needs no network. The run keeps all that it needs.
"""

from __future__ import annotations

import argparse
from pathlib import Path

EXAMPLE = """  vsemb pretrained clip_vit_base_patch16 --out runs/clip
  vsemb pretrained siglip_base_patch16_224 --out runs/siglip
  vsemb pretrained downloads/clip_vit_base_patch32 --out runs/clip
  vsemb evaluate runs/clip --data data/flickr8k --split test
  vsemb export runs/clip savedmodels/clip"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the command's arguments."""
    parser.add_argument("preset", metavar="PRESET", help="a preset of CLIP or SigLIP: name, handle or directory")
    parser.add_argument("--out", type=Path, required=True, help="the run directory to write")
    parser.add_argument(
        "--weights",
        choices=("preset", "random"),
        default="preset",
        help="the preset's own, or random ones, for the architecture alone (%(default)s)",
    )
    parser.add_argument("--seed", type=int, default=0, help="of random weights (%(default)s)")


def run(arguments: argparse.Namespace) -> int:
    """Runs the command."""
    from vsemb.runs.build import backbone_config
    from vsemb.runs.pretrained import pretrained_run

    made = pretrained_run(arguments.preset, arguments.out, weights=arguments.weights, seed=arguments.seed)
    images, scale = backbone_config(made.recipe), made.model.logit_scale
    assert images is not None and scale is not None
    factor, *bias = (float(value) for value in scale.parameters())
    print(f"run          {arguments.out}")
    print(f"space        {made.recipe.embedding_dim} dimensions, {made.recipe.similarity}")
    print(f"images       {images.size} x {images.size} pixels")
    print(f"texts        {made.tokenizer.max_length} of {len(made.vocabulary.words):,} pieces")
    print(f"logits       {factor:.4g} times the cosine{f', and {bias[0]:.4g}' if bias else ''}")
    print(f"next         vsemb evaluate {arguments.out} --data DATA --split test")
    return 0
