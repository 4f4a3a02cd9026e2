"""Lists of classes that share none."""

from __future__ import annotations

import pytest

from vsemb.data.readers.hash_splits import ranked
from vsemb.errors import DataError
from vsemb.systems.zero_shot.readers.reed2016 import class_lists


def lists(folder, **classes):
    for name, found in classes.items():
        (folder / f"{name}classes.txt").write_text("".join(f"{line}\n" for line in found))


def test_three_lists(tmp_path):
    lists(tmp_path, train=["a", "b"], val=["c", ""], test=["d"], trainval=["a", "b", "c"])
    members, files, notes = class_lists(tmp_path)
    assert members == {"a": "train", "b": "train", "c": "val", "d": "test"}
    assert [file.name for file in files] == ["trainclasses.txt", "valclasses.txt", "testclasses.txt"]
    assert notes == []


def test_train_and_val_in_one_list(tmp_path):
    names = [f"class_{number:05d}" for number in range(82)]
    lists(tmp_path, trainval=names, test=["z"])
    members, files, notes = class_lists(tmp_path)
    # A fifth of 82 is 16.4.
    assert [name for name in members if members[name] == "val"] == ranked(names)[:16]
    assert sum(split == "train" for split in members.values()) == 66
    assert members["z"] == "test"
    assert [file.name for file in files] == ["trainvalclasses.txt", "testclasses.txt"]
    assert notes == ["16 of the 82 classes of trainvalclasses.txt are val, in the order of their hashes."]


@pytest.mark.parametrize(
    ("given", "value"),
    [
        ({}, r"trainclasses\.txt"),
        ({"train": ["a"], "val": ["b"]}, r"trainclasses\.txt"),
        ({"train": ["a"], "test": ["b"]}, r"trainclasses\.txt"),
        ({"train": ["a"], "val": ["b"], "test": ["a"]}, "'a'.*train.*test"),
        ({"train": ["a"], "val": [""], "test": ["c"]}, r"valclasses\.txt"),
    ],
)
def test_lists_that_do_not_do(tmp_path, given, value):
    lists(tmp_path, **given)
    with pytest.raises(DataError, match=value):
        class_lists(tmp_path)
