"""A detector's results: matched to the images of a dataset, scaled, clipped, and checked."""

from __future__ import annotations

import io
import json

import numpy as np
import pytest
from PIL import Image

from vsemb.data.records import ImageRecord
from vsemb.data.store import StoredDataset
from vsemb.data.writing.writer import write_dataset
from vsemb.errors import DataError
from vsemb.systems.regions import detections
from vsemb.systems.regions.detections import name_forms, read_detections, read_detections_of_one

KEYS = ("train2014/COCO_train2014_000000000025.jpg", "val/dog.v2.png", "000000000007.jpg", "val/cat.png")


def png(width: int, height: int) -> bytes:
    buffer = io.BytesIO()
    Image.new("RGB", (width, height), "red").save(buffer, "PNG")
    return buffer.getvalue()


def make(path, keys=KEYS, max_side=None, with_images=True) -> StoredDataset:
    """A dataset of images of 40 x 20 pixels, ids 0, 1, …."""
    image = png(40, 20) if with_images else None
    records = [ImageRecord(key, ("a picture",), ("train", "val")[n % 2], image) for n, key in enumerate(keys)]
    source = {"format": "test", "path_name": "test", "sha256": {}, "options": {}}
    return write_dataset(records, path, name="test", source=source, max_side=max_side)


@pytest.fixture
def data(tmp_path) -> StoredDataset:
    return make(tmp_path / "data")


@pytest.fixture
def write(tmp_path):
    """Writes JSON (or text as it is) to a file and returns its path."""

    def write(content, name="detections.json"):
        path = tmp_path / name
        path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
        return path

    return write


def entry(image=25, box=(4, 2, 20, 10), score=0.5, **more) -> dict:
    return {"image_id": image, "category_id": 1, "bbox": list(box), "score": score, **more}


def test_boxes_are_fractions_best_first_and_padded(data, write):
    path = write(
        [
            entry("val/cat.png", (0, 0, 40, 20), 0.1),
            entry(25, (4, 2, 20, 10), 0.2),
            entry(7, (10, 5, 10, 5), -3, segmentation={"counts": "x", "size": [1, 2]}),
            entry(25, (8, 2, 20, 10), 0.9),
            entry(25, (0, 0, 2, 2), 0.2),
        ]
    )
    detections = read_detections(path, data)
    boxes, scores = detections.of(np.array([2, 0, 1]))
    # 40 x 20 pixels: x and w are parts of 40, y and h of 20. Equal scores keep the order of the file.
    expected = np.zeros((3, 3, 4), np.float32)
    expected[0, 0] = [0.25, 0.25, 0.25, 0.25]
    expected[1] = [[0.2, 0.1, 0.5, 0.5], [0.1, 0.1, 0.5, 0.5], [0, 0, 0.05, 0.1]]
    np.testing.assert_allclose(boxes, expected, rtol=1e-6)  # float32
    np.testing.assert_allclose(scores, [[-3, 0, 0], [0.9, 0.2, 0.2], [0, 0, 0]], rtol=1e-6)
    assert boxes.dtype == scores.dtype == np.float32
    assert len(detections.notes) == 1 and "1 of 4 images have no detection" in detections.notes[0]
    assert "'val/dog.v2.png'" in detections.notes[0]
    assert detections.of(np.array([1]))[0].shape == (1, 0, 4)


@pytest.mark.parametrize(
    ("image", "row"),
    [
        (25, 0),
        (25.0, 0),
        ("25", 0),
        ("COCO_train2014_000000000025.jpg", 0),
        ("COCO_train2014_000000000025", 0),
        ("val/dog.v2.png", 1),
        ("val/dog.v2", 1),
        ("dog.v2.jpg", 1),
        ("dog.v2", 1),
        ("000000000007", 2),
        (7, 2),
    ],
    ids=repr,
)
def test_ways_to_name_an_image(image, row, data, write):
    assert read_detections(write([entry(image)]), data).ids.tolist() == [row]


def test_names_of_flickr_are_no_numbers():
    assert name_forms("1000268201_693b08cb0e.jpg")[-1] is None
    assert name_forms("36979.jpg")[-1] == "36979"


def test_a_name_of_several_images_is_refused(tmp_path, write):
    data = make(tmp_path / "scenes", ("train/000000.png", "val/000000.png"))
    assert read_detections(write([entry("val/000000.png")]), data).ids.tolist() == [1]
    with pytest.raises(DataError, match=r"'train/000000.png', 'val/0"):
        read_detections(write([entry(0)]), data)


