"""Several positives per query: metrics by hand, published files, plausible matches and the command."""

from __future__ import annotations

import json

import numpy as np
import pytest

import vsemb
from tests.forgetful import forgetful
from vsemb import similarities
from vsemb.cli.__main__ import main
from vsemb.errors import DataError
from vsemb.systems.benchmarks.positives import (
    Judged,
    Plausible,
    measure_positives,
    plausible_matches,
    query_metrics,
    read_positives,
)


class Split:
    """Three images of COCO with one caption each, and a fourth with one."""

    name = "test"
    keys = [f"COCO_val2014_{number:012}.jpg" for number in (7, 8, 9, 10)]
    caption_ids = ["70", "80", "90", "100"]
    caption_rows = np.arange(4)

    def __len__(self) -> int:
        return len(self.keys)


# Images by captions. Nothing may be read of the last row and column where the last image is not ranked.
SCORES = np.array([[0.9, 0.1, 0.5, 5], [0.2, 0.8, 0.7, 5], [0.6, 0.3, 0.4, 5], [5, 5, 5, 5]], np.float32)


def measured(*positives):
    (metrics,) = measure_positives(
        SCORES, np.eye(4, dtype=np.float32), np.arange(4), similarities.get("dot"), positives
    )
    return metrics


def test_a_query_by_hand():
    # Positives at places 1, 3 and 4: of the first three places, two; precision 1 at the first and 2/3 at the third.
    metrics = query_metrics(np.array([4.0, 3.0, 2.0, 1.0, 0.0]), np.array([0, 2, 3]))
    assert metrics.tolist() == pytest.approx([1, 1, 1, 2 / 3, (1 + 2 / 3) / 3])
    # The positive is the last of equals, and of twelve.
    assert query_metrics(np.zeros(6), np.array([0])).tolist() == [0, 0, 1, 0, 0]
    assert query_metrics(np.arange(12.0), np.array([0])).tolist() == [0, 0, 0, 0, 0]


def test_judged_positives_by_hand():
    # Image 7 has its caption and that of 9, places 2 and 3 of 4: the caption of 10 scores most. Image 8 has its own.
    split = Split()
    judged = Judged("eccv", split, {7: [70, 90, 555], 8: [80, 80], 666: [70]}, {70: [7], 90: [9, 8]})
    metrics = measured(judged)
    # Image 7: captions 10, 7, 9, 8; of the first two one, precision 1/2 at the second. Image 8: own caption second.
    assert metrics.image_to_text == pytest.approx({"R@1": 0, "R@5": 100, "R@10": 100, "R-P": 25, "mAP@R": 12.5})
    # Caption 70: images 10, 7, 9, 8; own is second. Caption 90: images 10, 8, 7, 9; of the first two one.
    assert metrics.text_to_image == pytest.approx({"R@1": 0, "R@5": 100, "R@10": 100, "R-P": 25, "mAP@R": 12.5})
    assert metrics.queries == (2, 2)
    with pytest.raises(DataError, match="'eccv'.*'test'"):
        Judged("eccv", split, {666: [70]}, {70: [7]})


def test_plausible_matches_by_hand():
    # Classes a; a and b; c; none. Positives of the images for 0, 1 and 2 differing classes:
    #   0: 0     0 1   0 1 2       R-Precision image to text   1 1/2 1     text to image   1 1/2 1
    #   1: 1     0 1   0 1                                     1 1/2 1/2                   1 1/2 1/2
    #   2: 2     2     0 2                                     0 0   1                     0 0   1/2
    metrics = measured(*plausible_matches([{"a"}, {"a", "b"}, {"c"}, set()], Split()))
    assert metrics.image_to_text["R-P"] == pytest.approx(100 * 11 / 18)
    assert metrics.text_to_image["R-P"] == pytest.approx(100 * 5 / 9)
    assert metrics.queries == (3, 3)
    one = Plausible(np.array([[1, 0], [1, 1], [0, 0]], bool), np.array([0, 0, 1, 2]), 1)
    assert [(row, own.tolist()) for row, own in one.of_images()] == [(0, [0, 1, 2]), (1, [0, 1, 2])]
    assert [(row, own.tolist()) for row, own in one.of_captions()] == [(0, [0, 1]), (1, [0, 1]), (2, [0, 1])]
    with pytest.raises(DataError, match="'test'"):
        plausible_matches([set()] * 4, Split())


