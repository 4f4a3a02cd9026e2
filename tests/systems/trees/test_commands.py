"""`vsemb annotate DATA dependencies` from the command line: what it prints, exit codes and messages."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.systems.trees.spacy_pipeline import captions_of, conllu_of
from vsemb.cli.__main__ import main
from vsemb.data.store import StoredDataset
from vsemb.systems.trees.parsers import open_parser

pytest.importorskip("spacy")


def parse(*arguments: object) -> int:
    data, *options = map(str, arguments)
    return main(["annotate", data, "dependencies", *options])


@pytest.mark.slow
def test_a_model(scenes_copy, spacy_pipeline, tmp_path, capsys):
    report = tmp_path / "report.json"
    assert parse(scenes_copy.path, "--model", spacy_pipeline, "--json", report) == 0
    lines = dict(line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines())
    assert list(lines) == ["trees", "words", "depth", "parser", "speed", "where", "next"]
    assert lines["trees"].startswith(f"{captions_of(scenes_copy)} (train ")
    assert lines["parser"].startswith("xx_tiny 0.0.0 (spaCy ")
    assert lines["next"] == f"vsemb train tree-twin --data {scenes_copy.path} --out runs/tree"
    values = json.loads(report.read_text())
    assert values["trees"] == values["captions_parsed"] == captions_of(scenes_copy)
    assert values["fingerprint"] == StoredDataset.open(scenes_copy.path).annotation("parses").fingerprint
    assert 1 <= values["depth_mean"] <= values["depth_max"] <= values["words_max"]
    assert parse(scenes_copy.path, "--model", spacy_pipeline, "--processes", 2) == 0
    captured = capsys.readouterr()
    assert "nothing to do" in captured.err and "speed" not in captured.out


def test_a_file(scenes_copy, spacy_pipeline, tmp_path, capsys):
    file = conllu_of(scenes_copy, open_parser(spacy_pipeline), tmp_path / "trees.conllu.gz")
    assert parse(scenes_copy.path, "--conllu", file) == 0
    assert "not recorded; name a model" in capsys.readouterr().out
    # The same trees, and now a parser for new sentences.
    assert parse(scenes_copy.path, "--conllu", file, "--model", spacy_pipeline) == 1
    assert "--overwrite" in capsys.readouterr().err
    assert parse(scenes_copy.path, "--conllu", file, "--model", spacy_pipeline, "--overwrite") == 0
    assert "the same tree for 100.0 % of sampled captions" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["{data}"], "`model`"),
        (["nowhere", "--model", "{pipeline}"], "nowhere"),
        (["{data}", "--model", "en_core_web_unheard_of"], "spacy download en_core_web_unheard_of"),
        (["{data}", "--model", "{data}"], "with config.cfg and meta.json"),
        (["{data}", "--model", "{pipeline}", "--processes", "0"], "`processes`"),
        (["{data}", "--conllu", "nowhere.conllu"], "nowhere.conllu cannot be read: No such file"),
        (["{data}", "--conllu", "{pipeline}/meta.json"], "meta.json, line 1"),
        (["{data}", "--conllu", "{data}"], "Is a directory"),
        (["{data}", "--conllu", "x", "--processes", "2"], "`processes`"),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
def test_failures_are_one_line_and_leave_nothing(scenes_copy, spacy_pipeline, capsys, arguments, message):
    before = sorted(scenes_copy.path.rglob("*"))
    given = [text.format(data=scenes_copy.path, pipeline=spacy_pipeline) for text in arguments]
    assert parse(*given) == 1
    captured = capsys.readouterr()
    assert captured.err.startswith("vsemb annotate: ") and captured.err.count("\n") == 1
    assert message in captured.err
    assert captured.out == ""
    assert sorted(scenes_copy.path.rglob("*")) == before


def test_a_path_with_blanks_in_the_next_command(scenes_copy, spacy_pipeline, capsys):
    data = Path(scenes_copy.path).rename(scenes_copy.path.parent / "my scenes")
    assert parse(data, "--model", spacy_pipeline) == 0
    assert f"--data '{data}' --out" in capsys.readouterr().out
