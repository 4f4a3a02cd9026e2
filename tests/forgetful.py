"""Runs that know few words, without a training of their own."""

from __future__ import annotations

import shutil
from collections.abc import Collection
from pathlib import Path

from vsemb.files import read_json, write_json
from vsemb.runs.run import STATUS, VOCABULARY, Run
from vsemb.text import Vocabulary


def forgetful(run: Run, words: Collection[str], out: Path) -> Run:
    """Copy a run whose vocabulary has other entries in place of all words but some."""
    shutil.copytree(run.path, out)
    entries = [word if word in words else f"other{number}" for number, word in enumerate(run.vocabulary.words)]
    vocabulary = Vocabulary(entries)
    vocabulary.save(out / VOCABULARY)
    write_json(out / STATUS, {**read_json(out / STATUS), "vocabulary": vocabulary.fingerprint})
    return Run.open(out)
