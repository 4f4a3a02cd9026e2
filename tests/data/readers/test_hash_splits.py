"""Splits of classes by a hash of their names."""

from __future__ import annotations

import unicodedata

import pytest

from vsemb.data.readers.hash_splits import dealt, ranked, shares
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
    with pytest.raises(DataError):
        shares(2, 0.1, 0.1)


def test_dealing_cuts_the_ranks():
    names = ["a", "b", "c", "d", "e"]
    order = ranked(names)
    assert dealt(names, (2, 1, 2)) == dict(zip(order, ["train", "train", "val", "test", "test"], strict=True))
