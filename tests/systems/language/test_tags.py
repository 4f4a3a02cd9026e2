"""Parts of speech: files of tags, NLTK's tagger, and tokens that become words."""

from __future__ import annotations

import builtins
import gzip
import json
import sys
from dataclasses import replace

import pytest

from vsemb import Dataset
from vsemb.data import annotations
from vsemb.errors import DataError, MissingExtraError
from vsemb.systems.language.tags import (
    CaptionTags,
    Tagger,
    align_tags,
    describe_tags,
    import_tags,
    open_tagger,
    read_tags,
    tag_captions,
    write_tags,
)
from vsemb.text.normalize import words_of


def tokens_of(text: str) -> list[tuple[str, str]]:
    return [tuple(token.rsplit("/", 1)) for token in text.split()]


@pytest.mark.parametrize(
    ("text", "tagged", "wanted"),
    [
        ("A dog runs .", "A/DT dog/NN runs/VBZ ./.", "DT NN VBZ"),
        ("The man's dog", "The/DT man/NN 's/POS dog/NN", "DT NN POS NN"),
        # Our `dont` begins in `do`.
        ("They don't.", "They/PRP do/VBP n't/RB ./.", "PRP VBP"),
        # Two words in one token, and one word in two.
        ("a red-haired girl", "a/DT red-haired/JJ girl/NN", "DT JJ JJ NN"),
        ("He cannot swim", "He/PRP can/MD not/RB swim/VB", "PRP MD VB"),
        ('"Hi" (there)', "``/`` Hi/UH ''/'' -LRB-/-LRB- there/EX -RRB-/-RRB-", "UH EX"),
        ("GRÖSSE größe Straße 犬 1/2", "GRÖSSE/X größe/Y Straße/Z 犬/W 1/2/CD", "X Y Z W CD CD"),
        ("... !", ".../: !/.", ""),
        ("", "", ""),
    ],
)
def test_words_take_the_tag_of_the_token_they_begin_in(text, tagged, wanted):
    [words] = words_of([text])
    assert align_tags(tokens_of(tagged), words) == wanted.split()
    assert len(words) == len(wanted.split())


@pytest.mark.parametrize(
    ("text", "tagged"),
    [
        ("a dog", "a/DT cat/NN"),
        ("a dog runs", "a/DT dog/NN"),
        ("a dog", "a/DT dog/NN runs/VBZ"),
        ("a dog", ""),
        ("", "dog/NN"),
    ],
)
def test_other_texts_do_not_come_out(text, tagged):
    assert align_tags(tokens_of(tagged), next(words_of([text]))) is None


@pytest.mark.parametrize("packed", [False, True])
def test_files_are_read_whatever_their_name(tmp_path, packed):
    content = "0\ta/DT 1/2/CD dog/NN\n\nkey 7.jpg#1\tköter/NN\n2\t\n".encode()
    file = tmp_path / "tags"
    file.write_bytes(gzip.compress(content) if packed else content)
    first, second, third = read_tags(file)
    assert first == ("0", [("a", "DT"), ("1/2", "CD"), ("dog", "NN")], 1)
    assert second == ("key 7.jpg#1", [("köter", "NN")], 3)
    assert third == ("2", [], 4)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"0\ta/DT\n1 a/DT\n", "line 2: '1 a/DT'"),
        (b"0\ta/DT dog\n", "line 1: 'dog'"),
        (b"0\ta/\n", "line 1: 'a/'"),
        (b"0\t/DT\n", "line 1: '/DT'"),
        (b"0\ta/\xff\n", "tags.txt"),
        (gzip.compress(b"0\ta/DT\n" * 99)[:-9], "tags.txt"),
        (b"\x1f\x8bnonsense", "tags.txt"),
    ],
    # The bytes hold the time, and processes must agree on names.
    ids=range(7),
)
def test_broken_files(tmp_path, content, message):
    file = tmp_path / "tags.txt"
    file.write_bytes(content)
    with pytest.raises(DataError, match=message):
        list(read_tags(file))


def test_missing_files(tmp_path):
    with pytest.raises(DataError, match="nowhere"):
        list(read_tags(tmp_path / "nowhere"))


