"""The Beam job that embeds with an exported model, held against `vsemb index` of the same run."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest

from tests.pipelines.beam_options import PROCESSES
from vsemb import Run
from vsemb.cli.__main__ import main as vsemb
from vsemb.data.store import StoredDataset
from vsemb.runs.indexing import build_index
from vsemb.runs.serve import export_run
from vsemb.searching.storage import read_index

pytest.importorskip("apache_beam", reason="the extra beam is not installed")

from pipelines import beam_embed
from pipelines.beam.vectors import read_vectors


@pytest.fixture(scope="module")
def model(tiny_pixel_run: Run, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An exported model that embeds pixels and texts."""
    base = tmp_path_factory.mktemp("savedmodels") / "tiny"
    export_run(tiny_pixel_run, base, report=lambda line: None)
    return base


def embed(*arguments: object) -> int:
    return beam_embed.main([str(argument) for argument in arguments])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "format"), [pytest.param("image", "parquet", marks=pytest.mark.slow), ("text", "tfrecord")]
)
def test_the_index_is_that_of_vsemb_index(
    kind: str, format: str, model, scenes, tiny_pixel_run, tmp_path, capsys
) -> None:
    wanted = build_index(tiny_pixel_run, scenes, "all", kind, out=tmp_path / "wanted")
    command = [model, "--data", scenes.path, "--out", tmp_path / "vectors", "--format", format]
    command += ["--run", tiny_pixel_run.path, "--index", tmp_path / "index", "--rows-per-file", 30]
    command += ["--captions"] if kind == "text" else []
    assert embed(*command) == 0
    found = read_index(tmp_path / "index", wanted.source)  # Refuses one of another source.
    assert list(found.items) == list(wanted.items) and found.keys == wanted.keys
    # Other batches: sums of float32 in another order.
    np.testing.assert_allclose(found.embeddings, wanted.embeddings, rtol=0, atol=1e-5)
    manifest, vectors = read_vectors(str(tmp_path / "vectors"))
    assert np.array_equal(vectors.embeddings, np.asarray(found.embeddings))
    assert manifest["rows"] == len(wanted) == len(vectors) and len(manifest["files"]) > 1
    assert {file["name"].rpartition(".")[2] for file in manifest["files"]} == {format}
    capsys.readouterr()
    assert vsemb(["search", str(tmp_path / "index"), "a red circle", "-k", "2"]) == 0
    assert "scenes" not in capsys.readouterr().err
    # Again: nothing to do but the index.
    assert embed(*command) == 0
    assert "nothing to do" in capsys.readouterr().err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["index", "vectors", "wanted"]


@pytest.mark.slow
def test_processes_write_the_same_bytes(model, scenes, tmp_path) -> None:
    for name, flags in (("one", []), ("two", PROCESSES)):
        assert embed(model, "--data", scenes.path, "--out", tmp_path / name, "--rows-per-file", 30, *flags) == 0
    names = sorted(path.name for path in (tmp_path / "one").iterdir())
    assert names == sorted(path.name for path in (tmp_path / "two").iterdir())
    for name in names:
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes(), name


@pytest.mark.parametrize("copies", [0, 2])
def test_rows_that_a_runner_loses_or_repeats_are_an_error(copies: int, tmp_path) -> None:
    from pipelines.beam.embedding import Block, Embedded, FileTask, write_file

    blocks = [
        Embedded(Block(0, first, "val", [first], ["a"], [], [None]), np.ones((1, 2), np.float32), np.ones(1, bool))
        for first in range(2)
    ]
    task = FileTask(0, 2, str(tmp_path / "file"), str(tmp_path / "report"), "parquet")
    with pytest.raises(RuntimeError, match=f"{1 + copies} of 2 rows"):
        write_file(task, [blocks[0], *copies * [blocks[1]]])
    assert not list(tmp_path.iterdir())
    write_file(task, blocks)
    assert (tmp_path / "report").exists()


