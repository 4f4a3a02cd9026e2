"""The input pipeline beside Pillow, NLTK, plain Python, TFRecord, a memory map and VSE++'s loader.

    python -m tests.benchmarks.pipeline [--images 100 200 400] [--captions 5000 10000 20000] [--json FILE]

- JPEGs of noise with the sizes of photographs (500 x 375) and of pictures of phones (12 megapixels) to 224 x 224
  pixels, against Pillow, which decodes at a reduced scale (`draft`) as ours does;
- captions to ids, against NLTK's `word_tokenize` and against a split in plain Python, each with a dictionary;
- rows of 4,096 features in random order, in memory and from disk, against TFRecords parsed one by one and a
  memory map read batch by batch;
- features and captions to training batches, against the loader of VSE++'s code (arXiv:1707.05612): a PyTorch
  `DataLoader` that tokenizes and looks up caption by caption and sorts each batch by length.

CPU time of all threads, in turns; NLTK and PyTorch are in processes of their own.
"""

from __future__ import annotations

import argparse
import collections
import io
import os
import tempfile
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
import tensorflow as tf
from PIL import Image

from tests.benchmarks.noise import noise_split
from tests.benchmarks.peers import Peer
from tests.benchmarks.timing import (
    CONSECUTIVE,
    beside,
    cpu_seconds,
    growth_rows,
    interleaved,
    print_rows,
    row,
    set_threads,
)
from vsemb.data.batches import PairBatches
from vsemb.data.features.store import FeatureStore
from vsemb.data.sources import FeatureImages
from vsemb.files import write_json
from vsemb.image.decode import decode_images
from vsemb.text.tokenizers import WordTokenizer
from vsemb.text.vocabulary import Vocabulary

SIDE, DIM, BATCH, CAPTIONS = 224, 4096, 128, 5
JPEG, PHONE = "JPEG to pixels / Pillow", "JPEG of 12 megapixels to pixels / Pillow"
NLTK, PYTHON = "captions to ids / NLTK", "captions to ids / plain Python"
TFRECORD, MEMMAP = "feature rows / TFRecord", "feature rows / memory map"
DISK, LOADER = "feature rows from disk / TFRecord", "rows to batches / VSE++'s loader"
GROWTH = "{}, growth"


def photographs(count: int, side: tuple[int, int] = (500, 375)) -> list[bytes]:
    """JPEGs of smooth noise with a little grain: about 100 KB each of 500 x 375, 4 MB of 4,000 x 3,000."""
    generator, made = np.random.default_rng(0), []
    for _ in range(count):
        coarse = Image.fromarray(generator.integers(0, 256, (24, 32, 3), dtype=np.uint8))
        pixels = np.asarray(coarse.resize(side, Image.Resampling.BICUBIC), np.float32)
        pixels = np.clip(pixels + generator.normal(0, 12, pixels.shape), 0, 255).astype(np.uint8)
        written = io.BytesIO()
        Image.fromarray(pixels).save(written, "JPEG", quality=90)
        made.append(written.getvalue())
    return made


def consumed(batches: Iterable[Any]) -> float:
    """CPU time of batches; each is let go when the next one comes, and its memory with it, as a training step does."""
    return cpu_seconds(lambda: collections.deque(batches, maxlen=1))


def by_pillow(encoded: list[bytes]) -> np.ndarray:
    """Decodes at the smallest scale that leaves the size, and resizes, (n, side, side, 3) uint8."""
    pixels = []
    for data in encoded:
        image = Image.open(io.BytesIO(data))
        image.draft("RGB", (SIDE, SIDE))
        pixels.append(np.asarray(image.convert("RGB").resize((SIDE, SIDE), Image.Resampling.BILINEAR)))
    return np.stack(pixels)