def test_without_nltk(monkeypatch):
    for name in [name for name in sys.modules if name.split(".")[0] == "nltk"]:
        monkeypatch.delitem(sys.modules, name)
    real = builtins.__import__

    def refuse(name, *rest):
        if name.split(".")[0] == "nltk":
            raise ImportError(name)
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", refuse)
    with pytest.raises(MissingExtraError, match="nltk"):
        open_tagger()


def test_without_its_model(monkeypatch):
    nltk = pytest.importorskip("nltk")
    monkeypatch.setattr(nltk.data, "path", [])
    with pytest.raises(DataError, match="averaged_perceptron_tagger_eng"):
        open_tagger()


def test_nltk_tags_penn_tags():
    pytest.importorskip("nltk")
    try:
        tagger = open_tagger()
    except DataError as error:
        pytest.skip(str(error))
    assert "averaged_perceptron_tagger_eng" in tagger.name
    text = "Two dogs can't run after the man's red ball ."
    assert align_tags(tagger(text), next(words_of([text]))) == [
        "CD",
        "NNS",
        "MD",
        "VB",
        "IN",
        "DT",
        "NN",
        "POS",
        "JJ",
        "NN",
    ]
    assert tagger("") == []


def test_the_tagger_sees_no_more_than_words_are_made_of():
    seen = []

    class Tokenizer:
        def tokenize(self, text):
            seen.append(text)
            return text.split()

    class Tags:
        def tag(self, tokens):
            return [(token, "X") for token in tokens]

    tagger = Tagger(Tokenizer(), Tags(), "mine")
    text = " \x00a\x00dog " + "x" * 9000
    [words] = words_of([text])
    assert align_tags(tagger(text), words) == ["X"] * 3
    assert len(seen[0]) == 4096


SOURCE = {"tagger": "by hand"}


@pytest.fixture
def dataset(tiny, tmp_path) -> Dataset:
    """Images 0 to 5 with 1, 2, 3, 1, 2, 3 captions of 4 words; 2 and 5 are val."""
    return tiny.write(tiny.records(6), tmp_path / "out")


def some_tags(dataset: Dataset, tag: str = "NN") -> dict[str, list[list[str]]]:
    """Says of each word which it is in its caption."""
    return {
        name: [[f"{tag}{place}" for place in range(len(words))] for words in words_of(dataset.split(name).captions)]
        for name in dataset.splits
    }


def file_of(dataset: Dataset, path, ids=None):
    """Writes a file of tags; the tag of a word is its caption's id and its place."""
    lines = []
    for name in dataset.splits:
        split = dataset.split(name)
        for number, (caption, words) in enumerate(zip(split.caption_ids, words_of(split.captions), strict=True)):
            tagged = " ".join(f"{word}/{name}{number}.{place}" for place, word in enumerate(words))
            lines.append(f"{caption if ids is None else ids(name, number)}\t{tagged} ./.")
    path.write_text("\n".join(reversed(lines)) + "\n")
    return path


def test_what_was_written_is_read_back(dataset, tiny):
    before = tiny.contents(dataset.path)
    assert dataset.annotation("tags") is None
    tags = some_tags(dataset)
    written = write_tags(dataset, tags, source=SOURCE)
    assert {name: data for name, data in tiny.contents(dataset.path).items() if name in before} == before
    for opened in (written, dataset.annotation("tags"), Dataset.open(dataset.path).annotation("tags")):
        assert (opened.count, opened.source, opened.path) == (12, SOURCE, dataset.path / "tags")
        assert opened.fingerprint == written.fingerprint
        assert {name: opened.of(dataset.split(name)) for name in dataset.splits} == tags
    assert Dataset.open(dataset.path).fingerprint == dataset.fingerprint


def test_captions_without_words_have_an_empty_line(tiny, tmp_path):
    records = tiny.records(3)
    records[2] = replace(records[2], captions=("a dog", "...", "!"))
    dataset = tiny.write(records, tmp_path / "out")
    write_tags(dataset, {"train": [["A"] * 4] * 3, "val": [["DT", "NN"], [], []]}, source=SOURCE)
    assert dataset.annotation("tags").of(dataset.split("val")) == [["DT", "NN"], [], []]
    assert gzip.decompress((dataset.path / "tags" / "val.tags.gz").read_bytes()) == b"DT NN\n\n\n"


