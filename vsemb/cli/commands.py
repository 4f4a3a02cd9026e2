"""The commands of the base: name, function, summary, examples."""

from __future__ import annotations

from vsemb.registry import Command

COMMANDS = {
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
    "index": Command(
        "vsemb.api.searching:index",
        "embed image files or a dataset for search",
        (
            "vsemb index runs/vsepp --images photos --out indexes/photos",
            'vsemb index runs/vsepp --images "photos/**/*.jpg" more.txt --out indexes/photos',
            "vsemb index runs/vsepp --data data/flickr8k --out indexes/flickr8k --backend faiss-ivf --nprobe 32",
            "vsemb index runs/order --candidates 50 100",
        ),
    ),
    "compare-backends": Command(
        "vsemb.api.searching:compare_backends",
        "measure size, time and recall of search backends",
        ("vsemb compare-backends indexes/flickr8k", "vsemb compare-backends runs/vsepp --split val"),
    ),
    "search": Command(
        "vsemb.api.searching:find",
        "find images by text, image or arithmetic",
        (
            'vsemb search runs/vsepp "a dog running on a beach" --data data/flickr8k',
            'vsemb search indexes/photos "a dog running on a beach" --out sheet.png',
            "vsemb search indexes/photos < queries.txt",
            'vsemb search runs/order --compose "a dog" "a ball"',
            "vsemb search runs/vsepp --image blue_car.jpg --minus blue --plus red --resort 20",
        ),
    ),
    "embed": Command(
        "vsemb.api.searching:embed",
        "embed image files or texts into a file of vectors",
        (
            "vsemb embed runs/vsepp --images photos --out photos.npy",
            "vsemb embed runs/vsepp --texts captions.txt --out captions.parquet",
            'vsemb embed runs/vsepp --texts "a dog on a beach" "a cat" --out two.npy',
        ),
    ),
    "demo": Command(
        "vsemb.api.demo:serve_demo",
        "search with a run in the browser",
        (
            "vsemb demo runs/vsepp --open-browser",
            "vsemb demo runs/order --data data/flickr8k --split test --port 8080",
        ),
        keeps_memory=False,
    ),
}
