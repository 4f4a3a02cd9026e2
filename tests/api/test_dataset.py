"""`vsemb.Dataset` from Python objects."""

from __future__ import annotations

import gc
import io
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import tensorflow as tf
from PIL import Image

import vsemb
from tests.raising import raises_argument
from vsemb.data.readers.hash_splits import hash_split
from vsemb.errors import DataError, InvalidArgumentError

COUNT = 24


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Tiny PNG files of distinct colours."""
    folder = tmp_path_factory.mktemp("files")
    paths = [folder / f"{number:02d}.png" for number in range(COUNT)]
    for number, path in enumerate(paths):
        Image.new("RGB", (8, 6), (number * 10, 0, 0)).save(path)
    return paths


@pytest.fixture(scope="module")
def captions() -> list[str]:
    return [f"shade number {number}" for number in range(COUNT)]


def contents(dataset: vsemb.Dataset) -> dict[int, list[str]]:
    """Returns red value of each image -> its captions."""
    found = {}
    for name in dataset.splits:
        split = dataset.split(name)
        for row in range(len(split)):
            pixels = np.asarray(Image.open(io.BytesIO(split.read_image(row))).convert("RGB"))
            assert pixels.shape == (6, 8, 3)
            texts = [text for text, of in zip(split.captions, split.caption_rows, strict=True) if of == row]
            found[int(pixels[0, 0, 0])] = texts
    return found


def wanted(captions: list[str]) -> dict[int, list[str]]:
    return {number * 10: [text] for number, text in enumerate(captions)}


def test_pairs_of_files_are_split_as_prepare_splits_them(files, captions, tmp_path):
    data = vsemb.Dataset.from_pairs(files, captions, tmp_path / "data")
    assert contents(data) == wanted(captions)
    for name in data.splits:
        assert all(hash_split(key) == name for key in data.split(name).keys)
    table = tmp_path / "table.csv"
    table.write_text("file,caption\n" + "".join(f"{f.name},{c}\n" for f, c in zip(files, captions, strict=True)))
    of_table = vsemb.Dataset.from_csv(table, images=files[0].parent)
    assert of_table.fingerprint == data.fingerprint
    table.write_text(table.read_text() + ",no file\n")
    with pytest.raises(DataError, match=f"^Rows of the table must name .* and have a caption; .*line {COUNT + 2}: "):
        vsemb.Dataset.from_csv(table, images=files[0].parent)
    # Again is nothing to do; other captions are another dataset.
    before = (data.path / "manifest.json").stat().st_mtime_ns
    vsemb.Dataset.from_pairs(files, captions, tmp_path / "data")
    assert (data.path / "manifest.json").stat().st_mtime_ns == before
    with pytest.raises(DataError, match="already holds"):
        vsemb.Dataset.from_pairs(files, captions[::-1], tmp_path / "data")
    other = vsemb.Dataset.from_pairs(files, captions[::-1], tmp_path / "data", overwrite=True)
    assert other.fingerprint != data.fingerprint
    assert vsemb.Dataset.open(tmp_path / "data").fingerprint == other.fingerprint


def test_arrays_of_names_are_files(files, captions):
    assert contents(vsemb.Dataset.from_pairs(np.array(list(map(str, files))), np.array(captions))) == wanted(captions)


def test_images_in_memory(files, captions):
    pictures = [Image.open(file) for file in files]
    for images in ([file.read_bytes() for file in files], pictures, [np.asarray(each) for each in pictures]):
        assert contents(vsemb.Dataset.from_pairs(images, captions)) == wanted(captions)


def test_an_image_with_several_captions_is_stored_once(files, captions):
    twice = vsemb.Dataset.from_pairs([*files, *files], [*captions, *captions])
    lists = vsemb.Dataset.from_pairs(files, [[text, text] for text in captions])
    pixels = [np.asarray(Image.open(file)) for file in files]
    arrays = vsemb.Dataset.from_pairs([each for each in pixels for _ in range(2)], np.repeat(captions, 2))
    for data in (twice, lists, arrays):
        assert contents(data) == {red: 2 * texts for red, texts in wanted(captions).items()}


def test_splits_are_those_that_are_given(files, captions):
    data = vsemb.Dataset.from_pairs(files, captions, splits=["train", "validation"] * (COUNT // 2))
    assert data.splits == ("train", "val") and len(data.split("val")) == COUNT // 2
    assert vsemb.Dataset.from_pairs(files, captions, splits="test").splits == ("test",)
    # Of a few images each split has one.
    assert vsemb.Dataset.from_pairs(files[:3], captions[:3]).splits == ("train", "val", "test")
    with pytest.raises(DataError, match="row 1: split is 'val', but 'train' in row 0"):
        vsemb.Dataset.from_pairs([files[0], files[0]], ["a", "b"], splits=["train", "val"])


def test_files_of_one_name_are_told_apart_by_their_folders(files, tmp_path):
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "same.png").write_bytes(files[0].read_bytes())
    data = vsemb.Dataset.from_pairs(sorted(tmp_path.glob("*/*.png")), ["one", "two"], splits="train")
    assert data.split("train").keys == ["a/same.png", "b/same.png"]


def test_all_bad_rows_are_named_at_once(files, captions, tmp_path, capsys):
    broken = tmp_path / "broken.png"
    broken.write_bytes(files[0].read_bytes()[:40])
    images = [*files, "nowhere.png", broken, None, np.zeros((4, 4)), files[1], files[2], "\x89PNG\0"]
    texts = [*captions, "x", "x", "x", "x", float("nan"), ["fine", 3], "x"]
    with pytest.raises(DataError) as caught:
        vsemb.Dataset.from_pairs(images, texts, tmp_path / "data")
    said = str(caught.value)
    assert "7 rows are not" in said and "on_bad='skip'" in said
    for part in (
        "nowhere.png: no such file",
        "broken.png: ",
        f"row {COUNT + 2}: image is None",
        f"row {COUNT + 3}: image is float64 (4, 4); convert it to uint8",
        f"row {COUNT + 4}: caption is nan",
        f"row {COUNT + 5}: caption is ['fine', 3]",
        f"row {COUNT + 6}: image is",
    ):
        assert part in said
    assert not (tmp_path / "data").exists()
    data = vsemb.Dataset.from_pairs(images, texts, tmp_path / "data", on_bad="skip")
    assert contents(data) == wanted(captions)
    assert "Left out: row" in capsys.readouterr().err
    with pytest.raises(DataError, match="7 rows are not"):
        vsemb.Dataset.from_pairs(images, texts, tmp_path / "data")
    with pytest.raises(DataError, match="1 row is not: row 0: image is None"):
        vsemb.Dataset.from_pairs([None], ["x"])


def test_a_lone_surrogate_names_its_row(files, captions, tmp_path):
    texts = [*captions[:-1], "red \ud83d star"]
    with pytest.raises(DataError, match=rf"row {COUNT - 1}: caption has a lone surrogate, .*ud83d"):
        vsemb.Dataset.from_pairs(files, texts, tmp_path / "data")
    texts[-1] = "caf\u00e9".encode("latin-1")  # Bytes come from tf.data.
    with pytest.raises(DataError, match=rf"row {COUNT - 1}: caption has a lone surrogate, .*udce9"):
        vsemb.Dataset.from_pairs(files, texts, tmp_path / "data")


def test_lengths_and_options_are_checked(files, captions):
    with raises_argument("captions"):
        vsemb.Dataset.from_pairs(files, captions[1:])
    with raises_argument("on_bad"):
        vsemb.Dataset.from_pairs(files, captions, on_bad="ignore")
    with raises_argument("captions"):
        vsemb.Dataset.from_pairs(files, "a dog")
    with raises_argument("images"):
        vsemb.Dataset.from_pairs(files[0].parent, captions)


class Frame:
    """What is read of a pandas DataFrame."""

    def __init__(self, **columns: list) -> None:
        self.columns, self._values = list(columns), columns

    def __getitem__(self, name: str) -> list:
        return self._values[name]


def test_a_dataframe(files, captions):
    parts = ["train", "dev"] * (COUNT // 2)
    data = vsemb.Dataset.from_dataframe(Frame(Path=files, text=captions, split=parts, price=parts))
    assert contents(data) == wanted(captions) and data.splits == ("train", "val")
    several = vsemb.Dataset.from_dataframe(Frame(a=files, b=captions, c=captions), image="a", caption=["b", "c"])
    assert contents(several) == {red: 2 * texts for red, texts in wanted(captions).items()}
    numbered = vsemb.Dataset.from_dataframe(Frame(image=files, caption_0=captions, caption_1=captions))
    assert contents(numbered) == contents(several)
    names = [file.name for file in files]
    based = vsemb.Dataset.from_dataframe(Frame(file=names, text=captions), images=files[0].parent)
    assert contents(based) == wanted(captions)
    windows = [f".\\{files[0].parent.name}\\{name}" for name in names]
    based = vsemb.Dataset.from_dataframe(Frame(file=windows, text=captions), images=files[0].parent.parent)
    assert contents(based) == wanted(captions)
    with raises_argument("columns"):
        vsemb.Dataset.from_dataframe(Frame(a=files, caption=captions))
    with raises_argument("image"):
        vsemb.Dataset.from_dataframe(Frame(a=files, caption=captions), image="A")
    with raises_argument("columns"):
        vsemb.Dataset.from_dataframe(Frame(image=files, sentence=captions, text=captions))


def test_pandas(files, captions):
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"file": [str(file) for file in files], "caption": captions})
    assert contents(vsemb.Dataset.from_dataframe(frame)) == wanted(captions)


class Rows(list):
    """What is read of a `datasets.Dataset`."""

    _fingerprint = "f00d"


def test_rows_of_hugging_face(files, captions, tmp_path):
    rows = Rows({"image": Image.open(f), "caption": [c]} for f, c in zip(files, captions, strict=True))
    assert contents(vsemb.Dataset.from_huggingface(rows)) == wanted(captions)
    out = tmp_path / "data"
    whole = vsemb.Dataset.from_huggingface({"train": rows, "validation": Rows(rows[:4])}, out)
    assert whole.splits == ("train", "val") and len(whole.split("val")) == 4
    assert vsemb.Dataset.from_huggingface({"train": rows, "validation": Rows(rows[:4])}, out).path == whole.path
    # One row per caption, undecoded images; a dictionary of one split is split like a dataset without.
    single = [{"image": {"bytes": f.read_bytes(), "path": None}, "text": t} for f in files for t in ("a", "b")]
    data = vsemb.Dataset.from_huggingface({"train": single})
    assert contents(data) == {number * 10: ["a", "b"] for number in range(COUNT)}
    assert len(data.splits) > 1
    with raises_argument("caption"):
        vsemb.Dataset.from_huggingface(single, caption="captions")


def test_elements_of_tf_data(files, captions):
    encoded = [file.read_bytes() for file in files]
    pairs = tf.data.Dataset.from_tensor_slices((encoded, captions))
    assert contents(vsemb.Dataset.from_tf(pairs)) == wanted(captions)
    pixels = np.stack([np.asarray(Image.open(file)) for file in files])
    texts = [[text, text] for text in captions]
    named = tf.data.Dataset.from_tensor_slices({"image": pixels, "captions": texts})
    assert contents(vsemb.Dataset.from_tf(named)) == {red: 2 * texts for red, texts in wanted(captions).items()}
    with pytest.raises(DataError, match=r"row 0: image is uint8 \(4, 6, 8, 3\), a batch.*dataset\.unbatch\(\)"):
        vsemb.Dataset.from_tf(named.batch(4))
    with pytest.raises(DataError, match=r"row 0: image is object \(4,\), a batch"):
        vsemb.Dataset.from_tf(pairs.batch(4))
    with pytest.raises(DataError, match=r"tf\.io\.read_file"):
        vsemb.Dataset.from_tf(tf.data.Dataset.from_tensor_slices((list(map(str, files)), captions)))


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: vsemb.Dataset.from_tf([("a.jpg", "a dog")]), "a tf.data.Dataset.*from_pairs"),
        (lambda: vsemb.Dataset.from_dataframe({"image": [], "caption": []}), "a DataFrame.*from_pairs"),
        (lambda: vsemb.Dataset.from_huggingface("owner/pets"), r"load_dataset\('owner/pets'\)"),
    ],
)
def test_tables_of_another_kind_are_refused(make, said):
    with pytest.raises(InvalidArgumentError, match=said):
        make()


def test_it_shows_itself(scenes):
    page = vsemb.Dataset.open(scenes.path)._repr_html_()
    assert "<td>train</td><td>48</td><td>240</td>" in page


def test_a_dataset_without_a_directory_goes_with_the_process(files, captions, monkeypatch):
    # What is in this list is removed when the process ends.
    held = []
    monkeypatch.setattr("vsemb.api.dataset._TEMPORARY", held)
    path = vsemb.Dataset.from_pairs(files, captions).path
    gc.collect()
    assert "vsemb-" in str(path) and path.exists()
    with pytest.warns(ResourceWarning, match="Implicitly cleaning up"):
        held.clear()
        gc.collect()
    assert not path.exists()


def test_elements_of_three_parts_are_refused(captions):
    rows = tf.data.Dataset.from_tensor_slices((captions, captions, captions))
    with raises_argument("elements"):
        vsemb.Dataset.from_tf(rows)


@pytest.mark.parametrize("split", [False, True])
def test_a_dataset_that_repeats_without_end_is_refused_at_once(files, captions, tmp_path, split):
    encoded = [file.read_bytes() for file in files]
    pairs = tf.data.Dataset.from_tensor_slices((encoded, captions))
    endless = pairs.repeat().map(lambda image, caption: (image, caption))
    with raises_argument("dataset"):
        vsemb.Dataset.from_tf({"train": pairs, "val": endless} if split else endless, tmp_path / "out")
    assert not any(tmp_path.iterdir())
    taken = vsemb.Dataset.from_tf(endless.take(len(files)))
    assert contents(taken) == wanted(captions)


def test_files_of_a_dataframe_that_are_not_found_name_the_argument_of_their_folder(files, captions, tmp_path):
    frame = Frame(file=[file.name for file in files], text=captions)
    with pytest.raises(DataError, match="images="):
        vsemb.Dataset.from_dataframe(frame, tmp_path / "out")


def splits_of(dataset: vsemb.Dataset) -> dict[int, str]:
    """Returns red value of each image -> its split."""
    found = {}
    for name in dataset.splits:
        split = dataset.split(name)
        found |= {
            int(np.asarray(Image.open(io.BytesIO(split.read_image(row))))[0, 0, 0]): name for row in range(len(split))
        }
    return found


STATED = ["train", "dev", "test"] * (COUNT // 3)
STORED = {number * 10: ("train", "val", "test")[number % 3] for number in range(COUNT)}


def test_a_column_of_splits_is_read_from_all_sources_of_rows(files, captions):
    encoded = [file.read_bytes() for file in files]
    columns = {"image": encoded, "caption": captions, "split": STATED}
    rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    elements = tf.data.Dataset.from_tensor_slices(columns)
    for data in (
        vsemb.Dataset.from_dataframe(Frame(**columns)),
        vsemb.Dataset.from_huggingface(rows),
        vsemb.Dataset.from_huggingface({"train": rows}),
        vsemb.Dataset.from_huggingface({"train": rows[:4], "test": rows[4:]}),
        vsemb.Dataset.from_tf(elements),
        vsemb.Dataset.from_tf({"test": elements}),
    ):
        assert splits_of(data) == STORED


def test_a_column_of_splits_of_the_hugging_face_library(files, captions):
    datasets = pytest.importorskip("datasets")
    columns = {"image": [file.read_bytes() for file in files], "caption": captions}
    features = {"image": datasets.Value("binary"), "caption": datasets.Value("string")}
    labels = datasets.ClassLabel(names=["test", "train", "dev"])
    named = datasets.Dataset.from_dict({**columns, "split": STATED})
    numbered = datasets.Dataset.from_dict(
        {**columns, "split": [labels.str2int(name) for name in STATED]},
        features=datasets.Features(features | {"split": labels}),
    )
    for rows in (named, numbered, named.to_iterable_dataset()):
        assert splits_of(vsemb.Dataset.from_huggingface(rows)) == STORED


@pytest.mark.parametrize("split", [None, "", " ", "../x", "x-y", 3, float("nan")])
def test_rows_with_an_unusable_split_are_refused_by_number(files, captions, split):
    parts = ["train"] * 5 + [split] + ["val"] * (COUNT - 6)
    rows = [{"image": str(f), "caption": c, "split": s} for f, c, s in zip(files, captions, parts, strict=True)]
    for make in (
        lambda: vsemb.Dataset.from_pairs(files, captions, splits=parts),
        lambda: vsemb.Dataset.from_dataframe(Frame(image=files, caption=captions, split=parts)),
        lambda: vsemb.Dataset.from_huggingface(rows),
    ):
        with pytest.raises(DataError, match="1 row is not: row 5: "):
            make()


def test_one_name_for_all_splits_is_checked_once(files, captions):
    with raises_argument("splits"):
        vsemb.Dataset.from_pairs(files, captions, splits="x-y")


def test_a_single_named_split_that_is_split_by_hash_is_reported(files, captions, capsys):
    rows = [{"image": str(file), "caption": text} for file, text in zip(files, captions, strict=True)]
    assert len(vsemb.Dataset.from_huggingface({"test": rows}).splits) > 1
    assert "split test" in capsys.readouterr().err
    kept = vsemb.Dataset.from_huggingface({"test": [row | {"split": "test"} for row in rows]})
    vsemb.Dataset.from_huggingface(rows)
    assert kept.splits == ("test",) and "hash" not in capsys.readouterr().err


def test_files_of_a_dataframe_may_be_paths_below_the_folder(files, captions, tmp_path):
    names = [Path(file.name) for file in files]
    data = vsemb.Dataset.from_dataframe(Frame(file=names, text=captions), images=files[0].parent)
    assert contents(data) == wanted(captions)
    with pytest.raises(DataError, match=names[0].name) as raised:
        vsemb.Dataset.from_dataframe(Frame(file=names, text=captions), images=tmp_path)
    assert "images=" not in str(raised.value)


def test_other_spellings_of_a_path_are_the_same_image(files, monkeypatch):
    folder = files[0].parent
    monkeypatch.chdir(folder)
    spelled = ["00.png", "./00.png", str(files[0]), f"../{folder.name}/00.png", "01.png"]
    data = vsemb.Dataset.from_pairs(spelled, list("abcde"), splits="train")
    assert contents(data) == {0: list("abcd"), 10: ["e"]}
    assert data.split("train").keys == ["00.png", "01.png"]


def test_keys_that_are_equal_name_both_rows(files, tmp_path):
    # The key of an image in memory is its row.
    (tmp_path / "000001").write_bytes(files[0].read_bytes())
    with pytest.raises(DataError, match="'000001'.*row 0 .*row 1"):
        vsemb.Dataset.from_pairs([tmp_path / "000001", files[1].read_bytes()], ["a", "b"], splits="train")


@pytest.mark.parametrize("make", [set, frozenset, lambda rows: dict.fromkeys(rows).keys() & set(rows), dict.fromkeys])
def test_images_captions_and_splits_need_an_order(files, captions, make):
    parts = [f"s{number}" for number in range(COUNT)]
    with raises_argument("images"):
        vsemb.Dataset.from_pairs(make(files), captions)
    with raises_argument("captions"):
        vsemb.Dataset.from_pairs(files, make(captions))
    with raises_argument("splits"):
        vsemb.Dataset.from_pairs(files, captions, splits=make(parts))
    with pytest.raises(DataError, match="row 0: caption is"):
        vsemb.Dataset.from_pairs(files[:1], [make(captions)])


def test_views_of_a_dictionary_and_iterators_have_an_order(files, captions):
    named = dict(zip(files, captions, strict=True))
    assert contents(vsemb.Dataset.from_pairs(named.keys(), named.values())) == wanted(captions)
    assert contents(vsemb.Dataset.from_pairs(iter(files), (text for text in captions))) == wanted(captions)


@pytest.mark.parametrize(
    ("argument", "make"),
    [
        ("path", lambda: vsemb.Dataset.from_csv(io.StringIO("file,caption\na.png,a\n"))),
        ("path", lambda: vsemb.Dataset.open(None)),
        ("out", lambda: vsemb.Dataset.from_pairs(["a.png"], ["a"], 3)),
        ("images", lambda: vsemb.Dataset.from_dataframe(Frame(image=["a.png"], text=["a"]), images=3)),
        ("images", lambda: vsemb.Dataset.from_pairs(3, ["a"])),
        ("captions", lambda: vsemb.Dataset.from_pairs(["a.png"], np.array("a"))),
        ("dataset", lambda: vsemb.Dataset.from_huggingface({"image": ["a.png"], "caption": ["a"]})),
        ("dataset", lambda: vsemb.Dataset.from_huggingface({"train": 3})),
        ("dataset", lambda: vsemb.Dataset.from_huggingface(None)),
        ("frame", lambda: vsemb.Dataset.from_dataframe(pa.table({"image": ["a.png"], "caption": ["a"]}))),
        ("split", lambda: vsemb.Dataset.from_huggingface({"x-y": [], "train": []})),
    ],
)
def test_arguments_of_another_kind_are_refused_by_name(argument, make):
    with raises_argument(argument):
        make()


def test_columns_of_one_name_are_refused(files, captions):
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(zip(files, captions, captions, strict=True), columns=["image", "words", "words"])
    with raises_argument("columns"):
        vsemb.Dataset.from_dataframe(frame, caption="words")
