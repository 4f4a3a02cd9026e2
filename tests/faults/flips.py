"""One flipped byte in each kind of file, and what reads it."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Kind:
    """A kind of file.

    Attributes:
        name: of its row in the table.
        files: pattern of the files below the materials.
        read: reads them in the working directory; what it returns must not change.
        aged: whether the file keeps its time of change, as it does where a disk fails.
    """

    name: str
    files: str
    read: Callable[[], bytes]
    aged: bool = False


def digest(*values: Any) -> bytes:
    """Return one digest of arrays, texts and bytes."""
    found = hashlib.sha256()
    for value in values:
        found.update(value.tobytes() if isinstance(value, np.ndarray) else repr(value).encode())
    return found.digest()


def read_dataset() -> bytes:
    """Read what models see of a dataset."""
    from vsemb.data.store import Dataset

    dataset = Dataset.open("featured")
    values: list[Any] = [dataset.splits, dataset.fingerprint]
    for split in map(dataset.split, dataset.splits):
        images = [bytes_ for _, bytes_ in dataset.readable(split.encoded_images().as_numpy_iterator())]
        values += [split.ids, list(split.keys), list(split.captions), list(split.class_names), split.caption_offsets]
        values += [images, split.read_images(np.arange(len(split)))]
    return digest(*values)


def check_dataset() -> bytes:
    """Read a dataset as `vsemb check` does; the first damage is its error."""
    from vsemb.data.check import check_dataset
    from vsemb.errors import DataError

    for line in check_dataset("featured"):
        raise DataError(line)
    return b""


def read_features() -> bytes:
    """Read the cached features, and the network that made them."""
    from vsemb.data.features.store import FeatureStore
    from vsemb.data.store import Dataset
    from vsemb.image.backbones import build_backbone

    dataset = Dataset.open("featured")
    store = FeatureStore.find(dataset)
    network = build_backbone(store.backbone, store.weights_path)
    return digest(store.rows(dataset.ids), store.ids, *network.get_weights())


def read_run() -> bytes:
    """Embed captions and features with a run."""
    from vsemb.data.store import Dataset
    from vsemb.runs.run import Run

    run, dataset = Run.open("run"), Dataset.open("featured")
    split = dataset.split("val")
    rows = run.features_of(dataset).rows(split.ids)
    texts = run.model.encode_texts(run.tokenizer(list(split.captions)))
    return digest(np.asarray(texts), np.asarray(run.model.encode_images(rows)), run.recipe.similarity.to_json())


def read_run_images() -> bytes:
    """Compute features of images with the network that a run keeps."""
    from vsemb.data.store import Dataset
    from vsemb.runs.run import Run

    run, split = Run.open("run"), Dataset.open("featured").split("val")
    features, valid = run.image_input(split.read_images(np.arange(2)))
    return digest(np.asarray(features), np.asarray(valid))


def read_state() -> bytes:
    """Resume: restore what a step depends on."""
    from vsemb.runs.run import STATE, Run
    from vsemb.training.callbacks import SelectBest
    from vsemb.training.resume import TrainingState, _variables

    run = Run.open("run")
    run.model.compile(optimizer=run.recipe.optimizer.build(1, 1), loss=None)
    select = SelectBest("best.weights.h5")
    position = TrainingState(run.path / STATE, [select]).restore(run.model)
    return digest(position, select.kept, *(np.asarray(each) for each in _variables(run.model)))


def read_index() -> bytes:
    """Search an index."""
    from vsemb.searching import read_index as opened

    index = opened("index")
    found = index.search(np.asarray(index.embeddings[:2]), 5)
    return digest(np.asarray(index.embeddings), list(index.keys), list(index.items), found)


def read_savedmodel() -> bytes:
    """Embed texts and images with an exported model."""
    import vsemb
    from vsemb.data.store import Dataset

    model, split = vsemb.load("savedmodels/tiny"), Dataset.open("featured").split("val")
    images = model.encode_images(split.read_images(np.arange(2)))
    return digest(model.encode_texts(list(split.captions[:4])), images, model.compared_by.to_json())


_RUN, _CACHE = "run/", "featured/features/*/"

KINDS = (
    Kind("dataset: manifest.json", "featured/manifest.json", read_dataset),
    Kind("dataset: index", "featured/*.index.arrow", read_dataset),
    Kind("dataset: shard", "featured/*.tfrecord", read_dataset),
    Kind("dataset: index, by `vsemb check`", "featured/*.index.arrow", check_dataset, aged=True),
    Kind("dataset: shard, by `vsemb check`", "featured/*.tfrecord", check_dataset, aged=True),
    Kind("features: manifest.json", f"{_CACHE}manifest.json", read_features),
    Kind("features: features.npy", f"{_CACHE}features.npy", read_features),
    Kind("features: features.npy, time of change kept, by `vsemb check`", f"{_CACHE}features.npy", check_dataset, True),
    Kind("features: ids.npy", f"{_CACHE}ids.npy", read_features),
    Kind("features: backbone.weights.h5", f"{_CACHE}backbone.weights.h5", read_features),
    Kind("run: recipe.json", f"{_RUN}recipe.json", read_run),
    Kind("run: run.json", f"{_RUN}run.json", read_run),
    Kind("run: vocabulary.txt", f"{_RUN}vocabulary.txt", read_run),
    Kind("run: best.weights.h5", f"{_RUN}checkpoints/best.weights.h5", read_run),
    Kind("run: state.npz", f"{_RUN}checkpoints/state.npz", read_state),
    Kind("run: backbone.json", f"{_RUN}backbone/backbone.json", read_run_images),
    Kind("run: backbone.weights.h5", f"{_RUN}backbone/backbone.weights.h5", read_run_images),
    Kind("index: manifest.json", "index/manifest.json", read_index),
    Kind("index: arrays and items", "index/*.[na]*", read_index),
    Kind("SavedModel: saved_model.pb", "savedmodels/tiny/1/saved_model.pb", read_savedmodel),
    Kind("SavedModel: variables", "savedmodels/tiny/1/variables/variables.data-*", read_savedmodel),
    Kind("SavedModel: variables.index", "savedmodels/tiny/1/variables/variables.index", read_savedmodel),
)


def flip(path: Path, generator: np.random.Generator, aged: bool) -> bytes:
    """Flip one bit of a file; return what it was."""
    whole, status = path.read_bytes(), path.stat()
    place, bit = int(generator.integers(len(whole))), int(generator.integers(8))
    path.write_bytes(whole[:place] + bytes([whole[place] ^ 1 << bit]) + whole[place + 1 :])
    if aged:
        os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    return whole
