"""Zero-shot recognition of classes by descriptions or attributes."""

from vsemb.registry import Command, System

_ENCODERS = (
    *("attributes", "word2vec", "bow"),
    *("char-cnn", "char-lstm", "char-cnn-rnn"),
    *("word-cnn", "word-lstm", "word-cnn-rnn"),
)
_RECIPES = [f"{side}-sje-{encoder}" for side in ("ds", "da") for encoder in _ENCODERS]

SYSTEM = System(
    name="zero_shot",
    recipes={name: f"vsemb.systems.zero_shot.sje:SJE[{name}]" for name in _RECIPES},
    parts={
        "reader": {
            **dict.fromkeys(("cub", "flowers102"), "vsemb.systems.zero_shot.readers.reed2016"),
            "wnid": "vsemb.systems.zero_shot.readers.wnid",
        },
        "scenes": {"flowers": "vsemb.systems.zero_shot.scenes"},
        "tokenizer": {"classes": "vsemb.systems.zero_shot.class_names"},
        "text encoder": dict.fromkeys(
            ("attributes", "binary-bag-of-words", "convolutional"), "vsemb.systems.zero_shot.text_encoders"
        ),
        "loss": {"structured": "vsemb.systems.zero_shot.structured_loss"},
        "batches": {"classes": "vsemb.systems.zero_shot.class_batches"},
        "export option": {"classes": "vsemb.systems.zero_shot.export"},
        "protocol": {"zero-shot": "vsemb.systems.zero_shot.protocol"},
        "validation": {"zero-shot": "vsemb.systems.zero_shot.validation"},
    },
    annotations={"attributes": "vsemb.systems.zero_shot.attributes:read_attributes"},
    commands={
        "classify": Command(
            "vsemb.systems.zero_shot.api:classify",
            "classify images by class names",
            (
                'vsemb classify runs/vsepp rex.jpg tom.jpg --classes dog cat --template "a photo of a {}"',
                "vsemb classify runs/vsepp rex.jpg --classes-file classes.txt --top 3",
            ),
        ),
        "classify-split": Command(
            "vsemb.systems.zero_shot.api:classify_split",
            "classify the images of a split by class names",
            ("vsemb classify-split runs/vsepp --classes-file classes.txt --split test --json found.json",),
        ),
        "trace": Command(
            "vsemb.systems.zero_shot.api:trace",
            "show which parts of a text speak for an image",
            ('vsemb trace runs/birds cardinal.jpg "a red bird with a black face" --out traced.png',),
        ),
    },
    examples={
        "train": ("vsemb train ds-sje-word-cnn-rnn --data data/birds --out runs/birds",),
        "evaluate": ("vsemb evaluate runs/ds-sje --protocol zero-shot --split test --curve --typos 0 0.05 0.1",),
        "export": ('vsemb export runs/vsepp savedmodels/pets --classes dog cat --template "a photo of a {}"',),
        "scenes": ("vsemb scenes --out data/flowers --kind flowers",),
    },
    charts={"Zero-shot on validation, %": {"val_top1": "top-1", "val_average_precision": "AP@50"}},
    report_sections=("vsemb.systems.zero_shot.report:sections",),
    client_methods={"classify": "vsemb.systems.zero_shot.client:classify"},
)
