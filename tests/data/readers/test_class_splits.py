"""Splits of classes: by lists, and by hash."""

from __future__ import annotations

import unicodedata

import pytest

from vsemb.data.readers.class_splits import class_lists, dealt, ranked, shares
from vsemb.errors import DataError


def test_ranks_depend_on_names_alone():
    names = [f"class {number}" for number in range(50)]
    assert ranked(reversed(names)) == ranked(names)
    assert sorted(ranked(names)) == sorted(names)
    assert ranked(names) != names
    composed, apart = (unicodedata.normalize(form, "bär") for form in ("NFC", "NFD"))
    assert ranked([*names, composed]).index(composed) == ranked([*names, apart]).index(apart)


@pytest.mark.parametrize(
    ("classes", "expected"), [(3, (1, 1, 1)), (5, (3, 1, 1)), (10, (8, 1, 1)), (102, (82, 10, 10))]
)
def test_shares_leave_no_split_empty(classes, expected):
    assert shares(classes, 0.1, 0.1) == expected


def test_two_classes_are_too_few():
    with pytest.raises(DataError, match="has 2 classes"):
        shares(2, 0.1, 0.1)


def test_dealing_cuts_the_ranks():
    names = ["a", "b", "c", "d", "e"]
    order = ranked(names)
    assert dealt(names, (2, 1, 2)) == dict(zip(order, ["train", "train", "val", "test", "test"], strict=True))


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
    ("given", "message"),
    [
        ({}, "Put trainclasses.txt, valclasses.txt and testclasses.txt there"),
        ({"train": ["a"], "val": ["b"]}, "lists of classes are not in"),
        ({"train": ["a"], "test": ["b"]}, "lists of classes are not in"),
        ({"train": ["a"], "val": ["b"], "test": ["a"]}, "'a' is in the lists of train and test"),
        ({"train": ["a"], "val": [""], "test": ["c"]}, "valclasses.txt is empty"),
    ],
)
def test_lists_that_do_not_do(tmp_path, given, message):
    lists(tmp_path, **given)
    with pytest.raises(DataError, match=message):
        class_lists(tmp_path)
