"""`vsemb features`."""

from __future__ import annotations

import argparse
from pathlib import Path

from vsemb.commands import picked, save_json, say_store, say_verified

_POOLINGS = ("mean", "max", "mean+max", "multilevel", "flat", "pyramid", "token", "embedding")


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the command's arguments."""
    parser.add_argument("data", type=Path, metavar="DATA", help="a prepared dataset")
    parser.add_argument("--backbone", help="a keras.applications network, SmallConvNet, or hub:PRESET (MobileNetV2)")
    parser.add_argument("--weights", help="imagenet, preset, random, a file, or a run (imagenet, or preset)")
    parser.add_argument("--crops", type=int, choices=(1, 10), default=1, help="the whole image, or ten crops (1)")
    parser.add_argument("--keep-crops", action="store_true", help="store each crop and not their mean")
    parser.add_argument("--training-crops", action="store_true", help="with one crop, also store ten for training")
    mirror = "with one crop, also store mirror images for training (yes, without --training-crops)"
    parser.add_argument("--mirror", action=argparse.BooleanOptionalAction, help=mirror)
    parser.add_argument("--size", type=int, help="side of the images in pixels (the network's own)")
    parser.add_argument("--pooling", choices=_POOLINGS, help="pooling over places (the network's own)")
    parser.add_argument("--layer", help="an inner layer in place of the pooled map: fc6 or fc7 of VGG16, VGG19")
    parser.add_argument("--batch-size", type=int, default=64, help="images at a time (%(default)s)")
    parser.add_argument("--verify", action="store_true", help="make none, but check all features of DATA in full")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write what is printed to FILE")


def run(arguments: argparse.Namespace) -> None:
    """Run a pretrained image network over a dataset once, and cache its features beside it.

    The features lie in DATA/features/FINGERPRINT, where the fingerprint names network, weights and preprocessing. An
    interrupted run goes on where it was when the same command is given again.

    --backbone: With hub:, a preset of keras-hub: its name, a handle or a directory. --weights: imagenet, or preset
    with a preset of keras-hub, which Keras downloads; a .weights.h5 or .h5 file; or the directory of a run that was
    trained from pixels, whose network is taken.

    --pooling: multilevel adds the means of inner layers to mean and max of the last; flat keeps all places, which
    says where things are; pyramid is the largest of the map and of each ninth of it; token is the class token of a
    transformer; embedding is what CLIP and SigLIP compare with texts.

    --crops 10 stores the mean of ten crops. --training-crops stores ten crops of each image, of which training draws
    one each time, in place of the mirror image; this takes eleven times the time.

    Examples:
      vsemb features data/flickr8k --backbone MobileNetV2 --weights imagenet --crops 1
      vsemb features data/scenes --weights runs/scenes --pooling flat
    """
    from vsemb.data.features.compute import cache_features
    from vsemb.data.features.store import FeatureStore
    from vsemb.data.store import Dataset
    from vsemb.image.presets import is_preset
    from vsemb.runs.fine_tune import lent_backbone

    dataset = Dataset.open(arguments.data)
    if arguments.verify:
        return save_json(arguments, say_verified(FeatureStore.verify_all(dataset), "features", arguments.data))
    mirror = arguments.mirror
    if mirror is None:
        mirror = arguments.crops == 1 and not arguments.training_crops
    weights = arguments.weights or ("preset" if is_preset(arguments.backbone) else "imagenet")
    network = picked(arguments, "backbone", "size", "pooling", "layer", "crops")
    with lent_backbone(weights, network) as (config, weights):
        options = picked(arguments, "batch_size", "keep_crops", "training_crops")
        store = cache_features(dataset, config, weights=weights, mirror=mirror, **options)
    save_json(arguments, say_store(store))
