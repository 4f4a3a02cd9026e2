"""Tables of retrieval metrics."""

from __future__ import annotations

from vsemb.evaluation.retrieval import RetrievalMetrics


def test_retrieval_table_shows_intervals_below_their_row():
    side = {"R@1": 25.0, "R@5": 50.0, "R@10": 75.0, "median_rank": 3.0, "mean_rank": 3.5}
    bounds = {name: [value - 1, value + 1] for name, value in side.items()}
    intervals = {"image_to_text": bounds, "text_to_image": bounds, "recall_sum": [290.0, 310.0]}
    lines = str(RetrievalMetrics(side, side, 4, 8, intervals)).splitlines()
    assert lines[0].split() == ["4", "images,", "8", "texts", "R@1", "R@5", "R@10", "median", "mean"]
    assert lines[1].split()[-5:] == ["25.0", "50.0", "75.0", "3.0", "3.5"]
    assert "24.0–26.0" in lines[2]
    assert [line.split() for line in lines[-2:]] == [["recall", "sum", "300.0"], ["95", "%", "290.0–310.0"]]


def test_retrieval_table_has_the_recalls_asked_for_and_folds_and_pairs_below():
    side = {"R@1": 25.0, "R@5": 50.0, "R@10": 75.0, "R@20": 80.0, "median_rank": 3.0, "mean_rank": 3.5}
    paired = {"R@1": 3.3, "R@5": 14.0, "R@10": 24.2, "R@20": 37.4, "median_rank": 33, "mean_rank": 101.25}
    folds, pairs = RetrievalMetrics(side, side, 2, 4), RetrievalMetrics(paired, paired, 3, 3)
    metrics = RetrievalMetrics(side, side, 4, 8, folds=folds, pairs=pairs)
    assert str(metrics).splitlines() == [
        "4 images, 8 texts              R@1   R@5  R@10  R@20  median   mean",
        "image → text                  25.0  50.0  75.0  80.0     3.0    3.5",
        "text → image                  25.0  50.0  75.0  80.0     3.0    3.5",
        "recall sum                   300.0",
        "",
        "mean over folds of 2 images    R@1   R@5  R@10  R@20  median   mean",
        "image → text                  25.0  50.0  75.0  80.0     3.0    3.5",
        "text → image                  25.0  50.0  75.0  80.0     3.0    3.5",
        "recall sum                   300.0",
        "",
        "3 pairs, one text per image    R@1   R@5  R@10  R@20  median   mean",
        "image → text                   3.3  14.0  24.2  37.4    33.0  101.2",
        "text → image                   3.3  14.0  24.2  37.4    33.0  101.2",
        "recall sum                    83.0",
    ]
