"""`vsemb evaluate --protocol pointing`: the table, the file, and what does not go together."""

from __future__ import annotations

import json

import pytest

from tests.systems.regions.knowing_run import KnowingRun
from vsemb import Run, recipes
from vsemb.cli.__main__ import main
from vsemb.systems.regions.pointing import PointingMetrics, PointingShare
from vsemb.systems.regions.pointing_task import measure_pointing
from vsemb.systems.regions.protocol import pointing_table


@pytest.fixture
def knowing(scenes, monkeypatch) -> KnowingRun:
    """A run that knows what words mean, in the place of the one that is named."""
    run = KnowingRun(scenes)
    run.recipe = recipes.get("dvsa")
    run.open_data = lambda path: scenes
    monkeypatch.setattr(Run, "open", lambda path: run)
    return run


def test_prints_a_table_and_writes_json(knowing, scenes, tmp_path, capsys) -> None:
    out = tmp_path / "pointing.json"
    arguments = ["evaluate", "runs/x", "--data", str(scenes.path), "--split", "test", "--protocol", "pointing"]
    arguments += ["--affinity", "0", "0.1", "1", "--bootstrap", "20", "--json", str(out)]
    assert main(arguments) == 0
    metrics, chosen = measure_pointing(knowing, scenes, "test", affinities=[0, 0.1, 1], bootstrap=20)
    printed = capsys.readouterr().out
    assert printed == f"{pointing_table(metrics, 'test', chosen)}\n" and printed.count("best on val") == 1
    written = json.loads(out.read_text())
    expected = {"split": "test", "affinity_chosen_on_val": chosen, **metrics.to_json()}
    assert written == json.loads(json.dumps(expected))


def test_affinities_are_found_where_none_is_named(knowing, scenes, capsys) -> None:
    assert main(["evaluate", "runs/x", "--data", str(scenes.path), "--protocol", "pointing"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("val: 12 images, ") and lines[0].endswith(" nouns")
    assert sum(line.startswith("affinity ") for line in lines) == 5


def test_table_marks_what_was_chosen_and_says_what_is_not_read() -> None:
    share = PointingShare(50.0, 25.25, {"words": [40.0, 60.0], "nouns": [20.0, 30.0]})
    plain = PointingShare(5.0, 100.0)
    metrics = PointingMetrics({0.0: share, 0.125: plain}, plain, plain, plain, 12, 345, 67, 0, 19.54)
    assert pointing_table(metrics, "val", 0.125).splitlines() == [
        "val: 12 images, 19.5 regions each  345 words   67 nouns",
        "chance                                   5.0      100.0",
        "always the whole image                   5.0      100.0",
        "affinity 0 (each word by itself)        50.0       25.2",
        "  95 %                             40.0–60.0  20.0–30.0",
        "affinity 0.125 (best on val)             5.0      100.0",
        "ceiling: a right region exists           5.0      100.0",
    ]
    assert "affinity 0 (each word by itself, best on val)" in pointing_table(metrics, "val", 0.0)
    assert "best on val" not in pointing_table(metrics, "test", None)
    undecided = PointingMetrics({0.0: share}, plain, plain, plain, 12, 345, 67, 8, 20.0)
    last = pointing_table(undecided, "val", None).splitlines()[-1]
    assert last == "8 words count as wrong, since the model does not read them."


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--affinity", "1"], "`affinity`"),
        (["--protocol", "pointing", "--folds", "2"], "`folds`"),
        (["--protocol", "pointing", "--affinity", "0", "-1"], "`affinity`"),
        (["--protocol", "pointing", "--affinity", "nan"], "`affinity`"),
        (["--protocol", "pointing", "--bootstrap", "-1"], "`bootstrap`"),
        (["--protocol", "pointing", "--split", "vall"], "Did you mean 'val'"),
        (["--protocol", "pointing"], "must be a run on regions; its recipe 'vsepp'"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_what_does_not_go_together_is_one_line(tiny_run, options, said, capsys) -> None:
    assert main(["evaluate", str(tiny_run.path), *options]) == 1
    error = capsys.readouterr().err
    assert said in error and error.count("\n") == 1
