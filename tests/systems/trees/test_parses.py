"""Parses in a dataset's directory: written whole, verified, aligned with captions."""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.raising import raises_argument
from vsemb.data.store import StoredDataset
from vsemb.errors import DataError
from vsemb.systems.trees import parses as module
from vsemb.systems.trees.parses import Parses, write_parses
from vsemb.systems.trees.trees import Tree, read_conllu


def some_trees(dataset, seed: int = 0) -> dict[str, list[Tree]]:
    """Every word hangs on one before it, at random."""
    rng = np.random.default_rng(seed)
    result: dict[str, list[Tree]] = {}
    for name in dataset.splits:
        result[name] = []
        for text in dataset.split(name).captions:
            words = tuple(text.split())
            heads = (0, *(int(rng.integers(1, place + 1)) for place in range(1, len(words))))
            result[name].append(Tree(words, heads, ("X",) * len(words), ("dep",) * len(words)))
    return result


@pytest.fixture
def dataset(tiny, tmp_path) -> StoredDataset:
    """Images 0 to 5 with 1, 2, 3, 1, 2, 3 captions; 2 and 5 are val."""
    return tiny.write(tiny.records(6), tmp_path / "out")


@pytest.fixture
def pipeline(tmp_path) -> Path:
    folder = tmp_path / "pipeline"
    (folder / "parser").mkdir(parents=True)
    (folder / "__pycache__").mkdir()
    (folder / "meta.json").write_text('{"lang": "en"}')
    (folder / "parser" / "model").write_bytes(bytes(range(256)))
    (folder / "__pycache__" / "x.pyc").write_bytes(b"x")
    (folder / "meta.json").chmod(0o444)
    return folder


def test_what_was_written_is_read_back(dataset, tiny):
    before = tiny.contents(dataset.path)
    assert dataset.annotation("parses") is None
    trees = some_trees(dataset)
    written = write_parses(dataset, trees, parser={"name": "mine", "version": (1, 2)})
    assert {name: data for name, data in tiny.contents(dataset.path).items() if name in before} == before
    for parses in (written, dataset.annotation("parses"), StoredDataset.open(dataset.path).annotation("parses")):
        assert parses is not None
        assert (parses.count, parses.parser_folder) == (12, None)
        assert parses.parser == {"name": "mine", "version": [1, 2]}
        assert parses.path == dataset.path / "parses"
        for name in dataset.splits:
            split = dataset.split(name)
            assert parses.trees(split) == trees[name]
            assert parses.texts(split) == [tree.text for tree in trees[name]]
    assert StoredDataset.open(dataset.path).fingerprint == dataset.fingerprint


def test_the_files_say_which_caption_is_which(dataset):
    write_parses(dataset, some_trees(dataset))
    found = list(read_conllu(dataset.path / "parses" / "val.conllu.gz"))
    assert [sentence.id for sentence in found] == dataset.split("val").caption_ids
    assert [sentence.text for sentence in found] == dataset.split("val").captions


def test_keys_that_are_not_one_line(tiny, tmp_path):
    record = replace(tiny.records(1)[0], key=" a\nb\t.jpg")
    dataset = tiny.write([record], tmp_path / "out")
    trees = some_trees(dataset)
    assert write_parses(dataset, trees).trees(dataset.split("train")) == trees["train"]


def test_equal_parses_have_equal_bytes(dataset, tiny, tmp_path):
    first = write_parses(dataset, some_trees(dataset))
    contents = tiny.contents(first.path)
    shutil.rmtree(first.path)
    again = write_parses(dataset, some_trees(dataset))
    assert (tiny.contents(again.path), again.fingerprint) == (contents, first.fingerprint)
    other = write_parses(dataset, some_trees(dataset, 1), overwrite=True)
    assert other.fingerprint != first.fingerprint
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    assert not list(dataset.path.glob(".*"))


def test_few_captions_find_their_parses(dataset):
    trees = some_trees(dataset)
    parses = write_parses(dataset, trees)
    split = dataset.split("val")
    two = split.with_captions([own[:2] for own in split.caption_lists()])
    wanted = [trees["val"][place] for place in (0, 1, 3, 4)]
    assert parses.trees(two) == wanted
    assert parses.texts(two) == [tree.text for tree in wanted]
    assert [" ".join(tree.words) for tree in parses.trees(two)] == two.captions