def test_one_image_under_two_ids_is_refused(data, write):
    detections = read_detections(write([entry(25), entry("25"), entry(25.0)]), data)
    assert detections.ids.tolist() == [0, 0, 0]
    with pytest.raises(DataError, match="'a/cat.png'.*'b/cat.png'.*'val/cat.png'"):
        read_detections(write([entry("a/cat.png"), entry("b/cat.png")]), data)
    # Its boxes would be parts of the size of whichever came last.
    listed = [{"id": n, "file_name": f"{n}/cat.png", "width": 40 * n, "height": 20 * n} for n in (1, 2)]
    with pytest.raises(DataError, match="'val/cat.png'"):
        read_detections(write([entry(1), entry(2)]), data, write({"images": listed}, "annotations.json"))


def test_ids_of_other_images_are_counted(data, write):
    detections = read_detections(write([entry(25), *[entry(n) for n in (100, 101, 102, 103, 100)]]), data)
    assert "5 detections of 4 image_ids that" in detections.notes[0]
    assert "(100, 101, 102, …)" in detections.notes[0]
    with pytest.raises(DataError, match="8, 'x'.*`images`"):
        read_detections(write([entry(8), entry("x")]), data)


LISTED = [
    {"id": 1.0, "file_name": "COCO_train2014_000000000025.jpg", "width": 400, "height": 200},
    {"id": 2, "file_name": "cat.png"},
    {"id": 25, "file_name": "dog.v2.png", "width": 80, "height": 40},
]


def test_a_list_of_images_names_ids_and_sizes(data, write):
    images = write({"images": LISTED, "annotations": []}, "annotations.json")
    detections = read_detections(write([entry(1), entry("2"), entry(25)]), data, images)
    assert detections.ids.tolist() == [0, 1, 3]
    np.testing.assert_allclose(detections.boxes[:, 0], [4 / 400, 4 / 80, 4 / 40], rtol=1e-6)
    with pytest.raises(DataError, match=r"annotations\.json"):
        read_detections(write([entry(7)]), data, images)


@pytest.mark.parametrize(
    "content",
    [
        [],
        {"images": []},
        {"images": [{"id": 1}]},
        {"images": [3]},
        {"images": [{"id": 1, "file_name": 3}]},
        {"images": [{"id": 1, "file_name": "x", "width": 0, "height": 3}]},
        {"images": [{"id": 1, "file_name": "x", "width": 3}]},
        {"images": [{"id": 1, "file_name": "x"}, {"id": "1", "file_name": "y"}]},
        {"images": [{"id": None, "file_name": "x"}]},
        {"images": [{"id": 1, "file_name": "x", "width": 10**400, "height": 3}]},
        "{",
    ],
    ids=["list", "empty", "nameless", "number", "name", "width", "height", "twice", "id", "huge", "broken"],
)
def test_a_broken_list_of_images_is_refused(content, data, write):
    with pytest.raises(DataError, match=r"annotations\.json"):
        read_detections(write([entry()]), data, write(content, "annotations.json"))


def test_shrunk_images_need_their_sizes(tmp_path, write):
    data = make(tmp_path / "small", max_side=40)
    with pytest.raises(DataError, match="max_side=40.*`images`"):
        read_detections(write([entry(25)]), data)
    images = write({"images": LISTED}, "annotations.json")
    detections = read_detections(write([entry(1)]), data, images)
    assert detections.boxes[0].tolist() == pytest.approx([0.01, 0.01, 0.05, 0.05])
    with pytest.raises(DataError, match="max_side"):
        read_detections(write([entry(2)]), data, images)
    # Of images below the limit it is known that they were not shrunk.
    read_detections(write([entry(25)]), make(tmp_path / "large", max_side=41))


def test_turned_images_are_refused_and_other_shapes_noted(data, write):
    turned = {"id": 1, "file_name": KEYS[0], "width": 200, "height": 400}
    with pytest.raises(DataError, match="200 x 400.*40 x 20"):
        read_detections(write([entry(1)]), data, write({"images": [turned]}, "annotations.json"))
    square = turned | {"height": 200}
    detections = read_detections(write([entry(1)]), data, write({"images": [square]}, "annotations.json"))
    assert "1 image has another shape" in detections.notes[0]
    assert detections.boxes[0].tolist() == pytest.approx([0.02, 0.01, 0.1, 0.05])


def test_boxes_are_clipped_and_those_without_area_left_out(data, write):
    detections = read_detections(
        write(
            [
                entry(box=(-4, 10, 24, 30), score=3),
                entry(box=(20, 10, 20.5, 10.9), score=2),
                entry(box=(40, 0, 5, 5)),
                entry(box=(3, 3, 0, 5)),
            ]
        ),
        data,
    )
    np.testing.assert_allclose(detections.boxes, [[0, 0.5, 0.5, 0.5], [0.5, 0.5, 0.5, 0.5]], rtol=1e-6)
    notes = " ".join(detections.notes)
    # The second box reaches out by less than a pixel; the third lies outside.
    assert "2 boxes have no area" in notes and "2 of 4 boxes reach out of their image" in notes


