"""Writing datasets: content, bad sources, existing output; killed, on a full disk, with another mind."""

from __future__ import annotations

import os
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from tests.raising import raises_argument
from vsemb.data.records import ImageRecord
from vsemb.data.store import StoredDataset
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
        assert dataset.fingerprint == StoredDataset.open(tmp_path / "expected").fingerprint
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


@pytest.mark.parametrize("damage", [(b'"captions"', b'"caption\xf3"'), (b"}", b"]"), (b"caption 0", b"captinn 0")])
def test_a_damaged_journal_is_written_again(tiny, tmp_path, monkeypatch, damage):
    records = [replace(record, captions=("caption 0",)) for record in tiny.records(10)]
    interrupt(tiny, records, tmp_path / "out", monkeypatch)
    journal = sorted((tmp_path / ".out.partial" / "journal").glob("*.json"))[0]
    whole = journal.read_bytes()
    journal.write_bytes(whole.replace(*damage, 1))
    assert journal.read_bytes() != whole
    dataset = tiny.write(records, tmp_path / "out")
    assert tiny.contents(dataset.path) == tiny.contents(tiny.write(records, tmp_path / "expected").path)


def test_a_changed_source_that_cannot_be_read_twice_says_so(tiny, tmp_path, monkeypatch):
    interrupt(tiny, tiny.records(10), tmp_path / "out", monkeypatch)
    records = changed_sources(tiny)["caption"]
    with pytest.raises(DataError):
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
    with pytest.raises(DataError, match="No space left on device") as caught:
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
    with pytest.raises(DataError, match="No space left on device"):
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


def test_what_was_written_is_read_back(tiny, tmp_path):
    records = tiny.records(10)
    dataset = tiny.write(records, tmp_path / "out")
    assert dataset.splits == ("train", "val")
    assert dataset.name == "tiny"
    train, val = dataset.split("train"), dataset.split("val")
    # Ids count over all splits in source order; 2, 5, 8 are val.
    assert train.ids.tolist() == [0, 1, 3, 4, 6, 7, 9]
    assert val.ids.tolist() == [2, 5, 8]
    assert val.keys == ["2.jpg", "5.jpg", "8.jpg"]
    # Number n has 1 + n % 3 captions: 0, 3, 6, 9 one, 1, 4, 7 two, the val images three.
    assert train.caption_rows.tolist() == [0, 1, 1, 2, 3, 3, 4, 5, 5, 6]
    assert train.captions[1:3] == ["caption 0 of 1", "caption 1 of 1"]
    assert train.caption_rows.dtype == train.ids.dtype == np.int64
    assert dataset.manifest["splits"]["train"]["shards"] == [f"train-0000{n}-of-00003.tfrecord" for n in range(3)]
    assert not list(tmp_path.glob(".*"))


def test_images_come_in_index_order(tiny, tmp_path):
    records = tiny.records(10)
    split = tiny.write(records, tmp_path / "out").split("train")
    pairs = list(split.encoded_images().as_numpy_iterator())
    assert [int(number) for number, _ in pairs] == split.ids.tolist()
    assert [encoded for _, encoded in pairs] == [records[number].image for number in split.ids]
    assert split.encoded_images().cardinality() == 7
    assert [split.read_image(row) for row in range(7)] == [records[number].image for number in split.ids]


def test_the_examples_hold_everything(tiny, tmp_path):
    record = ImageRecord(
        key="bär.jpg",
        captions=("a red ball", "eine rote Kugel \u2028 im Gras", "ein Ball 🎈"),
        split="train",
        image=tiny.jpeg(0, 16),
        class_name="ball",
        objects=({"label": "ball", "box": [1, 2, 8, 4.5]},),
        alignments=(((2, 0),), ((2, 0),), ()),
    )
    dataset = tiny.write([record], tmp_path / "out")
    (data,) = tf.data.TFRecordDataset(str(tmp_path / "out/train-00000-of-00001.tfrecord")).as_numpy_iterator()
    feature = tf.train.Example.FromString(data).features.feature
    assert feature["image/key"].bytes_list.value[0].decode() == "bär.jpg"
    assert feature["image/id"].int64_list.value[0] == 0
    assert feature["image/width"].int64_list.value[0] == feature["image/height"].int64_list.value[0] == 16
    assert feature["class/name"].bytes_list.value[0] == b"ball"
    assert feature["objects/label"].bytes_list.value[0] == b"ball"
    assert list(feature["objects/box"].float_list.value) == [1, 2, 8, 4.5]
    # U+2028 is white space and would end a line in some readers: captions are one line.
    assert feature["captions"].bytes_list.value[1].decode() == "eine rote Kugel im Gras"
    split = dataset.split("train")
    (entry,) = split.index.entries()
    assert entry["objects"] == [{"label": "ball", "box": [1, 2, 8, 4.5]}]
    assert entry["alignments"] == [[[2, 0]], [[2, 0]], []]
    assert split.class_names == ["ball"]
    assert split.captions[2] == "ein Ball 🎈"


