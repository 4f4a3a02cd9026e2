"""Parquet files and Hugging Face datasets on disk; their layout was compared with files of `datasets` 5.2."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from PIL import Image
from pyarrow import parquet

from tests.raising import raises_argument
from vsemb.api.data import prepare
from vsemb.data.readers import infer_format, read
from vsemb.data.readers.hash_splits import hash_split
from vsemb.errors import DataError

IMAGE = pa.struct({"bytes": pa.binary(), "path": pa.string()})
LABELS = {"info": {"features": {"label": {"names": ["cat", "dog"], "_type": "ClassLabel"}}}}


def png(number: int) -> bytes:
    buffer = io.BytesIO()
    Image.new("RGB", (6, 4), (number, 100, 200)).save(buffer, "PNG")
    return buffer.getvalue()


def rows(first: int, count: int) -> pa.Table:
    """So many images with two neighbouring rows each."""
    numbers = [first + place // 2 for place in range(2 * count)]
    columns = {
        "image": pa.array([{"bytes": png(n), "path": None} for n in numbers], IMAGE),
        "text": pa.array([f"{n}, {place % 2}" for place, n in enumerate(numbers)]),
        "label": pa.array([n % 2 for n in numbers]),
    }
    return pa.table(columns).replace_schema_metadata({"huggingface": json.dumps(LABELS)})


def saved(folder: Path, *tables: pa.Table) -> None:
    """Writes what `save_to_disk` does."""
    folder.mkdir(parents=True)
    names = [f"data-{number:05d}-of-{len(tables):05d}.arrow" for number in range(len(tables))]
    for name, table in zip(names, tables, strict=True):
        with pa.OSFile(str(folder / name), "wb") as file, pa.ipc.new_stream(file, table.schema) as writer:
            writer.write_table(table, max_chunksize=3)
    (folder / "state.json").write_text(json.dumps({"_data_files": [{"filename": name} for name in names]}))
    (folder / "dataset_info.json").write_text("{}")


def facts(source):
    return [(r.key, r.captions, r.split, r.class_name) for r in source.records]


def test_a_dictionary_of_splits_on_disk(tmp_path):
    saved(tmp_path / "d/train", rows(0, 2), rows(2, 1))
    saved(tmp_path / "d/validation", rows(3, 1))
    (tmp_path / "d/dataset_dict.json").write_text(json.dumps({"splits": ["train", "validation"]}))
    assert infer_format(tmp_path / "d") == infer_format(tmp_path / "d/train") == "hf"
    source = read("hf", tmp_path / "d")
    assert facts(source) == [
        ("train/data-00000-of-00002/000000", ("0, 0", "0, 1"), "train", "cat"),
        ("train/data-00000-of-00002/000002", ("1, 0", "1, 1"), "train", "dog"),
        ("train/data-00001-of-00002/000000", ("2, 0", "2, 1"), "train", "cat"),
        ("validation/data-00000-of-00001/000000", ("3, 0", "3, 1"), "val", "dog"),
    ]
    assert [record.image for record in source.records] == [png(number) for number in range(4)]
    whole = read("hf", tmp_path / "d/validation")
    assert [(record.key, record.split) for record in whole.records] == [("000000", hash_split("000000"))]


def test_parquet_files_by_their_names(tmp_path):
    (tmp_path / "data").mkdir()
    parquet.write_table(rows(0, 70), tmp_path / "data/train-00000-of-00001.parquet", row_group_size=50)
    parquet.write_table(rows(70, 1), tmp_path / "data/dev-00000-of-00001.parquet")
    assert infer_format(tmp_path) == infer_format(tmp_path / "data/dev-00000-of-00001.parquet") == "parquet"
    records = facts(read("parquet", tmp_path))
    assert len(records) == 71 and {len(captions) for _, captions, _, _ in records} == {2}
    assert [split for _, _, split, _ in records] == ["val", *["train"] * 70]


def test_images_that_are_files(tmp_path):
    """`to_parquet` of a dataset of paths writes no bytes; a path out of the table's folder is not read."""
    (tmp_path / "t/photos").mkdir(parents=True)
    for name in ("t/photos/0.png", "outside.png"):
        (tmp_path / name).write_bytes(png(0))
    paths = ["photos/0.png", "photos/1.png", "../outside.png", str(tmp_path / "outside.png")]
    images = [{"bytes": None, "path": path} for path in paths] + [{"bytes": png(2), "path": "x.png"}]
    table = pa.table({"image": pa.array(images, IMAGE), "text": pa.array(list("abcde"))})
    parquet.write_table(table, tmp_path / "t/data.parquet")
    dataset = prepare(tmp_path / "t/data.parquet", tmp_path / "out", split="train")
    assert [dataset.split("train").read_image(row) for row in range(2)] == [png(0), png(2)]
    assert len(dataset.manifest["skipped"]) == 3


