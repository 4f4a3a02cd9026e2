"""`vsemb.evaluate`: the same as its command, and arguments that are checked."""

from __future__ import annotations

import html
import json

import numpy as np
import pytest

import vsemb
from tests.raising import raises_argument
from vsemb.errors import DataError
from vsemb.evaluation import Embedder
from vsemb.runs.protocols import Retrieval


@pytest.mark.slow
def test_metrics_are_those_of_the_command(tiny_run, scenes, tmp_path, capsys):
    from vsemb.cli.__main__ import main

    found = vsemb.evaluate(tiny_run, split="test", bootstrap=5)
    path = tmp_path / "metrics.json"
    assert main(["evaluate", str(tiny_run.path), "--split", "test", "--bootstrap", "5", "--json", str(path)]) == 0
    assert found.to_json() == json.loads(path.read_text())
    assert vsemb.evaluate(str(tiny_run.path), scenes) == vsemb.evaluate(tiny_run, str(scenes.path), "val")
    assert repr(found) == str(found) == capsys.readouterr().out.rstrip("\n")
    assert f"<td>{found.text_to_image['R@1']:.1f}</td>" in found._repr_html_()


@pytest.mark.slow
def test_other_tasks_are_measured_as_by_the_command(caption_run, tiny_run, tmp_path, capsys):
    from vsemb.cli.__main__ import main

    path = tmp_path / "metrics.json"
    for run, flags, options in (
        (caption_run, ["--protocol", "perplexity"], {"protocol": "perplexity"}),
        (caption_run, ["--no-meteor", "--beam", "1", "--limit", "3"], {"meteor": False, "beam": 1, "limit": 3}),
    ):
        assert main(["evaluate", str(run.path), *flags, "--json", str(path)]) == 0
        printed = capsys.readouterr().out
        found = vsemb.evaluate(run, **options)
        assert found.to_json() == json.loads(path.read_text())
        assert repr(found) == printed.rstrip("\n") and f"<pre>{html.escape(repr(found))}</pre>" == found._repr_html_()
    assert found.to_json() == vsemb.evaluate(str(caption_run.path), caption_run.data_path, **options).to_json()


@pytest.mark.parametrize(
    ("options", "argument"),
    [
        ({"protocol": "captions"}, "protocol"),
        ({"protocol": "retrieval", "beam": 3}, "beam"),
        ({"bootstraps": 3}, "argument"),
        ({"protocol": "retrievals"}, "protocol"),
        ({"folds": 2.5}, "folds"),
        ({"folds": "5"}, "folds"),
        ({"folds": True}, "folds"),
        ({"bootstrap": True}, "bootstrap"),
        ({"bootstrap": -1}, "bootstrap"),
        ({"recalls": (1, 0)}, "recalls"),
        ({"pairs": False}, "pairs"),
        ({"pairs": 13}, "pairs"),
        ({"kept": 1}, "kept"),
        ({"split": 3}, "split"),
        ({"protocol": Retrieval(), "folds": 5}, "folds"),
        ({"protocol": 3}, "protocol"),
        ({"protocol": ""}, "protocol"),
        ({"data": 3}, "data"),
        ({"splt": "val"}, "argument"),
        ({"protocol": "zero-shot", "typos": ()}, "typos"),
    ],
    ids=str,
)
def test_options_of_protocols_are_checked(tiny_run, options, argument, monkeypatch):
    monkeypatch.setattr(Embedder, "images", lambda *args, **kwargs: pytest.fail("embedded"))
    with raises_argument(argument):
        vsemb.evaluate(tiny_run, **options)


def test_a_protocol_and_its_options_are_one_call(tiny_run, scenes):
    found = vsemb.evaluate(tiny_run, folds=np.int64(2), recalls=[20])
    assert found == vsemb.evaluate(tiny_run, scenes, protocol=Retrieval(folds=2, recalls=(20,)))
    assert found == vsemb.evaluate(tiny_run, protocol="retrieval", folds=2, recalls=(20,))
    assert found.folds is not None and "R@20" in found.text_to_image


def test_anything_but_a_run_is_refused():
    with raises_argument("run"):
        vsemb.evaluate(3)


@pytest.mark.parametrize(
    "act",
    [
        lambda run, out: vsemb.compare(run, run),
        lambda run, out: vsemb.analyze("lengths", [run]),
        lambda run, out: vsemb.write_projector(run, out=out),
        lambda run, out: vsemb.index(run, out=out),
        lambda run, out: vsemb.embed(run, texts=["a dog"], out=out / "texts.npy"),
        lambda run, out: vsemb.find(run, "a dog"),
    ],
    ids=["compare", "analyze", "write_projector", "index", "embed", "find"],
)
def test_an_opened_run_of_another_task_is_refused_as_its_directory_is(caption_run, tmp_path, act):
    for run in (caption_run, caption_run.path):
        with pytest.raises(DataError):
            act(run, tmp_path)
    assert not list(tmp_path.iterdir())
