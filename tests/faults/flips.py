"""One flipped byte in each kind of file, on each way that reads it."""

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
    from vsemb.data.store import StoredDataset

    dataset = StoredDataset.open("featured")
    values: list[Any] = [dataset.splits, dataset.fingerprint]
    for split in map(dataset.split, dataset.splits):
        images = [bytes_ for _, bytes_ in dataset.readable(split.encoded_images().as_numpy_iterator())]
        values += [split.ids, list(split.keys), list(split.captions), list(split.class_names), split.caption_offsets]
        values += [images, split.read_images(np.arange(len(split)))]
    return digest(*values)


def check_dataset() -> bytes:
    """Read a dataset as `vsemb check` does; the first damage is its error."""
    from vsemb.data.check import check
    from vsemb.errors import DataError

    for line in check("featured").damaged:
        raise DataError(line)
    return b""


def read_features() -> bytes:
    """Read the cached features, and the network that made them."""
    from vsemb.data.features.store import FeatureStore
    from vsemb.data.store import StoredDataset
    from vsemb.image.backbones import build_backbone

    dataset = StoredDataset.open("featured")
    store = FeatureStore.find(dataset)
    network = build_backbone(store.backbone, store.weights_path)
    return digest(store.rows(dataset.ids), store.ids, *network.get_weights())


def read_run() -> bytes:
    """Embed captions and features with a run."""
    from vsemb.data.store import StoredDataset
    from vsemb.runs.run import Run

    run, dataset = Run.open("run"), StoredDataset.open("featured")
    split = dataset.split("val")
    rows = run.features_of(dataset).rows(split.ids)
    texts = run.model.encode_texts(run.tokenizer(list(split.captions)))
    return digest(np.asarray(texts), np.asarray(run.model.encode_images(rows)), run.recipe.similarity.to_json())


def read_run_images() -> bytes:
    """Compute features of images with the network that a run keeps."""
    from vsemb.data.store import StoredDataset
    from vsemb.runs.run import Run

    run, split = Run.open("run"), StoredDataset.open("featured").split("val")
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
    from vsemb.searching.storage import read_index as opened

    index = opened("index")
    found = index.search(np.asarray(index.embeddings[:2]), 5)
    return digest(np.asarray(index.embeddings), list(index.keys), list(index.items), found)


def read_savedmodel() -> bytes:
    """Embed texts and images with an exported model."""
    import vsemb
    from vsemb.data.store import StoredDataset

    model, split = vsemb.load("savedmodels/tiny"), StoredDataset.open("featured").split("val")
    images = model.encode_images(split.read_images(np.arange(2)))
    return digest(model.encode_texts(list(split.captions[:4])), images, model.compared_by.to_json())


def read_images_of_batches() -> bytes:
    """Read images as training does from more pixels than fit in memory."""
    return digest(*_batches(memory=0))


def read_images_in_memory() -> bytes:
    """Read images as training does from pixels that fit in memory."""
    return digest(*_batches(memory=1 << 30))


def _batches(memory: int) -> list[np.ndarray]:
    from vsemb.data.batches import image_batches
    from vsemb.data.sources import PixelImages
    from vsemb.data.store import StoredDataset
    from vsemb.errors import reader_errors

    split = StoredDataset.open("featured").split("train")
    with reader_errors():
        images = PixelImages(split, 32, memory=memory)
        return [batch["image"].numpy() for batch in image_batches(images, np.arange(len(split)), 4)]


def read_images_of_a_service() -> bytes:
    """Read images as the workers of a tf.data service do; what they cannot read, this process makes."""
    import tensorflow as tf

    from vsemb.data.sources import ServicePixels
    from vsemb.data.store import StoredDataset

    if not _SERVICE:
        _SERVICE.append(tf.data.experimental.service.DispatchServer())
        address = _SERVICE[0].target.split("://")[1]
        config = tf.data.experimental.service.WorkerConfig(dispatcher_address=address)
        _SERVICE.append(tf.data.experimental.service.WorkerServer(config))
    split = StoredDataset.open("featured").split("train")
    images = ServicePixels(split, 32, address=_SERVICE[0].target)
    rows = np.arange(len(split)).reshape(2, -1)
    return digest(*images.stream(iter(rows), np.zeros((2, 2), np.int32)))


_SERVICE: list[Any] = []


def read_large_index() -> bytes:
    """Read captions and ids of a dataset whose indexes count as large."""
    from vsemb.data import manifest
    from vsemb.data.store import StoredDataset

    before, manifest._READ_IN_FULL = manifest._READ_IN_FULL, 0
    try:
        dataset = StoredDataset.open("featured")
        splits = [dataset.split(name) for name in dataset.splits]
        return digest(*((split.ids, list(split.captions), list(split.keys), split.caption_offsets) for split in splits))
    finally:
        manifest._READ_IN_FULL = before


