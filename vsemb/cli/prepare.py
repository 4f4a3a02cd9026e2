"""`vsemb prepare`."""

from __future__ import annotations

import argparse

from vsemb.commands import picked
from vsemb.console import say
from vsemb.data.readers import formats
from vsemb.printing import add_json, facts, save_json, table


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("source", metavar="SOURCE", nargs="+", help="files, folders or (tfds) names to read")
    listed = f"{', '.join(formats())} (inferred from SOURCE)"
    parser.add_argument("--format", choices=formats(), metavar="F", help=listed)
    parser.add_argument("--out", required=True, metavar="DATA", help="dataset directory to write")
    parser.add_argument("--name", help="name of the dataset (last part of DATA)")
    bad_image = "unreadable images, images without captions, malformed rows: skip, or stop (%(default)s)"
    parser.add_argument("--on-bad-image", choices=["skip", "fail"], default="skip", help=bad_image)
    parser.add_argument("--overwrite", action="store_true", help="replace the dataset at DATA and its features")
    joined = "put the images of val into train, for a final training with validation=last"
    parser.add_argument("--val-to-train", action="store_true", help=joined)
    parser.add_argument("--max-side", type=int, metavar="N", help="shrink images whose longer side exceeds N pixels")
    per_shard = "images per shard (%(default)s)"
    parser.add_argument("--images-per-shard", type=int, default=1024, metavar="N", help=per_shard)
    add_json(parser)
    options = parser.add_argument_group("options of some formats")
    options.add_argument("--images", metavar="DIR", help="images folder or URI (all but tfds, vsepp, wnid)")
    options.add_argument("--uris", action="store_true", default=None, help="allow URIs as file names (table)")
    options.add_argument("--split", metavar="NAME", help="put all images into this split (not karpathy)")
    restval = "add COCO's restval to train (default), keep, or drop it (karpathy, tfds)"
    options.add_argument("--restval", choices=["train", "keep", "drop"], help=restval)
    options.add_argument("--descriptions", metavar="DIR", help="folder of the descriptions text_c10 (cub, flowers102)")
    options.add_argument("--class-names", metavar="FILE", help="names of the classes, one per line (flowers102)")
    disjoint = "make splits that share no class (table)"
    options.add_argument("--disjoint-classes", action="store_true", default=None, help=disjoint)
    options.add_argument("--wordnet", metavar="DIR", help="folder with WordNet 3.0's data.noun (wnid)")
    class_splits = "numbers of classes in train, val and test; default: 75, 10, 15 %% (wnid)"
    options.add_argument("--class-splits", metavar="N/N/N", help=class_splits)
    options.add_argument(
        "--image-feature", metavar="PATH", help="name of the image feature or column (tfds, parquet, hf)"
    )
    options.add_argument(
        "--text-feature", metavar="PATH", help="name of the text feature or column (tfds, parquet, hf)"
    )
    options.add_argument("--data-dir", metavar="DIR", help="data folder of tensorflow-datasets (tfds)")
    download = "allow tensorflow-datasets to download (tfds)"
    options.add_argument("--download", action="store_true", default=None, help=download)


def run(arguments: argparse.Namespace) -> None:
    """Convert images and captions in a common format into a dataset: TFRecord shards and a manifest.

    formats of captioned datasets:
      karpathy  dataset_*.json (or its folder) and images/; COCO's restval joins train
      coco      captions_train2017.json ..., or the COCO folder with annotations/ and train2017/ ...
      flickr    Flickr8k.token.txt or results_20130124.token with their split lists, or their folder

    formats of tables and arrays:
      table     CSV, TSV or JSON lines with a header: file (or filepath, image, url), caption (or text, title,
                description)[, split, class]; columns are separated by commas, tabs, semicolons or bars. Without a split
                column, a hash of the file name selects the split, or a hash of the class with --disjoint-classes:
                80 % train, 10 % val, 10 % test
      tfds      name of a tensorflow-datasets builder with images and texts
      vsepp     VSE++'s precomputed {train,dev,test}_ims.npy and _caps.txt: features without images

    formats of shards:
      webdataset  tar files with KEY.jpg and KEY.txt (or KEY.json), also from img2dataset,
                their folder, or a pattern such as train-{000..099}.tar; each line of KEY.txt is a caption
      parquet   Parquet files with a column of images (bytes) and a column of captions, or their folder
      hf        folder that save_to_disk of a Hugging Face dataset wrote

    formats of boxes:
      entities  Flickr30k Entities: Annotations/, Sentences/ and lists of splits, for the protocol pointing
      refcoco   RefCOCO, RefCOCO+ or RefCOCOg: refs(unc).p or refs(umd).p, and instances.json; likewise

    formats of classes:
      cub       CUB_200_2011/ with Reed's descriptions (text_c10/) and lists of classes (trainclasses.txt, ...)
      flowers102  Flowers-102's jpg/ with Reed's descriptions and lists of classes
      wnid      class folders named by WordNet ids (ImageNet, Tiny ImageNet), described by WordNet's texts; the splits
                do not share classes

    formats of text:
      sentences  file with a sentence per line, or a folder of .txt files; train.txt, val.txt and test.txt are splits

    For table, karpathy, coco and flickr, --images may be a URI: https://, or gs:// and s3:// with the extra beam. With
    --uris, file names of a table may be URIs, also file://.

    Several SOURCEs become one dataset: their splits are joined, and keys of images begin with the name of the source.
    To evaluate on one of them, prepare it alone too, and give it as --data to `vsemb evaluate`.

    Every image is decoded as a check, and stored upright as JPEG or PNG. Bad images and malformed rows are skipped and
    listed; with --on-bad-image fail, they are an error. After an interruption, the same command resumes.

    Examples:
      vsemb prepare photos.csv --images photos/ --out data/photos
      vsemb prepare flickr8k/dataset_flickr8k.json --out data/flickr8k
      vsemb prepare coco flickr30k --format karpathy --out data/both
    """
    from vsemb.data.manifest import ordered_splits
    from vsemb.data.writing.prepare import prepare, summary
    from vsemb.runs.describe import describe

    options = set(vars(arguments)) - {"argv", "json", "json_stream", "quiet"}
    dataset = prepare(report=say, **picked(arguments, *options))
    splits = {name: dataset.manifest["splits"][name] for name in ordered_splits(dataset.manifest["splits"])}
    counts = {name: {kind: part[kind] for kind in ("images", "captions")} for name, part in splits.items()}
    rows = [[name, *map("{:,}".format, row.values())] for name, row in counts.items()]
    print(table(["split", "images", "captions"], rows))
    for line in summary(dataset.manifest):
        print(line)
    (following,) = describe(dataset.path).next
    print(facts({"dataset": dataset.path, "fingerprint": dataset.fingerprint[:16], "next": following}))
    described = {"dataset": str(dataset.path), "fingerprint": dataset.fingerprint, "splits": counts}
    save_json(arguments, described | {"skipped": dataset.manifest["skipped"]})
