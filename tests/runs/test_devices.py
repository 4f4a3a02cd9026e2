"""Every kind of recipe makes the same losses and weights on two devices as on one."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.runs.both_ways import CASES
from tests.training.test_strategies import assert_same

pytestmark = pytest.mark.slow

# float32: the halves of a batch are summed in another order, sixty steps long, in which weights move by 1e-3.
CLOSE = {"rtol": 1e-4, "atol": 2e-6}


@pytest.fixture(scope="module")
def runs(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of all runs, see `both_ways`."""
    folder = tmp_path_factory.mktemp("both-ways")
    fixtures = {"scenes": "scenes", "flowers": "flowers_path", "regions": "region_scenes", "entailment": "snli_path"}
    if importlib.util.find_spec("spacy"):
        fixtures["trees"] = "parsed_scenes"
    if importlib.util.find_spec("pycocoevalcap"):
        fixtures["tagged"] = "tagged_scenes"
    needed = {case.data for case in CASES.values()}
    fixtures = {name: fixture for name, fixture in fixtures.items() if name in needed}
    fixtures |= {case.beside[1]: case.beside[1] for case in CASES.values() if case.beside is not None}
    found = {name: request.getfixturevalue(fixture) for name, fixture in fixtures.items()}
    paths = {name: str(getattr(value, "path", value)) for name, value in found.items()}
    (folder / "stopwords.txt").write_text("a\nthe\nand\nof\non\nis\n")
    (folder / "paths.json").write_text(json.dumps(paths | {"stopwords": str(folder / "stopwords.txt")}))
    command = [sys.executable, "-m", "tests.runs.both_ways", str(folder / "paths.json"), str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=1800)
    assert done.returncode == 0, done.stderr[-3000:]
    return folder


@pytest.mark.parametrize("name", CASES)
def test_two_devices_train_as_one(runs: Path, name: str) -> None:
    if not (runs / name).exists():
        pytest.skip(f"the extra {'parse' if name == 'trees' else 'captions'} is not installed")
    failed = runs / name / "failed.txt"
    assert not failed.exists(), failed.read_text()[-3000:]
    assert_same(runs / name / "one", runs / name / "two", **CLOSE)
