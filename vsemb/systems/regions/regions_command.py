"""Find regions of a dataset's images, describe them with an image network, and cache them beside it.

Of each image the whole and the best boxes are kept. Boxes come from a grid of several scales, which needs
nothing else (--from grid); from OpenCV's selective search (--from selective-search, the extra `regions`); or
from a detector's results (--from FILE.json), a list in COCO's format of {"image_id", "bbox": [x, y, w, h] in
pixels, "score"}.

An image_id of a detector is the key of an image in the dataset, with or without folders and ending, or the
number in a file name such as 000000391895.jpg. For other ids --images names a COCO annotations file, whose
"images" list id and file_name. It also gives the width and height that the detector saw, where the dataset
was prepared with --max-side; otherwise boxes are in pixels of the images as they are stored. Ids that the
dataset does not have are left out, an image without a detection has the whole image alone, and both are
counted.

The regions lie in DATA/regions/FINGERPRINT, where the fingerprint names network, weights, boxes and
preprocessing. An interrupted run goes on where it was when the same command is given again.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vsemb.commands import say, say_verified

if TYPE_CHECKING:
    from vsemb.systems.regions.region_store import RegionStore

EXAMPLE = """  vsemb regions data/flickr8k
  vsemb regions data/coco --from detections.json --images annotations/instances_val2017.json
  vsemb regions data/scenes --pooling crops --weights runs/scenes"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the command's arguments."""
    parser.add_argument("data", type=Path, metavar="DATA", help="a prepared dataset")
    parser.add_argument(
        "--from",
        dest="source",
        default="grid",
        metavar="SOURCE",
        help="grid, selective-search, or the FILE.json of a detector (%(default)s)",
    )
    parser.add_argument("--images", type=Path, metavar="FILE", help="names and sizes of the images of a detector's ids")
    parser.add_argument("--count", type=int, default=19, help="boxes per image, besides the whole image (%(default)s)")
    parser.add_argument(
        "--overlap",
        type=float,
        help="highest intersection over union of boxes that are kept (0.5)",
    )
    parser.add_argument(
        "--pooling",
        choices=("map", "crops"),
        default="map",
        help="average the last map over each box, or embed its crop (%(default)s)",
    )
    parser.add_argument(
        "--rank",
        choices=("objectness", "confidence"),
        help="keep boxes by contrast or by score (objectness; confidence for detectors)",
    )
    parser.add_argument("--backbone", help="a keras.applications network, or SmallConvNet (MobileNetV2)")
    parser.add_argument(
        "--weights",
        default="imagenet",
        help="imagenet, random, a weights file, or a run trained from pixels (%(default)s)",
    )
    parser.add_argument("--size", type=int, help="side of the images in pixels (the network's own)")
    parser.add_argument("--batch-size", type=int, default=32, help="images at a time (%(default)s)")
    parser.add_argument(
        "--verify",
        action="store_true",
        help="make none, but read all regions of DATA in full and check that they are as they were written",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write what is printed to FILE")


def run(arguments: argparse.Namespace) -> None:
    """Runs the command."""
    from vsemb.data.store import Dataset
    from vsemb.errors import invalid_argument, unknown_name
    from vsemb.files import write_json
    from vsemb.runs.fine_tune import lent_backbone
    from vsemb.systems.regions.detections import read_detections
    from vsemb.systems.regions.image import RegionConfig
    from vsemb.systems.regions.region_store import RegionStore
    from vsemb.systems.regions.regions import cache_regions

    if arguments.verify:
        say_verified(RegionStore.verify_all(Dataset.open(arguments.data)), "regions", arguments.data, arguments.json)
        return
    file = None if arguments.source in ("grid", "selective-search") else Path(arguments.source)
    if file is None and arguments.images is not None:
        raise invalid_argument("images", str(arguments.images), "none unless --from names a file")
    if file is not None and not file.suffix and not file.exists():
        raise unknown_name("from", arguments.source, ("grid", "selective-search", "FILE.json"))
    options = {"count": arguments.count, "pooling": arguments.pooling, "rank": arguments.rank or ""}
    if arguments.overlap is not None:
        options["overlap"] = arguments.overlap
    regions = RegionConfig("detections" if file else arguments.source, **options)
    dataset = Dataset.open(arguments.data)
    detections = None
    if file is not None:
        detections = read_detections(file, dataset, arguments.images)
        for note in detections.notes:
            say(note)
    network = {"backbone": arguments.backbone, "size": arguments.size}
    with lent_backbone(arguments.weights, network) as (backbone, weights):
        store = cache_regions(
            dataset,
            backbone,
            regions,
            weights=weights,
            detections=detections,
            batch_size=arguments.batch_size,
        )
    values = _describe(store, arguments.data)
    speed = values["images_per_second"]
    print(f"fingerprint  {store.fingerprint}")
    print(f"shape        {' x '.join(map(str, store.shape))}")
    print(f"regions      {values['regions_mean']:.1f} per image on average, the whole image included")
    print(f"images/s     {speed or 'nothing left to compute'}")
    print(f"where        {store.directory}")
    print(f"next         {values['next']}")
    if arguments.json:
        write_json(arguments.json, values)


def _describe(store: RegionStore, data: Path) -> dict[str, Any]:
    speed = store.images_computed / store.seconds if store.images_computed else None
    others = list(store.directory.parent.glob("[!.]*/manifest.json"))
    named = f" --set image.fingerprint={store.fingerprint}" if len(others) > 1 else ""
    return {
        "fingerprint": store.fingerprint,
        "directory": str(store.directory),
        "shape": list(store.shape),
        "regions_mean": round(store.mean_count, 2),
        "images_computed": store.images_computed,
        "images_per_second": speed and round(speed, 1),
        "next": f"vsemb train dvsa --data {data} --out runs/dvsa{named}",
    }
