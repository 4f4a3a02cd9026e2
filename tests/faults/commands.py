"""The commands that meet faults, each on tiny data in a folder of its own, and what their results are."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from tests.tiny import settings

if TYPE_CHECKING:
    from vsemb.data.store import StoredDataset

# Fields that say when or how fast.
_TIMES = {"seconds", "finished", "started"}
_FEATURES = ("--backbone", "SmallConvNet", "--weights", "random", "--size", "32")


@dataclass(frozen=True)
class Case:
    """A command and its inputs.

    Attributes:
        name: of its row in the table.
        needs: what of the materials it reads, copied to its folder before each try.
        run: runs it in the working directory; returns the exit status.
    """

    name: str
    needs: tuple[str, ...]
    run: Callable[[], int | None]


def vsemb(*words: str) -> Callable[[], int]:
    """Return a function that runs `vsemb`."""

    def run() -> int:
        from vsemb.cli.__main__ import main

        return main([*words, "--quiet"])

    return run


def _beam() -> int:
    from pipelines.beam_prepare import main

    return main(["source", *_TABLE])


def _train(recipe: str, data: str, *given: str) -> Callable[[], int]:
    def run() -> int:
        from vsemb import recipes

        fields = [word for each in settings(recipes.get(recipe)) for word in ("--set", each)]
        # The state is stored after each step, the smallest unit that a kill can lose.
        words = ("--data", data, "--out", "out", "--checkpoint-seconds", "0", *given)
        return vsemb("train", recipe, *fields, *words)()

    return run


_TABLE = ("--format", "table", "--out", "out", "--images-per-shard", "8")

CASES = {
    case.name: case
    for case in (
        Case("prepare", ("source",), vsemb("prepare", "source", *_TABLE)),
        Case("features", ("scenes",), vsemb("features", "scenes", *_FEATURES, "--batch-size", "8")),
        Case("regions", ("scenes",), vsemb("regions", "scenes", *_FEATURES, "--count", "3", "--pooling", "crops")),
        Case("parse", ("scenes", "pipeline"), vsemb("annotate", "scenes", "dependencies", "--model", "pipeline")),
        Case("tag", ("scenes", "tags.txt"), vsemb("annotate", "scenes", "pos-tags", "--file", "tags.txt")),
        Case("train retrieval", ("featured",), _train("vsepp", "featured", "--variant", "paper")),
        Case("train captions", ("featured",), _train("multimodal-rnn", "featured")),
        Case("train language", ("featured",), _train("log-bilinear", "featured")),
        Case("index", ("featured", "run"), vsemb("index", "run", "--data", "featured", "--out", "out")),
        Case("export", ("featured", "run"), vsemb("export", "run", "out/tiny")),
        Case("Beam prepare", ("source",), _beam),
    )
}


def make_materials(needed: Sequence[str]) -> None:
    """Make what cases need in the working directory."""
    from vsemb.data.store import StoredDataset
    from vsemb.data.synthetic import generate
    from vsemb.data.writing.writer import write_dataset

    records = list(generate({"train": 16, "val": 6, "test": 4}, seed=5, image_size=32))
    Path("source").mkdir()
    rows = ["file\tcaption\tsplit"]
    for number, record in enumerate(records):
        Path(f"source/{number}.png").write_bytes(record.image)
        rows += [f"{number}.png\t{caption}\t{record.split}" for caption in record.captions]
    Path("source/table.tsv").write_text("\n".join(rows) + "\n", encoding="utf-8")
    if set(needed) <= {"source"}:
        return
    source = {"format": "scenes", "path_name": "scenes", "sha256": {}, "options": {}}
    dataset = write_dataset(records, "scenes", name="scenes", source=source, images_per_shard=10)
    if "tags.txt" in needed:
        _write_tags(dataset)
    if "pipeline" in needed:
        from tests.systems.trees.spacy_pipeline import write_pipeline

        write_pipeline(Path("pipeline"))
    if {"featured", "run", "index", "savedmodels"} & set(needed):
        shutil.copytree("scenes", "featured")
        _must(vsemb("features", "featured", *_FEATURES)())
    if "annotated" in needed:
        shutil.copytree("scenes", "annotated")
        _must(vsemb("regions", "annotated", *_FEATURES, "--count", "3", "--pooling", "crops")())
        _annotate(StoredDataset.open("annotated"))
    if {"run", "index", "savedmodels"} & set(needed):
        # The state then has moving averages, and the weights have a bank of hubs.
        fields = ("training.keep=2", "optimizer.ema_momentum=0.5", "hub_bank=8")
        given = (word for each in fields for word in ("--set", each))
        _must(_train("vsepp", "featured", "--variant", "paper", *given)())
        Path("out").rename("run")
    if "index" in needed:
        _must(vsemb("index", "run", "--data", "featured", "--out", "index")())
    if "savedmodels" in needed:
        _must(vsemb("export", "run", "savedmodels/tiny")())


def _write_tags(dataset: StoredDataset) -> None:
    from vsemb.text.normalize import words_of

    splits = [dataset.split(name) for name in dataset.splits]
    captions = [pair for split in splits for pair in zip(split.caption_ids, words_of(split.captions), strict=True)]
    lines = [f"{name}\t{' '.join(f'{word}/NN' for word in words)}\n" for name, words in captions]
    Path("tags.txt").write_text("".join(lines), encoding="utf-8")


def _annotate(dataset: StoredDataset) -> None:
    """Store parts of speech, and attributes of classes."""
    from vsemb.systems.zero_shot.attributes import ClassAttributes, write_attributes

    _write_tags(dataset)
    _must(vsemb("annotate", str(dataset.path), "pos-tags", "--file", "tags.txt")())
    values = {"crow": np.array([0.25, 1.0]), "gull": np.array([0.5, 0.0])}
    write_attributes(dataset.path, ClassAttributes(("black", "large"), values))


def _must(status: int) -> None:
    if status:
        raise RuntimeError(f"exit status {status}")


def result(folder: Path) -> dict[str, str]:
    """Return file -> digest of what a command left in its folder, without times; hidden leftovers count.

    Of several versions of an exported model, which a rerun after a late kill makes, each must be the same.
    """
    found: dict[str, str] = {}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        # TensorBoard's logs have names of the time; what was verified is known by times, too.
        if path.is_dir() or path.name in (".verified.json", "lock") or "logs/" in name:
            continue
        content = path.read_bytes()
        if versioned := re.match(r"out/tiny/\d+/", name):
            name = name.replace(versioned[0], "out/tiny/N/")
        if path.suffix in (".json", ".jsonl"):
            content = b"\n".join(_timeless(line) for line in _documents(path.suffix, content))
        if path.suffix == ".md":
            content = re.sub(rb"(tiny/|[Vv]ersion:? \**)\d+", b"N", content)
        digest = hashlib.sha256(content).hexdigest()
        found[name] = digest if found.get(name, digest) == digest else "versions differ"
    return found


def _documents(suffix: str, content: bytes) -> list[bytes]:
    return content.splitlines() if suffix == ".jsonl" else [content]


def _timeless(text: bytes) -> bytes:
    def kept(value: object) -> object:
        if isinstance(value, dict):
            return {name: kept(each) for name, each in value.items() if name not in _TIMES}
        return value

    try:
        value = kept(json.loads(text))
    except ValueError:
        return text
    if isinstance(value, dict) and "model_version" in value:
        value["model_version"] = "N"
    return json.dumps(value, sort_keys=True).encode()