def test_published_files(tmp_path):
    for name, content in {
        "eccv_image_to_caption": {"7": [70, 90]},
        "eccv_caption_to_image": {"70": [7, 8]},
        "cxc_image_to_caption": {"8": [80]},
        "cxc_caption_to_image": {"80": [8]},
        "instances_val2014": {
            "annotations": [
                {"image_id": 7, "category_id": 1},
                {"image_id": 8, "category_id": 1},
                {"image_id": 9, "category_id": 90},
                {"image_id": 999, "category_id": 2},
            ]
        },
    }.items():
        (tmp_path / f"{name}.json").write_text(json.dumps(content))
    csv = tmp_path / "sits_test.csv"
    csv.write_text(
        "caption,image,agg_score,sampling_method\n"
        "COCO_val2014:sentid:70,COCO_val2014_000000000008.jpg,2.99,c2i_intrasim\n"
        "COCO_val2014:sentid:70,COCO_val2014_000000000007.jpg,3.0,c2i_original\n"
        "COCO_val2014:sentid:90,COCO_val2014_000000000007.jpg,5.0,c2i_intrasim\n",
        encoding="utf-8-sig",
    )
    positives = read_positives([tmp_path, csv, tmp_path / "instances_val2014.json"], Split())
    assert [each.name for each in positives] == ["cxc", "eccv", "sits_test", *["plausible matches"] * 3]
    queries = [
        [{row: own.tolist() for row, own in side()} for side in (each.of_images, each.of_captions)]
        for each in positives
    ]
    assert queries[:3] == [[{1: [1]}, {1: [1]}], [{0: [0, 2]}, {0: [0, 1]}], [{0: [0, 2]}, {0: [0], 2: [0]}]]
    assert queries[3][0] == {0: [0, 1], 1: [0, 1], 2: [2]} and queries[5][1] == dict.fromkeys(range(3), [0, 1, 2])
    assert read_positives([tmp_path / "cxc_caption_to_image.json"], Split())[0].name == "cxc"


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("other.json", "{}", "other.json"),
        ("x_image_to_caption.json", "{}", "x_caption_to_image.json"),
        ("sits_val.csv", "caption,image\n70,8\n", "sits_val.csv.*'agg_score'"),
        ("sits_val.csv", "caption,image,agg_score\na:b,8_7.jpg,4\n", "sits_val.csv.*'b'"),
    ],
)
def test_other_files_are_refused(name, content, said, tmp_path):
    (tmp_path / name).write_text(content)
    with pytest.raises(DataError, match=said):
        read_positives([tmp_path / name], Split())


def test_lists_of_words_are_refused(tmp_path):
    for side in ("image_to_caption", "caption_to_image"):
        (tmp_path / f"x_{side}.json").write_text('{"7": ["dog"]}')
    with pytest.raises(DataError, match="x_image_to_caption.json.*'dog'"):
        read_positives([tmp_path], Split())


def test_the_command_measures_plausible_matches_of_the_objects_of_a_dataset(tiny_run, tmp_path, capsys):
    out = tmp_path / "positives.json"
    assert main(["evaluate", str(tiny_run.path), "--protocol", "positives", "--json", str(out)]) == 0
    printed = capsys.readouterr().out.splitlines()
    assert printed[0].split()[-6:] == ["queries", "R@1", "R@5", "R@10", "R-P", "mAP@R"]
    assert printed[1].startswith("plausible matches: image → text")
    written = json.loads(out.read_text())
    assert written["plausible matches"]["queries"] == [12, 60]
    assert vsemb.evaluate(tiny_run, protocol="positives").to_json() == written
    assert main(["evaluate", str(tiny_run.path), "--protocol", "positives", "--files", str(out)]) == 1
    assert str(out) in capsys.readouterr().err


def test_queries_with_unknown_words_are_also_left_out(tiny_run, scenes, tmp_path, capsys):
    part = scenes.split("val")
    words = {*part.captions[0].lower().split()} - {"a", "and"}
    run = forgetful(tiny_run, words, tmp_path / "run")
    written = vsemb.evaluate(run, protocol="positives").to_json()
    known = [row for row, text in enumerate(part.captions) if words & {*text.lower().split()}]
    assert written["unknown"]["texts_without_known"] == len(part.captions) - len(known) > 0
    left = written["with_known_word"]["plausible matches"]
    assert left["queries"] == [len({*part.caption_rows[known]}), len(known)]
    assert main(["evaluate", str(run.path), "--protocol", "positives"]) == 0
    assert "with known word" in capsys.readouterr().out
