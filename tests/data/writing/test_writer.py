"""Writing datasets while being killed, running out of disk, or changing one's mind."""

from __future__ import annotations

import os
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import tensorflow as tf

from vsemb.data.records import ImageRecord
from vsemb.data.store import Dataset
from vsemb.data.writing import shards
from vsemb.data.writing import validate as examine
from vsemb.data.writing import writer as writing
from vsemb.errors import DataError


class Killed(BaseException):
    """Not an Exception, so that no clean-up meant for errors runs, as for a kill."""


@pytest.fixture
def steps(monkeypatch):
    """Counts the steps that touch the disk, and dies before the one whose number is in `die_at`."""
    state = {"count": 0, "die_at": -1}

    def counted(original):
        def step(*args, **kwargs):
            if state["count"] == state["die_at"]:
                raise Killed
            state["count"] += 1
            return original(*args, **kwargs)

        return step

    monkeypatch.setattr(os, "replace", counted(os.replace))
    monkeypatch.setattr(os, "fsync", counted(lambda descriptor: None))
    monkeypatch.setattr(shards.SplitWriter, "add", counted(shards.SplitWriter.add))
    monkeypatch.setattr(shutil, "rmtree", counted(shutil.rmtree))
    return state


def interrupted_records(tiny) -> list[ImageRecord]:
    records = tiny.records(14)
    records[3] = replace(records[3], image=b"broken")
    records[8] = replace(records[8], captions=("",))
    return records


@pytest.mark.parametrize("overwrite", [False, True])
def test_killed_at_any_step_the_same_call_gives_the_same_bytes(tiny, tmp_path, steps, overwrite):
    records = interrupted_records(tiny)
    expected = tiny.contents(tiny.write(records, tmp_path / "expected").path)
    if overwrite:
        tiny.write(tiny.records(2), tmp_path / "base")
    folder = tmp_path / "work"

    def start() -> Path:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        if overwrite:
            shutil.copytree(tmp_path / "base", folder / "out")
        return folder / "out"

    out = start()
    steps["count"] = 0
    tiny.write(records, out, overwrite=overwrite)
    total = steps["count"]
    assert total > 40
    for step in range(total):
        steps.update(count=0, die_at=-1)
        out = start()
        steps.update(count=0, die_at=step)
        with pytest.raises(Killed):
            tiny.write(records, out, overwrite=overwrite)
        steps.update(count=0, die_at=-1)
        dataset = tiny.write(records, out, overwrite=overwrite)
        assert tiny.contents(out) == expected, step
        assert dataset.fingerprint == Dataset.open(tmp_path / "expected").fingerprint
        assert [path.name for path in folder.iterdir()] == ["out"], step


def test_finished_shards_are_not_decoded_again(tiny, tmp_path, monkeypatch):
    records = tiny.records(12)
    finish_shard = shards.SplitWriter.finish_shard
    finished = []

    def finish_two(self):
        finish_shard(self)
        finished.append(self.split)
        if len(finished) == 2:
            raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(shards.SplitWriter, "finish_shard", finish_two)
        with pytest.raises(Killed):
            tiny.write(records, tmp_path / "out")
    examined = []
    original = examine.examine
    monkeypatch.setattr(examine, "examine", lambda record, side: examined.append(record.key) or original(record, side))
    tiny.write(records, tmp_path / "out")
    # Shards of three: train has 0 1 3 finished at image 3, 4 6 7 at image 7; val (2 5 8 11) nothing yet.
    assert sorted(examined) == ["10.jpg", "11.jpg", "2.jpg", "5.jpg", "8.jpg", "9.jpg"]


class Once:
    """Records that can be iterated once, like a generator's."""

    def __init__(self, records):
        self._records = iter(records)

    def __iter__(self):
        return self

    def __next__(self):
        return next(self._records)


def interrupt(tiny, records, out, monkeypatch) -> None:
    """Leaves a work area with finished shards and nothing after."""

    def die(*args):
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(writing, "_write_index", die)
        with pytest.raises(Killed):
            tiny.write(records, out)


def changed_sources(tiny) -> dict[str, list[ImageRecord]]:
    records = tiny.records(10)
    return {
        "caption": [replace(records[0], captions=("other",)), *records[1:]],
        "image": [*records[:4], replace(records[4], image=tiny.jpeg(77)), *records[5:]],
        "fewer": records[:8],
        "order": records[::-1],
        "split": [records[0], replace(records[1], split="val"), *records[2:]],
        "front": [replace(records[0], key="new.jpg"), *records],
    }


