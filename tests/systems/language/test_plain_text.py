"""Plain text: the reader of sentences, and language models that are trained on them beside captions."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import numpy as np
import pytest

from tests.conftest import TINY_LANGUAGE
from tests.tiny import tiny
from vsemb import Dataset, recipes
from vsemb.api.data import prepare
from vsemb.cli.__main__ import command_parser
from vsemb.data.readers import read
from vsemb.errors import DataError
from vsemb.runs.describe import info
from vsemb.systems.language.tags import write_tags


@pytest.fixture
def books(tmp_path: Path) -> Dataset:
    """Three sentences for training and one for validation, which is not read in training."""
    folder = tmp_path / "books"
    folder.mkdir()
    (folder / "train.txt").write_text("The zeppelin is on a square .\n\n  A zeppelin\nIt is red.\n")
    (folder / "val.txt").write_text("An unread word .\n")
    return prepare(folder, tmp_path / "data", format="sentences")


def test_lines_are_sentences_without_images(books: Dataset) -> None:
    train = books.split("train")
    assert train.keys == ["train.txt:1", "train.txt:3", "train.txt:4"] and not train.has_images
    assert train.captions == ["The zeppelin is on a square .", "A zeppelin", "It is red."]
    assert books.split("val").captions == ["An unread word ."]


def test_the_next_command_of_sentences_reads_no_images_of_them(books: Dataset) -> None:
    (following,) = info(books.path).next
    assert following.startswith("vsemb train log-bilinear ") and f"--set sentences={books.path}" in following
    _, name, *arguments = shlex.split(following)
    command_parser(name).parse_args(arguments)


def test_other_files_are_split_by_hash_or_by_the_option(tmp_path: Path) -> None:
    (tmp_path / "novel.txt").write_text("".join(f"line {number}\n" for number in range(300)))
    splits = [record.split for record in read("sentences", tmp_path / "novel.txt").records]
    # 240, 30 and 30 are expected, with standard deviations of 7 and 5.
    assert 210 < splits.count("train") < 270 and 10 < splits.count("val") < 50
    records = read("sentences", tmp_path, split="train").records
    assert {record.split for record in records} == {"train"}
    assert [record.key for record in records] == [record.key for record in records]
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match="empty"):
        read("sentences", tmp_path / "empty")


def test_models_are_trained_on_captions_and_sentences(scenes, books: Dataset, tmp_path: Path) -> None:
    recipe = tiny(recipes.get("log-bilinear"), *TINY_LANGUAGE, "text.tokenizer.min_count=1")
    alone = recipe.prepare(scenes, tmp_path / "run", {})
    both = recipe.with_overrides([f"sentences={books.path}"]).prepare(scenes, tmp_path / "run", {})
    captions = len(scenes.split("train").captions)
    assert (len(alone.sentences), len(both.sentences)) == (captions, captions + 3)
    words = both.vocabulary.words
    assert {"zeppelin", "it"} <= {*words} - {*alone.vocabulary.words} and "unread" not in words
    last = both.sentences.batch(np.array([captions + 1]))["text"][0]
    assert [both.vocabulary.tokens[word] for word in last] == ["a", "zeppelin"]
    # Validation reads captions only, and a run is not continued with other sentences.
    assert len(both.val.captions) == len(scenes.split("val").captions)
    assert alone.info["sentences"] is None and both.info["sentences"] == books.fingerprint


def test_parts_of_speech_and_vectors_of_sentences(
    tagged_scenes, books: Dataset, kiros_run, language_recipe, tmp_path: Path
) -> None:
    pytest.importorskip("pycocoevalcap", reason="the extra captions is not installed")
    recipe = language_recipe.with_overrides([f"sentences={books.path}"])
    with pytest.raises(DataError, match=re.escape(str(books.path))):
        recipe.prepare(tagged_scenes, tmp_path / "run", {"encoder": kiros_run})
    tags = {"train": [["DT", "NN", "VBZ", "IN", "DT", "NN"], ["DT", "NN"], ["PRP", "VBZ", "JJ"]], "val": [["DT"] * 3]}
    write_tags(books, tags, source={"tagger": "by hand"})
    job = recipe.prepare(tagged_scenes, tmp_path / "run", {"encoder": kiros_run})
    assert job.info["tag_names"] == ["CC", "DT", "IN", "JJ", "NN", "PRP", "VBZ", "<unk>"]
    batch = job.sentences.batch(np.array([len(job.sentences) - 1]))
    assert batch["tags"].tolist() == [[6, 7, 4]]
    ids = kiros_run.tokenizer(["It is red."])
    np.testing.assert_allclose(batch["content"], kiros_run.model.encode_texts(ids), rtol=1e-4, atol=1e-6)
