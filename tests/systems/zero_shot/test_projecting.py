"""What of a run that reads the names of classes goes into the projector."""

from __future__ import annotations

import csv

import pytest

from tests.conftest import FEATURE_DIM
from tests.raising import raises_argument
from vsemb import write_projector


@pytest.mark.slow
def test_a_run_on_classes_has_no_words(flowers, sje_run, tmp_path) -> None:
    run = sje_run("attributes")
    made = write_projector(run, data=flowers, split="val", out=tmp_path / "projector")
    out, shapes = made.path, made.shapes
    assert list(shapes) == ["everything", "images", "sentences"] and shapes["images"] == (16, FEATURE_DIM)
    with open(out / "sentences.metadata.tsv", encoding="utf-8", newline="") as file:
        names = {line["sentence"] for line in csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE)}
    assert names == set(flowers.split("val").class_names)
    with raises_argument("words"):
        write_projector(run, data=flowers, split="val", out=tmp_path / "words", images=0, sentences=0)
    assert not (tmp_path / "words").exists()