def test_a_split_with_fewer_captions(dataset):
    tags = some_tags(dataset)
    tags["val"] = [[f"{number}"] * 4 for number in range(6)]
    write_tags(dataset, tags, source=SOURCE)
    split = dataset.split("val")
    few = split.with_captions([split.captions[1:3], split.captions[5:]])
    assert dataset.annotation("tags").of(few) == [["1"] * 4, ["2"] * 4, ["5"] * 4]
    with pytest.raises(DataError, match="'val'"):
        dataset.annotation("tags").of(split.with_captions([["a"], ["b"]]))


def test_splits_of_other_datasets(dataset, tiny, tmp_path):
    write_tags(dataset, some_tags(dataset), source=SOURCE)
    other = tiny.write(tiny.records(9), tmp_path / "other")
    with pytest.raises(DataError, match="'val'"):
        dataset.annotation("tags").of(other.split("val"))


def test_the_same_again_and_others(dataset, tiny):
    first = write_tags(dataset, some_tags(dataset), source=SOURCE)
    before = tiny.contents(dataset.path)
    assert write_tags(dataset, some_tags(dataset), source=SOURCE).fingerprint == first.fingerprint
    with pytest.raises(DataError, match="by hand.*--overwrite"):
        write_tags(dataset, some_tags(dataset), source={"file": "x"})
    assert tiny.contents(dataset.path) == before
    second = write_tags(dataset, some_tags(dataset, "JJ"), source=SOURCE, overwrite=True)
    assert second.fingerprint != first.fingerprint
    assert dataset.annotation("tags").of(dataset.split("val"))[0][0] == "JJ0"
    # The same tags have the same fingerprint, wherever they come from.
    assert write_tags(dataset, some_tags(dataset), source={}, overwrite=True).fingerprint == first.fingerprint


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda tags: tags.pop("val"), " train;.* train, val"),
        (lambda tags: tags["val"].pop(), " 5 .*'val'.* 6"),
    ],
)
def test_tags_that_do_not_fit(dataset, change, message):
    tags = some_tags(dataset)
    change(tags)
    with pytest.raises(DataError, match=message):
        write_tags(dataset, tags, source=SOURCE)
    assert not (dataset.path / "tags").exists()


def damage_list(key, value):
    def damage(folder):
        content = json.loads((folder / "tags.json").read_text())
        (folder / "tags.json").write_text(json.dumps({**content, key: value}))

    return damage


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda folder: (folder / "tags.json").unlink(), "tags.json"),
        (lambda folder: (folder / "tags.json").write_text("[]"), "tags.json"),
        (damage_list("format", "x"), "tags.json"),
        (damage_list("version", 2), "version 2.*version 1"),
        (damage_list("splits", {"val": {}}), "tags.json"),
        (damage_list("splits", {"val": {"captions": 6, "sha256": "x"}}), "tags.json"),
        (damage_list("source", None), "tags.json"),
        (damage_list("dataset", "0"), "vsemb annotate DATA pos-tags --overwrite"),
        (lambda folder: (folder / "val.tags.gz").unlink(), "val.tags.gz"),
        (lambda folder: (folder / "val.tags.gz").write_bytes(b"x"), "val.tags.gz"),
    ],
)
def test_damaged_tags_are_not_opened(dataset, damage, message):
    write_tags(dataset, some_tags(dataset), source=SOURCE)
    damage(dataset.path / "tags")
    with pytest.raises(DataError, match=message):
        _ = Dataset.open(dataset.path).annotation("tags")
    write_tags(dataset, some_tags(dataset), source=SOURCE, overwrite=True)
    assert CaptionTags.open(dataset).count == 12