def decoding(count: int, rounds: int) -> list[dict[str, Any]]:
    """The rows of one number of images; of a twentieth as many, but of 12 megapixels, too."""
    return [
        *decoded(JPEG, photographs(count), rounds),
        *decoded(PHONE, photographs(max(2, count // 20), (4000, 3000)), rounds),
    ]


def decoded(name: str, encoded: list[bytes], rounds: int) -> list[dict[str, Any]]:
    """The row of these images."""
    count = len(encoded)

    def ours(part: list[bytes]) -> np.ndarray:
        return decode_images(part, SIDE)[0].numpy()

    parts = [encoded[start : start + BATCH] for start in range(0, count, BATCH)]
    # Both decode with libjpeg and resize with antialiasing, in arithmetic of different precision.
    assert np.abs(ours(parts[0]) - by_pillow(parts[0])).mean() < 1
    seconds = interleaved(
        {"ours": lambda: consumed(map(ours, parts)), "pillow": lambda: consumed(map(by_pillow, parts))}, rounds
    )
    rate = count / seconds["ours"]
    return [row(name, f"{count} images", seconds["pillow"] / seconds["ours"], images_per_second=rate, **seconds)]


def sentences(count: int) -> tuple[list[str], Vocabulary]:
    """Captions of random words, with the lengths of real ones, and 8,000 words that are known."""
    generator = np.random.default_rng(1)
    letters = generator.integers(97, 123, (8500, 9), dtype=np.uint8)
    words = [bytes(letters[i, : 2 + i % 8]).decode() for i in range(len(letters))]
    lengths = np.clip(np.rint(generator.lognormal(2.35, 0.33, count)), 5, 40).astype(int)
    texts = [
        " ".join(words[i] for i in (len(words) * generator.random(length) ** 3).astype(int)).capitalize() + " ."
        for length in lengths
    ]
    return texts, Vocabulary(sorted(set(words[:8000])))


def tokenizing(count: int, rounds: int) -> list[dict[str, Any]]:
    """The rows of one number of captions."""
    texts, vocabulary = sentences(count)
    tokenizer = WordTokenizer(vocabulary)
    known = {word: number for number, word in enumerate(vocabulary.words, 2)}

    ways: dict[str, Callable[[], float]] = {
        # Several times in a row: one call is so short that caches, cold after the peer, would be a third of it.
        "ours": lambda: cpu_seconds(lambda: tokenizer.encode(texts), CONSECUTIVE),
        "python": lambda: cpu_seconds(
            lambda: [[known.get(word, 1) for word in each.lower().split()] for each in texts], CONSECUTIVE
        ),
    }
    given = {"texts": texts, "words": list(vocabulary.words)}
    with Peer("nltk", "tests.benchmarks.peers.words:ids", **given) as peer:
        seconds = interleaved(ways | {"peer": lambda: peer()["seconds"]}, rounds)
    size, rate = f"{count} captions", count / seconds["ours"]
    return [
        beside(peer, NLTK, size, seconds, captions_per_second=rate),
        beside(peer, PYTHON, size, seconds, "python", captions_per_second=rate),
    ]


def feature_images(features: np.ndarray, memory: int) -> FeatureImages:
    """An image source over features, in memory or read from disk batch by batch."""
    ids = np.arange(len(features))
    manifest = {"fingerprint": "noise", "backbone": None}
    split: Any = SimpleNamespace(ids=ids)
    return FeatureImages(FeatureStore(Path(), manifest, ids, features), split, memory=memory)


def feature_rows(count: int, folder: Path, rounds: int) -> list[dict[str, Any]]:
    """The rows of one number of feature vectors; both ways read the files from the system's cache."""
    np.save(folder / "features.npy", np.random.default_rng(0).standard_normal((count, DIM), np.float32))
    features = np.load(folder / "features.npy", mmap_mode="r")
    with tf.io.TFRecordWriter(str(folder / "features.tfrecord")) as writer:
        for vector in features:
            value = tf.train.Feature(float_list=tf.train.FloatList(value=vector))
            example = tf.train.Example(features=tf.train.Features(feature={"x": value}))
            writer.write(example.SerializeToString())
    plan = np.random.default_rng(1).permutation(count)[: count // BATCH * BATCH].reshape(-1, BATCH)
    spec = {"x": tf.io.FixedLenFeature((DIM,), tf.float32)}
    records = tf.data.TFRecordDataset(str(folder / "features.tfrecord"))
    records = records.map(lambda record: tf.io.parse_single_example(record, spec)["x"]).batch(BATCH)
    images = {"ours": feature_images(features, 4 << 30), "disk": feature_images(features, 0)}

    def gathered(source: FeatureImages) -> float:
        return consumed(source.gather(chosen) for chosen in plan)

    seconds = interleaved(
        {
            **{name: partial(gathered, source) for name, source in images.items()},
            "tfrecord": lambda: consumed(batch.numpy() for batch in records),
            "memmap": lambda: consumed(np.asarray(features[chosen]) for chosen in plan),
        },
        rounds,
    )
    size = f"{count} x {DIM}"
    return [
        row(TFRECORD, size, seconds["tfrecord"] / seconds["ours"], rows_per_second=count / seconds["ours"]),
        row(DISK, size, seconds["tfrecord"] / seconds["disk"], rows_per_second=count / seconds["disk"]),
        row(MEMMAP, size, seconds["memmap"] / seconds["ours"]),
    ]


def batching(count: int, rounds: int) -> list[dict[str, Any]]:
    """The rows of an epoch of so many captions; ours were tokenized once before."""
    count -= count % CAPTIONS
    texts, vocabulary = sentences(count)
    features = np.random.default_rng(2).standard_normal((count // CAPTIONS, DIM), np.float32)
    split = noise_split(len(features), texts)
    images = feature_images(features, 4 << 30)
    dataset = PairBatches(split, images, WordTokenizer(vocabulary), batch_size=BATCH).dataset()
    given = {"features": features, "texts": texts, "words": list(vocabulary.words), "batch": BATCH}
    with Peer("torch", "tests.benchmarks.peers.vsepp:loader", **given) as peer:
        epoch = partial(collections.deque, dataset, maxlen=1)
        ways = {"ours": lambda: cpu_seconds(epoch, CONSECUTIVE), "peer": lambda: peer()["seconds"]}
        seconds = interleaved(ways, rounds)
    rate = count / seconds["ours"]
    return [beside(peer, LOADER, f"{count} captions", seconds, captions_per_second=rate)]


def main() -> None:
    """Runs the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, nargs="+", default=[100, 200, 400])
    parser.add_argument("--captions", type=int, nargs="+", default=[5000, 10_000, 20_000])
    parser.add_argument("--rows", type=int, nargs="+", default=[2048, 4096, 8192])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", metavar="FILE")
    arguments = parser.parse_args()
    set_threads(arguments.threads)
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        parts: dict[str, tuple[list[int], Callable[[int], list[dict[str, Any]]]]] = {
            JPEG: (arguments.images, lambda count: decoding(count, arguments.rounds)),
            PYTHON: (arguments.captions, lambda count: tokenizing(count, arguments.rounds)),
            TFRECORD: (arguments.rows, lambda count: feature_rows(count, Path(folder), arguments.rounds)),
            LOADER: (arguments.captions, lambda count: batching(count, arguments.rounds)),
        }
        for name, (sizes, measure) in parts.items():
            rates = []
            for size in sizes:
                found = measure(size)
                rows += found
                rates += [v for each in found for k, v in each.items() if each["name"] == name and "_per_" in k]
            if len(rates) == len(sizes):
                seconds = [size / rate for size, rate in zip(sizes, rates, strict=True)]
                rows += growth_rows(GROWTH.format(name.split(" / ")[0]), sizes, seconds)
    print_rows(rows)
    if arguments.json:
        write_json(arguments.json, {"threads": arguments.threads, "rows": rows})


if __name__ == "__main__":
    main()
