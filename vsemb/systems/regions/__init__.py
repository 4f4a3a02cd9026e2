"""Image regions and words: detections, alignment, pointing."""

from vsemb.registry import Command, System

SYSTEM = System(
    name="regions",
    recipes={"dvsa": "vsemb.systems.regions.dvsa:DVSA"},
    parts={
        "reader": {"entities": "vsemb.systems.regions.entities", "refcoco": "vsemb.systems.regions.refcoco"},
        "region source": dict.fromkeys(
            ("grid", "selective-search", "detections", "published"), "vsemb.systems.regions.sources"
        ),
        "image tower": {"regions": "vsemb.systems.regions.image_tower"},
        "text encoder": {"contextual-tokens": "vsemb.systems.regions.encoders"},
        "protocol": {"pointing": "vsemb.systems.regions.protocol"},
        "analysis": {"norms": "vsemb.systems.regions.norms"},
        "loss": {
            "ranking-fragments": "vsemb.systems.regions.fragment_loss",
            "ranking-sparse": "vsemb.systems.regions.sparse_alignment",
        },
        "similarity": {
            **dict.fromkeys(
                ("max-sim", "sum-sim", "late-interaction", "mutual-late-interaction"),
                "vsemb.systems.regions.similarities",
            ),
            "cross-attention": "vsemb.systems.regions.cross_attention",
        },
    },
    commands={
        "regions": Command(
            "vsemb.systems.regions.api:regions",
            "find regions of images and cache their features",
            (
                "vsemb regions data/flickr8k",
                "vsemb regions data/coco --from detections --file detections.json --images instances_val2017.json",
                "vsemb regions data/scenes --pooling crops --weights runs/scenes",
                "vsemb regions data/coco --from published --files trainval_resnet101_faster_rcnn_genome_36.tsv",
            ),
        ),
        "align": Command(
            "vsemb.systems.regions.api:align",
            "align the words of a sentence with regions of an image",
            (
                'vsemb align runs/dvsa dog.jpg "a brown dog chases a child" --out aligned.png',
                'vsemb align runs/dvsa girl.jpg "a girl in a pink dress" --affinity 0.5 --json aligned.json',
            ),
        ),
        "search-regions": Command(
            "vsemb.systems.regions.api:search_regions",
            "find regions of images by text",
            ('vsemb search-regions runs/dvsa "red bus" --split test -k 20 --out buses.png',),
        ),
    },
    examples={
        "prepare": ("vsemb prepare Flickr30kEntities --images flickr30k-images --out data/entities",),
        "evaluate": ("vsemb evaluate runs/dvsa --data data/scenes --split test --protocol pointing",),
        "analyze": ("vsemb analyze norms runs/dvsa --data data/flickr8k --split test -k 20 --parts --out norms.png",),
    },
    caches={"regions": "vsemb.systems.regions.region_store:RegionStore"},
    search_methods={"multi_vector": "vsemb.systems.regions.set_search:MultiVectorSearch"},
    report_sections=("vsemb.systems.regions.report:sections",),
    client_methods={
        "align": "vsemb.systems.regions.client:align",
        "encode_regions": "vsemb.systems.regions.client:encode_regions",
    },
)
