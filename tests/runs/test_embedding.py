"""Embedding image files and texts: the same vectors as the model's, left-out rows, and going on after a kill."""

from __future__ import annotations

import os
import shutil
from types import SimpleNamespace

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image
from pyarrow import parquet

from tests.raising import raises_argument
from vsemb.data.features import files as feature_files
from vsemb.errors import DataError
from vsemb.quantization import quantize
from vsemb.runs import embedding
from vsemb.runs.embedding import Embedded, embed_files, embed_lines, known_in, write_vectors
from vsemb.runs.images import embed_image
from vsemb.runs.indexing import build_index, index_files
from vsemb.runs.run import Run
from vsemb.searching.backends.exact import Exact
from vsemb.similarities import OrderViolation


@pytest.fixture
def photos(scenes, tmp_path):
    """Nine image files, of which the third is torn and the fifth is not there."""
    split, names = scenes.split("val"), []
    for row in range(9):
        path = tmp_path / f"{row}.png"
        names.append(str(path))
        if row != 4:
            path.write_bytes(b"\x89PNG torn" if row == 2 else split.read_image(row))
    return names


def test_files_are_embedded_as_single_images_are(tiny_pixel_run, photos, tmp_path):
    found = embed_files(tiny_pixel_run, photos, tmp_path / "out")
    assert found.names == [name for row, name in enumerate(photos) if row not in (2, 4)]
    assert list(found.skipped) == [photos[2], photos[4]]
    assert found.skipped[photos[2]].startswith(("cannot be decoded", "not an image"))
    assert found.skipped[photos[4]] == "No such file or directory"
    wanted = [embed_image(tiny_pixel_run, None, name)[0] for name in found.names]
    np.testing.assert_allclose(found.embeddings, wanted, atol=1e-5)


def test_files_whose_names_are_not_utf_8_are_left_out(tiny_pixel_run, photos, tmp_path):
    name = os.fsdecode(os.path.join(os.fsencode(tmp_path), b"caf\xe9.png"))
    os.rename(photos[1], name)
    index, embedded = index_files(tiny_pixel_run, [photos[0], name], tmp_path / "index")
    assert index.keys == [photos[0]]
    ((skipped, reason),) = embedded.skipped.items()
    assert skipped == str(tmp_path / "caf?.png") and "UTF-8" in reason
    # A line of a list in UTF-16.
    _, embedded = index_files(tiny_pixel_run, [photos[0], "1\0.\0p\0"], tmp_path / "index")
    assert list(embedded.skipped) == ["1\0.\0p\0"]
    with pytest.raises(DataError, match="UTF-8"):
        embed_files(tiny_pixel_run, [name], tmp_path / "out")


def test_a_killed_call_goes_on_where_it_stopped(tiny_pixel_run, photos, tmp_path, monkeypatch):
    monkeypatch.setattr(embedding, "_IMAGES", 2)
    monkeypatch.setattr(feature_files, "_COMMIT_SECONDS", 0.0)
    wanted = embed_files(tiny_pixel_run, photos, tmp_path / "whole")
    readable, read = embedding._readable, []

    def killed(file):
        if file == photos[7]:
            raise KeyboardInterrupt
        return readable(file)

    monkeypatch.setattr(embedding, "_readable", killed)
    with pytest.raises(KeyboardInterrupt):
        embed_files(tiny_pixel_run, photos, tmp_path / "out")
    monkeypatch.setattr(embedding, "_readable", lambda file: read.append(file) or readable(file))
    found = embed_files(tiny_pixel_run, photos, tmp_path / "out")
    # The last batches, and those left out, for their reasons.
    assert sorted(read) == sorted([photos[2], photos[4], *photos[6:]])
    assert found.names == wanted.names and found.skipped == wanted.skipped
    assert found.embeddings.tobytes() == wanted.embeddings.tobytes()
    # Other files are other work.
    read.clear()
    embed_files(tiny_pixel_run, photos[:8], tmp_path / "out")
    assert len(read) == 8 + 2


