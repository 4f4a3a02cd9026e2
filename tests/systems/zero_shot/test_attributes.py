"""Attributes of classes: validation, and the way to the disk and back."""

from __future__ import annotations

import json

import numpy as np
import pytest

from vsemb.errors import DataError
from vsemb.systems.zero_shot.attributes import ClassAttributes, read_attributes, write_attributes


def test_written_and_read_back(tmp_path):
    rng = np.random.default_rng(0)
    values = {"Bär": rng.standard_normal(3), "crow": rng.standard_normal(3).astype(np.float32) * 1e-20}
    attributes = ClassAttributes(("a", "b: c", "d"), values)
    write_attributes(tmp_path, attributes)
    again = read_attributes(tmp_path)
    assert again.names == ("a", "b: c", "d")
    assert list(again.values) == ["Bär", "crow"]
    for name, row in again.values.items():
        assert row.dtype == np.float32
        # Equal to the last bit.
        np.testing.assert_array_equal(row, np.float32(values[name]))
    assert [path.name for path in tmp_path.iterdir()] == ["classes.json"]


def test_another_number_than_was_written_is_noticed(tmp_path):
    write_attributes(tmp_path, ClassAttributes(("a", "b"), {"x": np.array([0.25, 0.5])}))
    path = tmp_path / "classes.json"
    path.write_text(path.read_text().replace("0.25", "0.75"))
    with pytest.raises(DataError, match="classes.json"):
        read_attributes(tmp_path)


def test_a_dataset_without_attributes(tmp_path):
    assert read_attributes(tmp_path) is None


def test_matrix():
    attributes = ClassAttributes(("a", "b"), {"x": np.array([1, 2]), "y": np.array([3, 4])})
    matrix = attributes.matrix(["y", "x", "y"])
    assert matrix.dtype == np.float32
    assert matrix.tolist() == [[3, 4], [1, 2], [3, 4]]
    assert attributes.matrix([]).shape == (0, 2)
    with pytest.raises(DataError, match="'z'"):
        attributes.matrix(["x", "z"])


def test_values_are_a_copy_that_nobody_changes():
    row = np.array([1.0, 2.0], np.float32)
    attributes = ClassAttributes(("a", "b"), {"x": row})
    row[0] = 7
    assert attributes.matrix(["x"]).tolist() == [[1, 2]]
    with pytest.raises(ValueError, match="read-only"):
        attributes.values["x"][0] = 7


@pytest.mark.parametrize(
    ("names", "values"),
    [
        ((), {"x": []}),
        (("a", " "), {"x": [1, 2]}),
        (("a",), {}),
        (("a", "b"), {"x": [1, 2], "y": [1]}),
        (("a",), {"x": [[1]]}),
        (("a", "b"), {"x": [1, float("nan")]}),
        (("a",), {"x": [1e300]}),
        (("a",), {"x": ["much"]}),
        (("a",), {"x": {"a": 1}}),
    ],
)
@pytest.mark.filterwarnings("ignore:overflow")
def test_what_is_no_attributes(names, values):
    with pytest.raises(DataError):
        ClassAttributes(names, values)


@pytest.mark.parametrize(
    "content",
    [
        "{",
        "[]",
        json.dumps({"attributes": ["a"]}),
        json.dumps({"attributes": ["a"], "classes": {"x": [1, 2]}}),
        json.dumps({"attributes": [3], "classes": {"x": [1]}}),
        '{"attributes": ["a"], "classes": {"x": [NaN]}}',
        '{"attributes": ["a"], "classes": {"x": [null]}}',
    ],
)
def test_broken_files(tmp_path, content):
    (tmp_path / "classes.json").write_text(content)
    with pytest.raises(DataError, match=r"classes\.json"):
        read_attributes(tmp_path)
