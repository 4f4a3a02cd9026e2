"""`vsemb embed`."""

from __future__ import annotations

import json

import numpy as np

from vsemb.cli.__main__ import main


def test_images_and_texts_become_files_of_vectors(tiny_pixel_run, scenes, tmp_path, capsys, monkeypatch):
    import pyarrow.parquet as parquet

    monkeypatch.chdir(tmp_path)
    split = scenes.split("val")
    (tmp_path / "photos").mkdir()
    for row in range(3):
        (tmp_path / "photos" / f"{row}.png").write_bytes(split.read_image(row))
    for name in ("phone.HEIC", "torn.png"):
        (tmp_path / "photos" / name).write_bytes(b"torn")
    run, report = str(tiny_pixel_run.path), tmp_path / "report.json"
    assert main(["embed", run, "--images", "photos", "--out", "images.npy", "--json", str(report)]) == 0
    captured = capsys.readouterr()
    assert "3 images" in captured.out and "photos/torn.png" in captured.err
    vectors, names = np.load("images.npy"), json.loads((tmp_path / "images.json").read_text())
    assert vectors.shape == (3, 16) and vectors.dtype == np.float32
    assert names["images"] == [f"photos/{row}.png" for row in range(3)]
    assert (
        list(names["skipped"])
        == list(json.loads(report.read_text())["skipped"])
        == ["photos/phone.HEIC", "photos/torn.png"]
    )
    (tmp_path / "photos/3.png").write_bytes(split.read_image(3))
    assert main(["embed", run, "--images", "photos", "--out", "images.npy"]) == 0
    assert "kept         3 unchanged" in capsys.readouterr().out
    np.testing.assert_array_equal(np.load("images.npy")[:3], vectors)
    (tmp_path / "photos/3.png").unlink()
    assert main(["embed", run, "--images", "photos", "--out", "images.parquet"]) == 0
    table = parquet.read_table("images.parquet").to_pydict()
    assert table["image"] == names["images"]
    np.testing.assert_array_equal(np.array(table["embedding"], np.float32), vectors)
    (tmp_path / "texts.txt").write_text("two shapes\na circle\n")
    assert main(["embed", run, "--texts", "texts.txt", "--out", "lines.npy"]) == 0
    assert main(["embed", run, "--texts", "two shapes", "a circle", "--out", "given.npy"]) == 0
    np.testing.assert_array_equal(np.load("lines.npy"), np.load("given.npy"))
    assert not list(tmp_path.glob(".*"))


def test_row_i_is_line_i_and_blank_lines_are_listed(tiny_run, tmp_path, capsys):
    run, out, report = str(tiny_run.path), tmp_path / "lines.npy", tmp_path / "report.json"
    lines = ["two shapes", "a red\u2028circle", "a blue\x85square", "", "a circle"]
    (tmp_path / "texts.txt").write_bytes("\ufeff".encode() + "\n".join(lines).encode() + b"\n")
    arguments = ["--texts", str(tmp_path / "texts.txt"), "--out", str(out), "--json", str(report)]
    assert main(["embed", run, *arguments]) == 0
    assert "1 blank line of" in (said := capsys.readouterr().err) and "omitted: 4" in said
    assert json.loads((tmp_path / "lines.json").read_text())["texts"] == [line for line in lines if line]
    assert json.loads(report.read_text())["blank_lines"] == [4] and np.load(out).shape[0] == 4
    for half in ("\ud83d", "\udcff"):
        assert main(["embed", run, "--texts", "a circle", f"red {half} star", "--out", str(out)]) == 1
        error = capsys.readouterr().err
        assert "`texts[1]`" in error and error.count("\n") == 1


def test_mistakes_are_one_line(tiny_run, region_run, tmp_path, capsys):
    out = ["--out", str(tmp_path / "a.npy")]
    (tmp_path / "empty.txt").touch()
    for run, arguments, said in (
        (tiny_run, ["--texts", "two", "--out", "a.csv"], ".npy or .parquet"),
        (tiny_run, ["--images", str(tmp_path), *out], "has none"),
        (tiny_run, ["--texts", str(tmp_path / "empty.txt"), *out], "at least one text"),
        (tiny_run, ["--texts", str(tmp_path / "two shapes.txt"), *out], "two shapes.txt"),
        (region_run, ["--texts", "two", *out], "sets of vectors"),
    ):
        assert main(["embed", str(run.path), *arguments]) == 1
        error = capsys.readouterr().err
        assert said in error and error.count("\n") == 1