def read_tokens() -> bytes:
    """Read the stored token ids of captions that count as many; damaged ones are made again."""
    from vsemb.data import tokens
    from vsemb.data.store import StoredDataset
    from vsemb.text import Vocabulary, WordTokenizer

    before, tokens._MANY = tokens._MANY, 0
    try:
        split = StoredDataset.open("featured").split("train")
        return digest(*map(np.array, tokens.encoded_captions(split, WordTokenizer(Vocabulary(["a", "red"])))))
    finally:
        tokens._MANY = before


def read_feature_batches() -> bytes:
    """Read features as training does from more than fit in memory."""
    from vsemb.data.features.store import FeatureStore
    from vsemb.data.sources import FeatureImages
    from vsemb.data.store import StoredDataset

    dataset = StoredDataset.open("featured")
    split = dataset.split("train")
    return digest(FeatureImages(FeatureStore.find(dataset), split, memory=0).gather(np.arange(len(split))))


def read_regions() -> bytes:
    """Read the cached regions of images."""
    from vsemb.data.store import StoredDataset
    from vsemb.systems.regions.region_store import RegionStore

    dataset = StoredDataset.open("annotated")
    store = RegionStore.find(dataset)
    return digest(store.ids, *(np.asarray(each) for each in (store._features, *store._beside.values())))


def read_annotations() -> bytes:
    """Read parts of speech of captions, and attributes of classes."""
    from vsemb.data.store import StoredDataset

    dataset = StoredDataset.open("annotated")
    tags, attributes = dataset.annotation("tags"), dataset.annotation("attributes")
    some = [list(tags.of(dataset.split(name))) for name in dataset.splits]
    return digest(some, attributes.names, sorted(attributes.values), *attributes.values.values())


def read_kept_epochs() -> bytes:
    """Read the weights of each epoch that a run keeps."""
    from vsemb.runs.run import Run

    return digest(*(weight for run in Run.open("run").kept for weight in run.model.get_weights()))


_RUN, _CACHE = "run/", "featured/features/*/"

KINDS = (
    Kind("dataset: manifest.json", "featured/manifest.json", read_dataset),
    Kind("dataset: index", "featured/*.index.arrow", read_dataset),
    Kind("dataset: shard", "featured/*.tfrecord", read_dataset),
    Kind("dataset: shard, by batches from disk", "featured/train-*.tfrecord", read_images_of_batches),
    Kind("dataset: shard, by pixels in memory", "featured/train-*.tfrecord", read_images_in_memory),
    Kind("dataset: shard, by a tf.data service", "featured/train-*.tfrecord", read_images_of_a_service),
    Kind("dataset: index above 128 MiB", "featured/*.index.arrow", read_large_index),
    Kind("dataset: token ids", "featured/tokens/*/*", read_tokens),
    Kind("dataset: index, by `vsemb check`", "featured/*.index.arrow", check_dataset, aged=True),
    Kind("dataset: shard, by `vsemb check`", "featured/*.tfrecord", check_dataset, aged=True),
    Kind("features: manifest.json", f"{_CACHE}manifest.json", read_features),
    Kind("features: features.npy", f"{_CACHE}features.npy", read_features),
    Kind("features: features.npy, time of change kept, by `vsemb check`", f"{_CACHE}features.npy", check_dataset, True),
    Kind("features: features.npy, by batches from disk", f"{_CACHE}features.npy", read_feature_batches),
    Kind("features: ids.npy", f"{_CACHE}ids.npy", read_features),
    Kind("features: backbone.weights.h5", f"{_CACHE}backbone.weights.h5", read_features),
    Kind("regions: manifest and arrays", "annotated/regions/*/*.[jn]*", read_regions),
    Kind("annotations: tags", "annotated/tags/*", read_annotations),
    Kind("annotations: attributes", "annotated/classes.json", read_annotations),
    Kind("run: recipe.json", f"{_RUN}recipe.json", read_run),
    Kind("run: run.json", f"{_RUN}run.json", read_run),
    Kind("run: vocabulary.txt", f"{_RUN}vocabulary.txt", read_run),
    Kind("run: best.weights.h5", f"{_RUN}checkpoints/best.weights.h5", read_run),
    Kind("run: weights of epochs", f"{_RUN}checkpoints/epoch-*.weights.h5", read_kept_epochs),
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
