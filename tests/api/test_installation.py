"""`vsemb.doctor`."""

from __future__ import annotations

import json
import sys
from importlib import metadata

import vsemb
from vsemb.api import installation
from vsemb.cli.__main__ import main


def test_a_page_about_the_installation(tmp_path, capsys):
    (tmp_path / "runs" / ".a.npy.partial").mkdir(parents=True)
    (tmp_path / "runs" / ".b.0123abcd.tmp").mkdir()
    (tmp_path / "runs" / ".c.json.0123abcd.tmp").touch()
    (tmp_path / "runs" / ".config").mkdir()
    path = tmp_path / "doctor.json"
    assert main(["doctor", str(tmp_path), "--json", str(path)]) == 0
    out, found = capsys.readouterr().out, json.loads(path.read_text())
    assert found["vsemb"] == vsemb.__version__ and found["tensorflow loads"] == "yes"
    names = (".a.npy.partial", ".b.0123abcd.tmp", ".c.json.0123abcd.tmp")
    assert found["leftovers"] == [str(tmp_path / "runs" / name) for name in names]
    assert all(line in out for line in found["leftovers"]) and "GB at" in found["free disk"]


def test_missing_and_outdated_packages_of_extras_are_named(monkeypatch, capsys):
    needed = ["numpy>=1", 'nothing-of-the-sort>=2; extra == "much"', 'numpy>=999; extra == "new"']
    needed += ['pillow>=1; extra == "here"', 'nothing; sys_platform == "no" and extra == "here"']
    monkeypatch.setattr(metadata, "requires", lambda name: needed)
    monkeypatch.setattr(
        metadata,
        "metadata",
        lambda name: metadata.email.message_from_string(
            "Provides-Extra: much\nProvides-Extra: new\nProvides-Extra: here\n"
        ),
    )
    monkeypatch.setattr(installation, "_computing", lambda: ({}, None))
    assert vsemb.doctor().missing == {"much": ["nothing-of-the-sort"], "new": ["numpy>=999"], "here": []}
    assert main(["doctor"]) == 0
    assert "pip install 'vsemb[much]'" in capsys.readouterr().out


def test_a_tensorflow_that_does_not_load_is_reported(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "tensorflow", None)
    assert main(["doctor"]) == 1
    printed = capsys.readouterr()
    assert "tensorflow loads  no:" in printed.out and printed.err.startswith("vsemb doctor: TensorFlow does not load")
