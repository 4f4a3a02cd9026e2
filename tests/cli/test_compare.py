"""`vsemb compare`."""

from __future__ import annotations

import dataclasses
import json

import pytest

from tests.forgetful import forgetful
from vsemb import compare
from vsemb.cli.__main__ import main
from vsemb.errors import DataError
from vsemb.evaluation import evaluate_retrieval
from vsemb.runs.measure import embedded, evaluate_run


@pytest.mark.slow
def test_a_run_gains_nothing_over_itself_and_has_the_recalls_of_evaluate(tiny_run, scenes, tmp_path, capsys):
    path, out = str(tiny_run.path), tmp_path / "compared.json"
    few = forgetful(tiny_run, {*scenes.split("val").captions[0].lower().split()}, tmp_path / "few")
    assert main(["compare", path, str(few.path), "--bootstrap", "2", "--json", str(out)]) == 0
    unknown = {
        "first": evaluate_run(tiny_run, scenes, "val").unknown,
        "second": evaluate_run(few, scenes, "val").unknown,
    }
    printed = [line for line in capsys.readouterr().out.splitlines() if line.startswith(("first:", "second:"))]
    assert printed == [f"{side}: {line}" for side, each in unknown.items() if each for line in each.notes]
    assert json.loads(out.read_text())["unknown"] == {
        side: dataclasses.asdict(each) for side, each in unknown.items() if each
    }
    assert len(printed) == 2
    assert main(["compare", path, path, "--bootstrap", "20", "--json", str(out)]) == 0
    lines = capsys.readouterr().out.splitlines()
    metrics = evaluate_run(tiny_run, scenes, "val")
    assert lines[0].split() == ["val", "first", "second", "gain", "95", "%", "share", "<=", "0"]
    total = f"{metrics.recall_sum:.1f}"
    assert lines[-3].split() == ["recall", "sum", total, total, "+0.0", "+0.0", "to", "+0.0", "1.000"]
    written = json.loads(out.read_text())
    assert written["text_to_image R@1"]["second"] == pytest.approx(metrics.text_to_image["R@1"])
    assert written["split"] == "val"


def test_runs_that_rank_other_texts_are_refused(tiny_run, scenes, monkeypatch):
    images, texts, rows = embedded(tiny_run, scenes, "val")
    ids = scenes.split("val").ids
    measured = evaluate_run(tiny_run, scenes, "val")
    # The embeddings alone do not say which words are unknown.
    without_words = dataclasses.replace(measured, unknown=None, with_known_word=None, all_words_known=None)
    assert evaluate_retrieval(images, texts, ids, ids[rows]) == without_words
    answers = iter([(images, texts, rows), (images, texts[::5], rows[::5])])
    monkeypatch.setattr("vsemb.runs.measure.embedded", lambda *_: next(answers))
    with pytest.raises(DataError, match="must rank the same texts"):
        compare(tiny_run, tiny_run, data=scenes)