def test_known_files_are_not_read_again(tiny_pixel_run, photos, tmp_path, monkeypatch):
    before = [row for row in range(7) if row not in (2, 4)]
    first, _ = index_files(tiny_pixel_run, [photos[row] for row in before], tmp_path / "index")
    os.utime(photos[1], ns=(0, 1))
    readable, read = embedding._readable, []
    monkeypatch.setattr(embedding, "_readable", lambda file: read.append(file) or readable(file))
    monkeypatch.chdir(tmp_path)  # The same files by other names; the first is removed.
    names = [os.path.basename(name) for name in photos[1:]]
    index, embedded = index_files(tiny_pixel_run, names, "index")
    torn = [names[1], names[3]]
    assert sorted(read) == sorted([names[0], names[6], names[7], *torn, *torn])
    assert index.keys == [name for name in names if name not in torn] and list(embedded.skipped) == torn
    assert embedded.kept == 3
    np.testing.assert_array_equal(index.embeddings[[1, 2, 3]], first.embeddings[[2, 3, 4]])
    fresh, _ = index_files(tiny_pixel_run, names, "other")
    np.testing.assert_allclose(index.embeddings, fresh.embeddings, atol=1e-6)
    assert index.source == fresh.source
    read.clear()
    assert index_files(tiny_pixel_run, index.keys, "index")[1].kept == len(index) and not read
    # Rounded embeddings are not kept for an index of exact ones, nor embeddings of a damaged index.
    index_files(tiny_pixel_run, index.keys, "index", Exact("float16"))
    assert index_files(tiny_pixel_run, index.keys, "index")[1].kept == 0
    (tmp_path / "index" / "embeddings.npy").write_bytes(b"")
    assert index_files(tiny_pixel_run, index.keys, "index")[1].kept == 0


def test_images_of_an_indexed_dataset_are_not_embedded_again(tiny_pixel_run, scenes, photos, tmp_path, monkeypatch):
    run = Run.open(shutil.copytree(tiny_pixel_run.path, tmp_path / "run"))
    sizes, image_encoder = [], embedding.image_encoder

    def counting(run):
        encode = image_encoder(run)
        return lambda image_bytes: sizes.append(len(image_bytes)) or encode(image_bytes=image_bytes)

    monkeypatch.setattr(embedding, "image_encoder", counting)
    with Image.open(photos[0]) as picture:
        picture.transpose(Image.Transpose.FLIP_LEFT_RIGHT).save(tmp_path / "new.png")
    files = [photos[0], str(tmp_path / "new.png"), *photos[2:]]
    fresh, _ = index_files(run, files, tmp_path / "fresh")
    assert sum(sizes) == len(files)
    # Without its index, the dataset's embeddings are not known; with another dtype they are rounded.
    for backend, computed in ((None, 3), (Exact("float16"), len(files))):
        build_index(run, scenes, "val", backend=backend)
        sizes.clear()
        index, embedded = index_files(run, files, tmp_path / f"index{computed}")
        assert sum(sizes) == computed  # The new one, and bytes that are no picture: a torn file and a missing one.
        assert index.keys == fresh.keys and list(embedded.skipped) == [photos[2], photos[4]]
        np.testing.assert_allclose(index.embeddings, fresh.embeddings, atol=1e-5)


@pytest.mark.parametrize("ending", ["npy", "parquet"])
def test_a_file_of_vectors_grows_by_new_images(tiny_pixel_run, photos, tmp_path, monkeypatch, ending):
    out = tmp_path / f"out.{ending}"
    assert known_in(tiny_pixel_run, out) == {}
    monkeypatch.chdir(tmp_path)
    first = embed_files(tiny_pixel_run, [os.path.basename(name) for name in photos[:4]], out)
    first.write(out, "image")
    readable, read = embedding._readable, []
    monkeypatch.setattr(embedding, "_readable", lambda file: read.append(file) or readable(file))
    found = embed_files(tiny_pixel_run, photos[1:7], out, known_in(tiny_pixel_run, out))
    assert set(read) == {photos[row] for row in (2, 4, 5, 6)} and found.kept == 2
    np.testing.assert_array_equal(found.embeddings[:2], first.embeddings[1:])
    found.write(out, "image")
    assert len(known_in(tiny_pixel_run, out)) == 4
    # Neither vectors of another run, nor rows that are not those of the names.
    assert known_in(SimpleNamespace(fingerprint="another"), out) == {}
    if ending == "npy":
        np.save(out, found.embeddings[::-1])
        assert known_in(tiny_pixel_run, out) == {}
    out.write_bytes(b"torn")
    assert known_in(tiny_pixel_run, out) == {}


@pytest.mark.parametrize("ending", ["npy", "parquet"])
@pytest.mark.parametrize("precision", ["int8", "ubinary"])
def test_a_quantized_file_of_vectors_grows_by_new_images(tiny_pixel_run, photos, tmp_path, ending, precision):
    def stored(path):
        if ending == "npy":
            return np.load(path)
        return np.array(parquet.read_table(path)["embedding"].to_pylist(), dtypes[precision])

    dtypes = {"int8": np.int8, "ubinary": np.uint8}
    out, whole = tmp_path / f"out.{ending}", tmp_path / f"whole.{ending}"
    embed_files(tiny_pixel_run, photos[:4], out).write(out, "image", precision)
    grown = write_vectors(tiny_pixel_run, "image", photos, out, precision=precision)
    assert grown.kept == 3 and grown.precision == precision and len(stored(out)) == 7
    exact = embed_files(tiny_pixel_run, photos, whole)
    exact.write(whole, "image", precision)
    assert stored(out).dtype == dtypes[precision]
    np.testing.assert_array_equal(stored(out), stored(whole))
    np.testing.assert_array_equal(stored(out), quantize(exact.embeddings, precision))
    # Exact vectors can be rounded, but rounded ones are not exact, nor of another rule.
    assert known_in(tiny_pixel_run, out) == {}
    assert known_in(tiny_pixel_run, out, "ubinary" if precision == "int8" else "int8") == {}
    exact.write(out, "image")
    assert len(known_in(tiny_pixel_run, out, precision)) == 7


