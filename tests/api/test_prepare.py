"""`prepare`: from a source on disk to a dataset, its report and its manifest."""

from __future__ import annotations

import hashlib
import io
import json
import shutil

import numpy as np
import pytest
from PIL import Image

import vsemb
from tests.raising import raises_argument
from vsemb.api.data import prepare
from vsemb.cli.__main__ import main
from vsemb.data.readers.table import Table
from vsemb.data.writing.prepare import summary
from vsemb.errors import DataError


def picture(path, seed: int = 0, kind: str = "JPEG", **options) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (6, 4), (seed, 100, 200)).save(path, kind, **options)


@pytest.fixture
def photos(tmp_path):
    """Nine good photos in a table, in a folder whose name and whose files' names are not ASCII."""
    folder = tmp_path / "fotos-ü"
    rows = ["file,caption,split"]
    for number in range(9):
        picture(folder / f"bär {number}.jpg", number)
        rows.append(f"bär {number}.jpg,ein Bär Nr. {number} 🐻,{'val' if number == 8 else 'train'}")
    (folder / "table.csv").write_text("\n".join(rows), encoding="utf-8")
    return folder


def test_the_manifest_names_sources_without_paths(photos, tmp_path):
    dataset = prepare(photos, tmp_path / "out", format="table")
    assert dataset.name == "out"
    assert dataset.split("val").keys == ["bär 8.jpg"]
    assert dataset.split("val").captions == ["ein Bär Nr. 8 🐻"]
    source = dataset.manifest["source"]
    assert source["format"] == "table"
    assert source["path_name"] == "fotos-ü"
    assert source["sha256"] == {"table.csv": hashlib.sha256((photos / "table.csv").read_bytes()).hexdigest()}
    assert str(tmp_path) not in json.dumps(dataset.manifest)


def test_missing_files_make_one_line(photos, tmp_path):
    with open(photos / "table.csv", "a", encoding="utf-8") as file:
        file.write("".join(f"\nmissing{number}.jpg,x,test" for number in range(1000)))
        file.write("\nbroken.jpg,x,test")
    (photos / "broken.jpg").write_bytes(b"\xff\xd8\xff broken")
    dataset = prepare(photos, tmp_path / "out", format="table", name="bears")
    lines = summary(dataset.manifest)
    assert lines[0] == ("left out 1,000 images: no such file (missing0.jpg, missing1.jpg, missing2.jpg, ...)")
    assert "left out 1 image: " in lines[1] and "(broken.jpg)" in lines[1]
    assert lines[2:] == ["manifest.json lists all images that were left out."]
    assert len(dataset.manifest["skipped"]) == 1001
    with pytest.raises(DataError, match="'missing0.jpg': no such file.*`on_bad_image=skip`"):
        prepare(photos, tmp_path / "other", format="table", on_bad_image="fail")


def test_images_that_came_or_changed_are_noticed(photos, tmp_path, capsys):
    (photos / "bär 3.jpg").rename(tmp_path / "aside.jpg")
    assert prepare(photos, tmp_path / "out", format="table").manifest["skipped"]
    prepare(photos, tmp_path / "out", format="table")
    assert "nothing to do" in capsys.readouterr().err.splitlines()[-1]
    (tmp_path / "aside.jpg").rename(photos / "bär 3.jpg")
    with pytest.raises(DataError, match="another source; choose another `out`, .*`overwrite`"):
        prepare(photos, tmp_path / "out", format="table")
    dataset = prepare(photos, tmp_path / "out", format="table", overwrite=True)
    assert not dataset.manifest["skipped"]


def test_exif_and_foreign_formats_are_normal_in_the_output(photos, tmp_path):
    exif = Image.Exif()
    exif[0x0112] = 6
    picture(photos / "bär 0.jpg", exif=exif)
    picture(photos / "bär 1.jpg", kind="GIF")  # the content decides, not the ending
    split = prepare(photos, tmp_path / "out", format="table").split("train")
    assert split.sizes[0].tolist() == [4, 6]
    assert [Image.open(io.BytesIO(split.read_image(row))).format for row in range(3)] == [
        "JPEG",
        "PNG",
        "JPEG",
    ]


def test_empty_captions_are_counted(photos, tmp_path):
    with open(photos / "table.csv", "a", encoding="utf-8") as file:
        file.write("\nbär 0.jpg, ,train")
    assert summary(prepare(photos, tmp_path / "out", format="table").manifest)[-1] == "left out 1 empty caption"


def test_a_split_that_loses_all_its_images_is_not_there(photos, tmp_path):
    (photos / "bär 8.jpg").write_bytes(b"")
    dataset = prepare(photos, tmp_path / "out", format="table")
    assert dataset.splits == ("train",)


