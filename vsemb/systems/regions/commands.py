"""Commands on regions: `vsemb regions`, `vsemb align`, and modes of `search`, `analyze` and `evaluate`."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vsemb.commands import Command, Mode, check_image_files, open_keys, picked
from vsemb.console import say
from vsemb.printing import save_json, say_store, say_verified, table

if TYPE_CHECKING:
    from PIL import Image

    from vsemb.data.store import Dataset
    from vsemb.systems.regions.region_store import RegionStore

_BOXES = "detector results for this image, in COCO format (pixels)"


def check_files(arguments: argparse.Namespace, images: Sequence[str] = ()) -> None:
    """Check before any work that output files have valid endings and do not overwrite other files.

    Args:
        arguments: parsed arguments with `out` and `json`.
        images: input files.

    Raises:
        InvalidArgumentError: if a path is invalid; the error names the option.
    """
    from vsemb.runs.pictures import check_picture_path

    check_image_files(images, out=arguments.out, json=arguments.json)
    if arguments.out is not None:
        check_picture_path(arguments.out)


def save_files(arguments: argparse.Namespace, values: Any, draw: Callable[[], Image.Image] | None) -> None:
    """Write the picture and the JSON file of a command.

    Args:
        arguments: parsed arguments with `out` and `json`.
        values: content of the JSON file.
        draw: returns the picture; None without a picture.
    """
    from vsemb.errors import printable
    from vsemb.runs.pictures import save_picture

    if arguments.out is not None and draw is not None:
        save_picture(draw(), arguments.out)
        print(f"\n{printable(arguments.out)}")
    save_json(arguments, values)


def box_text(box: Sequence[float]) -> str:
    """Return a box as text for tables."""
    return " ".join(map(str, box))


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


def _configure_align(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", metavar="RUN", help="the run directory")
    parser.add_argument("image", metavar="IMAGE", help="image file, or key of an image in the dataset")
    parser.add_argument("sentence", metavar="SENTENCE", help="a sentence about the image")
    parser.add_argument("--out", metavar="FILE", help="draw the alignment: a .png or .jpg file")
    affinity = "bonus for neighbouring words on one region, added to the score (%(default)s)"
    parser.add_argument("--affinity", type=float, default=0.0, metavar="B", help=affinity)
    fade = "draw words below this share of the best score grey (%(default)s)"
    parser.add_argument("--fade", type=float, default=0.25, metavar="SHARE", help=fade)
    parser.add_argument("--data", help="dataset of image keys (the training dataset)")
    parser.add_argument("--boxes", metavar="FILE", help=_BOXES)
    parser.add_argument("--json", metavar="FILE", help="also write the result as JSON to FILE")


def _align(arguments: argparse.Namespace) -> None:
    """Align the words of a sentence with the regions of an image that they describe.

    The command needs a run on regions, such as one of the recipe dvsa. Each word gets its best region. With
    --affinity, neighbouring words tend to share a region, so phrases get longer. --out draws the image with its boxes,
    and the words in the colours of their boxes; words with low scores are grey. IMAGE is a file, or the key of an image
    of the dataset.

    Examples:
      vsemb align runs/dvsa dog.jpg "a brown dog chases a child" --out aligned.png
      vsemb align runs/dvsa girl.jpg "a girl in a pink dress" --affinity 0.5 --json aligned.json
    """
    from vsemb.parts import NonNegative, require
    from vsemb.runs.pictures import decimals
    from vsemb.runs.run import Run
    from vsemb.systems.regions.aligning import align_image

    require("fade", arguments.fade, NonNegative)
    check_files(arguments, [arguments.image])
    opened = Run.open(arguments.run, "retrieval")
    dataset = open_keys(opened, arguments.data, [arguments.image])
    options = picked(arguments, "affinity", "boxes")
    found = align_image(opened, arguments.image, arguments.sentence, dataset, **options, report=say)
    digits = decimals(found.scores)
    rows = []
    for phrase in found.phrases:
        scores = " ".join(f"{score:.{digits}f}" for score in phrase.scores)
        where = [str(phrase.region), box_text(phrase.box)]
        rows.append([" ".join(phrase.words), *where, f"{phrase.score:.{digits}f}", scores])
    print(table(["phrase", "region", "box (x y w h)", "score", "of its words"], rows, text=(0, 2, 4)))
    save_files(arguments, found.to_json(), lambda: found.drawn(arguments.fade))


ALIGN = Command(_align, _configure_align)


def _configure_search(parser: argparse._ActionsContainer) -> None:
    parser.add_argument("--all-regions", action="store_true", help="allow several regions per image")
    parser.add_argument("--parts", action="store_true", help="exclude whole images")


def _search(arguments: argparse.Namespace) -> None:
    """Find regions of images by a text, for a run on regions.

    The score of a region is the sum over all words. Each image is found by its best region, or with --all-regions by
    several regions. --out draws a contact sheet of the regions.
    """
    from vsemb.errors import invalid_argument, printable
    from vsemb.runs.run import Run
    from vsemb.systems.regions.region_search import region_sheet, regions_table, search_regions

    if arguments.text is None:
        raise invalid_argument("text", None, "a few words to look for")
    check_files(arguments)
    opened = Run.open(arguments.run, "retrieval")
    dataset = opened.open_data(arguments.data)
    found = search_regions(
        opened,
        dataset,
        arguments.text,
        split=arguments.split or "all",
        every=arguments.all_regions,
        report=say,
        **picked(arguments, "k", "parts"),
    )
    print(regions_table(found, "score"))
    values = {"query": printable(arguments.text), "results": [region.to_json() for region in found]}
    save_files(arguments, values, (lambda: region_sheet(dataset, found)) if found else None)


SEARCH = Mode(_search, _configure_search)