@pytest.mark.slow
def test_files_and_bad_ones(model, scenes: StoredDataset, tmp_path, capsys) -> None:
    split = scenes.split("val")
    (tmp_path / "good.png").write_bytes(split.read_image(0))
    (tmp_path / "bad.png").write_bytes(b"no image")
    good, bad, pipe = tmp_path / "good.png", tmp_path / "bad.png", tmp_path / "pipe.png"
    os.mkfifo(pipe)
    listed = [bad, "", good, good.as_uri(), tmp_path / "gone.png", pipe, pipe.as_uri()]
    (tmp_path / "list.txt").write_text("".join(f"{line}\n" for line in listed))
    assert embed(model, "--images", tmp_path / "list.txt", "--out", tmp_path / "out") == 0
    assert "bad     4" in capsys.readouterr().out
    manifest, vectors = read_vectors(str(tmp_path / "out"))
    assert vectors.ids.tolist() == [2, 3] and vectors.keys == [str(good), good.as_uri()]
    letters = [json.loads(line) for line in (tmp_path / "out" / "dead-letters.jsonl").open()]
    assert letters == manifest["bad"]
    assert [(item["id"], item["reason"].split(" in ")[0]) for item in letters] == [
        (0, "not an image"),
        (4, "no such file"),
        *((row, "cannot be read: must be a regular file; it is a named pipe") for row in (5, 6)),
    ]
    # The same image of the dataset has the same embedding.
    assert embed(model, "--data", scenes.path, "--split", "val", "--out", tmp_path / "val") == 0
    _, rows = read_vectors(str(tmp_path / "val"))
    np.testing.assert_allclose(vectors.embeddings[0], rows.embeddings[0], rtol=0, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("format", ["parquet", "tfrecord"])
def test_a_list_of_bad_ones_alone(model, tmp_path, format: str) -> None:
    (tmp_path / "list.txt").write_text(f"{tmp_path / 'gone.png'}\n")
    command = [model, "--images", tmp_path / "list.txt", "--out", tmp_path / "out", "--format", format]
    assert embed(*command) == 0
    manifest, vectors = read_vectors(str(tmp_path / "out"))
    assert vectors.embeddings.shape == (0, 16) and len(manifest["bad"]) == 1


@pytest.mark.slow
def test_texts(model, tiny_pixel_run, tmp_path) -> None:
    (tmp_path / "texts.txt").write_text("a red circle\na small green ring\n", encoding="utf-8")
    assert embed(model, "--texts", tmp_path / "texts.txt", "--out", tmp_path / "out") == 0
    _, vectors = read_vectors(str(tmp_path / "out"))
    from vsemb.evaluation import Embedder

    wanted = Embedder(tiny_pixel_run.model).texts(*tiny_pixel_run.encode(vectors.keys))
    np.testing.assert_allclose(vectors.embeddings, wanted, rtol=0, atol=1e-5)


@pytest.mark.slow
def test_it_goes_on_after_finished_files(model, scenes, tmp_path, monkeypatch, capsys) -> None:
    from pipelines.beam import embedding

    command = [model, "--data", scenes.path, "--out", tmp_path / "out", "--rows-per-file", 30]
    write = embedding.write_file

    def fails_once(task, embedded):
        if task.number == 1:
            raise OSError(28, "No space left on device")
        write(task, embedded)

    monkeypatch.setattr(embedding, "write_file", fails_once)
    assert embed(*command) == 1
    error = capsys.readouterr().err
    assert "No space left" in error and "Traceback" not in error and not (tmp_path / "out").exists()
    monkeypatch.setattr(embedding, "write_file", write)
    assert embed(*command) == 0
    assert "Continuing an interrupted job" in capsys.readouterr().err
    assert embed(*command[:-3], tmp_path / "afresh", *command[-2:]) == 0
    for path in (tmp_path / "afresh").iterdir():
        assert path.read_bytes() == (tmp_path / "out" / path.name).read_bytes()


@pytest.mark.slow
def test_errors_are_one_line(model, scenes, tiny_run, tmp_path, capsys) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "letter.txt").write_text("mine")
    (tmp_path / "empty.txt").write_text("\n")
    data = ["--data", scenes.path]
    wrong = [
        ([tmp_path, *data, "--out", tmp_path / "o"], "No SavedModel"),
        ([model, "--data", tmp_path, "--out", tmp_path / "o"], "No dataset"),
        ([model, *data, "--out", tmp_path / "other"], "letter.txt"),
        ([model, *data, "--out", tmp_path / "o", "--format", "csv"], "csv"),
        ([model, *data, "--out", tmp_path / "o", "--split", "nope"], "nope"),
        ([model, "--texts", tmp_path / "empty.txt", "--out", tmp_path / "o"], "no lines"),
        ([model, "--images", tmp_path / "none.txt", "--out", tmp_path / "o"], "none.txt"),
        (
            [model, *data, "--out", tmp_path / "o", "--run", tiny_run.path, "--index", tmp_path / "i"],
            "another run",
        ),
    ]
    for arguments, message in wrong:
        assert embed(*arguments) == 1, message
        lines = capsys.readouterr().err.splitlines()
        assert len(lines) == 1 and message in lines[0], lines
    assert not (tmp_path / "o").exists() and (tmp_path / "other" / "letter.txt").read_text() == "mine"
    for arguments in (["--texts", "t", "--captions"], [*data, "--index", "i"], [*data, "--num_worker", "3"]):
        with pytest.raises(SystemExit) as stopped:
            embed(model, "--out", tmp_path / "o", *arguments)
        assert stopped.value.code == 2