def test_boxes_shrink_with_their_image(tiny, tmp_path):
    record = replace(tiny.records(1)[0], objects=({"label": "x", "box": [2, 4, 6, 8]},))
    split = tiny.write([record], tmp_path / "out", max_side=4).split("train")  # 8 -> 4 pixels: halved
    assert split.objects[0][0]["box"] == [1, 2, 3, 4]
    assert split.sizes[0].tolist() == [4, 4]


def test_the_fingerprint_depends_on_content_alone(tiny, tmp_path):
    records = tiny.records(4)
    first = tiny.write(records, tmp_path / "a", name="a")
    second = tiny.write(records, tmp_path / "elsewhere" / "b", name="b", source=tiny.SOURCE | {"path_name": "moved"})
    assert first.fingerprint == second.fingerprint
    changed = [replace(records[0], image=tiny.jpeg(99)), *records[1:]]
    assert tiny.write(changed, tmp_path / "c").fingerprint != first.fingerprint


def test_empty_captions_are_dropped_with_their_alignments(tiny, tmp_path):
    record = replace(tiny.records(1)[0], captions=(" ", "a  dog\n", ""), alignments=(((0, 0),), ((1, 0),), ((2, 0),)))
    dataset = tiny.write([record], tmp_path / "out")
    assert dataset.split("train").captions == ["a dog"]
    assert dataset.split("train").alignments[0] == [[[1, 0]]]
    assert dataset.manifest["dropped_captions"] == 2


def test_ids_of_captions_stay_with_their_captions(tiny, tmp_path):
    records = [
        replace(tiny.records(1)[0], captions=(" ", "a  dog\n", "", "two"), caption_ids=("7", " 8", "9", "10")),
        replace(tiny.records(2)[1], captions=("three", "four")),
    ]
    split = tiny.write(records, tmp_path / "out").split("train")
    assert split.caption_ids == ["8", "10", "1.jpg#0", "1.jpg#1"]
    assert [entry["caption_ids"] for entry in split.index.entries()] == [["8", "10"], None]


def test_ids_that_say_nothing_new_leave_the_fingerprint(tiny, tmp_path):
    records = tiny.records(4)
    without = tiny.write(records, tmp_path / "without")
    numbered = [
        replace(record, caption_ids=tuple(f"{record.key}#{n}" for n in range(len(record.captions))))
        for record in records
    ]
    same = tiny.write(numbered, tmp_path / "same")
    assert same.fingerprint == without.fingerprint
    assert same.split("train").caption_ids == without.split("train").caption_ids
    others = [replace(records[0], caption_ids=("5",)), *records[1:]]
    assert tiny.write(others, tmp_path / "others").fingerprint != without.fingerprint
    # Where a caption is dropped, the label of the next one is no longer its place.
    gap = [replace(records[1], captions=("", "a dog"), caption_ids=("1.jpg#0", "1.jpg#1"))]
    assert tiny.write(gap, tmp_path / "gap").split("train").caption_ids == ["1.jpg#1"]


def bad_records(tiny, tmp_path) -> list[ImageRecord]:
    records = tiny.records(6)
    records[1] = replace(records[1], image=b"not an image")
    records[2] = replace(records[2], image=tmp_path / "missing.jpg")
    records[4] = replace(records[4], captions=("", " "))
    return records


def test_bad_images_are_left_out_and_listed(tiny, tmp_path):
    dataset = tiny.write(bad_records(tiny, tmp_path), tmp_path / "out")
    assert [item["key"] for item in dataset.manifest["skipped"]] == ["1.jpg", "2.jpg", "4.jpg"]
    reasons = [item["reason"] for item in dataset.manifest["skipped"]]
    assert "known format" in reasons[0]
    assert reasons[1:] == ["no such file", "no caption"]
    assert dataset.split("train").ids.tolist() == [0, 1]  # images 0 and 3
    assert dataset.split("val").ids.tolist() == [2]  # image 5: ids count over kept images