def test_texts_without_parses(dataset, tiny, tmp_path):
    parses = write_parses(dataset, some_trees(dataset))
    names = dataset.split("val").with_captions([["bird"], ["dog"]])
    other = tiny.write(tiny.records(7), tmp_path / "other")
    for read in (parses.trees, parses.texts):
        with pytest.raises(DataError):
            read(names)
        with pytest.raises(DataError, match="'train'"):
            read(other.split("train"))
    assert parses.texts(StoredDataset.open(dataset.path).split("val")) == parses.texts(dataset.split("val"))


def cycle(trees):
    trees["val"][4] = Tree(("a", "b", "c"), (0, 3, 2))
    return trees


@pytest.mark.parametrize(
    ("edit", "value"),
    [
        (lambda trees: {"train": trees["train"]}, "train, val"),
        (lambda trees: {}, "none"),
        (lambda trees: trees | {"test": []}, "train, val, test"),
        (
            lambda trees: trees | {"val": trees["val"][1:]},
            "5 .*'val'.* 6",
        ),
        (cycle, "Sentence 5 .*'5.jpg#1'"),
    ],
    ids=["a split less", "none", "a split more", "one less", "cycle"],
)
def test_trees_that_do_not_fit(dataset, edit, value):
    with pytest.raises(DataError, match=value):
        write_parses(dataset, edit(some_trees(dataset)))
    assert not (dataset.path / "parses").exists()


def test_the_parser_is_kept(dataset, pipeline):
    parses = write_parses(dataset, some_trees(dataset), parser_folder=pipeline)
    folder = parses.parser_folder
    assert folder == dataset.path / "parses" / "parser"
    assert sorted(path.name for path in folder.rglob("*")) == ["meta.json", "model", "parser"]
    assert (folder / "parser" / "model").read_bytes() == bytes(range(256))
    assert os.access(folder / "meta.json", os.W_OK)
    # From its own copy, which is replaced: the copy is made first.
    again = write_parses(dataset, some_trees(dataset), parser_folder=folder, overwrite=True)
    assert (again.parser_folder / "meta.json").read_text() == '{"lang": "en"}'


def test_a_link_within_the_parser_becomes_a_file(dataset, pipeline):
    (pipeline / "alias").symlink_to("parser/model")
    folder = write_parses(dataset, some_trees(dataset), parser_folder=pipeline).parser_folder
    assert not (folder / "alias").is_symlink()
    assert (folder / "alias").read_bytes() == bytes(range(256))


@pytest.mark.parametrize(
    ("spoil", "value"),
    [
        (
            lambda folder: (folder / "out").symlink_to(folder.parent / "secret"),
            "out.*secret.*cp -rL",
        ),
        (lambda folder: (folder / "loop").symlink_to(folder), "loop"),
        (lambda folder: (folder / "gone").symlink_to("nowhere"), "gone"),
        (lambda folder: os.mkfifo(folder / "pipe"), "pipe"),
        (shutil.rmtree, "{folder}"),
        (lambda folder: (shutil.rmtree(folder), folder.mkdir()), "{folder}"),
    ],
    ids=["link out", "link to a folder", "dangling", "pipe", "missing", "empty"],
)
def test_what_is_no_parser(dataset, pipeline, tmp_path, spoil, value):
    (tmp_path / "secret").write_text("x")
    spoil(pipeline)
    with pytest.raises(DataError, match=value.format(folder=pipeline)):
        write_parses(dataset, some_trees(dataset), parser_folder=pipeline)
    assert not (dataset.path / "parses").exists()


def test_the_same_again_does_nothing(dataset, pipeline):
    given = {"parser": {"name": "a"}, "parser_folder": pipeline}
    write_parses(dataset, some_trees(dataset), **given)
    before = (dataset.path / "parses" / "parses.json").stat()
    assert write_parses(dataset, some_trees(dataset), **given).count == 12
    assert (dataset.path / "parses" / "parses.json").stat() == before


