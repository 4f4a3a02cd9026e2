"""The picture: concepts found by word and sense, direct edges sorted, drawn."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image

from pipelines import hypernym_picture as picture
from pipelines.hypernymy.wordnet import read_wordnet, transitive_closure
from tests.data.wordnet_files import write_wordnet
from vsemb.errors import DataError

WORDS = {
    "entity": [],
    "animal": ["entity"],
    "domestic_animal": ["animal"],
    "canine": ["animal"],
    "dog": ["canine", "domestic_animal"],
    "thing": ["entity"],
    "tool": ["thing"],
}
CHOSEN = (("entity", None), ("animal", "entity"), ("domestic_animal", "animal"), ("dog", "animal"))


def test_subset_is_the_closure_among_the_chosen(tmp_path):
    labels, closure = picture.subset(read_wordnet(write_wordnet(tmp_path, WORDS)), CHOSEN)
    assert labels == ["entity", "animal", "domestic animal", "dog"]
    # The dog is an animal by the canine, which was not chosen, too.
    assert closure.tolist() == [[1, 0], [2, 0], [2, 1], [3, 0], [3, 1], [3, 2]]
    assert picture.direct(closure, 4).tolist() == [[1, 0], [2, 1], [3, 2]]


@pytest.mark.parametrize(("word", "above"), [("cat", None), ("tool", "animal")])
def test_missing_words_are_named(tmp_path, word, above):
    wordnet = read_wordnet(write_wordnet(tmp_path, WORDS))
    with pytest.raises(DataError, match=word):
        picture.subset(wordnet, ((word, above),))


def test_edges_are_sorted():
    # WordNet: 2 < 1 < 0. The embedding lacks (1, 0) and has 0 below 2.
    closure = np.array([[1, 0], [2, 0], [2, 1]])
    held = np.array([[2, 1], [0, 2], [2, 0]])
    embedding = picture.Embedding(np.ones((3, 2), np.float32), held, 0.5)
    drawing = picture.compare(["a", "b", "c"], embedding, closure)
    assert drawing.missed.tolist() == [[1, 0]]
    assert drawing.spurious.tolist() == [[0, 2]]
    assert drawing.true.tolist() == [[2, 1]]


@pytest.mark.slow
def test_a_small_tree_is_embedded():
    closure = transitive_closure(np.array([[1, 0], [2, 0], [3, 1], [4, 1], [5, 2]]))
    embedding = picture.embed(closure, 6, starts=16)
    assert embedding.accuracy == 1
    assert embedding.pairs.tolist() == closure.tolist()
    assert embedding.points.shape == (6, 2)
    for low, high in closure:
        # A threshold is at work, below the margin of 1.
        assert (embedding.points[high] <= embedding.points[low] + 1).all()


def test_main_draws(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(picture, "SUBSET", CHOSEN)
    monkeypatch.setattr(picture, "_STEPS", 20)
    out = tmp_path / "picture.png"
    folder = write_wordnet(tmp_path / "wordnet", WORDS)
    assert picture.main(["--wordnet", str(folder), "--out", str(out)]) == 0
    assert "4 concepts" in capsys.readouterr().out
    with Image.open(out) as image:
        colours = {colour for _, colour in image.convert("RGB").getcolors(1 << 20)}
        assert image.size == (picture.SIDE, picture.SIDE)
    # Of the legend, if of nothing else.
    assert {(0x1F, 0x9D, 0x55), (0xF0, 0x62, 0xA6)} <= colours
    assert picture.main(["--wordnet", str(tmp_path), "--out", str(out)]) == 1
    assert capsys.readouterr().err.startswith("hypernym_picture: ")
