"""`vsemb import`."""

from __future__ import annotations

import argparse
from pathlib import Path

from vsemb.commands import Command


def _configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("preset", metavar="PRESET", help="preset of CLIP or SigLIP: name, handle or directory")
    parser.add_argument("--out", type=Path, required=True, help="run directory to write")
    weights = "published or random weights (%(default)s)"
    parser.add_argument("--weights", choices=("preset", "random"), default="preset", help=weights)
    parser.add_argument("--seed", type=int, default=0, help="seed of random weights (%(default)s)")


def _import(arguments: argparse.Namespace) -> None:
    """Make a run of a pretrained dual encoder of keras-hub, CLIP or SigLIP, without training.

    The run supports all commands of trained runs: evaluate, export, index, search, serve, classify. PRESET is a name of
    keras-hub or a handle of Kaggle or Hugging Face, downloaded by keras-hub, or a directory with the files of a preset,
    for use without a network. The run directory is self-contained.

    Examples:
      vsemb import clip_vit_base_patch16 --out runs/clip
      vsemb import siglip_base_patch16_224 --out runs/siglip
      vsemb import downloads/clip_vit_base_patch32 --out runs/clip
      vsemb evaluate runs/clip --data data/flickr8k --split test
      vsemb export runs/clip savedmodels/clip
    """
    from vsemb.systems.presets.pretrained import pretrained_run

    made = pretrained_run(arguments.preset, arguments.out, weights=arguments.weights, seed=arguments.seed)
    images, scale = made.recipe.image.config, made.model.logit_scale
    assert scale is not None and images.resizing is not None
    factor, *bias = (float(value) for value in scale.parameters())
    print(f"run          {arguments.out}")
    print(f"space        {made.embedding_dim} dimensions, {made.recipe.similarity.kind}")
    print(f"images       {images.size} x {images.size} pixels, {images.resizing.describe()}")
    print(f"texts        {made.tokenizer.max_length} of {len(made.vocabulary.words):,} subwords")
    print(f"logits       {factor:.4g} times the cosine{f', and {bias[0]:.4g}' if bias else ''}")
    print(f"next         vsemb evaluate {arguments.out} --data DATA --split test")


IMPORT = Command(_import, _configure)
