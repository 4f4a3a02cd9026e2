"""The command `vsemb regions`."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from vsemb.commands import Command, picked
from vsemb.console import say
from vsemb.printing import save_json, say_store, say_verified

if TYPE_CHECKING:
    from vsemb.data.store import Dataset
    from vsemb.systems.regions.region_store import RegionStore


def _configure_regions(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("data", type=Path, metavar="DATA", help="a prepared dataset")
    source = "grid, selective-search, or the FILE.json of a detector (%(default)s)"
    parser.add_argument("--from", dest="source", default="grid", metavar="SOURCE", help=source)
    parser.add_argument(
        "--images", type=Path, metavar="FILE", help="COCO annotations with names and sizes of the detector's images"
    )
    published = "published region features: a .tsv or .npy file, or a folder of .npz files"
    parser.add_argument("--features", type=Path, nargs="+", metavar="FILE", help=published)
    parser.add_argument("--ids", type=Path, nargs="+", default=(), metavar="FILE", help="image names of each .npy file")
    count = "boxes per image, besides the whole image (19; 36 with --features)"
    parser.add_argument("--count", type=int, help=count)
    overlap = "maximum overlap (IoU) of boxes (%(default)s)"
    parser.add_argument("--overlap", type=float, default=0.5, help=overlap)
    pooling = "average the last feature map over each box, or embed each crop (%(default)s)"
    parser.add_argument("--pooling", choices=("map", "crops"), default="map", help=pooling)
    rank = "rank boxes by contrast, or by score (objectness; confidence for detectors)"
    parser.add_argument("--rank", choices=("objectness", "confidence"), help=rank)
    parser.add_argument("--backbone", help="a keras.applications network, or SmallConvNet (MobileNetV2)")
    weights = "imagenet, random, a weights file, or a run trained from pixels (%(default)s)"
    parser.add_argument("--weights", default="imagenet", help=weights)
    parser.add_argument("--size", type=int, help="width and height of the input in pixels (the network's)")
    parser.add_argument("--batch-size", type=int, default=32, help="images per batch (%(default)s)")
    parser.add_argument("--verify", action="store_true", help="only check the stored regions of DATA")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the results as JSON to FILE")


def _find_regions(arguments: argparse.Namespace) -> None:
    """Find regions of a dataset's images, compute their features with an image network, and cache them in the dataset.

    The regions of an image are the whole image and the best boxes. Boxes have one of three sources:

    - --from grid: a grid of several scales; needs nothing else.
    - --from selective-search: selective search of OpenCV; needs the extra `regions`.
    - --from FILE.json: a detector's results, a list in COCO's format of {"image_id", "bbox": [x, y, w, h] in pixels,
      "score"}.

    The image_id of a detection is the key of an image in the dataset, with or without folders and ending, or the
    number in a file name such as 000000391895.jpg. For other ids, --images names a COCO annotations file, whose
    "images" list id and file_name. For a dataset prepared with --max-side, this file also gives the width and height
    of the detector's images. Otherwise boxes are in pixels of the stored images. Ids that the dataset lacks are left
    out, and an image without detections has only the whole image; notes report both counts.

    --features reads region features that others computed: bottom-up attention's .tsv, a folder of .npz files (x, bbox,
    image_w, image_h), or SCAN's .npy with one image name per line in --ids. The mean of the boxes stands for the whole
    image. A run on them cannot read new images.

    The regions are in DATA/regions/FINGERPRINT. The fingerprint names network, weights, boxes and preprocessing. To
    resume an interrupted run, repeat the command.

    Examples:
      vsemb regions data/flickr8k
      vsemb regions data/coco --from detections.json --images annotations/instances_val2017.json
      vsemb regions data/scenes --pooling crops --weights runs/scenes
      vsemb regions data/coco --features trainval_resnet101_faster_rcnn_genome_36.tsv
    """
    from vsemb.data.store import Dataset
    from vsemb.errors import invalid_argument, unknown_name
    from vsemb.runs.fine_tune import lent_backbone
    from vsemb.systems.regions.compute import cache_regions
    from vsemb.systems.regions.detections import read_detections
    from vsemb.systems.regions.published import write_published
    from vsemb.systems.regions.region_store import RegionConfig, RegionStore

    dataset = Dataset.open(arguments.data)
    if arguments.verify:
        return save_json(arguments, say_verified(RegionStore.verify_all(dataset), "regions", arguments.data))
    if arguments.features:
        store, notes = write_published(dataset, arguments.features, arguments.ids, count=arguments.count or 36)
        for note in notes:
            say(note)
        return _say_regions(arguments, dataset, store)
    arguments.count = 19 if arguments.count is None else arguments.count
    file = None if arguments.source in ("grid", "selective-search") else Path(arguments.source)
    if file is None and arguments.images is not None:
        raise invalid_argument("images", str(arguments.images), "omitted unless --from names a file")
    if file is not None and not file.suffix and not file.exists():
        raise unknown_name("from", arguments.source, ("grid", "selective-search", "FILE.json"))
    options = picked(arguments, "count", "overlap", "pooling", "rank")
    regions = RegionConfig("detections" if file else arguments.source, **options)
    detections = None
    if file is not None:
        detections = read_detections(file, dataset, arguments.images)
        for note in detections.notes:
            say(note)
    network = {"resize": "squash", **picked(arguments, "backbone", "size")}
    with lent_backbone(arguments.weights, network) as (backbone, weights):
        found = {"weights": weights, "detections": detections, "batch_size": arguments.batch_size}
        store = cache_regions(dataset, backbone, regions, **found)
    _say_regions(arguments, dataset, store)


def _say_regions(arguments: argparse.Namespace, dataset: Dataset, store: RegionStore) -> None:
    """Print what was cached, and the next command."""
    several = len(store.folders(dataset)) > 1
    named = f" --set image.fingerprint={store.fingerprint}" if several else ""
    command = f"vsemb train dvsa --data {arguments.data} --out runs/dvsa{named}"
    mean = f"{store.mean_count:.1f} per image on average, the whole image included"
    values = say_store(store, regions=mean, next=command)
    save_json(arguments, {**values, "regions_mean": round(store.mean_count, 2), "next": command})


REGIONS = Command(_find_regions, _configure_regions)