@pytest.mark.parametrize(
    "changes",
    [
        {"seed": 1},
        {"parser": {"name": "b"}},
        {"parser_folder": None},
        {"parser_folder": "other"},
    ],
    ids=["trees", "name", "no folder", "folder"],
)
def test_others_are_replaced_only_on_request(dataset, pipeline, tiny, tmp_path, changes):
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "meta.json").write_text("{}")
    first = {"parser": {"name": "a"}, "parser_folder": pipeline}
    write_parses(dataset, some_trees(dataset), **first)
    before = tiny.contents(dataset.path)
    trees = some_trees(dataset, changes.pop("seed", 0))
    given = first | changes
    if given["parser_folder"] == "other":
        given["parser_folder"] = tmp_path / "other"
    with pytest.raises(DataError, match="--overwrite"):
        write_parses(dataset, trees, **given)
    assert tiny.contents(dataset.path) == before
    assert write_parses(dataset, trees, **given, overwrite=True).trees(dataset.split("val")) == trees["val"]
    assert StoredDataset.open(dataset.path).annotation("parses").parser == given["parser"]


def test_a_parser_can_be_added_later(dataset, pipeline):
    write_parses(dataset, some_trees(dataset))
    with pytest.raises(DataError, match="--overwrite"):
        write_parses(dataset, some_trees(dataset), parser_folder=pipeline)
    assert write_parses(dataset, some_trees(dataset), parser_folder=pipeline, overwrite=True).parser_folder


def test_an_error_while_writing_leaves_what_was_there(dataset, tiny, monkeypatch):
    write_parses(dataset, some_trees(dataset))
    before = tiny.contents(dataset.path)

    def full(*arguments):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(module, "write_conllu", full)
    with pytest.raises(DataError, match="No space left"):
        write_parses(dataset, some_trees(dataset, 1), overwrite=True)
    assert tiny.contents(dataset.path) == before


def edit_list(path: Path, **changes) -> None:
    content = json.loads((path / "parses.json").read_text())
    (path / "parses.json").write_text(json.dumps(content | changes))


@pytest.mark.parametrize(
    ("damage", "value"),
    [
        (
            lambda path: os.truncate(path / "val.conllu.gz", 9),
            r"val\.conllu\.gz.*vsemb annotate",
        ),
        (lambda path: (path / "train.trees.gz").unlink(), r"train\.trees\.gz.*vsemb annotate"),
        (lambda path: (path / "parses.json").unlink(), "parses"),
        (lambda path: (path / "parses.json").write_text("[]"), "parses"),
        (lambda path: edit_list(path, version=2), "version 2"),
        (lambda path: edit_list(path, dataset="f00"), "parses"),
        (lambda path: edit_list(path, fingerprint=None), "TypeError"),
        (lambda path: edit_list(path, splits={"train": 3}), "TypeError"),
        (lambda path: edit_list(path, splits={}), "parses"),
        (lambda path: edit_list(path, parser=[1]), "TypeError"),
        (lambda path: edit_list(path, parser_files={"../x": "f00"}), "ValueError"),
    ],
    ids=[
        "cut",
        "gone",
        "no list",
        "not a list",
        "version",
        "dataset",
        "type",
        "split",
        "none",
        "parser",
        "path",
    ],
)
def test_damage_is_noticed(dataset, damage, value):
    write_parses(dataset, some_trees(dataset))
    damage(dataset.path / "parses")
    with pytest.raises(DataError, match=value):
        _ = StoredDataset.open(dataset.path).annotation("parses")
    with pytest.raises(DataError, match=value):
        write_parses(dataset, some_trees(dataset))
    assert write_parses(dataset, some_trees(dataset), overwrite=True).count == 12


def test_a_damaged_parser_is_noticed_when_asked_for(dataset, pipeline):
    parses = write_parses(dataset, some_trees(dataset), parser_folder=pipeline)
    (parses.path / "parser" / "meta.json").write_text("{}")
    assert parses.texts(dataset.split("val"))
    with pytest.raises(DataError, match=r"meta\.json"):
        _ = parses.parser_folder


def test_there_may_be_none(dataset):
    with pytest.raises(DataError, match="vsemb annotate .* dependencies"):
        Parses.open(dataset)
    parses = write_parses(dataset, some_trees(dataset))
    with raises_argument("split"):
        dataset.split("test")
    assert repr(parses) == f"<Parses at {dataset.path / 'parses'} (12 sentences)>"
