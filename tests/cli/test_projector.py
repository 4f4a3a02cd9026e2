"""`vsemb projector`."""

from __future__ import annotations

import shutil

import pytest

from vsemb.cli.__main__ import main


@pytest.mark.slow
def test_writes_into_the_run_and_says_how_to_look(tiny_order_run, scenes, tmp_path, capsys):
    run = shutil.copytree(tiny_order_run.path, tmp_path / "my run")
    arguments = ["projector", str(run), "--data", str(scenes.path), "--words", "5", "--images", "4"]
    for _ in range(2):
        assert main([*arguments, "--sentences", "6"]) == 0
        lines = capsys.readouterr().out.splitlines()
        assert [line.split() for line in lines[1:5]] == [
            ["everything", "15", "16"],
            ["images", "4", "16"],
            ["sentences", "6", "16"],
            ["words", "5", "16"],
        ]
        assert lines[-1].startswith(f"tensorboard --logdir '{run}/projector'") and "#projector" in lines[-1]
        assert len(list((run / "projector").glob("events.out.tfevents.*"))) == 1


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--images", "-1"], "`images`"),
        (["--sentences", "16385"], "`sentences`"),
        (["--images", "0", "--sentences", "0", "--words", "0"], "at least one above 0"),
        (["--seed", "-1"], "`seed`"),
        (["--split", "vall"], "Did you mean 'val'"),
        (["nowhere"], "nowhere"),
    ],
)
def test_mistakes_are_one_line(tiny_run, tmp_path, capsys, arguments, said):
    out = tmp_path / "projector"
    run = [] if arguments == ["nowhere"] else [str(tiny_run.path)]
    assert main(["projector", *run, *arguments, "--out", str(out)]) == 1
    error = capsys.readouterr().err
    assert said in error and error.count("\n") == 1
    assert not list(tmp_path.iterdir())


def test_leaves_other_folders_alone(tiny_run, tmp_path, capsys):
    (tmp_path / "thesis.tex").write_text("years of work")
    assert main(["projector", str(tiny_run.path), "--out", str(tmp_path)]) == 1
    assert "must be a projector's folder" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_sets_are_no_points(region_run, capsys):
    assert main(["projector", str(region_run.path)]) == 1
    error = capsys.readouterr().err
    assert "embeds them as sets" in error and error.count("\n") == 1
