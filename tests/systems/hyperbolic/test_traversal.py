"""Traversals from images to the root, their command and drawing, and the analysis of distances to the root."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image

from tests.ops.test_lorentz import slow_distance, slow_violation, vectors
from tests.raising import raises_argument
from vsemb import analyze
from vsemb.cli.__main__ import main
from vsemb.runs.measure import embedded
from vsemb.systems.hyperbolic.api import traverse
from vsemb.systems.hyperbolic.distances import measure_distances
from vsemb.systems.hyperbolic.traversal import ROOT, nearest_on_the_way


@pytest.mark.parametrize("entailing", [True, False])
def test_the_nearest_text_of_each_point_by_loops(entailing: bool) -> None:
    image, texts = vectors(1, 2, 30, 2.0)[0], vectors(40, 2, 31, 0.7)
    nearest, distances, radii = nearest_on_the_way(image, texts, 7, entailing=entailing)
    for step in range(7):
        point = image * (1 - step / 6)
        # The root is at the distance of the length, and entails everything.
        best = (float(np.linalg.norm(point)), 40)
        for row, text in enumerate(texts):
            if step < 6 and (not entailing or slow_violation(point, text) == 0):
                best = min(best, (slow_distance(point, text), row))
        assert nearest[step] == best[1]
        assert distances[step] == pytest.approx(best[0], abs=1e-3)
        assert radii[step] == pytest.approx(np.linalg.norm(point), abs=1e-5)
    assert nearest[-1] == 40
    assert len(set(nearest)) > 2


def test_distances_and_cones_by_hand() -> None:
    images, texts = np.array([[2.0, 0.0], [0.0, 0.5]]), np.array([[1.0, 0.0], [0.0, 1.0], [0.1, 0.0]])
    measured = measure_distances(images, texts, np.array([0, 1, 0]))
    np.testing.assert_allclose(measured.images, [2, 0.5])
    np.testing.assert_allclose(measured.texts, [1, 1, 0.1])
    # The second text is behind its image. The third has a half aperture of 90 degrees.
    assert (measured.nearer, measured.in_own, measured.in_other) == pytest.approx((2 / 3, 2 / 3, 0))
    # 180 degrees, less the half aperture, of one of three texts.
    assert measured.outside_own == pytest.approx((180 - np.degrees(np.arcsin(0.2 / np.sinh(1)))) / 3, rel=1e-3)


def test_texts_of_a_split(meru_run, scenes) -> None:
    split = scenes.split("val")
    found = traverse(meru_run, split.keys[3], split="val", steps=9)
    images, texts, _ = embedded(meru_run, scenes, "val")
    assert found.radius == pytest.approx(np.linalg.norm(images[3]), rel=1e-4)
    nearest, _, _ = nearest_on_the_way(images[3], texts, 9)
    names = [*split.captions, ROOT]
    assert [each.text for each in found.texts] == list(dict.fromkeys(names[row] for row in nearest))
    assert found.texts[-1].text == ROOT and found.pool == len(set(split.captions))
    entailing = traverse(meru_run, split.keys[3], split="val", entailing=True)
    assert found.texts[0].distance <= entailing.texts[0].distance


def test_the_command_draws_and_reads_a_list(meru_run, scenes, tmp_path, capsys) -> None:
    lines, out, report = tmp_path / "texts.txt", tmp_path / "way.png", tmp_path / "way.json"
    lines.write_text("\n".join([*scenes.split("val").captions[:6], "qwertz"]))
    key = scenes.split("val").keys[0]
    arguments = ["traverse", str(meru_run.path), key, "--texts", str(lines), "--steps", "5"]
    assert main([*arguments, "--out", str(out), "--json", str(report)]) == 0
    content = json.loads(report.read_text())
    assert content["steps"] == 5 and content["texts"][-1]["text"] == ROOT
    assert content["pool"] == len(set(scenes.split("val").captions[:6]))  # Without the unknown word.
    assert all(each["text"] in capsys.readouterr().out for each in content["texts"][:1])
    with Image.open(out) as picture:
        assert picture.width > picture.height


def test_the_analysis_of_distances(meru_run, scenes, tmp_path, capsys) -> None:
    out, report = tmp_path / "distances.png", tmp_path / "distances.json"
    arguments = ["analyze", "root-distances", str(meru_run.path), "--split", "val"]
    assert main([*arguments, "--out", str(out), "--json", str(report)]) == 0
    images, texts, rows = embedded(meru_run, scenes, "val")
    content = json.loads(report.read_text())
    assert content["images"]["mean"] == pytest.approx(np.linalg.norm(images, axis=1).mean(), rel=1e-5)
    assert content["texts"]["count"] == len(texts)
    assert content["nearer"] == measure_distances(images, texts, rows).nearer
    with Image.open(out) as picture:
        assert picture.format == "PNG"


def test_cones_have_the_radius_of_the_training(meru_run, scenes) -> None:
    loss = replace(meru_run.recipe.loss, min_radius=3.0)
    run = replace(meru_run, recipe=replace(meru_run.recipe, loss=loss))
    images, texts, rows = embedded(meru_run, scenes, "val")
    measured = analyze("root-distances", [run], split="val").to_json()
    wide, narrow = (measure_distances(images, texts, rows, radius) for radius in (3.0, 0.1))
    assert measured["outside_own"] == pytest.approx(wide.outside_own) != pytest.approx(narrow.outside_own)
    found = traverse(run, scenes.split("val").keys[3], split="val", steps=9, entailing=True)
    nearest, _, _ = nearest_on_the_way(images[3], texts, 9, entailing=True, min_radius=3.0)
    names = [*scenes.split("val").captions, ROOT]
    assert [each.text for each in found.texts] == list(dict.fromkeys(names[row] for row in nearest))


def test_mistakes_are_one_line(meru_run, tiny_run, scenes, tmp_path, capsys) -> None:
    key = scenes.split("val").keys[0]
    unknown = tmp_path / "unknown.txt"
    unknown.write_text("qwertz\n")
    for arguments, said in (
        (["traverse", str(tiny_run.path), key], "lorentz"),
        (["traverse", str(meru_run.path), key, "--steps", "1"], "`steps`"),
        (["traverse", str(meru_run.path), key, "--split", "vall"], "Did you mean 'val'"),
        (["traverse", str(meru_run.path), key, "--texts", str(unknown)], "unknown.txt"),
        (["traverse", str(meru_run.path), key, "--texts", "nowhere.txt"], "nowhere.txt"),
        (["traverse", str(meru_run.path), key, "--out", "a.svg"], ".png, .jpg"),
        (["traverse", str(meru_run.path), "nowhere.jpg"], "nowhere.jpg"),
        (["analyze", "root-distances", str(tiny_run.path)], "lorentz"),
        (["analyze", "root-distances", str(meru_run.path), str(meru_run.path)], "one run for root-distances"),
        (["analyze", "root-distances", str(meru_run.path), "--out", "a.svg"], ".png, .jpg"),
    ):
        assert main(arguments) == 1
        error = capsys.readouterr().err
        assert said in error and error.count("\n") == 1, arguments
    with raises_argument("run"):
        traverse(tiny_run, key)
