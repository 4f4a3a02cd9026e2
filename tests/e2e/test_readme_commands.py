"""Every `vsemb` command of the README runs, in the README's order, on small stand-ins for its data."""

from __future__ import annotations

import csv
import io
import json
import shlex
import subprocess
import sys
import traceback
from pathlib import Path

import pytest
from PIL import Image

from tests.systems.entailment.entailment_files import write_snli
from tests.test_readme import commands
from tests.tiny import settings
from vsemb import recipes
from vsemb.cli.__main__ import main
from vsemb.data.synthetic import generate

#: They serve until they are stopped, or need other machines; tests/cli and tests/training run them.
LEFT_OUT = (
    "vsemb serve",
    "vsemb demo",
    "vsemb train vsepp --strategy multiworker",
    "vsemb train vsepp --strategy mirrored --data",
    "vsemb train contrastive --data data/photos",
    "vsemb search indexes/photos",
)
#: Devices of TensorFlow can be chosen once in a process.
OWN_PROCESS = ("--strategy", "--workers")
#: Options that make a command small, or name what stands in for a download.
ADDED = {
    "scenes --out data/scenes": "--train 60 --val 12 --test 12 --size 32",
    "scenes --out data/many-scenes": "--val 12 --test 12 --size 32",
    "annotate data/flickr8k --pos-tags": "--file tags.txt",
    "evaluate runs/captions": "--no-meteor",
    "evaluate runs/many-captions": "--no-meteor",
    "regions data/flickr8k": "--size 32 --count 5",
    "regions data/mine": "--size 32",
    "features": "--size 32",
    "train sc-nlm": "--set model.writing.stopwords=stopwords.txt",
    "train multiplicative": "--set model.writing.stopwords=stopwords.txt",
}
RECORDS = {"train": 60, "val": 12, "test": 12}
TAGS = {"a": "DT", "the": "DT", "and": "CC", "of": "IN", "on": "IN", "is": "VBZ"}


def write_sources(folder: Path) -> None:
    """Writes what the README's reader has: images with captions, birds, pairs of sentences."""
    records = list(generate(RECORDS, seed=5, image_size=32))
    images, rows, boxes, tags = [], [["file", "caption", "split", "class"]], [], []
    for number, record in enumerate(records):
        name = f"{number:012}.jpg"
        picture = Image.open(io.BytesIO(record.image)).convert("RGB")
        for place in (folder / "Flickr8k" / "images", folder / "photos"):
            place.mkdir(parents=True, exist_ok=True)
            picture.save(place / name)
        sentences = [{"raw": caption} for caption in record.captions]
        images.append({"filename": name, "imgid": number, "split": record.split, "sentences": sentences})
        rows += [[name, caption, record.split, "scene"] for caption in record.captions]
        boxes.append({"image_id": number, "bbox": [2, 3, 15, 20], "score": 0.5})
        for place, caption in enumerate(record.captions):
            tagged = " ".join(f"{word}/{TAGS.get(word, 'NN')}" for word in caption.lower().replace(",", "").split())
            tags.append(f"{name}#{place}\t{tagged}\n")
        if record.split == "train":
            _write_bird(folder, number, picture)
    (folder / "Flickr8k" / "dataset_flickr8k.json").write_text(json.dumps({"images": images}))
    (folder / "detections.json").write_text(json.dumps(boxes))
    (folder / "tags.txt").write_text("".join(tags))
    (folder / "stopwords.txt").write_text("a\nthe\nand\nof\non\nis\n")
    with (folder / "captions.csv").open("w", newline="") as file:
        csv.writer(file).writerows(rows)
    for name in ("query", "blue_car", "puppy", "wolf", "girl", "dog", "child", "street", "photo"):
        picture.save(folder / f"{name}.jpg")
    write_snli(folder / "snli_1.0", train=144, val=36, test=36)


