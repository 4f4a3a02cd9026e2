"""`vsemb evaluate --protocol captions` and `perplexity`: tables, files, and what does not go together."""

from __future__ import annotations

import json

import numpy as np
import pytest

from vsemb.cli.__main__ import main
from vsemb.systems.captions.caption_measure import CaptionTable, MeasuredCaptions, measure_captions
from vsemb.systems.captions.caption_metrics import CaptionMetrics
from vsemb.systems.captions.protocols import captions_table, perplexity_table
from vsemb.systems.captions.training_captions import NearestSentences
from vsemb.systems.captions.validation import PerplexityRow, measure_perplexities

pytest.importorskip("pycocoevalcap", reason="the extra `captions` is not installed")


@pytest.mark.slow
def test_captions_print_a_table_and_examples_and_write_json(caption_run, scenes, tmp_path, capsys) -> None:
    out = tmp_path / "captions.json"
    arguments = ["evaluate", str(caption_run.path), "--data", str(scenes.path), "--split", "test"]
    arguments += ["--protocol", "captions", "--no-meteor", "--limit", "5", "--examples", "2", "--json", str(out)]
    assert main(arguments) == 0
    table = measure_captions([caption_run], scenes, "test", limit=5, meteor=False)
    printed = capsys.readouterr().out
    assert printed.startswith(f"{captions_table(table)}\n")
    assert json.loads(out.read_text()) == json.loads(json.dumps(table.to_json()))
    for image in range(3):
        assert (table.keys[image] in printed) == (image < 2)
    assert printed.count("a reference") == 2 and printed.count("nearest training sentence") == 2


def test_captions_table() -> None:
    metrics = CaptionMetrics(2, (60.0, 40.0, 20.0, 10.04), 50.0, 33.0, 16.7, 9.25, 312, 99.0, 7372)
    other = CaptionMetrics(2, (1.0, 2.0, 3.0, 4.0), 5.0, 6.0, None, 7.0, 8)
    nearest = NearestSentences(np.array([0, -1]), np.array([0.5, 0.0]))
    rows = [
        MeasuredCaptions("runs/x", ["a", "b"], metrics, "r", [0.0, 0.0], [True, None], nearest),
        MeasuredCaptions("nearest", ["a", "b"], other),
    ]
    captions = CaptionTable("val", ["k", "l"], [["a"], ["b"]], None, rows, ["A note."])
    assert captions_table(captions).splitlines() == [
        "val: 2 images   B-1   B-2   B-3   B-4  METEOR  ROUGE-L  CIDEr  true  novel  vocabulary  words",
        "runs/x         60.0  40.0  20.0  10.0    16.7     50.0   33.0  50.0   99.0         312    9.2",
        "nearest         1.0   2.0   3.0   4.0              5.0    6.0                        8    7.0",
        "The training captions have 7,372 different words.",
        "A note.",
    ]
    alone = CaptionTable("val", ["k", "l"], [["a"], ["b"]], None, rows[1:], [])
    header = captions_table(alone).splitlines()[0].split()
    assert header[3:] == ["B-1", "B-2", "B-3", "B-4", "ROUGE-L", "CIDEr", "vocabulary", "words"]


def test_perplexity_prints_a_table_and_writes_json(caption_run, scenes, tmp_path, capsys) -> None:
    out = tmp_path / "perplexity.json"
    assert main(["evaluate", str(caption_run.path), "--protocol", "perplexity", "--json", str(out)]) == 0
    rows = measure_perplexities([caption_run], scenes, "val")
    assert capsys.readouterr().out == f"{perplexity_table(rows, 'val', None)}\n"
    written = json.loads(out.read_text())
    assert written["split"] == "val" and written["difference"] is None
    assert written["measured"] == json.loads(json.dumps([row.to_json() for row in rows]))


def test_perplexity_table_says_what_does_not_compare() -> None:
    rows = [
        PerplexityRow("runs/x", "sc-nlm", 12.346, 3.6261, 12345, 0.0125, 3000, "c0ffee"),
        PerplexityRow("uniform", "", 3000.0, 11.55, 12345, 0.0125, 3000, "c0ffee"),
    ]
    lines = perplexity_table(rows, "val", "Other words.").splitlines()
    assert lines[0].split() == ["val", "model", "perplexity", "bits", "per", "word", "words", "unknown"]
    assert lines[1].split() == ["runs/x", "sc-nlm", "12.35", "3.626", "12,345", "1.2", "%"]
    assert lines[2].split()[0] == "uniform" and lines[3] == "Other words."


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--folds", "2"], "`folds`"),
        (["--protocol", "captions", "--affinity", "1"], "`affinity`"),
        (["--examples", "-1"], "`examples`"),
        (["--limit", "0"], "`limit`"),
        (["--beam", "0"], "`beam`"),
        (["--split", "vall"], "Did you mean 'val'"),
        (["--beside", "runs/none"], "runs/none"),
        (["--protocol", "perplexity", "--beam", "3"], "`beam`"),
        (["--protocol", "perplexity", "--no-meteor"], "`meteor`"),
        (["--protocol", "retrieval", "--beside", "x"], "`beside`"),
        (["--protocol", "retrieval"], "'captions'"),
        (["--protocol", "pointing"], "'captions'"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_what_does_not_go_together_is_one_line(caption_run, options, said, capsys) -> None:
    assert main(["evaluate", str(caption_run.path), *options]) == 1
    error = capsys.readouterr().err
    assert said in error and error.count("\n") == 1


@pytest.mark.parametrize("protocol", ["captions", "perplexity"])
def test_other_runs_are_told_what_is_needed(tiny_run, protocol, capsys) -> None:
    assert main(["evaluate", str(tiny_run.path), "--protocol", protocol]) == 1
    error = capsys.readouterr().err
    assert "'vsepp'" in error and "'retrieval'" in error


def test_captions_are_the_protocol_of_runs_that_write_them(caption_run, capsys) -> None:
    assert main(["evaluate", str(caption_run.path), "--no-meteor", "--limit", "3"]) == 0
    assert capsys.readouterr().out.startswith("val: 3 images")
