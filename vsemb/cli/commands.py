"""The commands of the base: name, function, summary, examples."""

from __future__ import annotations

from vsemb.registry import Command

COMMANDS = {
    "scenes": Command(
        "vsemb.api.data:scenes",
        "generate a dataset of synthetic scenes",
        ("vsemb scenes --out data/scenes --train 4000 --val 500 --test 500 --compositional 500",),
    ),
    "prepare": Command(
        "vsemb.api.data:prepare",
        "convert images and captions into a dataset",
        (
            "vsemb prepare photos.csv --images photos/ --out data/photos",
            "vsemb prepare flickr8k/dataset_flickr8k.json --out data/flickr8k",
            "vsemb prepare coco flickr30k --format karpathy --out data/both",
        ),
    ),
    "check": Command(
        "vsemb.data.check:check", "read a dataset once and name its damage", ("vsemb check data/flickr8k",)
    ),
    "convert": Command(
        "vsemb.data.writing.convert:convert",
        "write a dataset as WebDataset shards or Parquet",
        (
            "vsemb convert data/flickr8k --format webdataset --out flickr8k-shards",
            "vsemb convert data/flickr8k --format parquet --out flickr8k-parquet",
        ),
    ),
    "features": Command(
        "vsemb.runs.features:features",
        "compute and cache image features with a pretrained network",
        (
            "vsemb features data/flickr8k --backbone MobileNetV2 --weights imagenet --crops 1",
            "vsemb features data/scenes --weights runs/scenes --pooling flat",
        ),
    ),
    "recipes": Command(
        "vsemb.recipes.describe:explain",
        "list the recipes, or explain one",
        (
            "vsemb recipes",
            "vsemb recipes kiros2014 --variant released --json recipe.json",
            "vsemb recipes my_recipe.py",
        ),
    ),
    "info": Command(
        "vsemb.runs.describe:info",
        "describe a run, dataset, index or exported model",
        (
            "vsemb info runs/vsepp",
            "vsemb info data/flickr8k",
            "vsemb info indexes/photos --json -",
        ),
    ),
    "doctor": Command(
        "vsemb.api.installation:doctor",
        "check the installation: versions, extras, GPU, disk",
        ("vsemb doctor", "vsemb doctor runs data --json doctor.json"),
    ),
    "annotate": Command("vsemb.api.data:annotate", "annotate the captions of a dataset", ()),
    "evaluate": Command(
        "vsemb.api.evaluation:evaluate",
        "measure a run with a standard protocol",
        (
            "vsemb evaluate runs/vsepp --data data/flickr8k --split test --json metrics.json",
            "vsemb evaluate runs/coco --data data/coco --split test --folds 5",
            "vsemb evaluate runs/vsepp --split test --pairs 1000 --recalls 1 5 10 20 50",
        ),
    ),
    "analyze": Command(
        "vsemb.api.evaluation:analyze",
        "compare or inspect trained runs",
        ("vsemb analyze lengths runs/order runs/symmetric --data data/flickr8k --images 1000",),
    ),
}
