"""Run a pretrained image network over a dataset once, and cache its features beside it.

The features lie in DATA/features/FINGERPRINT, where the fingerprint names network, weights and
preprocessing. An interrupted run goes on where it was when the same command is given again.
"""

from __future__ import annotations

import argparse
from pathlib import Path

EXAMPLE = """  vsemb features data/flickr8k --backbone MobileNetV2 --weights imagenet --crops 1
  vsemb features data/scenes --weights runs/scenes --pooling flat
  vsemb features data/flickr8k --backbone hub:vit_base_patch16_224_imagenet"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the command's arguments."""
    parser.add_argument("data", type=Path, metavar="DATA", help="a prepared dataset")
    parser.add_argument(
        "--backbone",
        help="a keras.applications network, SmallConvNet, or hub: and a preset of keras-hub: its name, a "
        "handle or a directory (MobileNetV2)",
    )
    parser.add_argument(
        "--weights",
        help="imagenet, or preset with a preset of keras-hub (downloaded by Keras), a .weights.h5 or .h5 "
        "file, random, or the directory of a run that was trained from pixels, whose network is taken "
        "(imagenet, or preset)",
    )
    parser.add_argument(
        "--crops", type=int, choices=(1, 10), default=1, help="the whole image, or the mean of ten crops (1)"
    )
    parser.add_argument("--keep-crops", action="store_true", help="store each crop and not their mean")
    parser.add_argument(
        "--training-crops",
        action="store_true",
        help="with one crop, also store ten crops of each image, of which training draws one each time, "
        "in place of the mirror image (eleven times the time)",
    )
    parser.add_argument(
        "--mirror",
        action=argparse.BooleanOptionalAction,
        help="with one crop, also store the features of each mirror image, for training (yes, without "
        "--training-crops)",
    )
    parser.add_argument("--size", type=int, help="side of the images in pixels (the network's own)")
    parser.add_argument(
        "--pooling",
        choices=("mean", "max", "mean+max", "multilevel", "flat", "pyramid", "token", "embedding"),
        help="over places; multilevel adds the means of inner layers to mean and max of the last, flat keeps "
        "all places, which says where things are, and pyramid the largest of the map and of each ninth of "
        "it; token is the class token of a transformer, embedding what CLIP and SigLIP compare with texts "
        "(the network's own)",
    )
    parser.add_argument("--layer", help="an inner layer in place of the pooled map: fc6 or fc7 of VGG16, VGG19")
    parser.add_argument("--batch-size", type=int, default=64, help="images at a time (%(default)s)")
    parser.add_argument(
        "--verify",
        action="store_true",
        help="make none, but read all features of DATA in full and check that they are as they were written",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write what is printed to FILE")


def run(arguments: argparse.Namespace) -> int:
    """Runs the command."""
    from vsemb.commands import say_verified
    from vsemb.data.features.compute import cache_features
    from vsemb.data.features.store import FeatureStore
    from vsemb.data.store import Dataset
    from vsemb.files import write_json
    from vsemb.presets import is_preset
    from vsemb.runs.fine_tune import lent_backbone

    if arguments.verify:
        say_verified(FeatureStore.verify_all(Dataset.open(arguments.data)), "features", arguments.data, arguments.json)
        return 0
    mirror = arguments.mirror
    if mirror is None:
        mirror = arguments.crops == 1 and not arguments.training_crops
    network = {name: getattr(arguments, name) for name in ("backbone", "size", "pooling", "layer", "crops")}
    weights = arguments.weights or ("preset" if is_preset(arguments.backbone) else "imagenet")
    with lent_backbone(weights, network) as (config, weights):
        store = cache_features(
            Dataset.open(arguments.data),
            config,
            weights=weights,
            batch_size=arguments.batch_size,
            keep_crops=arguments.keep_crops,
            mirror=mirror,
            training_crops=arguments.training_crops,
        )
    speed = store.images_computed / store.seconds if store.images_computed else None
    report = {
        "fingerprint": store.fingerprint,
        "directory": str(store.directory),
        "shape": list(store.shape),
        "images_computed": store.images_computed,
        "images_per_second": speed and round(speed, 1),
    }
    print(f"fingerprint  {store.fingerprint}")
    print(f"shape        {' x '.join(map(str, store.shape))}")
    print(f"images/s     {f'{speed:.1f}' if speed else 'nothing left to compute'}")
    print(f"where        {store.directory}")
    if arguments.json:
        write_json(arguments.json, report)
    return 0
