"""Searching with a run that reads the names of classes."""

from __future__ import annotations

import pytest

from tests.searched import search_run
from vsemb import Run
from vsemb.errors import InvalidArgumentError
from vsemb.runs.inputs import Query
from vsemb.systems.zero_shot.class_names import ClassTokenizer
from vsemb.text import Vocabulary


def test_what_a_run_reads_is_called_by_its_name(tiny_run, scenes, monkeypatch) -> None:
    run = Run.open(tiny_run.path)
    monkeypatch.setitem(vars(run), "tokenizer", ClassTokenizer(Vocabulary(["Crow"])))
    with pytest.raises(InvalidArgumentError) as caught:
        search_run(run, scenes, Query("red shapes"), split="val")
    said = str(caught.value)
    assert "name of a class" in said and "lists its classes" in said and "word" not in said
