"""Growth rows and their picture, of hand-made values."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest

from tests.benchmarks.picture import picture, shortened
from tests.benchmarks.reports import rows_of
from tests.benchmarks.timing import growth_rows, print_rows, row

SVG = "{http://www.w3.org/2000/svg}"


def test_a_single_size_has_no_growth() -> None:
    assert growth_rows("a, growth with b", [2], [1.0]) == []


def test_rows_become_panels() -> None:
    rows = [
        row("a <b> & c, GB", "1", 2.0),
        *growth_rows("a <b> & c, growth with pairs", [1000, 2000, 4000], [0.01, 0.04, 0.16]),
        *growth_rows("files, growth", [1, 2], [3.0, 3.0], "MB"),
    ]
    drawn = ElementTree.fromstring(picture(rows, "Growth at commit <none>"))
    texts = [each.text for each in drawn.iter(f"{SVG}text")]
    assert drawn.findtext(f"{SVG}title") == "Growth at commit <none>"
    assert {"a <b> & c", "growth with pairs", "exponent 2.00, values in seconds", "1000", "0.16"} <= set(texts)
    assert {"files", "growth", "exponent 0.00, values in MB"} <= set(texts)
    assert len(list(drawn.iter(f"{SVG}circle"))) == 5
    fits = [each for each in drawn.iter(f"{SVG}line") if each.get("class") == "fit"]
    points = [(each.get("cx"), each.get("cy")) for each in drawn.iter(f"{SVG}circle")]
    # Values on a power law are on the line.
    assert (fits[0].get("x1"), fits[0].get("y1")) == points[0] and (fits[0].get("x2"), fits[0].get("y2")) == points[2]


def test_a_report_without_growth_has_a_picture() -> None:
    assert ElementTree.fromstring(picture([], "Growth")).findtext(f"{SVG}title") == "Growth"


@pytest.mark.parametrize(("value", "text"), [(0.00065, "0.00065"), (999.9, "1000"), (9999, "9999"), (5e8, "500M")])
def test_labels_are_short(value: float, text: str) -> None:
    assert shortened(value) == text


def test_points_are_not_printed(capsys: pytest.CaptureFixture[str]) -> None:
    print_rows(growth_rows("a, growth with b", [1, 2], [3.0, 6.0]))
    assert "points" not in capsys.readouterr().out


def test_captioning_gives_the_points_of_its_sizes() -> None:
    sizes = [
        {"images": images, "ms_per_image": 2.0, "loop_over_graph": 3.0, "graph_over_limit": 4.0} for images in (1, 16)
    ]
    (grown,) = [each for each in rows_of("captioning", {"sizes": sizes}) if "points" in each]
    assert grown["ratio"] == 1.0 and grown["points"] == [[1.0, 0.002], [16.0, 0.032]]
