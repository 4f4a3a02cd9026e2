"""README and documentation run: `vsemb`, `curl` and Python, page by page, on small stand-ins for their data."""

from __future__ import annotations

import contextlib
import csv
import io
import json
import re
import shlex
import socket
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import keras
import pytest
from PIL import Image

import vsemb
from tests.systems.entailment.entailment_files import write_snli
from tests.systems.presets.checkpoint_files import write_siglip2_checkpoint
from tests.systems.regions.test_entities import write_entities
from tests.systems.regions.test_refcoco import REFS, write_refcoco
from tests.test_readme import EXAMPLES, PAGES, ROOT, code, train_small
from tests.tiny import settings
from vsemb import recipes
from vsemb.cli.__main__ import main
from vsemb.data.synthetic import generate

#: They serve until they are stopped, need other machines, annotations of regions, or a process of their own, whose
#: devices and backend are chosen once; tests/cli, tests/runs, tests/training and tests/systems/captions run them.
LEFT_OUT = (
    "vsemb serve",
    "vsemb demo",
    "vsemb push",
    "vsemb evaluate runs/snippets --protocol region-captions",
    "vsemb train vsepp --strategy",
    "vsemb train vsepp --workers",
    "vsemb train vsepp --backend jax",
)
#: Beside what tests/tiny.py makes small.
LANGUAGE = "--set model.dim=16 --set model.writing.candidates=12 --set model.writing.stopwords=stopwords.txt"
#: Options that make a command small, or name what stands in for a download.
ADDED = {
    "scenes --out data/scenes": "--train 60 --val 12 --test 12 --compositional 12 --size 32",
    "scenes --out data/many-scenes": "--val 12 --test 12 --compositional 12 --size 32",
    "annotate data/flickr8k pos-tags": "--file tags.txt",
    "evaluate runs/captions": "--no-meteor",
    "evaluate runs/many-captions": "--no-meteor",
    "regions data/flickr8k": "--size 32 --count 5",
    "regions data/mine": "--size 32",
    "features data/coco": "--size 32",
    "features data/cub": "--size 32",
    "features data/flickr30k": "--weights random",
    "features data/flickr8k": "--size 32",
    "features data/photos": "--size 32",
    "features data/tiny": "--size 32",
    "train sc-nlm": LANGUAGE,
    "train additive": LANGUAGE,
    "train multiplicative": LANGUAGE,
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
    (folder / "flickr30k").symlink_to("Flickr8k")
    (folder / "detections.json").write_text(json.dumps(boxes))
    notes = [{"image_id": number, "category_id": number % 3} for number in range(len(records))]
    (folder / "instances_val2014.json").write_text(json.dumps({"annotations": notes}))
    case = {"filename": f"{0:012}.jpg", "caption": "a red circle", "negative_caption": "a blue square"}
    (folder / "swap_att.json").write_text(json.dumps({"0": case}))
    (folder / "tags.txt").write_text("".join(tags))
    (folder / "stopwords.txt").write_text("a\nthe\nand\nof\non\nis\n")
    (folder / "words.txt").write_text("a red circle\na blue square\n")
    (folder / "glove.txt").write_text("".join(f"{word} {'0.5 ' * 15}0.1\n" for word in ("a", "red", "zebra")))
    with (folder / "captions.csv").open("w", newline="") as file:
        csv.writer(file).writerows(rows)
    for name in ("query", "blue_car", "puppy", "wolf", "girl", "dog", "child", "street", "photo"):
        picture.save(folder / f"{name}.jpg")
    write_snli(folder / "snli_1.0", train=144, val=36, test=36)
    write_entities(folder / "Flickr30kEntities")
    write_refcoco(folder / "refcoco", REFS)


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
    if "likelihood" in words:
        words = [{"100": "5"}.get(word, word) for word in words if word != "--no-meteor"]
    if words[0] == "train":
        if "--epochs" in words:  # The sizes say the epochs, and a run takes them from one place.
            place = words.index("--epochs")
            del words[place : place + 2]
        variant = words[words.index("--variant") + 1] if "--variant" in words else None
        if "--seeds" in words:
            words[words.index("--seeds") + 1] = "2"
        given = [word for name, word in zip(words, words[1:], strict=False) if name == "--set"]
        # Fields of image networks are there only when the command has made one of them.
        recipe = recipes.get(words[1], variant).with_overrides(
            [word for word in given if not word.startswith("image.")]
        )
        if "--fine-tune" in words:
            given.append("image.size=32")
        if "--backbone" in words:
            words += ["--weights", "random"]
        if words[1] == "best":
            given += ["image.size=32", *(["image.layer=block2_relu"] if variant is None else [])]
        images = 4 if {"data/cub", "data/cub-all", "data/tiny"} & set(words) else 16
        # The last value of a field holds. A precision that a page gives stays.
        sizes = [size for size in settings(recipe) if not size.startswith("training.precision=")]
        # Kept weights are those of several epochs.
        epochs = 2 if any(word.startswith("training.keep=") for word in given) else 1
        chosen = [*given, *sizes, f"batches.size={images}", f"training.epochs={epochs}"]
        words = [word for place, word in enumerate(words) if "--set" not in words[max(place - 1, 0) : place + 1]]
        words += [word for setting in chosen for word in ("--set", setting)]
    return words


#: Runs and data that pages speak of and other pages make.
BEFORE = """
vsemb prepare captions.csv --images photos --out data/mine
vsemb prepare Flickr8k --format karpathy --out data/flickr8k
vsemb prepare Flickr8k --format karpathy --out data/photos
vsemb prepare CUB_200_2011 --format cub --descriptions cvpr2016_cub --out data/tiny
vsemb features data/tiny --backbone MobileNetV2 --weights imagenet
vsemb features data/flickr8k --backbone MobileNetV2 --weights imagenet
vsemb train best --data data/mine --backbone MobileNetV2 --out runs/mine
vsemb train vsepp --variant tuned --data data/flickr8k --out runs/vsepp
vsemb train order-embedding --data data/flickr8k --out runs/order
vsemb train order-embedding-symmetric --data data/flickr8k --out runs/symmetric
vsemb regions data/flickr8k --backbone MobileNetV2 --weights imagenet
vsemb train dvsa --data data/flickr8k --out runs/regions
vsemb export runs/mine savedmodels/mine
vsemb scenes --out quickstart/scenes --train 260 --val 20 --test 12 --compositional 1
vsemb train contrastive --data quickstart/scenes --out quickstart/run --fine-tune SmallConvNet
"""


class Reader:
    """Types what pages say, in one folder.

    Args:
        stand_ins: word of a command -> what is at hand in its place.
    """

    def __init__(self, stand_ins: dict[str, str]) -> None:
        self.stand_ins = stand_ins
        self.ran: set[tuple[str, ...]] = set()
        self.failed: list[str] = []

    def read(self, name: str, page: list[tuple[str, str]]) -> None:
        """Runs the blocks of a page in order; a server that it starts stops at its end."""
        names: dict[str, object] = {}
        with contextlib.ExitStack() as servers:
            for language, block in page:
                if block in EXAMPLES:
                    continue
                if language == "python":
                    block = re.sub(r"epochs=\d+", "epochs=1", block).replace("(224, 224, 3)", "(32, 32, 3)")
                    for word in ("imagenet", "MobileNetV2", "hub:clip_vit_base_patch32"):
                        block = block.replace(f'"{word}"', f'"{self.stand_ins[word]}"')
                    self._try(f"{name}: {block}", lambda block=block: exec(compile(block, name, "exec"), names))
                    continue
                for line in block.splitlines():
                    if line.startswith("vsemb serve savedmodels/mine"):
                        servers.enter_context(serving())
                    elif line.startswith("vsemb ") and not line.startswith(LEFT_OUT):
                        self._try(f"{name}: {line}", lambda line=line: self._command(line))
                asked = [line for line in block.splitlines() if line.startswith(("model=", "curl ", "printf "))]
                self._try(f"{name}: {block}", lambda asked=asked: ask(asked))

    def _try(self, what: str, act: Callable[[], object]) -> None:
        try:
            act()
        except (Exception, SystemExit):
            self.failed.append(f"{what}\n{traceback.format_exc()[-1500:]}")

    def _command(self, line: str) -> None:
        words = small(line, self.stand_ins)
        if tuple(words) in self.ran:
            return
        self.ran.add(tuple(words))
        print("$ vsemb", shlex.join(words), flush=True)
        assert main(words) == 0, words


@contextlib.contextmanager
def serving() -> Iterator[None]:
    """`vsemb serve savedmodels/mine`, at the ports that the pages name."""
    server = subprocess.Popen([sys.executable, "-m", "vsemb.cli", "serve", "savedmodels/mine"])
    try:
        for _ in range(600):
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", 8501), timeout=1):
                break
            assert server.poll() is None, "the server ended"
            time.sleep(0.2)
        else:
            pytest.fail("the server opened no port")
        yield
    finally:
        server.terminate()
        server.wait(60)


def ask(lines: list[str]) -> None:
    """Runs lines of curl; an answer that is an error fails."""
    if lines:
        done = subprocess.run(["bash", "-euc", "\n".join(lines)], capture_output=True, text=True, check=True)
        assert done.stdout and '"error"' not in done.stdout, done.stdout


@pytest.fixture(scope="module")
def reader(tmp_path_factory, spacy_pipeline, preset_path) -> Iterator[Reader]:
    """A reader who has done what pages expect; pages are read in one folder, in order."""
    folder = tmp_path_factory.mktemp("reader")
    write_sources(folder)
    reader = Reader(
        {
            "imagenet": "random",
            "MobileNetV2": "SmallConvNet",
            "en_core_web_sm": str(spacy_pipeline),
            "clip_vit_base_patch16": str(preset_path("clip")),
            "hub:clip_vit_base_patch32": f"hub:{preset_path('clip')}",
            "hf://google/siglip2-base-patch16-224": str(write_siglip2_checkpoint(folder / "siglip2")),
            **{
                f"text.{part}.name=hf://intfloat/e5-small-v2": f"text.{part}.name=hub:{preset_path('bert')}"
                for part in ("tokenizer", "encoder")
            },
            "hub:vit_base_patch16_224_imagenet": f"hub:{preset_path('vit')}",
            "hub:resnet_50_imagenet": f"hub:{preset_path('resnet')}",
            "120000": "60",
            "1000": "12",
            "coco": "Flickr8k",
            "sick": "snli_1.0",
            "runs/coco": "runs/mine",
            "eccv_caption/data": "instances_val2014.json",
            "sits_test.csv": "instances_val2014.json",
            "coco/val2017": "photos",
            "flickr30k-images": "Flickr30kEntities/flickr30k-images",
            "train2014": "refcoco/images",
            "dog": "circle",
            "cat": "square",
            "bicycle": "star",
        }
    )
    with pytest.MonkeyPatch.context() as patches:
        patches.chdir(folder)
        patches.setattr(vsemb, "train", train_small)
        narrow = partial(keras.applications.MobileNetV2, weights=None, alpha=0.35)
        patches.setattr(keras.applications, "MobileNetV2", narrow)
        reader.read("before", [("sh", BEFORE)])
        yield reader


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_page_runs(page, reader):
    before = len(reader.failed)
    reader.read(str(page.relative_to(ROOT)), code(page, "sh", "python"))
    assert not reader.failed[before:], "\n".join(reader.failed[before:])


@pytest.mark.slow
def test_pages_have_commands(reader):
    assert not reader.failed and len(reader.ran) > 60