def test_bad_images_are_fatal_on_request(tiny, tmp_path):
    with pytest.raises(DataError, match=r"1\.jpg.*known format"):
        tiny.write(bad_records(tiny, tmp_path), tmp_path / "out", on_bad_image="fail")
    assert not list(tmp_path.iterdir())


def test_finished_shards_survive_a_fatal_image(tiny, tmp_path):
    records = [replace(record, split="train") for record in tiny.records(8)]
    records[5] = replace(records[5], image=b"broken")
    with pytest.raises(DataError, match=r"5\.jpg"):
        tiny.write(records, tmp_path / "out", on_bad_image="fail")
    assert not (tmp_path / "out").exists()
    lines: list[str] = []
    tiny.write(records, tmp_path / "out", report=lines.append)
    assert any("3 images are done" in line for line in lines)
    assert tiny.contents(tmp_path / "out") == tiny.contents(tiny.write(records, tmp_path / "other").path)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (lambda r: [*r, r[0]], "'0.jpg'"),
        (lambda r: [], "source"),
        (lambda r: [replace(record, image=b"x") for record in r], "4 .*'0.jpg'"),
        (lambda r: [replace(r[0], key="")], "''"),
        (lambda r: [replace(r[0], key="\ud800.jpg")], "ud800"),
        (lambda r: [replace(r[0], captions=(3,))], "'0.jpg' .*3"),
        (lambda r: [replace(r[1], alignments=((),))], "'1.jpg' .*alignments"),
        (lambda r: [replace(r[1], caption_ids=("1",))], "'1.jpg' .*ids"),
        (lambda r: [replace(r[0], caption_ids=(" ",))], "'0.jpg' .*' '"),
        (lambda r: [replace(r[0], caption_ids=(3,))], "'0.jpg' .*3"),
        (lambda r: [r[0], replace(r[1], image=None)], "'1.jpg'"),
    ],
)
def test_bad_sources_are_refused_and_leave_nothing(tiny, tmp_path, change, named):
    with pytest.raises(DataError, match=named):
        tiny.write(change(tiny.records(4)), tmp_path / "out")
    assert not list(tmp_path.iterdir())


def test_a_split_that_is_no_part_of_a_file_name_is_refused_and_leaves_nothing(tiny, tmp_path):
    with raises_argument("split"):
        tiny.write([replace(tiny.records(1)[0], split="../up")], tmp_path / "out")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("option", [{"on_bad_image": "ignore"}, {"images_per_shard": 0}, {"max_side": 0}])
def test_bad_options_are_refused(tiny, tmp_path, option):
    with raises_argument(next(iter(option))):
        tiny.write(tiny.records(1), tmp_path / "out", **option)


@pytest.mark.parametrize("change", [{"captions": ("half a \ud83d smile", "a dog")}, {"class_name": "\ud83d"}])
def test_an_image_with_a_lone_surrogate_is_left_out_by_name(tiny, tmp_path, change):
    first, second = tiny.records(2)
    dataset = tiny.write([replace(first, **change), second], tmp_path / "out")
    assert dataset.split("train").keys == [second.key]
    (skipped,) = dataset.manifest["skipped"]
    assert skipped["key"] == first.key and "surrogate" in skipped["reason"]
    with pytest.raises(DataError, match=rf"{first.key}.*surrogate"):
        tiny.write([replace(first, **change), second], tmp_path / "other", on_bad_image="fail")


def test_datasets_without_images(tiny, tmp_path):
    split = tiny.write([replace(r, image=None) for r in tiny.records(4)], tmp_path / "out").split("train")
    assert not split.has_images
    for read in (split.encoded_images, lambda: split.read_image(0)):
        with pytest.raises(DataError):
            read()


def test_an_unknown_split_names_the_nearest(tiny, tmp_path):
    with raises_argument("split"):
        tiny.write(tiny.records(4), tmp_path / "out").split("trian")


def test_the_same_again_does_nothing(tiny, tmp_path):
    tiny.write(tiny.records(4), tmp_path / "out")
    before = (tmp_path / "out" / "manifest.json").stat()
    lines: list[str] = []

    def never():
        raise AssertionError("the source was read")
        yield

    tiny.write(never(), tmp_path / "out", source=tiny.SOURCE | {"path_name": "moved"}, report=lines.append)
    assert lines == [f"{tmp_path / 'out'} is already prepared from this source with these options; nothing to do."]
    assert (tmp_path / "out" / "manifest.json").stat() == before


