"""Configuration of regions."""

from __future__ import annotations

import json

import pytest

from vsemb.errors import DataError, InvalidArgumentError
from vsemb.systems.regions.config import RegionConfig


def test_configuration_round_trip_and_defaults():
    config = RegionConfig("selective-search", count=7, overlap=1, pooling="crops", rank="confidence")
    assert RegionConfig.from_json(json.loads(json.dumps(config.to_json()))) == config
    assert isinstance(config.overlap, float)
    assert RegionConfig() == RegionConfig("grid", 19, 0.5, "map", "objectness")
    assert RegionConfig().in_graph and not RegionConfig("detections").in_graph


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"source": "grids"}, "Did you mean 'grid'"),
        ({"count": -1}, "count=-1"),
        ({"count": True}, "count=True"),
        ({"count": 501}, "from 0 to 500"),
        ({"overlap": 1.5}, "overlap=1.5"),
        ({"overlap": "half"}, "overlap='half'"),
        ({"overlap": float("nan")}, "overlap=nan"),
        ({"pooling": "crop"}, "Did you mean 'crops'"),
        ({"rank": "confidense"}, "Did you mean 'confidence'"),
        ({"rank": "confidence"}, "'objectness' for boxes of a grid"),
    ],
)
def test_bad_configurations(options, message):
    with pytest.raises(InvalidArgumentError, match=message):
        RegionConfig(**options)


def test_unknown_fields_of_a_file_are_refused():
    with pytest.raises(DataError, match="Did you mean 'pooling'"):
        RegionConfig.from_json({"pool": "map"})