def test_columns_by_name_and_numbered_captions(tmp_path):
    table = pa.table(
        {
            "id": [7, 8],
            "jpg": pa.array([png(0), png(1)], pa.large_binary()),
            "mask": [b"", b""],
            "caption_0": ["a", "b"],
            "caption_1": ["c", None],
            "split": ["train", "test"],
            "class": ["x", None],
            "label": [1, 2],
        }
    )
    parquet.write_table(table, tmp_path / "t.parquet")
    with pytest.raises(DataError, match="`image_feature`"):
        read("parquet", tmp_path / "t.parquet")
    source = read("parquet", tmp_path / "t.parquet", image_feature="jpg")
    assert facts(source) == [("7", ("a", "c"), "train", "x"), ("8", ("b",), "test", None)]
    source = read("parquet", tmp_path / "t.parquet", image_feature="jpg", text_feature="caption_1", split="val")
    assert facts(source) == [("7", ("c",), "val", "x"), ("8", (), "val", None)]
    with raises_argument("text_feature"):
        read("parquet", tmp_path / "t.parquet", text_feature="title")


def test_what_lacks_columns(tmp_path):
    parquet.write_table(pa.table({"url": ["https://example.org/a.jpg"], "caption": ["a"]}), tmp_path / "u.parquet")
    with pytest.raises(DataError):
        read("parquet", tmp_path / "u.parquet")
    parquet.write_table(pa.table({"image": [png(0)], "words": ["a"]}), tmp_path / "v.parquet")
    with pytest.raises(DataError):
        read("parquet", tmp_path / "v.parquet")


def test_all_malformed_rows_are_named_and_left_out(tmp_path):
    texts = pa.array([["a"], None, ["b", None], ["c"], []])
    images = [png(0), png(1), png(2), None, png(4)]
    path = tmp_path / "t.parquet"
    parquet.write_table(pa.table({"image": pa.array(images, pa.binary()), "captions": texts}), path)
    source = read("parquet", path)
    assert source.bad == (f"{path}, row 2: the caption must be text; got None.",)
    with pytest.raises(DataError):
        prepare(path, tmp_path / "out", on_bad_image="fail")
    left_out = prepare(path, tmp_path / "out").manifest["skipped"]
    assert {line["key"]: line["reason"] for line in left_out} == {
        "000001": "no caption",
        "000003": "no such file",
        "000004": "no caption",
    }


def test_files_that_end_too_early(tmp_path):
    saved(tmp_path / "d", rows(0, 20))
    file = next((tmp_path / "d").glob("*.arrow"))
    file.write_bytes(file.read_bytes()[:-4000])
    source = read("hf", tmp_path / "d", split="test")
    assert "is damaged or ends too early" in source.bad[0] and 0 < len(list(source.records)) < 20
    parquet.write_table(rows(0, 2), tmp_path / "t.parquet")
    data = (tmp_path / "t.parquet").read_bytes()
    (tmp_path / "t.parquet").write_bytes(data[:-100])
    with pytest.raises(DataError):
        read("parquet", tmp_path / "t.parquet")
    (tmp_path / "d/state.json").write_text("{}")
    with pytest.raises(DataError, match="'_data_files'"):
        read("hf", tmp_path / "d")
    file.unlink()
    (tmp_path / "d/state.json").write_text(json.dumps({"_data_files": [{"filename": file.name}]}))
    with pytest.raises(DataError, match="data-00000.*arrow"):
        read("hf", tmp_path / "d")


def of_images(count: int = 3, **columns: Any) -> pa.Table:
    """A table of so many images with captions, and further columns."""
    images = pa.array([png(number) for number in range(count)])
    return pa.table({"image": images, "caption": [f"c {number}" for number in range(count)], **columns})


def written(path: Path, table: pa.Table) -> Path:
    parquet.write_table(table, path)
    return path


@pytest.mark.parametrize(
    "stored",
    [
        {"split": pa.array(["train", "dev", "train"]).dictionary_encode()},
        {"split": pa.array(["train", "dev", "train"], pa.string_view())},
        {"caption": pa.array(["c 0", "c 1", "c 2"]).dictionary_encode()},
        {"caption": pa.array(["c 0", "c 1", "c 2"], pa.string_view())},
        {"caption": pa.ListArray.from_arrays([0, 1, 2, 3], pa.array(["c 0", "c 1", "c 2"]).dictionary_encode())},
        {"caption": pa.array([["c 0"], ["c 1"], ["c 2"]], pa.list_(pa.string(), 1))},
        {"caption": pa.array([["c 0"], ["c 1"], ["c 2"]], pa.list_view(pa.string()))},
        {"image": pa.array([png(number) for number in range(3)]).dictionary_encode()},
        {"image": pa.array([png(number) for number in range(3)], pa.binary_view())},
        {
            "image": pa.array(
                [{"bytes": png(number), "path": None} for number in range(3)],
                pa.struct({"bytes": pa.binary_view(), "path": pa.string_view()}),
            )
        },
    ],
)
def test_dictionaries_and_views_are_read_as_their_values(tmp_path, stored):
    plain = of_images(split=["train", "dev", "train"])
    table = pa.table({name: stored.get(name, plain[name]) for name in plain.column_names})
    saved(tmp_path / "d", table)
    for source in (read("parquet", written(tmp_path / "t.parquet", table)), read("hf", tmp_path / "d")):
        assert [(record.captions, record.split) for record in source.records] == [
            (("c 0",), "train"),
            (("c 1",), "val"),
            (("c 2",), "train"),
        ]
        assert [record.image for record in source.records] == [png(number) for number in range(3)]


