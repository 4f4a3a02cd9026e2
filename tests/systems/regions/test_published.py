"""Published region features: three forms by hand, whole images, padding, and what is refused."""

from __future__ import annotations

import base64
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.raising import raises_argument
from tests.tiny import tiny
from vsemb import prepare, recipes
from vsemb.cli.__main__ import main
from vsemb.data.store import StoredDataset
from vsemb.errors import DataError
from vsemb.recipes.retrieval import RetrievalJob
from vsemb.systems.regions.published import PublishedRegions, read_published, write_published
from vsemb.systems.regions.region_store import RegionStore

DIM = 5


def tsv_line(name: str, boxes: np.ndarray, features: np.ndarray, size: tuple[int, int]) -> str:
    packed = [base64.b64encode(np.asarray(part, "<f4").tobytes()).decode() for part in (boxes, features)]
    return "\t".join([name, *map(str, size), str(len(boxes)), *packed]) + "\n"


@pytest.fixture
def data(tmp_path: Path) -> StoredDataset:
    rows = ["file,caption,split"]
    for number in range(6):
        Image.new("RGB", (20, 10), (number, 0, 0)).save(tmp_path / f"00{number}.png")
        rows.append(f"00{number}.png,a square {number},{'val' if number == 5 else 'train'}")
    (tmp_path / "table.csv").write_text("\n".join(rows))
    return prepare(tmp_path / "table.csv", tmp_path / "data", images=str(tmp_path))


@pytest.fixture
def published(data: StoredDataset) -> list[PublishedRegions]:
    """Three boxes per image, and two for the first, of a detector that saw images of 200 x 100 pixels."""
    generator = np.random.default_rng(1)
    found = []
    for split in map(data.split, data.splits):
        for key in split.keys:
            count = 2 if not found else 3
            boxes = np.array([[20, 10, 120, 60], [0, 0, 200, 100], [100, 50, 210, 90]], np.float32)[:count]
            features = generator.uniform(0.1, 2, (count, DIM)).astype(np.float32)
            found.append(PublishedRegions(key, features, boxes, (200, 100)))
    return found


def write_tsv(path: Path, published: list[PublishedRegions]) -> Path:
    lines = [tsv_line(each.name, each.boxes, each.features, each.size) for each in published]
    # Some editors write a byte order mark.
    path.write_text("".join(lines), encoding="utf-8-sig")
    return path


def test_a_tsv_by_hand(data: StoredDataset, published: list[PublishedRegions], tmp_path: Path) -> None:
    more = [PublishedRegions("elsewhere.jpg", np.ones((1, DIM)), np.array([[0, 0, 9, 9]]), (200, 100))]
    store, notes = write_published(data, [write_tsv(tmp_path / "regions.tsv", published + more)], count=4)
    assert store.shape == (len(data.ids), 5, DIM) and store.mean_count == pytest.approx(4 - 1 / 6)
    assert len(notes) == 1 and notes[0].startswith("1 image of the files is not in")
    first, second = data.split(data.splits[0]).ids[:2]
    # The whole image, 20 of 200 and 10 of 100 pixels, the whole image again, padding.
    expected = [[0, 0, 1, 1], [0.1, 0.1, 0.5, 0.5], [0, 0, 1, 1], [0, 0, 0, 0], [0, 0, 0, 0]]
    np.testing.assert_allclose(store.boxes(np.array([first]))[0], expected, atol=1e-6)
    # The third box leaves the image by 10 pixels and is clipped.
    np.testing.assert_allclose(store.boxes(np.array([second]))[0, 3], [0.5, 0.5, 0.5, 0.4], atol=1e-6)
    rows = store.rows(np.array([first]))[0]
    np.testing.assert_allclose(rows[0], published[0].features.mean(axis=0), rtol=2e-3)
    np.testing.assert_allclose(rows[1:3], published[0].features, rtol=2e-3)
    assert not rows[3:].any()
    # The same files again are that store; a run on it keeps no network.
    assert write_published(data, [tmp_path / "regions.tsv"], count=4)[0].fingerprint == store.fingerprint
    job = RetrievalJob(tiny(recipes.get("dvsa")), data)
    (tmp_path / "run").mkdir()
    job.keep(tmp_path / "run")
    assert job.store.fingerprint == store.fingerprint and not (tmp_path / "run" / "backbone").exists()
    assert RegionStore.find_alike(data, "another", store.network).fingerprint == store.fingerprint


def test_npz_files_and_an_array_are_the_same_features(
    data: StoredDataset, published: list[PublishedRegions], tmp_path: Path
) -> None:
    folder = tmp_path / "npz"
    folder.mkdir()
    for each in published:
        sides = {"image_w": each.size[0], "image_h": each.size[1]}
        np.savez(folder / f"{Path(each.name).stem}.npz", x=each.features, bbox=each.boxes, **sides)
    array = np.stack([np.pad(each.features, ((0, 3 - len(each.features)), (0, 0))) for each in published])
    np.save(tmp_path / "ims.npy", array)
    (tmp_path / "ids.txt").write_text("".join(f"{each.name}\n" for each in published))
    stores = [
        write_published(data, [write_tsv(tmp_path / "regions.tsv", published)], count=3)[0],
        write_published(data, [folder], count=3)[0],
        write_published(data, [tmp_path / "ims.npy"], [tmp_path / "ids.txt"], count=3)[0],
    ]
    for store in stores[1:]:
        np.testing.assert_array_equal(store.rows(data.ids), stores[0].rows(data.ids))
    np.testing.assert_array_equal(stores[1].boxes(data.ids), stores[0].boxes(data.ids))
    # Without boxes, each region has the whole image.
    assert set(map(tuple, stores[2].boxes(data.ids[:1])[0])) == {(0, 0, 1, 1), (0, 0, 0, 0)}


def test_what_is_refused(data: StoredDataset, published: list[PublishedRegions], tmp_path: Path) -> None:
    with pytest.raises(DataError, match=published[0].name):
        write_published(data, [write_tsv(tmp_path / "few.tsv", published[1:])])
    with pytest.raises(DataError, match=published[0].name):
        write_published(data, [write_tsv(tmp_path / "twice.tsv", [published[0], *published])])
    (tmp_path / "broken.tsv").write_text("1\t2\t3\t1\tnot base64\t=\n")
    with pytest.raises(DataError, match=r"broken\.tsv, line 1"):
        list(read_published(tmp_path / "broken.tsv"))
    np.save(tmp_path / "ims.npy", np.zeros((2, 3, DIM), np.float32))
    with raises_argument("ids"):
        list(read_published(tmp_path / "ims.npy"))
    (tmp_path / "ids.txt").write_text("a\n")
    with pytest.raises(DataError, match=r"ims\.npy"):
        list(read_published(tmp_path / "ims.npy", tmp_path / "ids.txt"))


def test_the_command(data: StoredDataset, published: list[PublishedRegions], tmp_path: Path, capsys) -> None:
    file = write_tsv(tmp_path / "regions.tsv", published)
    assert main(["regions", str(data.path), "--from", "published", "--files", str(file), "--count", "3"]) == 0
    assert "vsemb train dvsa" in capsys.readouterr().out