def test_a_precision_is_checked_before_images_are_embedded(tiny_pixel_run, photos, tmp_path, monkeypatch):
    monkeypatch.setattr(embedding, "embed_files", None)
    odd = SimpleNamespace(recipe=tiny_pixel_run.recipe, embedding_dim=12)
    with raises_argument("precision"):
        write_vectors(odd, "image", photos, tmp_path / "out.npy", precision="ubinary")
    ordered = SimpleNamespace(recipe=SimpleNamespace(similarity=OrderViolation()), embedding_dim=8)
    with raises_argument("precision"):
        write_vectors(ordered, "image", photos, tmp_path / "out.npy", precision="int8")


@pytest.mark.parametrize("ending", ["npy", "parquet"])
def test_damaged_vectors_are_not_kept(tmp_path, ending):
    vectors, stamps = np.random.default_rng(0).normal(size=(50, 16)).astype(np.float32), np.arange(100).reshape(50, 2)
    names = [f"{row}.png" for row in range(50)]
    path = tmp_path / f"v.{ending}"
    Embedded("r", names, vectors, "", {}, stamps, 0).write(path, "image")
    run, content, status = SimpleNamespace(fingerprint="r"), path.read_bytes(), path.stat()
    wanted = {name: np.array(row) for name, row in known_in(run, path).items()}  # Of an array they are mapped.
    assert len(wanted) == 50
    for place in range(4, len(content), 97):
        path.write_bytes(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])
        os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))  # Damage of a disk keeps the time.
        for name, row in known_in(run, path).items():
            np.testing.assert_array_equal(row, wanted[name])


def test_texts_without_a_known_word_are_left_out(tiny_run, tmp_path, monkeypatch):
    monkeypatch.setattr(embedding, "_TEXTS", 2)
    texts = ["two shapes", "zyzzyva", "a red zyzzyva", "?!", "a circle"]
    found = embed_lines(tiny_run, texts, tmp_path / "out")
    assert found.names == ["two shapes", "a red zyzzyva", "a circle"]
    assert found.skipped == dict.fromkeys(["zyzzyva", "?!"], "no known word")
    wanted = tiny_run.model.encode_texts(tiny_run.tokenizer(tf.constant(found.names))).numpy()
    np.testing.assert_allclose(found.embeddings, wanted, atol=1e-5)


@pytest.mark.parametrize("name", ["texts.npy", "texts.json", "texts.parquet"])
def test_only_vectors_of_the_same_kind_are_replaced(tiny_run, name: str, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(embedding, "embed_lines", lambda *arguments: pytest.fail("embedded"))
    out, file = tmp_path / name.replace(".json", ".npy"), tmp_path / name
    file.write_text('{"mine": 1}')
    with raises_argument("out"):
        write_vectors(tiny_run, "text", ["a circle"], out)
    assert file.read_text() == '{"mine": 1}' and list(tmp_path.iterdir()) == [file]
    file.unlink()
    one = np.ones((1, 2), np.float32)
    Embedded("run", ["a.png"], one, "", {}, np.ones((1, 2), np.int64), 0).write(out, "image")
    before = out.read_bytes()
    with raises_argument("out"):
        write_vectors(tiny_run, "text", ["a circle"], out)
    assert out.read_bytes() == before


@pytest.mark.parametrize("ending", [".npy", ".parquet"])
def test_own_vectors_are_replaced(tiny_run, ending: str, tmp_path) -> None:
    for texts in (["a circle"], ["a circle", "a square"]):
        assert write_vectors(tiny_run, "text", texts, tmp_path / f"texts{ending}").items == len(texts)


def test_nothing_to_embed_is_said(tiny_pixel_run, tiny_run, photos, tmp_path):
    with pytest.raises(
        DataError, match="None of 1 images can be embedded. The first, .*2.png: (cannot be decoded|not an image)"
    ):
        embed_files(tiny_pixel_run, photos[2:3], tmp_path / "out")
    with pytest.raises(DataError, match="None of 1 texts can be embedded. The first, zyzzyva: no known word"):
        embed_lines(tiny_run, ["zyzzyva"], tmp_path / "out")
    with pytest.raises(DataError, match="precomputed features"):
        embed_files(tiny_run, photos, tmp_path / "out")
    assert not list(tmp_path.glob(".*"))
