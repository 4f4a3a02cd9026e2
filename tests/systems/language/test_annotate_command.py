"""`vsemb annotate DATA pos-tags` from the command line: what it prints, exit codes and messages."""

from __future__ import annotations

import json

import pytest

from vsemb import Dataset
from vsemb.cli.__main__ import main
from vsemb.systems.language import tags as tagging


def tag(*arguments: object) -> int:
    data, *options = map(str, arguments)
    return main(["annotate", data, "pos-tags", *options])


@pytest.fixture
def file(scenes_copy, tmp_path):
    """A noun after the other."""
    path = tmp_path / "tags.txt"
    with path.open("w") as lines:
        for name in scenes_copy.splits:
            split = scenes_copy.split(name)
            for caption, text in zip(split.caption_ids, split.captions, strict=True):
                tagged = " ".join(f"{word}/NN" for word in text.replace(".", " ").split())
                lines.write(f"{caption}\t{tagged}\n")
    return path


def test_a_file(scenes_copy, file, tmp_path, capsys):
    report = tmp_path / "report.json"
    assert tag(scenes_copy.path, "--file", file, "--json", report) == 0
    lines = dict(line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines())
    assert list(lines) == ["captions", "tags", "from", "time", "where"]
    assert lines["tags"] == "1 kinds: NN 100 %" and lines["from"] == "tags.txt"
    values = json.loads(report.read_text())
    tags = Dataset.open(scenes_copy.path).annotation("tags")
    assert (values["captions"], values["fingerprint"]) == (tags.count, tags.fingerprint)
    assert lines["where"] == str(tags.path)
    # The same again is nothing new, others are refused.
    assert tag(scenes_copy.path, "--file", file) == 0
    file.write_text(file.read_text().replace("/NN", "/JJ"))
    assert tag(scenes_copy.path, "--file", file) == 1
    assert "--overwrite" in capsys.readouterr().err
    assert tag(scenes_copy.path, "--file", file, "--overwrite") == 0
    assert Dataset.open(scenes_copy.path).annotation("tags").fingerprint != tags.fingerprint


def test_a_tagger(scenes_copy, monkeypatch, capsys):
    class Words:
        def tokenize(self, text):
            return text.split()

        def tag(self, tokens):
            return [(token, "X") for token in tokens]

    monkeypatch.setattr(tagging, "open_tagger", lambda: tagging.Tagger(Words(), Words(), "mine 1.0"))
    assert tag(scenes_copy.path) == 0
    assert "from      mine 1.0" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nowhere"], "nowhere"),
        (["{data}", "--file", "nowhere.txt"], "nowhere.txt"),
    ],
)
def test_errors_are_one_line(scenes_copy, capsys, arguments, message):
    assert tag(*(argument.format(data=scenes_copy.path) for argument in arguments)) == 1
    error = capsys.readouterr().err
    assert message in error and error.startswith("vsemb annotate: ") and error.count("\n") == 1