def _write_bird(folder: Path, number: int, picture: Image.Image) -> None:
    """Adds an image of one of twelve classes to CUB_200_2011 and its descriptions."""
    root, texts = folder / "CUB_200_2011", folder / "cvpr2016_cub"
    kind = number % 12
    name = f"{kind + 1:03}.Bird{kind}/{number}.jpg"
    for file in ((root / "images" / name), (texts / "text_c10" / name).with_suffix(".txt")):
        file.parent.mkdir(parents=True, exist_ok=True)
    picture.save(root / "images" / name)
    text = "".join(f"bird {kind} has a beak of kind {kind} {place}\n" for place in range(10))
    (texts / "text_c10" / name).with_suffix(".txt").write_text(text)
    with (root / "images.txt").open("a") as listing:
        listing.write(f"{number + 1} {name}\n")
    classes = [f"{place + 1:03}.Bird{place}" for place in range(12)]
    (root / "classes.txt").write_text("".join(f"{place} {each}\n" for place, each in enumerate(classes, 1)))
    for split, chosen in zip(("train", "val", "test"), (classes[:4], classes[4:8], classes[8:]), strict=True):
        (texts / f"{split}classes.txt").write_text("".join(f"{each}\n" for each in chosen))


def small(line: str, stand_ins: dict[str, str]) -> list[str]:
    """Returns a command's words, for small sizes, with what is at hand in place of downloads."""
    words = [stand_ins.get(word, word) for word in shlex.split(line, comments=True)[1:]]
    for start, options in ADDED.items():
        if line.startswith(f"vsemb {start}"):
            words += shlex.split(options)
    if words[0] == "train":
        variant = words[words.index("--variant") + 1] if "--variant" in words else None
        sizes = [setting for setting in settings(recipes.get(words[1], variant)) if "batches.size" not in setting]
        given = [word for name, word in zip(words, words[1:], strict=False) if name == "--set"]
        if "--fine-tune" in words:
            given.append("image.size=32")
        images = 4 if "data/cub" in words else 16
        chosen = [*sizes, *(setting for setting in given if "batches.size" not in setting), f"batches.size={images}"]
        words = [word for place, word in enumerate(words) if "--set" not in words[max(place - 1, 0) : place + 1]]
        words += [word for setting in chosen for word in ("--set", setting)]
    return words


@pytest.mark.slow
def test_commands_run(tmp_path, monkeypatch, spacy_pipeline, preset_path):
    monkeypatch.chdir(tmp_path)
    write_sources(tmp_path)
    stand_ins = {
        "imagenet": "random",
        "MobileNetV2": "SmallConvNet",
        "en_core_web_sm": str(spacy_pipeline),
        "clip_vit_base_patch16": str(preset_path("clip")),
        "hub:vit_base_patch16_224_imagenet": f"hub:{preset_path('vit')}",
        "hub:resnet_50_imagenet": f"hub:{preset_path('resnet')}",
        "120000": "60",
        "1000": "12",
        "dog": "circle",
        "cat": "square",
        "bicycle": "star",
    }
    # Runs that the README's text speaks of.
    lines = commands()
    first_search = next(place for place, line in enumerate(lines) if line.startswith("vsemb search"))
    lines.insert(first_search, "vsemb train order-embedding --data data/mine --out runs/order")
    features = next(place for place, line in enumerate(lines) if "features data/coco" in line)
    lines.insert(features, "vsemb prepare Flickr8k --format karpathy --out data/coco")
    perplexity = next(place for place, line in enumerate(lines) if "--perplexity" in line)
    for recipe in ("log-bilinear", "multiplicative"):
        encoder = "--encoder runs/kiros" if recipe == "multiplicative" else ""
        lines.insert(perplexity, f"vsemb train {recipe} {encoder} --data data/flickr8k --out runs/{recipe}")
    failed, ran = [], set()
    for line in lines:
        words = small(line, stand_ins)
        if line.startswith(LEFT_OUT) or tuple(words) in ran:
            continue
        ran.add(tuple(words))
        print("$ vsemb", shlex.join(words), flush=True)
        try:
            if any(option in words for option in OWN_PROCESS):
                words[words.index("--out") + 1] += f"-{len(ran)}"
                done = subprocess.run([sys.executable, "-m", "vsemb.cli", *words], capture_output=True, text=True)
                status, said = done.returncode, done.stderr
            else:
                status, said = main(words), "see above"
        except (Exception, SystemExit):
            status, said = "raised", traceback.format_exc()
        if status:
            failed.append(f"{line}\n  as {shlex.join(words)}\n  {status}: {said[-1500:]}")
    assert not failed, "\n".join(failed)
    assert len(ran) > 60