def test_a_crash_leaves_nothing(dataset, monkeypatch):
    def crash(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(annotations, "write_json", crash)
    with pytest.raises(KeyboardInterrupt):
        write_tags(dataset, some_tags(dataset), source=SOURCE)
    assert not [path for path in dataset.path.iterdir() if "tags" in path.name]


def test_none_are_there(dataset):
    with pytest.raises(DataError, match="vsemb annotate .* pos-tags"):
        CaptionTags.open(dataset)


class Words:
    """Splits at blanks, and tags a word by its length."""

    def tokenize(self, text):
        return text.split()

    def tag(self, tokens):
        return [(token, f"L{len(token)}") for token in tokens]


def test_a_tagger(dataset):
    tags = tag_captions(dataset, Tagger(Words(), Words(), "lengths"))
    assert tags.source == {"tagger": "lengths"}
    assert tags.of(dataset.split("val"))[0] == ["L7", "L1", "L2", "L1"]
    values = describe_tags(dataset, tags)
    assert (values["captions"], values["words"]) == (12, 48)
    assert values["tags"] == {"L1": 24, "L7": 12, "L2": 12}


def test_tags_that_are_there_cost_no_work(dataset, tmp_path):
    first = tag_captions(dataset, Tagger(Words(), Words(), "lengths"))
    # Not a caption is tagged, and not a line is read.
    assert tag_captions(dataset, Tagger(None, None, "lengths")).fingerprint == first.fingerprint
    with pytest.raises(DataError, match="lengths.*--overwrite"):
        tag_captions(dataset, Tagger(None, None, "others"))
    (tmp_path / "broken.txt").write_text("no tab")
    with pytest.raises(DataError, match="lengths.*--overwrite"):
        import_tags(dataset, tmp_path / "broken.txt")
    with pytest.raises(DataError, match="broken.txt, line 1"):
        import_tags(dataset, tmp_path / "broken.txt", overwrite=True)
    file = file_of(dataset, tmp_path / "tags.txt")
    second = import_tags(dataset, file, overwrite=True)
    assert import_tags(dataset, file).fingerprint == second.fingerprint != first.fingerprint


def test_a_tagger_that_changes_words(dataset):
    class Others(Words):
        def tokenize(self, text):
            return [*text.split(), "more"]

    with pytest.raises(DataError, match="odd.*'0.jpg#0'.*more"):
        tag_captions(dataset, Tagger(Others(), Words(), "odd"))


@pytest.mark.parametrize("own", [False, True])
def test_a_file(tiny, tmp_path, own):
    records = tiny.records(6)
    if own:
        records = [
            replace(one, caption_ids=tuple(f"{one.key[0]}{n}" for n, _ in enumerate(one.captions))) for one in records
        ]
    dataset = tiny.write(records, tmp_path / "out")
    file = file_of(dataset, tmp_path / "tags.txt")
    with file.open("a") as lines:
        lines.write("elsewhere\ta/DT\n")
    said: list[str] = []
    tags = import_tags(dataset, file, report=said.append)
    assert said == ["1 lines left out whose ids the dataset does not have, first 'elsewhere' (line 13)."]
    assert tags.source["file"] == "tags.txt"
    for name in dataset.splits:
        wanted = [
            [f"{name}{number}.{place}" for place in range(4)] for number in range(len(dataset.split(name).captions))
        ]
        assert tags.of(dataset.split(name)) == wanted


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda lines: lines[1:], "'5.jpg#2'.*'val'"),
        (lambda lines: [*lines[:-1], "x\ta/DT"], "'0.jpg#0'.*'train'.*'x'"),
        (lambda lines: lines[:4], "'0.jpg#0'.* 7 more"),
        (lambda lines: [*lines, lines[0]], "'5.jpg#2'.*line 13.*line 1"),
        (
            lambda lines: [lines[0].replace("caption/", "cap/"), *lines[1:]],
            "line 1,.*'5.jpg#2'.*'cap 2 of 5 .'",
        ),
    ],
)
def test_files_that_do_not_fit(dataset, tmp_path, change, message):
    file = file_of(dataset, tmp_path / "tags.txt")
    file.write_text("\n".join(change(file.read_text().splitlines())))
    with pytest.raises(DataError, match=message):
        import_tags(dataset, file)
    assert not (dataset.path / "tags").exists()
