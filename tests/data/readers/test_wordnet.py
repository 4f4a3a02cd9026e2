"""Where WordNet's database files are looked for."""

from __future__ import annotations

import pytest

from tests.data.wordnet_files import write_wordnet
from vsemb.data.readers.wordnet import find_wordnet
from vsemb.errors import DataError


def test_places(tmp_path, monkeypatch):
    folder = write_wordnet(tmp_path / "dict")
    assert find_wordnet(folder) == folder
    with pytest.raises(DataError, match=r"data\.noun"):
        find_wordnet(tmp_path)
    monkeypatch.setattr("vsemb.data.readers.wordnet.PLACES", ("$WNHOME/dict", str(tmp_path / "nowhere")))
    monkeypatch.delenv("WNHOME", raising=False)
    with pytest.raises(DataError):
        find_wordnet()
    monkeypatch.setenv("WNHOME", str(tmp_path))
    assert find_wordnet() == folder
