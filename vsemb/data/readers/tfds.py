"""Datasets of tensorflow-datasets that have an image and one or more texts per example.

Needs the extra `tfds`. Source: https://www.tensorflow.org/datasets
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vsemb.data.readers import Reader
from vsemb.data.readers.source import RestVal, Source, split_name, split_with_restval
from vsemb.data.records import ImageRecord
from vsemb.errors import DataError, invalid_argument, needs_extra, one_line


@dataclass(frozen=True)
class Tfds(Reader, kind="tfds"):
    """A builder of tensorflow-datasets with images and texts, such as coco_captions or coco_captions/2014:1.1.0.

    Image bytes are copied without decoding.

    Attributes:
        split: put all images into this split; default: the dataset's splits, with validation as `val`.
        restval: treatment of a split `restval`: `train` merges it into train; `keep` makes it a split of its own;
            `drop` leaves it out.
        image_feature: name of the image feature; default: the only image feature.
        text_feature: name of the text feature, such as `captions/text`; default: the only text feature, or the only
            one with `caption` in its name.
        data_dir: data folder of tensorflow-datasets; default: its own.
        download: let tensorflow-datasets download the dataset.
    """

    split: str | None = None
    restval: RestVal = "train"
    image_feature: str | None = None
    text_feature: str | None = None
    data_dir: str | os.PathLike[str] | None = None
    download: bool = False

    def read(self, source: str | os.PathLike[str]) -> Source:
        with needs_extra("tensorflow_datasets", "tfds"):
            import tensorflow_datasets as tfds
        name = os.fspath(source)
        try:
            builder = tfds.builder(name, data_dir=self.data_dir, try_gcs=False)
        except Exception as error:  # The type differs between unknown names, versions and configurations.
            raise DataError(f"tensorflow-datasets cannot load {name!r}: {one_line(error)}") from error
        folder = Path(os.fspath(builder.data_dir))
        if not (folder / "dataset_info.json").exists():
            if not self.download:
                raise DataError(f"tensorflow-datasets has no {name!r} at {folder}. Let it download with `download`.")
            builder.download_and_prepare()
        leaves = dict(_leaves(builder.info.features, tfds))
        image = _choose("image_feature", self.image_feature, _of_kind(leaves, tfds.features.Image))
        texts = _of_kind(leaves, tfds.features.Text, sequences=True)
        texts = [path for path in texts if path.rpartition("/")[2] not in ("filename", "file_name", "id")]
        if self.text_feature is None and len(texts) > 1:
            texts = [path for path in texts if "caption" in path.lower()] or texts
        text = _choose("text_feature", self.text_feature, texts)
        labels = _of_kind(leaves, tfds.features.ClassLabel)
        keys = [path for path in ("image/filename", "filename", "file_name") if path in leaves]
        splits = {}
        for name in builder.info.splits:
            split = split_with_restval(self.split or split_name(name), self.restval)
            if split is not None:
                splits[name] = split
        classes = {labels[0]: leaves[labels[0]][0].int2str} if len(labels) == 1 else {}
        records = _Examples(builder, splits, image, text, keys[0] if keys else "tfds_id", classes)
        files = tuple(filter(Path.exists, (folder / "dataset_info.json", folder / "features.json")))
        full_name = builder.info.full_name
        options = {"name": full_name, "splits": splits, "image": image, "text": text}
        notes = (f"Reading the features {image} and {text} of {full_name}.",)
        return Source("tfds", full_name, records, files, options, notes)


@dataclass(frozen=True)
class _Examples:
    """The examples as records; every iteration reads them again, in the same order.

    Attributes:
        builder: of the dataset.
        splits: its splits -> our splits.
        image, text, key: names of features.
        classes: name of a label feature -> function from label to class name; may be empty.
    """

    builder: Any
    splits: dict[str, str]
    image: str
    text: str
    key: str
    classes: dict[str, Callable[[int], str]]

    def __len__(self) -> int:
        return sum(self.builder.info.splits[name].num_examples for name in self.splits)

    def __iter__(self) -> Iterator[ImageRecord]:
        import tensorflow_datasets as tfds

        decoders: Any = tfds.decode.SkipDecoding()
        for part in reversed(self.image.split("/")):
            decoders = {part: decoders}
        # Read one file at a time, in order, since ids must not depend on the interleaving of reads.
        config = tfds.ReadConfig(interleave_cycle_length=1, add_tfds_id=True)
        for name, split in self.splits.items():
            data = self.builder.as_dataset(split=name, decoders=decoders, read_config=config, shuffle_files=False)
            for example in tfds.as_numpy(data):
                yield self._record(example, split)

    def _record(self, example: Any, split: str) -> ImageRecord:
        # Bytes that are not UTF-8 become lone surrogates, by which such images are left out with their reason.
        decode = functools.partial(str, encoding="utf-8", errors="surrogateescape")
        texts = _at(example, self.text)
        captions = [texts] if isinstance(texts, bytes) else texts
        class_name = None
        for path, name_of in self.classes.items():
            label = int(_at(example, path))
            if label >= 0:
                class_name = name_of(label)
        return ImageRecord(
            key=decode(_at(example, self.key)),
            captions=tuple(map(decode, captions)),
            split=split,
            image=bytes(_at(example, self.image)),
            class_name=class_name,
        )


def _at(example: Any, path: str) -> Any:
    for part in path.split("/") if path not in example else [path]:
        example = example[part]
    return example


def _leaves(feature: Any, tfds: Any, path: str = "", sequence: bool = False) -> Iterator[tuple[str, Any]]:
    """Yield (path, (feature, whether it is inside a sequence)) of every leaf."""
    if isinstance(feature, tfds.features.FeaturesDict):
        for name, child in feature.items():
            yield from _leaves(child, tfds, f"{path}/{name}" if path else name, sequence)
    elif isinstance(feature, tfds.features.Sequence):
        yield from _leaves(feature.feature, tfds, path, True)
    else:
        yield path, (feature, sequence)


def _of_kind(leaves: dict[str, tuple[Any, bool]], kind: type, *, sequences: bool = False) -> list[str]:
    names = []
    for path, (feature, in_sequence) in leaves.items():
        if isinstance(feature, kind) and (sequences or not in_sequence):
            names.append(path)
    return names


def _choose(argument: str, name: str | None, names: list[str]) -> str:
    """Return the feature of a name, or the only one."""
    if name in names:
        return name
    if name is None and len(names) == 1:
        return names[0]
    raise invalid_argument(argument, name, f"one of {', '.join(names) or '(the dataset has none)'}")
