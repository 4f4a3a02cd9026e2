"""A dataset and its embeddings as a dataset of Hugging Face's library."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import vsemb
from tests.raising import raises_argument
from vsemb.errors import DataError, MissingExtraError

datasets = pytest.importorskip("datasets")


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "cache")
    yield


@pytest.fixture
def data(scenes_path: Path) -> vsemb.Dataset:
    return vsemb.Dataset.open(scenes_path)


def test_rows_have_images_captions_and_embeddings(data: vsemb.Dataset, model: vsemb.Model, tmp_path: Path) -> None:
    splits = data.to_huggingface(model, batch_size=5)
    assert {name: len(rows) for name, rows in splits.items()} == {"train": 48, "val": 12, "test": 12}
    split, rows = data.split("val"), splits["val"].with_format("numpy")
    assert list(rows["key"]) == list(split.keys)
    assert [list(each) for each in rows["captions"]] == list(split.caption_lists())
    undecoded = splits["val"].cast_column("image", datasets.Image(decode=False))
    images = [row["image"]["bytes"] for row in undecoded]
    assert images == split.read_images(np.arange(12)) and rows[0]["image"].shape == (32, 32, 3)
    np.testing.assert_allclose(rows["image_embedding"], model.encode_images(images), atol=1e-5)
    of_captions = np.concatenate(list(rows["caption_embeddings"]))
    np.testing.assert_allclose(of_captions, model.encode_texts(list(split.captions)), atol=1e-5)
    back = vsemb.Dataset.from_huggingface(splits, tmp_path / "back")
    assert [list(back.split(name).caption_lists()) for name in data.splits] == [
        list(data.split(name).caption_lists()) for name in data.splits
    ]


def test_the_cache_belongs_to_one_model(
    data: vsemb.Dataset, model: vsemb.Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = data.to_huggingface(model)["val"]
    assert data.to_huggingface(model)["val"].cache_files == first.cache_files
    assert "image_embedding" not in data.to_huggingface()["val"].column_names
    for method, column in (("encode_images", "image_embedding"), ("encode_texts", "caption_embeddings")):
        encode = getattr(type(model), method)
        with monkeypatch.context() as patches:
            patches.setattr(type(model), method, lambda *rows, encode=encode, **options: -encode(*rows, **options))
            other = data.to_huggingface(model)["val"].with_format("numpy")
        np.testing.assert_array_equal(other[0][column], -np.asarray(first.with_format("numpy")[0][column]))


def test_what_it_needs(data: vsemb.Dataset, model: vsemb.Model, monkeypatch: pytest.MonkeyPatch) -> None:
    with raises_argument("batch_size"):
        data.to_huggingface(model, batch_size=0)
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(MissingExtraError, match="datasets"):
        data.to_huggingface()


def test_precomputed_features_have_no_images(tmp_path: Path, model: vsemb.Model) -> None:
    source = tmp_path / "features"
    source.mkdir()
    for name in ("train", "dev", "test"):
        np.save(source / f"{name}_ims.npy", np.ones((10, 4), np.float32))
        (source / f"{name}_caps.txt").write_text("a dog\n" * 10)
    vsemb.prepare(source, out=tmp_path / "data", format="vsepp")
    precomputed = vsemb.Dataset.open(tmp_path / "data")
    rows = precomputed.to_huggingface()["val"]
    assert "image" not in rows.column_names and rows[0]["captions"]
    with pytest.raises(DataError):
        precomputed.to_huggingface(model)