def test_boxes_of_one_image_whatever_its_name(write):
    path = write([entry("a", (20, 10, 30, 10), 0.1), entry("a", (0, 0, 4, 2), 0.2), entry("a", (9, 9, 0, 1))])
    boxes, notes = read_detections_of_one(path, (40, 20))
    np.testing.assert_allclose(boxes, [[0, 0, 0.1, 0.1], [0.5, 0.5, 0.5, 0.5]], rtol=1e-6)
    assert [note[:2] for note in notes] == ["1 ", "1 "]  # one without area, one clipped
    with pytest.raises(DataError, match=r"\('a', 'b'\)"):
        read_detections_of_one(write([entry("a"), entry("b")]), (40, 20))


def test_only_the_best_of_very_many_boxes_are_kept(data, write, monkeypatch):
    monkeypatch.setattr(detections, "MOST_CANDIDATES", 2)
    scores = [0.1, 0.5, 0.3, 0.7]
    found = read_detections(write([*[entry(score=s) for s in scores], entry(7, score=0.01)]), data)
    assert found.scores.tolist() == pytest.approx([0.7, 0.5, 0.01]) and found.ids.tolist() == [0, 0, 2]


def test_the_fingerprint_is_that_of_the_content(data, write):
    base = [entry(25, score=0.5), entry(7, score=0.25)]
    marks = {
        read_detections(write(content), data).sha256
        for content in (
            base,
            [base[0] | {"score": 0.75}, base[1]],
            [base[0] | {"bbox": [4, 2, 20, 9]}, base[1]],
            [base[0] | {"image_id": "cat"}, base[1]],
        )
    }
    assert len(marks) == 4
    other = [{**base[1], "category_id": 9}, base[0]]
    assert read_detections(write(other), data).sha256 in marks


@pytest.mark.parametrize(
    "change",
    [
        {"bbox": None},
        {"bbox": [1, 2, 3]},
        {"bbox": [1, 2, 3, "4"]},
        {"bbox": [1, 2, 3, 10**400]},
        {"bbox": [1, 2, 3, float("nan")]},
        {"bbox": [1e300, 2, 1e300, 4]},
        {"bbox": [1, 2, -3, 4]},
        {"score": None},
        {"score": True},
        {"score": float("inf")},
        {"image_id": 2.5},
        {"image_id": None},
    ],
    ids=lambda change: "-".join(f"{name}={value!r:.20}" for name, value in change.items()),
)
def test_entries_that_are_wrong_are_named(change, data, write):
    with pytest.raises(DataError, match=r"detection 1\b"):
        read_detections(write([entry(), entry() | change]), data)


@pytest.mark.parametrize("field", ["image_id", "bbox", "score"])
def test_missing_fields_are_named(field, data, write):
    lacking = entry()
    del lacking[field]
    with pytest.raises(DataError, match=f"detection 1 .*'{field}'"):
        read_detections(write([entry(), lacking]), data)


@pytest.mark.parametrize(
    "content",
    [
        "",
        "{}",
        "[]",
        "[3]",
        "[{}",
        json.dumps([entry()])[:-1],
        json.dumps([entry()])[:-9],
        json.dumps([entry()]) + "]",
        json.dumps([entry(), entry()]).replace("}, {", "} {"),
        json.dumps([entry()])[:-1] + ",]",
        "[" * 100_000,
        "[" + "9" * 5000 + "]",
        json.dumps([entry(box=(0.1, 0.1, 0.5, 0.5))]),
    ],
    ids=[
        "",
        "object",
        "empty",
        "number",
        "bare",
        "open",
        "cut",
        "tail",
        "comma",
        "last",
        "deep",
        "long",
        "parts",
    ],
)
def test_files_that_are_wrong_are_refused(content, data, write):
    path = write(content)
    with pytest.raises(DataError, match=path.name):
        read_detections(path, data)


def test_files_that_cannot_be_read_are_refused(data, tmp_path):
    with pytest.raises(DataError, match=r"none\.json"):
        read_detections(tmp_path / "none.json", data)
    (tmp_path / "bytes.json").write_bytes(b"[\xff]")
    with pytest.raises(DataError, match=r"bytes\.json"):
        read_detections(tmp_path / "bytes.json", data)
    with pytest.raises(DataError):
        read_detections(tmp_path, data)


def test_a_byte_order_mark_and_white_space_are_read(data, write):
    path = write("\ufeff \n" + json.dumps([entry(), entry(7)], indent=2) + "\n\n")
    assert read_detections(path, data).ids.tolist() == [0, 2]


def test_a_dataset_without_images_has_none_to_detect_in(tmp_path, write):
    data = make(tmp_path / "bare", with_images=False)
    with pytest.raises(DataError):
        read_detections(write([entry()]), data)
