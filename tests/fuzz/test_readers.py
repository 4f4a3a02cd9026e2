"""Damaged sources: every reader gives rows or an error of vsemb."""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from pipelines.hypernymy.wordnet import read_wordnet
from tests.data.wordnet_files import write_wordnet
from tests.fuzz.mutations import damaged, dumped, edits, json_values, read_damaged, with_value
from vsemb.data.readers import infer_format, read
from vsemb.systems.regions.detections import read_detections_of_one
from vsemb.systems.trees.trees import read_conllu
from vsemb.text.vocabulary import Vocabulary
from vsemb.text.word_vectors import read_word_vectors

NAMES = ("dog.jpg", "cat.jpg", "a b.jpg")


def photo() -> bytes:
    stream = io.BytesIO()
    Image.new("RGB", (4, 4)).save(stream, "JPEG")
    return stream.getvalue()


def karpathy(folder: Path) -> None:
    images = [
        {
            "filename": name,
            "imgid": number,
            "split": split,
            "sentids": [2 * number, 2 * number + 1],
            "sentences": [{"raw": f"{word} {name}", "sentid": 2 * number + place} for place, word in enumerate("ab")],
        }
        for number, (name, split) in enumerate(zip(NAMES, ("train", "restval", "test"), strict=True))
    ]
    (folder / "dataset_flickr8k.json").write_text(json.dumps({"images": images, "dataset": "flickr8k"}))


def coco(folder: Path) -> None:
    images = [{"id": number, "file_name": name} for number, name in enumerate(NAMES)]
    notes = [{"id": 7 + n, "image_id": n, "caption": f"a {name}"} for n, name in enumerate(NAMES)]
    (folder / "captions_val2017.json").write_text(json.dumps({"images": images, "annotations": notes}))


def flickr(folder: Path) -> None:
    lines = [f"{name}#{number}\ta {name}" for name in NAMES for number in range(2)]
    (folder / "Flickr8k.token.txt").write_text("\n".join(lines))
    for part, name in zip(("train", "dev", "test"), NAMES, strict=True):
        (folder / f"Flickr_8k.{part}Images.txt").write_text(name + "\n")


def table(separator: str, name: str) -> Callable[[Path], None]:
    def make(folder: Path) -> None:
        rows = [("file", "caption", "split", "class"), *((n, f"a {n}", "train", "pets") for n in NAMES)]
        (folder / name).write_text("\n".join(separator.join(row) for row in rows) + "\n")

    return make


def lines(folder: Path) -> None:
    rows = [{"file": name, "caption": [f"a {name}", "b"], "split": "val"} for name in NAMES]
    (folder / "table.jsonl").write_text("\n".join(map(json.dumps, rows)) + "\n")


def parquet(folder: Path) -> None:
    rows = {"image": [photo()] * 3, "caption": [["a", "b"]] * 3, "key": list(NAMES)}
    pyarrow.parquet.write_table(pa.table(rows), folder / "train.parquet")


def tar(folder: Path) -> None:
    with tarfile.open(folder / "train-000.tar", "w") as shard:
        for number in range(3):
            for kind, content in (("jpg", photo()), ("txt", b"a\nb"), ("json", b'{"caption": "c", "key": "k"}')):
                member = tarfile.TarInfo(f"{number}.{kind}")
                member.size = len(content)
                shard.addfile(member, io.BytesIO(content))


