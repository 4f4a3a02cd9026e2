"""`vsemb export`."""

from __future__ import annotations

import json

import numpy as np
import pytest
import tensorflow as tf

from vsemb.cli.__main__ import main
from vsemb.exporting.contract import Contract

pytestmark = pytest.mark.usefixtures("opened_once")


@pytest.mark.slow
def test_a_model_that_searches_and_then_one_that_classifies_in_another_precision(
    tiny_run, tiny_pixel_run, pixel_index, tmp_path, capsys
):
    out, report, found = tmp_path / "savedmodels" / "scenes", tmp_path / "report.json", tmp_path / "found.json"
    arguments = ["export", str(tiny_pixel_run.path), str(out)]
    assert main([*arguments, "--index", str(pixel_index), "--json", str(report)]) == 0
    said = capsys.readouterr().out
    assert said.startswith(f"{out / '1'}\n") and "tensorflow_model_server" in said and "curl" in said
    assert "encode_image" in said and "[B, 16]" in said
    assert json.loads(report.read_text())["path"] == str(out / "1")
    assert main(["search", str(pixel_index), "a red circle", "-k", "3", "--json", str(found)]) == 0
    search = tf.saved_model.load(str(out / "1")).signatures["search_text"]
    answer = search(text=tf.constant(["a red circle"]), k=tf.constant([3]))
    wanted = json.loads(found.read_text())["results"]
    assert [key.decode() for key in answer["keys"].numpy()[0]] == [each["key"] for each in wanted]
    assert answer["ids"].numpy()[0].tolist() == [each["id"] for each in wanted]
    # One text alone on both ways, through other matrix products.
    np.testing.assert_allclose(answer["scores"].numpy()[0], [each["score"] for each in wanted], atol=1e-6)
    capsys.readouterr()

    classes = ["--classes", "red circle", "zyzzyva", "--template", "a {}"]
    assert main([*arguments, "--precision", "mixed_bfloat16", *classes]) == 0
    said = capsys.readouterr()
    assert "classify" in said.out and "probabilities  float32  [B, 1]" in said.out
    assert "Warning: skipped classes without a known word: zyzzyva." in said.err
    assert "Change for clients of version 1: the tolerance of outputs: 1e-05 before, 5e-03 now." in said.err
    assert Contract.read(out.parent / "contracts" / "scenes.json").tolerance == 5e-3
    assert "mixed_bfloat16: embeddings have two digits" in (out.parent / "contracts" / "scenes.md").read_text()

    assert main(["export", str(tiny_run.path), str(tmp_path / "other"), "--index", str(pixel_index)]) == 1
    error = capsys.readouterr().err
    assert "another run" in error and error.count("\n") == 1 and not (tmp_path / "other").exists()


@pytest.mark.slow
def test_a_run_without_an_image_network_says_what_is_left_out(tiny_run, tmp_path, capsys):
    out = tmp_path / "scenes"
    assert main(["export", str(tiny_run.path), str(out), "--version", "5"]) == 0
    assert "no encode_image: " in capsys.readouterr().out
    assert main(["export", str(tiny_run.path), str(out), "--version", "5"]) == 1
    error = capsys.readouterr().err
    assert "already exists" in error and error.count("\n") == 1


def test_mistakes_are_one_line(tmp_path, capsys):
    assert main(["export", str(tmp_path / "nothing"), str(tmp_path / "out")]) == 1
    error = capsys.readouterr().err
    assert "must be a run directory" in error and error.count("\n") == 1 and not (tmp_path / "out").exists()


def test_classes_that_cannot_be_are_one_line(tiny_run, tiny_pixel_run, tmp_path, capsys):
    (tmp_path / "classes.txt").write_text("red circle\n")
    for run, options, said in (
        (tiny_run, ["--classes", "red circle"], "no image network"),
        (tiny_pixel_run, ["--classes", "red", "red"], "distinct"),
        (tiny_pixel_run, ["--template", "a {}"], "`classes` must be"),
        (
            tiny_pixel_run,
            ["--classes", "red", "--classes-file", str(tmp_path / "classes.txt")],
            "`classes_file` must be",
        ),
        (tiny_pixel_run, ["--classes-file", str(tmp_path / "classes.txt"), "--template", "a"], "exactly one"),
    ):
        assert main(["export", str(run.path), str(tmp_path / "out"), *options]) == 1
        error = capsys.readouterr().err
        assert said in error and error.count("\n") == 1
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_a_run_that_writes_captions(region_caption_run, tmp_path, capsys):
    out = tmp_path / "captions"
    options = ["--beam", "3", "--n-best", "2", "--max-words", "7"]
    assert main(["export", str(region_caption_run.path), str(out), *options]) == 0
    said = capsys.readouterr().out
    assert "caption" in said and "[B, 2]" in said and "base64 < photo.jpg" in said and "encode_" not in said
    written = json.loads((tmp_path / "contracts" / "captions.json").read_text())["settings"]
    assert (written["n_best"], written["beam"], written["max_words"]) == (2, 3, 7)


@pytest.mark.slow
def test_options_of_the_other_kind_of_run_are_one_line(tiny_run, region_caption_run, caption_run, tmp_path, capsys):
    captions = region_caption_run
    for run, options, said in (
        (
            captions,
            ["--classes", "dog"],
            "must be a run for retrieval",
        ),
        (captions, ["--template", "a {}"], "`classes` must be"),
        (captions, ["--index", "index"], "index"),
        (
            captions,
            ["--precision", "mixed_bfloat16"],
            "`precision` must be omitted for a run",
        ),
        (captions, ["--beam", "0"], "`beam` must be an integer >= 1"),
        (captions, ["--candidates", "10"], "`candidates` must be omitted "),
        (tiny_run, ["--beam", "3"], "`beam` must be omitted for a run that writes no captions; got 3"),
        (tiny_run, ["--n-best", "3"], "`n_best`"),
        (caption_run, [], "must hold an image network"),
    ):
        assert main(["export", str(run.path), str(tmp_path / "out"), *options]) == 1
        error = capsys.readouterr().err
        assert said in error and error.count("\n") == 1, error
    assert not (tmp_path / "out").exists()
