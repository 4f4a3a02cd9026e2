"""What of a run that reads the names of classes goes into the projector."""

from __future__ import annotations

import csv

import pytest

from tests.conftest import FEATURE_DIM
from tests.raising import raises_argument
from vsemb.runs.projector import project_run


@pytest.mark.slow
def test_a_run_on_classes_has_no_words(flowers, sje_run, tmp_path) -> None:
    run = sje_run("attributes")
    made = project_run(run, flowers, "val", tmp_path / "projector")
    out, shapes = made.path, made.shapes
    assert list(shapes) == ["everything", "images", "sentences"] and shapes["images"] == (16, FEATURE_DIM)
    with open(out / "sentences.metadata.tsv", encoding="utf-8", newline="") as file:
        names = {line["sentence"] for line in csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE)}
    assert names == set(flowers.split("val").class_names)
    with raises_argument("words"):
        project_run(run, flowers, "val", tmp_path / "words", images=0, sentences=0)
    assert not (tmp_path / "words").exists()