@pytest.mark.parametrize("change", ["caption", "image", "fewer", "order", "split", "front"])
def test_a_source_that_changed_meanwhile_is_started_afresh(tiny, tmp_path, monkeypatch, change):
    interrupt(tiny, tiny.records(10), tmp_path / "out", monkeypatch)
    records = changed_sources(tiny)[change]
    lines: list[str] = []
    dataset = tiny.write(records, tmp_path / "out", report=lines.append)
    assert lines[-1] == "The source changed since the interrupted run: starting afresh."
    assert tiny.contents(dataset.path) == tiny.contents(tiny.write(records, tmp_path / "expected").path)


def test_a_changed_source_that_cannot_be_read_twice_says_so(tiny, tmp_path, monkeypatch):
    interrupt(tiny, tiny.records(10), tmp_path / "out", monkeypatch)
    records = changed_sources(tiny)["caption"]
    with pytest.raises(DataError, match="same command again starts afresh"):
        tiny.write(Once(records), tmp_path / "out")
    assert tiny.contents(tiny.write(Once(records), tmp_path / "out").path) == tiny.contents(
        tiny.write(records, tmp_path / "b").path
    )


def test_changed_options_start_afresh(tiny, tmp_path, monkeypatch):
    interrupt(tiny, tiny.records(10), tmp_path / "out", monkeypatch)
    lines: list[str] = []
    tiny.write(tiny.records(10), tmp_path / "out", images_per_shard=4, report=lines.append)
    assert lines == ["The source or the options changed since the interrupted run: starting afresh."]


def test_files_that_changed_meanwhile_are_noticed(tiny, tmp_path, monkeypatch):
    for number in range(4):
        (tmp_path / f"{number}.jpg").write_bytes(tiny.jpeg(number))
    records = [replace(r, image=tmp_path / r.key) for r in tiny.records(4)]
    interrupt(tiny, records, tmp_path / "out", monkeypatch)
    (tmp_path / "1.jpg").write_bytes(tiny.jpeg(50))
    dataset = tiny.write(records, tmp_path / "out")
    assert dataset.split("train").read_image(1) == tiny.jpeg(50)


def test_a_full_disk_is_one_line_and_loses_nothing(tiny, tmp_path, monkeypatch):
    records = tiny.records(10)

    def full(self, record, encoded):
        if record["entry"]["id"] == 7:
            raise OSError(28, "No space left on device")
        return original(self, record, encoded)

    original = shards.SplitWriter.add
    monkeypatch.setattr(shards.SplitWriter, "add", full)
    with pytest.raises(DataError, match="No space left on device. What is finished is kept") as caught:
        tiny.write(records, tmp_path / "out")
    assert "\n" not in str(caught.value)
    assert not list((tmp_path / ".out.partial" / "dataset").glob("*.tmp"))
    monkeypatch.setattr(shards.SplitWriter, "add", original)
    assert tiny.contents(tiny.write(records, tmp_path / "out").path) == tiny.contents(
        tiny.write(records, tmp_path / "b").path
    )


def test_errors_of_tensorflows_writer_are_translated(tiny, tmp_path, monkeypatch):
    def full(self, record, encoded):
        raise tf.errors.ResourceExhaustedError(None, None, "x.tfrecord; No space left on device")

    monkeypatch.setattr(shards.SplitWriter, "add", full)
    with pytest.raises(DataError, match="Cannot write .*No space left on device"):
        tiny.write(tiny.records(1), tmp_path / "out")
    assert not list(tmp_path.iterdir())


def test_what_before_publish_adds_moves_along(tiny, tmp_path, monkeypatch):
    def add(dataset):
        (dataset.path / "features").mkdir(exist_ok=True)
        (dataset.path / "features" / "x").write_text(dataset.fingerprint)

    def die(dataset):
        raise Killed

    with pytest.raises(Killed):
        tiny.write(tiny.records(4), tmp_path / "out", before_publish=die)
    dataset = tiny.write(tiny.records(4), tmp_path / "out", before_publish=add)
    assert (tmp_path / "out" / "features" / "x").read_text() == dataset.fingerprint