def image_files(tiny, folder: Path) -> list[ImageRecord]:
    """Records of files; the second is no image."""
    pictures = [tiny.jpeg(0), b"no image", tiny.jpeg(2), tiny.jpeg(3)]
    for number, content in enumerate(pictures):
        (folder / f"{number}.jpg").write_bytes(content.ljust(4000, b"\0"))
    return [replace(record, image=folder / record.key) for record in tiny.records(4)]


@pytest.mark.parametrize(("name", "number"), [("2.jpg", 50), ("2.jpg", None), ("1.jpg", 50)])
def test_a_file_that_was_replaced_by_one_of_its_size_is_named(tiny, tmp_path, name, number):
    records, file = image_files(tiny, tmp_path), tmp_path / name
    tiny.write(records, tmp_path / "out")
    before = tiny.contents(tmp_path / "out")
    (tmp_path / "new").write_bytes((b"" if number is None else tiny.jpeg(number)).ljust(4000, b"\0"))
    os.utime(tmp_path / "new", (1, 1))  # As of an older picture.
    os.replace(tmp_path / "new", file)
    with pytest.raises(DataError, match=name):
        tiny.write(records, tmp_path / "out")
    assert tiny.contents(tmp_path / "out") == before
    dataset = tiny.write(records, tmp_path / "out", overwrite=True)
    assert (name in [line["key"] for line in dataset.manifest["skipped"]]) == (number is None)


def test_a_copy_of_the_files_is_the_same_source(tiny, tmp_path):
    records = image_files(tiny, tmp_path)
    tiny.write(records, tmp_path / "out", max_side=5)
    (tmp_path / "copy").mkdir()
    copies = [replace(record, image=shutil.copy(record.image, tmp_path / "copy" / record.key)) for record in records]
    lines: list[str] = []
    tiny.write(copies, tmp_path / "out", max_side=5, report=lines.append)
    assert "nothing to do" in lines[-1]


@pytest.mark.parametrize(
    ("options", "named"),
    [({"source": {"sha256": {"a": "b"}}}, "source"), ({"name": "other"}, "name"), ({"max_side": 5}, "writing")],
)
def test_another_dataset_is_replaced_only_on_request(tiny, tmp_path, options, named):
    tiny.write(tiny.records(4), tmp_path / "out")
    before = tiny.contents(tmp_path / "out")
    with pytest.raises(DataError, match=named):
        tiny.write(tiny.records(5), tmp_path / "out", **options)
    assert tiny.contents(tmp_path / "out") == before
    replaced = tiny.write(tiny.records(5), tmp_path / "out", overwrite=True, **options)
    assert len(replaced.split("train")) == 4
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_a_finished_dataset_with_bad_images_does_not_satisfy_fail(tiny, tmp_path):
    tiny.write(bad_records(tiny, tmp_path), tmp_path / "out")
    with pytest.raises(DataError, match=r"3.*'1\.jpg'"):
        tiny.write(bad_records(tiny, tmp_path), tmp_path / "out", on_bad_image="fail")


@pytest.mark.parametrize("overwrite", [False, True])
def test_what_is_no_dataset_is_never_replaced(tiny, tmp_path, overwrite):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "thesis.txt").write_text("years of work")
    with pytest.raises(DataError, match="vsemb dataset"):
        tiny.write(tiny.records(1), tmp_path / "out", overwrite=overwrite)
    assert tiny.contents(tmp_path / "out") == {"thesis.txt": b"years of work"}


def test_two_writers_do_not_meet(tiny, tmp_path):
    area = shards.WorkArea(tmp_path / "out")
    with area.locked(), pytest.raises(DataError):
        tiny.write(tiny.records(1), tmp_path / "out")


def test_records_of_finished_shards_are_not_in_memory(tiny, tmp_path, monkeypatch):
    held, close = [], shards.SplitWriter.close

    def closed(writer):
        held.append((writer._records, writer.finished))
        close(writer)

    monkeypatch.setattr(shards.SplitWriter, "close", closed)
    dataset = tiny.write(tiny.records(14), tmp_path / "out")
    assert sum(len(dataset.split(name)) for name in dataset.splits) == 14
    assert not any(records for records, _ in held)
    assert all("records" not in shard for _, finished in held for shard in finished)