def test_malformed_rows_are_left_out_or_refused_all_at_once(photos, tmp_path, capsys):
    with open(photos / "table.csv", "a", encoding="utf-8") as file:
        file.write("\n,no name,train\n../outside.jpg,x,train\n")
    with pytest.raises(DataError, match="2 malformed rows: .*line 11: .*line 12: .*`on_bad_image=skip`"):
        prepare(photos, tmp_path / "out", on_bad_image="fail")
    capsys.readouterr()
    assert len(prepare(photos, tmp_path / "out").split("train")) == 8
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == f"{photos} has the format table. Choose another with `format`."
    assert [line.split(": ")[0] for line in lines[1:3]] == ["left out", "left out"]
    assert "line 11: the file name is empty" in lines[1] and "line 12: " in lines[2]


def test_several_sources_are_one_dataset_whose_keys_and_ids_stay_apart(photos, tmp_path):
    """Two sources with the same file names: 8 + 1 images each; the second one has its own captions."""
    other = tmp_path / "others"
    shutil.copytree(photos, other)
    table = (other / "table.csv").read_text(encoding="utf-8").replace("ein Bär", "a bear")
    (other / "table.csv").write_text(table, encoding="utf-8")
    dataset = prepare([photos, other], tmp_path / "out", format="table")
    assert (len(dataset.split("train")), len(dataset.split("val"))) == (16, 2)
    val = dataset.split("val")
    assert val.keys == ["fotos-ü/bär 8.jpg", "others/bär 8.jpg"]
    assert val.captions == ["ein Bär Nr. 8 🐻", "a bear Nr. 8 🐻"]
    assert val.caption_ids == ["fotos-ü/bär 8.jpg#0", "others/bär 8.jpg#0"]
    # One of them in a list, as the command has it, is that source.
    assert prepare([photos], tmp_path / "one", format="table").split("val").keys == ["bär 8.jpg"]
    assert len({*dataset.split("train").ids, *val.ids}) == 18
    # The same call finds its work done; a changed source does not pass for the old one.
    assert prepare([photos, other], tmp_path / "out", format="table").fingerprint == dataset.fingerprint
    (other / "table.csv").write_text(table.replace("bear", "cub"), encoding="utf-8")
    with pytest.raises(DataError, match="made with another source"):
        prepare([photos, other], tmp_path / "out", format="table")


def test_sources_that_cannot_be_joined(photos, tmp_path):
    for other in (photos, tmp_path / "." / photos.name):
        with pytest.raises(DataError, match="must have different names"):
            prepare([photos, other], tmp_path / "out", format="table")
    np.save(tmp_path / "train_ims.npy", np.eye(2, dtype=np.float32))
    (tmp_path / "train_caps.txt").write_text("a\nb\n")
    with pytest.raises(DataError, match="its format vsepp has more than captions"):
        prepare([photos, tmp_path], tmp_path / "out")


def test_images_of_val_join_train(photos, tmp_path):
    """For a final training: 8 images in train and 1 in val become 9 in train, in the order of the source."""
    dataset = prepare(photos, tmp_path / "out", format="table", val_to_train=True)
    assert dataset.splits == ("train",) and len(dataset.split("train")) == 9
    assert dataset.split("train").keys[-1] == "bär 8.jpg"
    with pytest.raises(DataError, match="made with another source"):
        prepare(photos, tmp_path / "out", format="table")


def test_a_reader_its_name_and_the_command_are_the_same_call(photos, tmp_path, capsys):
    named = vsemb.prepare(photos, tmp_path / "named", format="table", split="test")
    made = vsemb.prepare(photos, tmp_path / "made", format=Table(split="test"))
    assert main(["prepare", str(photos), "--split", "test", "--out", str(tmp_path / "inferred")]) == 0
    assert capsys.readouterr().out.startswith(str(named).partition("dataset")[0])
    inferred = vsemb.Dataset.open(tmp_path / "inferred")
    assert named.fingerprint == made.fingerprint == inferred.fingerprint
    assert named.manifest["source"]["options"] == {"split": "test"}
    values = named.to_json()
    assert values["splits"] == {"test": {"images": 9, "captions": 9}} and values["skipped"] == []
    assert values["next"] in str(named) and isinstance(named, vsemb.Dataset)


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({"format": "tables"}, "format"),
        ({"format": 3}, "format"),
        ({"restval": "drop"}, "restval"),
        ({"splits": "test"}, "argument"),
        ({"format": Table(), "split": "test"}, "split"),
        ({"format": "table", "uris": "yes"}, "uris"),
        ({"on_bad_image": "ask"}, "on_bad_image"),
        ({"max_side": 0}, "max_side"),
        ({"images_per_shard": 2.5}, "images_per_shard"),
    ],
)
def test_options_are_checked_before_anything_is_written(photos, tmp_path, options, name):
    with raises_argument(name):
        vsemb.prepare(photos, tmp_path / "out", **options)
    with raises_argument("source"):
        vsemb.prepare([], tmp_path / "out")
    assert not (tmp_path / "out").exists()
