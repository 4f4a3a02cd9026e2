"""What of a run goes into the projector."""

from __future__ import annotations

import csv
from collections import Counter

import numpy as np
import pytest

from vsemb.evaluation import Embedder
from vsemb.runs.projecting import project_run
from vsemb.text.normalize import split_words


def table(path) -> list[dict[str, str]]:
    with open(path, encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))


def test_images_sentences_and_words_lie_in_one_space(tiny_run, scenes, tmp_path) -> None:
    out, shapes = project_run(tiny_run, scenes, "val", tmp_path / "projector", images=7, sentences=16, words=9, seed=4)
    assert out == tmp_path / "projector"
    assert shapes == {"everything": (23, 16), "images": (7, 16), "sentences": (16, 16), "words": (9, 16)}
    vectors = {name: np.loadtxt(out / f"{name}.tsv", delimiter="\t") for name in shapes}
    tables = {name: table(out / f"{name}.metadata.tsv") for name in shapes}
    part, embedder = scenes.split("val"), Embedder(tiny_run.model)
    embedded = embedder.images(tiny_run.images_of(scenes, part), len(part))
    rows = [part.keys.index(line["key"]) for line in tables["images"]]
    assert rows == sorted(set(rows))
    np.testing.assert_allclose(vectors["images"], embedded[rows], atol=1e-5)
    for row, line in zip(rows, tables["images"], strict=True):
        assert line["caption"] == max(part.entries[row]["captions"], key=len)
    assert [line["class"] for line in tables["images"]] == [part.class_names[row] for row in rows]
    for name, column in (("sentences", "sentence"), ("words", "word")):
        texts = [line[column] for line in tables[name]]
        wanted = embedder.texts(*tiny_run.tokenizer.encode(texts))
        np.testing.assert_allclose(vectors[name], wanted, atol=1e-5)
    # In turns: every image has its first two sentences, two have three.
    each = Counter(line["key"] for line in tables["sentences"])
    assert sorted(each.values()) == [2, 2, 2, 2, 2, 3, 3] and set(each) == {part.keys[row] for row in rows}
    for line in tables["sentences"]:
        assert line["sentence"] in part.entries[part.keys.index(line["key"])]["captions"]
        assert int(line["words"]) == len(line["sentence"].split())
    counts = Counter(split_words(part.captions).flat_values.numpy().tolist())
    assert [int(line["count"]) for line in tables["words"]] == [n for _, n in counts.most_common(9)]
    assert all(counts[line["word"].encode()] == int(line["count"]) for line in tables["words"])
    together = np.concatenate([vectors["images"], vectors["sentences"]])
    np.testing.assert_array_equal(vectors["everything"], together)
    assert [line["kind"] for line in tables["everything"]] == ["image"] * 7 + ["sentence"] * 16
    sheets = sorted(path.name for path in out.glob("*.jpg"))
    assert sheets == ["everything.sprite.jpg", "images.sprite.jpg"]


@pytest.mark.parametrize(
    ("counts", "names"),
    [
        ((3, 0, 0), {"images": 3}),
        ((0, 8, 0), {"sentences": 8}),
        ((0, 0, 4), {"words": 4}),
        ((99, 999, 0), {"everything": 72, "images": 12, "sentences": 60}),
    ],
)
def test_some_of_them(tiny_pixel_run, scenes, tmp_path, counts, names) -> None:
    kinds = dict(zip(("images", "sentences", "words"), counts, strict=True))
    _, shapes = project_run(tiny_pixel_run, scenes, "val", tmp_path / "projector", **kinds)
    assert {name: points for name, (points, _) in shapes.items()} == names


def test_without_image_bytes_there_are_points(tiny_run, scenes_copy, tmp_path) -> None:
    scenes_copy.split("val").has_images = False
    out, shapes = project_run(tiny_run, scenes_copy, "val", tmp_path / "projector")
    assert shapes["everything"] == (72, 16)
    assert not list(out.glob("*.jpg")) and "sprite" not in (out / "projector_config.pbtxt").read_text()
