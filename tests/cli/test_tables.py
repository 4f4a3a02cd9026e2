"""Tables."""

from __future__ import annotations

from vsemb.cli.tables import (
    entailment_table,
    retrieval_table,
    split_classes_table,
    table,
    zero_shot_table,
)

from vsemb.evaluation.retrieval import RetrievalMetrics
from vsemb.systems.entailment.metrics import EntailmentMetrics
from vsemb.systems.zero_shot.metrics import CurvePoint, ZeroShotMetrics


def test_columns_of_text_and_numbers_without_trailing_blanks():
    rows = [["1", "a", "first"], ["10", "long", ""]]
    assert table(["n", "key", "text"], rows, text=(1, 2)).splitlines() == [
        " n  key   text",
        " 1  a     first",
        "10  long",
    ]


def test_retrieval_table_shows_intervals_below_their_row():
    side = {"R@1": 25.0, "R@5": 50.0, "R@10": 75.0, "median_rank": 3.0, "mean_rank": 3.5}
    bounds = {name: [value - 1, value + 1] for name, value in side.items()}
    intervals = {"image_to_text": bounds, "text_to_image": bounds}
    lines = retrieval_table(RetrievalMetrics(side, side, 4, 8, intervals)).splitlines()
    assert lines[0].split() == ["4", "images,", "8", "texts", "R@1", "R@5", "R@10", "median", "mean"]
    assert lines[1].split()[-5:] == ["25.0", "50.0", "75.0", "3.0", "3.5"]
    assert "24.0–26.0" in lines[2]


def test_retrieval_table_has_the_recalls_asked_for_and_pairs_below():
    side = {"R@1": 25.0, "R@5": 50.0, "R@10": 75.0, "R@20": 80.0, "median_rank": 3.0, "mean_rank": 3.5}
    paired = {"R@1": 3.3, "R@5": 14.0, "R@10": 24.2, "R@20": 37.4, "median_rank": 33, "mean_rank": 101.25}
    metrics = RetrievalMetrics(side, side, 4, 8, pairs=RetrievalMetrics(paired, paired, 3, 3))
    assert retrieval_table(metrics).splitlines() == [
        "4 images, 8 texts            R@1   R@5  R@10  R@20  median   mean",
        "image → text                25.0  50.0  75.0  80.0     3.0    3.5",
        "text → image                25.0  50.0  75.0  80.0     3.0    3.5",
        "",
        "3 pairs, one text an image   R@1   R@5  R@10  R@20  median   mean",
        "image → text                 3.3  14.0  24.2  37.4    33.0  101.2",
        "text → image                 3.3  14.0  24.2  37.4    33.0  101.2",
    ]


def test_entailment_table_is_in_percent():
    classes = {"entailment": 0.5, "neutral": 0.75, "contradiction": 1.0}
    metrics = EntailmentMetrics(12, 4, 0.75, 2 / 3, 0.8125, 0.9, 0.0625, classes)
    lines = entailment_table(metrics, "test").splitlines()
    assert lines[0] == "test: 12 pairs, 4 entailed"
    found = {line[:27].strip(): line[27:].strip() for line in lines[1:]}
    assert found == {
        "accuracy": "75.0 %",
        "majority class": "66.7 %",
        "average precision": "81.2 %",
        "area under ROC": "90.0 %",
        "accuracy on entailment": "50.0 %",
        "accuracy on neutral": "75.0 %",
        "accuracy on contradiction": "100.0 %",
        "threshold, from val": "0.0625",
    }


def test_zero_shot_table_has_a_row_for_each_share_and_number_of_texts():
    curve = (CurvePoint(2, 30.0, 4.25, 20.0, 1.0), CurvePoint(None, 50.0, 0.0, 40.0, 0.0))
    clean = ZeroShotMetrics(50.0, 45.0, 40.0, 60.0, 25.0, 50, 4, 100, 400, curve)
    mistyped = ZeroShotMetrics(35.0, 36.0, 37.0, 60.0, 25.0, 50, 4, 100, 400)
    lines = zero_shot_table({0.0: clean, 0.05: mistyped}, "test", False).splitlines()
    header = "test: 4 classes, 100 images, 400 texts top-1 per class top-1 AP@50 chance"
    assert " ".join(lines[0].split()) == header
    assert lines[1].split() == ["all", "texts", "50.0", "45.0", "40.0", "25.0"]
    assert lines[2].split() == ["2", "a", "class", "30.0", "±", "4.2", "20.0", "±", "1.0"]
    assert lines[3].split() == ["5", "%", "of", "characters", "mistyped", "35.0", "36.0", "37.0", "25.0"]
    # All texts stand in the curve too, but once in the table.
    assert lines[4] == "" and "No class of the split was trained on" in lines[5]
    assert lines[6] == "AP@50 is at most 60.0: classes have fewer images."
    # Twelve images are fewer than fifty, and two classes of six each fill half of them at most.
    few = zero_shot_table({0.0: ZeroShotMetrics(50.0, 45.0, 40.0, 50.0, 50.0, 50, 2, 12, 24)}, "val", None)
    assert "AP@12" in few.splitlines()[0] and "AP@50" not in few
    assert few.splitlines()[-1] == "AP@12 is at most 50.0: classes have fewer images."
    assert "Classes seen in training" in zero_shot_table({0.0: clean}, "test", True)
    assert "not known" in zero_shot_table({0.0: clean}, "test", None)


def test_counts_of_classes_are_sorted():
    assert split_classes_table({"a": 1, "b": 3, "c": 1}).splitlines()[1:] == [
        "b           3",
        "a           1",
        "c           1",
    ]