def vsepp(folder: Path) -> None:
    for part in ("train", "dev", "test"):
        np.save(folder / f"{part}_ims.npy", np.arange(20.0, dtype=np.float32).reshape(10, 2) // 10)
        (folder / f"{part}_caps.txt").write_text("".join(f"caption {n}\n" for n in range(10)))


def source_of(format: str) -> Callable[[Path], object]:
    def reading(folder: Path) -> object:
        infer_format(folder)
        return list(read(format, folder).records)

    return reading


def conllu(folder: Path) -> None:
    (folder / "t.conllu").write_text(
        "# text = a dog runs\n1\ta\ta\tDET\tDT\t_\t2\tdet\t_\t_\n2\tdog\tdog\tNOUN\tNN\t_\t3\tnsubj\t_\t_\n"
        "3\truns\trun\tVERB\tVBZ\t_\t0\troot\t_\t_\n\n# id = 2\n1\ta\ta\tDET\tDT\t_\t0\troot\t_\t_\n\n"
    )


def vectors(folder: Path) -> None:
    (folder / "v.txt").write_text("3 2\ndog 1 2\ncat 3 4\nDog -1.5 1e-3\n")


def detections(folder: Path) -> None:
    boxes = [{"image_id": 1, "category_id": 2, "bbox": [0, 1, 5.5, 3], "score": 0.5 + n / 9} for n in range(3)]
    (folder / "d.json").write_text(json.dumps(boxes))


WORDS = Vocabulary(["dog", "cat"])
#: name -> what writes a source, the file that is damaged, and what reads the folder.
SOURCES: dict[str, tuple[Callable[[Path], Any], str, Callable[[Path], object]]] = {
    "karpathy": (karpathy, "dataset_flickr8k.json", source_of("karpathy")),
    "coco": (coco, "captions_val2017.json", source_of("coco")),
    "tokens": (flickr, "Flickr8k.token.txt", source_of("flickr")),
    "splits": (flickr, "Flickr_8k.devImages.txt", source_of("flickr")),
    "csv": (table(",", "t.csv"), "t.csv", source_of("table")),
    "tsv": (table("\t", "t.tsv"), "t.tsv", source_of("table")),
    "jsonl": (lines, "table.jsonl", source_of("table")),
    "parquet": (parquet, "train.parquet", source_of("parquet")),
    "tar": (tar, "train-000.tar", source_of("webdataset")),
    "npy": (vsepp, "train_ims.npy", source_of("vsepp")),
    "captions of npy": (vsepp, "train_caps.txt", source_of("vsepp")),
    "conllu": (conllu, "t.conllu", lambda folder: list(read_conllu(folder / "t.conllu"))),
    "glove": (vectors, "v.txt", lambda folder: read_word_vectors(folder / "v.txt", WORDS)),
    "wordnet": (write_wordnet, "data.noun", read_wordnet),
    "detections": (detections, "d.json", lambda folder: read_detections_of_one(folder / "d.json", (20, 10))),
}


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    made: dict[str, Path] = {}

    def source(name: str) -> Path:
        if name not in made:
            made[name] = tmp_path_factory.mktemp("source")
            for image in NAMES:
                (made[name] / image).write_bytes(photo())
            SOURCES[name][0](made[name])
        return made[name]

    return source


@pytest.mark.parametrize("name", SOURCES)
def test_a_source_as_it_is_can_be_read(name: str, sources) -> None:
    assert SOURCES[name][2](sources(name))


@pytest.mark.parametrize("name", SOURCES)
@given(changes=edits)
def test_damaged_bytes(name: str, changes, sources) -> None:
    _, file, reading = SOURCES[name]
    content = damaged((sources(name) / file).read_bytes(), changes)
    read_damaged(sources(name), file, content, reading)


@pytest.mark.parametrize("name", ["karpathy", "coco", "detections", "jsonl"])
@given(place=st.integers(0, 200), value=json_values)
def test_other_values(name: str, place: int, value, sources) -> None:
    _, file, reading = SOURCES[name]
    before = (sources(name) / file).read_text()
    documents = [json.loads(line) for line in before.splitlines()]
    row = place % len(documents)
    documents[row] = with_value(documents[row], place, value)
    read_damaged(sources(name), file, b"\n".join(map(dumped, documents)), reading)


def test_files_that_crashed(sources) -> None:
    """An image name longer than the file system takes, a Parquet footer an npy header that cannot be parsed, and
    numbers whose squares have no sum in float32."""
    for name, changes in (
        ("splits", [("change", 0.0, 1, b"0" * 5000)]),
        ("parquet", [("change", 0.0, 1, b""), ("repeat", 0.0, 1, b""), ("change", 0.5, 1, b"\xff")]),
        ("npy", [("change", 0.5, 1, b"(")]),
        ("glove", [("insert", 0.5, 1, b"99999999999999999999")]),
    ):
        _, file, reading = SOURCES[name]
        content = damaged((sources(name) / file).read_bytes(), changes)
        read_damaged(sources(name), file, content, reading)
