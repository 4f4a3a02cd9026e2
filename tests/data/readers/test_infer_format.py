"""The format of a source, by its files."""

from __future__ import annotations

import json

import pytest

from vsemb.data.readers import infer_format
from vsemb.errors import DataError

KARPATHY = json.dumps({"images": [{"filename": "a.jpg", "split": "train", "sentences": [{"raw": "x"}]}]})
COCO = json.dumps({"images": [{"id": 1, "file_name": "a.jpg"}], "annotations": []})


@pytest.mark.parametrize(
    ("file", "text", "source", "format"),
    [
        ("photos/own.json", KARPATHY, "photos/own.json", "karpathy"),
        ("photos/dataset_mine.json", KARPATHY, "photos", "karpathy"),
        ("photos/own.json", COCO, "photos/own.json", "coco"),
        ("annotations/captions_val2017.json", COCO, "", "coco"),
        ("photos/tokens.txt", "a.jpg#0\tA dog .\n", "photos/tokens.txt", "flickr"),
        ("photos/Flickr8k.token.txt", "a.jpg#0\tA dog .\n", "photos", "flickr"),
        ("photos/captions.tsv", "file\tcaption\n", "photos/captions.tsv", "table"),
        ("photos/captions.jsonl", "", "photos", "table"),
        ("train_ims.npy", "", "", "vsepp"),
        ("train/n01443537/a.JPEG", "", "", "wnid"),
        ("CUB_200_2011/images.txt", "", "", "cub"),
        ("jpg/image_00001.jpg", "", "", "flowers102"),
    ],
)
def test_formats(tmp_path, file, text, source, format):
    (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / file).write_text(text)
    assert infer_format(tmp_path / source) == format


def test_none_and_several(tmp_path):
    with pytest.raises(DataError, match="`format`.*vsemb index"):
        infer_format(tmp_path)
    (tmp_path / "captions.csv").write_text("file,caption\n")
    (tmp_path / "dataset_mine.json").write_text(KARPATHY)
    with pytest.raises(DataError, match="karpathy, table"):
        infer_format(tmp_path)
    with pytest.raises(DataError, match="`tfds`"):
        infer_format(tmp_path / "coco_captions")
