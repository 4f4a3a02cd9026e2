"""The Beam job that prepares datasets, held against `vsemb prepare` of the same source, byte for byte."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.pipelines.beam_options import PROCESSES
from tests.tiny import settings
from vsemb import recipes
from vsemb.cli.__main__ import main as vsemb
from vsemb.data.store import StoredDataset

pytest.importorskip("apache_beam", reason="the extra beam is not installed")

from pipelines import beam_prepare
from pipelines.beam import preparing
from pipelines.beam.blocks import BlockSummary, examine_block
from pipelines.beam.sharding import plan_shards, write_shard

BAD = {"7.png": "not an image", "31.png": "truncated", "40.png": "no such file"}


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Sixty images in a table without splits, three of them bad; one of the others has an empty caption."""
    folder = tmp_path_factory.mktemp("photos")
    generator = np.random.default_rng(0)
    rows = ["file,caption"]
    for number in range(60):
        pixels = generator.integers(0, 256, (12, 10 + number % 5, 3), np.uint8)
        Image.fromarray(pixels).save(folder / f"{number}.png")
        rows.append(f"{number}.png,photo {number}")
    (folder / "7.png").write_bytes(b"no image at all")
    data = (folder / "31.png").read_bytes()
    (folder / "31.png").write_bytes(data[: len(data) // 2])
    (folder / "40.png").unlink()
    (folder / "table.csv").write_text("\n".join([*rows, "1.png,another", "2.png,"]) + "\n", encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def wanted(photos: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `vsemb prepare` makes of them, seven images a shard."""
    out = tmp_path_factory.mktemp("wanted") / "data"
    command = ["prepare", str(photos), "--format", "table", "--images-per-shard", "7", "--out", str(out)]
    assert vsemb(command) == 0
    return out


def prepare(*arguments: object, shard: int = 7) -> int:
    given = [*arguments, "--format", "table", "--images-per-shard", shard]
    return beam_prepare.main([str(argument) for argument in given])


def assert_same(one: Path, other: Path) -> None:
    names = sorted(path.name for path in one.iterdir())
    assert names == sorted(path.name for path in other.iterdir())
    for name in names:
        assert (one / name).read_bytes() == (other / name).read_bytes(), name


@pytest.mark.parametrize("block", [1, 9, 256])
def test_it_is_what_vsemb_prepare_writes(photos, wanted, tmp_path, block: int, capsys) -> None:
    assert prepare(photos, "--out", tmp_path / "data", "--block", block) == 0
    assert_same(wanted, tmp_path / "data")
    assert StoredDataset.open(tmp_path / "data").splits == ("train", "val", "test")
    letters = [json.loads(line) for line in (tmp_path / "data-dead-letters.jsonl").open()]
    assert [item["key"] for item in letters] == list(BAD)
    for item in letters:
        assert item["reason"].startswith(BAD[item["key"]]) and item["image"] == str(photos / item["key"])
    assert "left out 3 images" in capsys.readouterr().err
    # Nothing is left beside the dataset; again, there is nothing to do, but for what a kill after publication left.
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data", "data-dead-letters.jsonl"]
    (tmp_path / ".data.partial" / "blocks").mkdir(parents=True)
    assert prepare(photos, "--out", tmp_path / "data", "--block", block) == 0
    assert "nothing to do" in capsys.readouterr().err and not (tmp_path / ".data.partial").exists()


@pytest.mark.slow
def test_processes_write_the_same_bytes_and_a_run_trains_on_them(photos, wanted, tmp_path) -> None:
    data = tmp_path / "data"
    assert prepare(photos, "--out", data, "--block", 5, *PROCESSES) == 0
    assert_same(wanted, data)
    # A run trains on it, and its images are read from shards that the job wrote.
    small = [*settings(recipes.get("contrastive")), "image.size=32", "training.epochs=1"]
    command = ["train", "contrastive", "--data", data, "--fine-tune", "SmallConvNet", "--out", tmp_path / "run"]
    assert vsemb([*map(str, command), *(word for each in small for word in ("--set", each))]) == 0
    assert vsemb(["evaluate", str(tmp_path / "run"), "--split", "test"]) == 0


def test_it_goes_on_after_a_crash(photos, wanted, tmp_path, monkeypatch, capsys) -> None:
    examined = []

    def examine(task):
        if task.number == 4:
            raise OSError(28, "No space left on device")
        examined.append(task.number)
        return examine_block(task)

    def write(task):
        if task.split == "test":
            raise RuntimeError("the machine is gone")
        return write_shard(task)

    command = (photos, "--out", tmp_path / "data", "--block", 10)
    with monkeypatch.context() as patch:
        patch.setattr(preparing, "examine_block", examine)
        assert prepare(*command) == 1
        error = capsys.readouterr().err
        assert "No space left on device" in error and "Traceback" not in error
        assert not (tmp_path / "data").exists()
    with monkeypatch.context() as patch:
        patch.setattr(preparing, "write_shard", write)
        assert prepare(*command) == 1
        assert "the machine is gone" in capsys.readouterr().err and not (tmp_path / "data").exists()
    assert len(list((tmp_path / ".data.partial" / "blocks").glob("*.json"))) == 6
    with monkeypatch.context() as patch:
        # All is examined: images that are gone now are not missed.
        patch.setattr("pipelines.beam.blocks.examine_all", None)
        assert prepare(*command) == 0
    assert_same(wanted, tmp_path / "data")
    assert not (tmp_path / ".data.partial").exists()


def test_what_changed_is_examined_again(photos, tmp_path, capsys) -> None:
    source = shutil.copytree(photos, tmp_path / "photos")
    command = (source, "--out", tmp_path / "data", "--block", 10)
    assert prepare(*command, "--on-bad-image", "fail") == 1
    assert "'7.png': not an image" in capsys.readouterr().err and not (tmp_path / "data").exists()
    for number in (7, 31, 40):
        shutil.copy(source / "0.png", source / f"{number}.png")
    assert prepare(*command, "--on-bad-image", "fail") == 0
    out = tmp_path / "wanted"
    assert (
        vsemb(
            [
                "prepare",
                str(source),
                "--format",
                "table",
                "--images-per-shard",
                "7",
                "--out",
                str(out),
                "--name",
                "data",
            ]
        )
        == 0
    )
    assert_same(out, tmp_path / "data")
    assert (tmp_path / "data-dead-letters.jsonl").read_text() == ""


def test_file_uris(photos, wanted, tmp_path) -> None:
    rows = "".join(f"{(photos / f'{n}.png').as_uri()},photo {n},train\n" for n in range(6))
    (tmp_path / "uris.csv").write_text("file,caption,split\n" + rows)
    assert prepare(tmp_path / "uris.csv", "--out", tmp_path / "a", "--uris", "--name", "x", "--block", 4) == 0
    assert (
        vsemb(
            ["prepare", str(tmp_path / "uris.csv"), "--format", "table", "--uris", "--images-per-shard", "7"]
            + ["--out", str(tmp_path / "b"), "--name", "x"]
        )
        == 0
    )
    assert_same(tmp_path / "b", tmp_path / "a")
    assert StoredDataset.open(tmp_path / "a").split("train").read_image(3) == (photos / "3.png").read_bytes()


def test_errors_are_one_line(photos, wanted, tmp_path, capsys) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "letter.txt").write_text("mine")
    (tmp_path / "empty.csv").write_text("file,caption\n7.png,a\n")
    (tmp_path / "7.png").write_bytes(b"")
    copy = shutil.copytree(wanted, tmp_path / "data")
    wrong = [
        ([tmp_path / "gone.csv", "--out", tmp_path / "o"], "No source at"),
        ([photos, "--out", tmp_path / "other"], "is not a vsemb dataset"),
        ([photos, "--out", copy, "--max-side", 8], "`overwrite`"),
        ([photos, "--out", tmp_path / "o", "--block", 0], "`block`"),
        ([tmp_path / "empty.csv", "--out", tmp_path / "o"], "None of 1 images can be used"),
        ([photos, "--out", tmp_path / "o", "--runner", "Nope"], "Nope"),
        ([photos, "--out", tmp_path / "o", "--runner", "no_such_package.Runner"], "no_such_package"),
        ([photos, "--out", tmp_path / "o", "--images", "gs://bucket/photos"], "apache-beam[gcp]"),
        ([photos, "--out", "gs://bucket/data"], "apache-beam[gcp]"),
    ]
    for arguments, message in wrong:
        assert prepare(*arguments) == 1, message
        lines = capsys.readouterr().err.splitlines()
        assert len(lines) == 1 and message in lines[0], lines
        assert not (tmp_path / "o").exists()
    assert_same(wanted, copy)
    assert (tmp_path / "other" / "letter.txt").read_text() == "mine"
    with pytest.raises(SystemExit) as stopped:
        prepare(photos, "--out", tmp_path / "o", "--on-bad-imag", "skip")
    assert stopped.value.code == 2 and "--on-bad-imag" in capsys.readouterr().err


def test_images_that_a_source_holds_are_refused(tmp_path) -> None:
    from pipelines.beam.blocks import write_blocks
    from vsemb.data.records import ImageRecord
    from vsemb.errors import DataError

    (tmp_path / "blocks").mkdir()
    records = [ImageRecord("a", ("b",), "train", b"bytes")]
    with pytest.raises(DataError, match="vsemb prepare"):
        list(write_blocks(records, str(tmp_path / "blocks"), 2, max_side=None, threads=1))


def test_shards_by_hand() -> None:
    def block(number: int, **kept: int) -> BlockSummary:
        return BlockSummary(number, f"report {number}", kept, [], 0, "image", None)

    # Ids: block 0 has 0 to 3, block 1 has 4 to 6, in whatever order blocks come back.
    shards = plan_shards([block(1, train=2, val=1), block(0, train=3, val=1)], 2, "data", "reports")
    values = {
        (shard.split, shard.number): [(part.report[-1], part.first_id, part.skip, part.take) for part in shard.parts]
        for shard in shards
    }
    assert values == {
        ("train", 0): [("0", 0, 0, 2)],
        ("train", 1): [("0", 0, 2, 1), ("1", 4, 0, 1)],
        ("train", 2): [("1", 4, 1, 1)],
        ("val", 0): [("0", 0, 0, 1), ("1", 4, 0, 1)],
    }
    assert {shard.count for shard in shards if shard.split == "train"} == {3}
