"""tensorflow-datasets, on a dataset that the test writes itself; needs the extra `tfds`."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.raising import raises_argument
from vsemb.api.data import prepare
from vsemb.data.readers import read
from vsemb.errors import DataError, MissingExtraError


def test_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorflow_datasets", None)
    with pytest.raises(MissingExtraError, match=r"'vsemb\[tfds\]'"):
        read("tfds", "coco_captions")


def jpeg(number: int) -> bytes:
    buffer = io.BytesIO()
    Image.new("RGB", (6, 4), (number, 100, 200)).save(buffer, "JPEG")
    return buffer.getvalue()


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory) -> Path:
    tfds = pytest.importorskip("tensorflow_datasets", reason="the extra tfds is not installed")

    class TinyCaptions(tfds.core.GeneratorBasedBuilder):
        VERSION = tfds.core.Version("1.0.0")
        pkg_dir_path = tmp_path_factory.mktemp("package")

        def _info(self):
            features = {
                "image": tfds.features.Image(encoding_format="jpeg"),
                "image/filename": tfds.features.Text(),
                "captions": tfds.features.Sequence({"id": np.int64, "text": tfds.features.Text()}),
                "title": tfds.features.Text(),
                "kind": tfds.features.ClassLabel(names=["cat", "dog"]),
            }
            return self.dataset_info_from_configs(features=tfds.features.FeaturesDict(features))

        def _split_generators(self, dl_manager):
            return {
                "train": self._generate_examples(0),
                "validation": self._generate_examples(10),
                "restval": self._generate_examples(20),
            }

        def _generate_examples(self, first):
            for number in range(first, first + 3):
                texts = [{"id": place, "text": f"{place} of {number} ä"} for place in range(1 + number % 3)]
                texts += [{"id": 9, "text": b"caf\xe9"}] * (number == 21)
                yield (
                    number,
                    {
                        "image": io.BytesIO(jpeg(number)),
                        "image/filename": f"{number}.jpg",
                        "captions": texts,
                        "title": "t",
                        "kind": number % 2,
                    },
                )

    folder = tmp_path_factory.mktemp("tfds")
    TinyCaptions(data_dir=folder).download_and_prepare()
    return folder


def test_examples_become_records(data_dir):
    source = read("tfds", "tiny_captions", data_dir=data_dir)
    records = list(source.records)
    assert source.total == len(records) == 9
    assert {record.split for record in records} == {"train", "val"}
    by_key = {record.key: record for record in records}
    assert by_key["10.jpg"].split == "val"
    assert by_key["20.jpg"].split == "train"  # restval joins train
    assert by_key["11.jpg"].captions == ("0 of 11 ä", "1 of 11 ä", "2 of 11 ä")
    assert by_key["11.jpg"].image == jpeg(11)
    assert by_key["11.jpg"].class_name == "dog"
    assert list(source.records) == records  # the same order each time
    assert [file.name for file in source.files] == ["dataset_info.json", "features.json"]


def test_options(data_dir):
    records = read("tfds", "tiny_captions", data_dir=data_dir, restval="drop", text_feature="title").records
    assert [record.captions for record in records] == [("t",)] * 6
    records = read("tfds", "tiny_captions", data_dir=data_dir, split="test").records
    assert {record.split for record in records} == {"test"}
    with raises_argument("text_feature"):
        read("tfds", "tiny_captions", data_dir=data_dir, text_feature="captions")
    with raises_argument("image_feature"):
        read("tfds", "tiny_captions", data_dir=data_dir, image_feature="picture")


def test_prepared(data_dir, tmp_path):
    dataset = prepare("tiny_captions", tmp_path / "out", format="tfds", data_dir=data_dir)
    # The other one has a caption that is not UTF-8.
    assert [len(dataset.split(name)) for name in dataset.splits] == [5, 3]
    assert [skipped["key"] for skipped in dataset.manifest["skipped"]] == ["21.jpg"]


def test_missing_datasets(data_dir, tmp_path):
    with pytest.raises(DataError, match="'no_such_dataset'"):
        read("tfds", "no_such_dataset", data_dir=tmp_path)
    with pytest.raises(DataError, match="'tiny_captions'.*`download`"):
        read("tfds", "tiny_captions", data_dir=tmp_path)
