"""Compositional tests: scores by hand, published files, crops and the command."""

from __future__ import annotations

import json

import numpy as np
import pytest
from PIL import Image

import vsemb
from vsemb.cli.__main__ import main
from vsemb.errors import DataError
from vsemb.systems.benchmarks.compositional import Case, case_scores, read_cases, score_cases

SUGAR_CREPE = {"filename": "1.png", "caption": "a red car", "negative_caption": "a blue car"}
ARO = {
    "image_path": "1.png",
    "bbox_x": 2,
    "bbox_y": 3,
    "bbox_w": 10,
    "bbox_h": 20,
    "relation_name": "on",
    "true_caption": "the cup on the table",
    "false_caption": "the table on the cup",
}
WINOGROUND = {"id": 0, "caption_0": "a", "caption_1": "b", "image_0": "ex_0_img_0", "image_1": "ex_0_img_1"}


@pytest.mark.parametrize(
    ("scores", "text", "image"),
    [
        ([[2, 1], [1, 2]], True, True),
        ([[2, 1], [3, 4]], True, False),  # The first caption prefers the second image.
        ([[2, 3], [1, 4]], False, True),  # The first image prefers the second caption.
        ([[1, 2], [2, 1]], False, False),
        ([[2, 2], [1, 3]], False, True),  # A tie counts against the model.
        ([[2, 1]], True, True),
        ([[2, 1, 2]], False, True),
    ],
)
def test_scores_of_a_case_by_hand(scores, text, image):
    assert case_scores(np.array(scores)) == (text, image)


def test_scores_by_hand():
    paired = Case((("a", None), ("b", None)), ("a", "b"))
    metrics = score_cases([paired] * 4, [(True, True), (True, False), (False, True), (True, False)])
    assert (metrics.text, metrics.image, metrics.group, metrics.by_kind) == (75, 50, 25, None)
    assert metrics.to_json() == {"cases": 4, "text": 75.0, "image": 50.0, "group": 25.0}
    single = [Case((("a", None),), ("a", "b"), kind) for kind in ("on", "on", "in", None)]
    metrics = score_cases(single, [(True, True), (False, True), (True, True), (True, True)])
    assert (metrics.text, metrics.image, metrics.group, metrics.by_kind) == (75, None, None, 75)
    assert metrics.kinds == {"on": (2, 50.0), "in": (1, 100.0)}
    assert metrics.to_json()["kinds"][0] == {"kind": "on", "cases": 2, "text": 50.0}


def test_published_files(tmp_path):
    (tmp_path / "swap.json").write_text(json.dumps({"0": SUGAR_CREPE, "1": SUGAR_CREPE}))
    case = Case((("1.png", None),), ("a red car", "a blue car"))
    assert read_cases(tmp_path / "swap.json") == [case, case]
    (tmp_path / "relation.json").write_text(json.dumps([ARO]))
    captions = ("the cup on the table", "the table on the cup")
    assert read_cases(tmp_path / "relation.json") == [Case((("1.png", (2, 3, 12, 23)),), captions, "on")]
    (tmp_path / "examples.jsonl").write_text(json.dumps(WINOGROUND) + "\n")
    images = (("ex_0_img_0.png", None), ("ex_0_img_1.png", None))
    assert read_cases(tmp_path / "examples.jsonl") == [Case(images, ("a", "b"))]


def test_pairs_of_attributes_with_few_cases_have_no_mean(tmp_path):
    attributes = {name: value for name, value in ARO.items() if name != "relation_name"}
    often, rare = ({**attributes, "attributes": pair} for pair in (["red", "old"], ["wet", "new"]))
    (tmp_path / "attribution.json").write_text(json.dumps([often] * 25 + [rare] * 24))
    assert [case.kind for case in read_cases(tmp_path / "attribution.json")] == ["red and old"] * 25 + [None] * 24


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("a.json", "[]", "a.json"),
        ("a.json", "[1]", "a.json"),
        ("a.json", json.dumps([SUGAR_CREPE, {"caption": "a"}]), "entry 1 .*'filename'"),
        ("a.jsonl", "{", "a.jsonl"),
    ],
)
def test_other_files_are_refused(name, content, said, tmp_path):
    (tmp_path / name).write_text(content)
    with pytest.raises(DataError, match=said):
        read_cases(tmp_path / name)


@pytest.mark.slow
def test_the_command_scores_image_files_and_their_parts(tiny_pixel_run, scenes, tmp_path, capsys):
    part = scenes.split("val")
    entries, captions = [], part.captions
    for row in range(3):
        (tmp_path / f"{row}.jpg").write_bytes(part.read_image(row))
        texts = {"true_caption": captions[5 * row], "false_caption": captions[5 * row + 5] + " zebra" * (row == 2)}
        box = {"bbox_x": 0, "bbox_y": 4, "bbox_w": 16, "bbox_h": 12}
        entries.append({"image_path": f"{row}.jpg", **box, "relation_name": f"kind {row % 2}", **texts})
    (tmp_path / "relation.json").write_text(json.dumps(entries))
    names = {"image_0": "0.jpg", "image_1": "1.jpg", "caption_0": captions[0], "caption_1": captions[5]}
    (tmp_path / "examples.jsonl").write_text(json.dumps(names))
    files = [str(tmp_path / name) for name in ("relation.json", "examples.jsonl")]
    command = ["evaluate", str(tiny_pixel_run.path), "--protocol", "compositional"]
    assert main([*command, "--files", *files, "--json", str(tmp_path / "out.json")]) == 0
    printed = capsys.readouterr().out.splitlines()
    assert printed[0].split() == ["tests", "text", "image", "group", "by", "kind"]
    written = json.loads((tmp_path / "out.json").read_text())
    unknown = [written[name].pop("unknown") for name in ("relation", "examples")]
    assert [each["unknown_tokens"] for each in unknown] == [1, 0] and unknown[0]["texts"] == 4
    assert [line.split(":")[0] for line in printed if "unknown" in line] == ["relation"]
    model = vsemb.load(tiny_pixel_run)
    parts = [Image.open(tmp_path / f"{row}.jpg").convert("RGB").crop((0, 4, 16, 16)) for row in range(3)]
    scores = model.similarity(model.encode_images(parts), model.encode_texts(captions[: 5 * 4 : 5]))
    right = [bool(scores[row, row] > scores[row, row + 1]) for row in range(3)]
    assert written["relation"]["text"] == pytest.approx(100 * np.mean(right))
    assert written["relation"]["text_by_kind"] == pytest.approx(100 * ((right[0] + right[2]) / 2 + right[1]) / 2)
    whole = model.encode_images([tmp_path / "0.jpg", tmp_path / "1.jpg"])
    text, image = case_scores(model.similarity(whole, model.encode_texts([captions[0], captions[5]])))
    assert written["examples"] == {
        "cases": 1,
        "text": 100 * text,
        "image": 100 * image,
        "group": 100 * (text and image),
    }
    assert main(command) == 1
    assert "`files`" in capsys.readouterr().err
    (tmp_path / "0.jpg").unlink()
    assert main([*command, "--files", files[0]]) == 1
    assert str(tmp_path / "0.jpg") in capsys.readouterr().err
