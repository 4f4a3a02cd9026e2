"""The analysis of uncertainty: correlations and bins by hand, and the command."""

from __future__ import annotations

import json

import numpy as np
import pytest

from tests.systems.probabilistic.slow import slow_distance
from vsemb.cli.__main__ import main
from vsemb.runs.measure import embedded
from vsemb.systems.probabilistic.side import Side, rank_correlation


def test_rank_correlation_by_hand() -> None:
    # Without ties: 1 - 6 (sum of squared differences of ranks) / (n (n² - 1)) = 1 - 6 (1 + 1 + 0 + 0) / 60.
    assert rank_correlation(np.array([1, 2, 3, 4]), np.array([20, 10, 30, 99])) == pytest.approx(0.8)
    # Equal values have their mean rank: (1.5, 1.5, 3) against (1, 2, 3).
    assert rank_correlation(np.array([5, 5, 9]), np.array([1, 2, 3])) == pytest.approx(np.sqrt(0.75))
    assert rank_correlation(np.array([1, 2]), np.array([3, -4])) == pytest.approx(-1)


def test_bins_by_hand() -> None:
    side = Side(np.array([5.0, 1.0, 4.0, 2.0, 3.0]), np.array([12, 0, 9, 1, 0]))
    bins = side.bins(2)
    assert [each["queries"] for each in bins] == [3, 2]
    assert [each["uncertainty"] for each in bins] == [2, 4.5]
    assert [each["R@1"] for each in bins] == pytest.approx([200 / 3, 0])
    assert [each["R@10"] for each in bins] == [100, 50]
    assert side.summary()["p50"] == 3


def test_the_command(pcme_run, scenes, tmp_path, capsys) -> None:
    report = tmp_path / "uncertainty.json"
    arguments = ["analyze", "uncertainty", str(pcme_run.path), "--split", "val", "--bins", "3", "--items", "2"]
    assert main([*arguments, "--json", str(report)]) == 0
    content, part = json.loads(report.read_text()), scenes.split("val")
    images, texts, rows = embedded(pcme_run, scenes, "val")
    dim = texts.shape[1] // 2
    uncertainty = np.exp(texts[:, dim:].astype(np.float64)).sum(axis=1)
    assert content["texts"]["mean"] == pytest.approx(uncertainty.mean(), rel=1e-5)
    most = content["texts"]["most"]
    assert len(most) == 2 and most[0]["uncertainty"] == pytest.approx(uncertainty.max(), rel=1e-5)
    row = part.captions.index(most[0]["item"])
    distances = [slow_distance(texts[row], image) for image in images]
    assert most[0]["rank"] == 1 + sum(other < distances[rows[row]] for other in distances)
    assert content["images"]["least"][0]["item"] in part.keys
    assert [each["queries"] for each in content["images"]["bins"]] == [4, 4, 4]
    found = sum(each["queries"] * each["R@1"] for each in content["texts"]["bins"]) / len(texts)
    assert 0 < found <= 100 and -1 <= content["words_correlation"] <= 1
    printed = capsys.readouterr().out
    assert most[0]["item"] in printed and "rank correlation" in printed


def test_mistakes_are_one_line(pcme_run, tiny_run, capsys) -> None:
    run = str(pcme_run.path)
    for arguments, said in (
        ([str(tiny_run.path)], "csd"),
        ([run, run], "one run for uncertainty"),
        ([run, "--bins", "0"], "`bins`"),
        ([run, "--split", "val", "--bins", "13"], "from 1 to 12"),
        ([run, "--split", "vall"], "Did you mean 'val'"),
    ):
        assert main(["analyze", "uncertainty", *arguments]) == 1
        error = capsys.readouterr().err
        assert said in error and error.count("\n") == 1, arguments
