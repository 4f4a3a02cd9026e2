"""The table of `vsemb evaluate --protocol zero-shot`."""

from __future__ import annotations

from vsemb.systems.zero_shot.metrics import CurvePoint, ZeroShotMetrics
from vsemb.systems.zero_shot.protocol import zero_shot_table


def test_zero_shot_table_has_a_row_for_each_share_and_number_of_texts():
    curve = (CurvePoint(2, 30.0, 4.25, 20.0, 1.0), CurvePoint(None, 50.0, 0.0, 40.0, 0.0))
    clean = ZeroShotMetrics(50.0, 45.0, 40.0, 60.0, 25.0, 50, 4, 100, 400, curve)
    mistyped = ZeroShotMetrics(35.0, 36.0, 37.0, 60.0, 25.0, 50, 4, 100, 400)
    lines = zero_shot_table({0.0: clean, 0.05: mistyped}, "test", False).splitlines()
    header = "test: 4 classes, 100 images, 400 texts top-1 per class top-1 AP@50 chance"
    assert " ".join(lines[0].split()) == header
    assert lines[1].split() == ["all", "texts", "50.0", "45.0", "40.0", "25.0"]
    assert lines[2].split() == ["2", "per", "class", "30.0", "±", "4.2", "20.0", "±", "1.0"]
    assert lines[3].split() == ["5", "%", "of", "characters", "mistyped", "35.0", "36.0", "37.0", "25.0"]
    # All texts stand in the curve too, but once in the table.
    assert lines[4] == "" and "disjoint from the training classes" in lines[5]
    assert lines[6] == "AP@50 is at most 60.0, because classes have fewer images."
    # Twelve images are fewer than fifty, and two classes of six each fill half of them at most.
    few = zero_shot_table({0.0: ZeroShotMetrics(50.0, 45.0, 40.0, 50.0, 50.0, 50, 2, 12, 24)}, "val", None)
    assert "AP@12" in few.splitlines()[0] and "AP@50" not in few
    assert few.splitlines()[-1] == "AP@12 is at most 50.0, because classes have fewer images."
    assert "Classes seen in training" in zero_shot_table({0.0: clean}, "test", True)
    assert "is unknown" in zero_shot_table({0.0: clean}, "test", None)