def test_rows_with_an_unusable_split_are_refused_by_number(tmp_path):
    splits = ["train", None, " ", "../x", "x-y", "Validation"]
    path = written(tmp_path / "t.parquet", of_images(6, split=splits))
    source = read("parquet", path)
    assert [line.partition(":")[0] for line in source.bad] == [f"{path}, row {row}" for row in (1, 2, 3, 4)]
    assert [record.split for record in source.records] == ["train", "val"]
    assert {record.split for record in read("parquet", path, split="test").records} == {"test"}
    numbers = written(tmp_path / "n.parquet", of_images(split=[0, 1, 0]))
    with pytest.raises(DataError, match="split"):
        read("parquet", numbers)


def test_whole_numbers_may_be_classes(tmp_path):
    source = read("parquet", written(tmp_path / "t.parquet", of_images(**{"class": [7, None, 0]})))
    assert [record.class_name for record in source.records] == ["7", None, "0"]
    scores = read("parquet", written(tmp_path / "f.parquet", of_images(label=[0.5, 1.5, 2.5])))
    assert [record.class_name for record in scores.records] == [None] * 3


def test_splits_that_are_labels_have_their_names(tmp_path):
    described = {"info": {"features": {"split": {"names": ["train", "test"], "_type": "ClassLabel"}}}}
    table = of_images(split=[1, 0, -1]).replace_schema_metadata({"huggingface": json.dumps(described)})
    source = read("parquet", written(tmp_path / "t.parquet", table))
    assert [record.split for record in source.records] == ["test", "train"] and len(source.bad) == 1


@pytest.mark.parametrize(
    "metadata",
    [
        "{not json",
        b"\xff",
        "[" * 100_000,
        "[]",
        '{"info": null}',
        '{"info": {"features": null}}',
        '{"info": {"features": {"label": {"_type": "ClassLabel", "names": null}, "x": [{}]}}}',
    ],
)
def test_metadata_that_cannot_be_read_is_ignored(tmp_path, metadata):
    table = of_images(label=["a", "b", "a"]).replace_schema_metadata({"huggingface": metadata})
    source = read("parquet", written(tmp_path / "t.parquet", table))
    assert [record.class_name for record in source.records] == ["a", "b", "a"]


def test_other_features_in_the_metadata_do_not_hide_class_names(tmp_path):
    features = {"caption": [{"dtype": "string"}], **LABELS["info"]["features"]}
    described = json.dumps({"info": {"features": features}})
    table = of_images(label=[1, 0, 1]).replace_schema_metadata({"huggingface": described})
    source = read("parquet", written(tmp_path / "t.parquet", table))
    assert [record.class_name for record in source.records] == ["dog", "cat", "dog"]


def test_columns_of_one_name_are_refused(tmp_path):
    table = of_images()
    path = written(tmp_path / "t.parquet", table.append_column("caption", table["caption"]))
    with pytest.raises(DataError, match="caption twice"):
        read("parquet", path)
    path = written(tmp_path / "u.parquet", table.append_column("x", table["caption"]).append_column("x", [[1, 2, 3]]))
    assert read("parquet", path).total == 3


def test_a_repeated_key_names_both_rows(tmp_path):
    path = written(tmp_path / "t.parquet", of_images(4, id=[7, 8, 9, 8]))
    with pytest.raises(DataError, match=r"'8'.*t\.parquet, row 1 .*t\.parquet, row 3"):
        prepare(path, tmp_path / "out")
    saved(tmp_path / "d", of_images(2, id=[1, 2]), of_images(2, id=[1, 3]))
    with pytest.raises(DataError, match=r"'1'.*data-00000[^ ]*, row 0 .*data-00001[^ ]*, row 0"):
        prepare(tmp_path / "d", tmp_path / "out")


def test_a_path_that_leads_out_refuses_its_row_alone(tmp_path):
    (tmp_path / "t").mkdir()
    (tmp_path / "outside.png").write_bytes(png(0))
    (tmp_path / "t/link.png").symlink_to(tmp_path / "outside.png")
    images = pa.array([{"bytes": None, "path": "link.png"}, {"bytes": png(1), "path": None}], IMAGE)
    path = written(tmp_path / "t/t.parquet", pa.table({"image": images, "caption": ["a", "b"]}))
    dataset = prepare(path, tmp_path / "out", split="train")
    assert dataset.split("train").captions == ["b"]


@pytest.mark.parametrize("entry", ["data.arrow", {}, {"filename": None}])
def test_a_state_without_file_names_is_refused(tmp_path, entry):
    saved(tmp_path / "d", of_images())
    (tmp_path / "d/state.json").write_text(json.dumps({"_data_files": [entry]}))
    with pytest.raises(DataError, match="_data_files"):
        read("hf", tmp_path / "d")
