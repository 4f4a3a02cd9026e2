"""`vsemb features`."""

from __future__ import annotations

import argparse
from pathlib import Path

from vsemb.commands import picked
from vsemb.printing import add_json, command_line, save_json, say_store, say_verified

_POOLINGS = ("mean", "max", "mean+max", "multilevel", "regional", "flat", "pyramid", "token", "embedding")
_RESIZES = ("squash", "short-side", "preset")


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("data", type=Path, metavar="DATA", help="a prepared dataset")
    parser.add_argument("--backbone", help="a keras.applications network, SmallConvNet, or hub:PRESET (MobileNetV2)")
    parser.add_argument("--weights", help="imagenet, preset, random, a file, or a run (imagenet, or preset)")
    parser.add_argument("--crops", type=int, choices=(1, 10), default=1, help="one view of the image, or ten crops (1)")
    parser.add_argument("--resize", choices=_RESIZES, help="squash, crop after resizing, or as a preset says")
    parser.add_argument("--keep-crops", action="store_true", help="store features of each crop instead of their mean")
    parser.add_argument("--training-crops", action="store_true", help="also store ten crops for training")
    mirror = "also store features of mirror images (yes with one crop and without --training-crops)"
    parser.add_argument("--mirror", action=argparse.BooleanOptionalAction, help=mirror)
    parser.add_argument("--size", type=int, help="width and height of the input in pixels (the network's)")
    parser.add_argument("--pooling", choices=_POOLINGS, help="pooling over grid cells (the network's default)")
    parser.add_argument("--layer", help="an inner layer in place of the pooled map: fc6 or fc7 of VGG16, VGG19")
    parser.add_argument("--batch-size", type=int, default=64, help="images per batch (%(default)s)")
    parser.add_argument("--verify", action="store_true", help="only check the stored features of DATA")
    add_json(parser)


def run(arguments: argparse.Namespace) -> None:
    """Compute the image features of a dataset with a pretrained network, and cache them in the dataset.

    `vsemb train --backbone NAME` does the same before training. Features are stored in DATA/features/FINGERPRINT. The
    fingerprint depends on network, weights and preprocessing. After an interruption, the same command resumes.

    --backbone: in hub:PRESET, PRESET is the name, handle or directory of a keras-hub preset.

    --weights: Keras downloads imagenet and preset. A file ends in .weights.h5 or .h5. A run must be trained from
    pixels; its network is used.

    --pooling: multilevel adds the means of inner layers to mean and max of the last layer. In place of the max,
    regional has the mean of the maxima of overlapping regions. flat keeps all grid cells. pyramid takes the maximum of
    the map and of each ninth of it. For transformers, token is the class token, and embedding is the joint embedding of
    CLIP and SigLIP.

    --resize squash gives the network the whole image as a square. short-side keeps the aspect ratio: the shorter side
    becomes 256 pixels and crops have 224, or the same ratio for other sizes. One crop is then the centre. preset uses
    the interpolation, antialiasing, crop and padding of a keras-hub preset. The default is preset for presets and
    squash for other networks.

    --crops 10 stores the mean of ten crops. --training-crops stores the features of the whole image and of ten
    crops; training draws one of the crops each time. This takes eleven times as long.

    Examples:
      vsemb features data/flickr8k --backbone MobileNetV2 --weights imagenet --crops 1
      vsemb features data/scenes --weights runs/scenes --pooling flat
    """
    from vsemb.data.features.store import FeatureStore
    from vsemb.data.store import Dataset
    from vsemb.runs.features import make_features

    dataset = Dataset.open(arguments.data)
    if arguments.verify:
        return save_json(arguments, say_verified(FeatureStore.verify_all(dataset), "features", arguments.data))
    network = picked(arguments, "backbone", "weights", "size", "pooling", "layer", "crops", "resize")
    options = picked(arguments, "mirror", "batch_size", "keep_crops", "training_crops")
    store = make_features(dataset, **network, **options)
    # The fingerprint is needed only to choose among several features.
    one = len(FeatureStore.folders(dataset)) == 1
    chosen = [] if one else ["--set", f"image.fingerprint={store.fingerprint}"]
    following = command_line("train", "vsepp", "--data", arguments.data, "--out", f"runs/{dataset.name}", *chosen)
    save_json(arguments, say_store(store, next=following))
