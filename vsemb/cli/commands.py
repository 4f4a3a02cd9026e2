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
    "annotate": Command("vsemb.api.data:annotate", "annotate the captions of a dataset", ()),
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
    "train": Command(
        "vsemb.api.training:train",
        "train a recipe on a dataset",
        (
            "vsemb train best --data data/flickr8k --out runs/best --backbone MobileNetV2",
            "vsemb train best --data data/flickr8k --out runs/best --backbone MobileNetV2 --epochs 12",
            "vsemb train vsepp --data data/flickr8k --out runs/vsepp-seeds --seeds 3",
            "vsemb train kiros2014 --variant released --data data/flickr8k --out runs/kiros --set units=512",
            "vsemb train contrastive --data data/scenes --out runs/scenes --fine-tune SmallConvNet",
            "vsemb train my_recipe.py --data data/flickr8k --out runs/mine",
            "vsemb train vsepp --strategy mirrored --devices 2 --data data/flickr8k --out runs/two-devices",
            "vsemb train vsepp --backend jax --data data/flickr8k --out runs/jax",
            "vsemb train vsepp --workers 2 --data data/flickr8k --out runs/two-workers",
        ),
        backends=("tensorflow", "jax"),
    ),
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
    "compare": Command(
        "vsemb.api.evaluation:compare",
        "test whether a run retrieves better than another one",
        ("vsemb compare runs/kiros runs/vsepp --data data/flickr8k --split test",),
    ),
    "report": Command(
        "vsemb.api.reporting:write_report",
        "write an HTML report: metrics, queries, failures",
        (
            "vsemb report runs/vsepp",
            "vsemb report runs/vsepp --data data/flickr8k --split test --out report.html",
            "vsemb report runs/vsepp --arithmetic beach.jpg pink red",
        ),
    ),
    "projector": Command(
        "vsemb.api.reporting:write_projector",
        "write embeddings for TensorBoard's projector",
        (
            "vsemb projector runs/vsepp",
            "vsemb projector runs/vsepp --data data/flickr8k --split test --images 200 --sentences 1000",
            "tensorboard --logdir runs/vsepp/projector",
        ),
    ),
    "export": Command(
        "vsemb.api.exporting:export",
        "write a run for TensorFlow Serving, ONNX Runtime or LiteRT",
        (
            "vsemb export runs/vsepp savedmodels/flickr8k",
            "vsemb export runs/vsepp savedmodels/flickr8k --index runs/vsepp/index/flickr8k-all-images",
            "vsemb export runs/vsepp savedmodels/fast --precision mixed_bfloat16",
            "vsemb export runs/vsepp savedmodels/flickr8k --sign key.pem",
            "vsemb export runs/vsepp exports/onnx --format onnx",
            "vsemb export runs/vsepp exports/phone --format litert-int8",
            "vsemb export runs/vsepp vsepp.safetensors --format safetensors",
        ),
    ),
    "serve": Command(
        "vsemb.api.serving:serve",
        "serve SavedModels with TensorFlow Serving's API",
        (
            "vsemb serve savedmodels/flickr8k",
            "vsemb serve --model pets=savedmodels/pets --model flickr8k=savedmodels/flickr8k --port 0 --rest-port 0",
            "vsemb serve savedmodels/flickr8k --host 0.0.0.0 --token-file token --tls-cert cert.pem --tls-key key.pem",
            "vsemb serve savedmodels/flickr8k --label stable=1 --label canary=2 --versions latest",
        ),
        keeps_memory=False,
    ),
    "verify": Command(
        "vsemb.api.exporting:verify",
        "check an exported model against its contract",
        (
            "vsemb verify savedmodels/flickr8k",
            "vsemb verify savedmodels/flickr8k --version 1 --contract contracts/flickr8k.json",
            "vsemb verify savedmodels/flickr8k --key key.pub",
        ),
    ),
    "push": Command(
        "vsemb.api.sharing:push",
        "upload a run or an exported model to the Hugging Face Hub",
        (
            "vsemb push runs/vsepp hf://somebody/flickr8k --licence cc-by-4.0 --measure test",
            "vsemb push savedmodels/flickr8k hf://somebody/flickr8k-serving --private",
        ),
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
            "vsemb embed runs/vsepp --images photos --out photos.parquet --precision int8",
            "vsemb embed runs/vsepp --texts captions.txt --out captions.parquet",
            'vsemb embed runs/vsepp --texts "a dog on a beach" "a cat" --out two.npy',
        ),
    ),
    "demo": Command(
        "vsemb.api.demo:serve_demo",
        "search pictures in the browser",
        (
            "vsemb demo runs/vsepp --open-browser",
            "vsemb demo runs/vsepp --images photos",
            "vsemb demo indexes/photos",
            "vsemb demo runs/order --data data/flickr8k --split test --port 8080",
        ),
        keeps_memory=False,
    ),
}
