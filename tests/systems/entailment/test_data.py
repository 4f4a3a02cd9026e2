"""Sentence pairs as data: splits, protocols, ids, and SNLI's full size."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest

from tests.raising import raises_argument
from tests.systems.entailment.entailment_files import rows, write_jsonl, write_plain, write_snli, write_table
from vsemb.errors import DataError
from vsemb.systems.entailment.data import (
    CLASSES,
    EntailmentData,
    EntailmentSplit,
    SentencePairBatches,
    Sentences,
    find_files,
    label,
    pair_rows,
    premise_split,
    sentence,
    split_name,
)
from vsemb.text import Vocabulary, WordTokenizer


def encoded(data: EntailmentData, **options):
    tokenizer = WordTokenizer(Vocabulary.from_captions(data.texts("train")))
    return tokenizer, data.encode(tokenizer, **options)


def words_of(tokenizer: WordTokenizer, ids: np.ndarray) -> str:
    return " ".join(tokenizer.vocabulary.tokens[i] for i in ids if i)


def test_pairs_keep_their_words_sides_and_labels(tmp_path: Path) -> None:
    data = EntailmentData.open(write_snli(tmp_path / "snli", train=9, val=3, test=6))
    tokenizer, splits = encoded(data)
    assert {name: len(split) for name, split in splits.items()} == {"train": 9, "val": 3, "test": 6}
    train = splits["train"]
    for row, (premise, hypothesis, name) in enumerate(rows(9)):
        for side, text in ((train.premises, premise), (train.hypotheses, hypothesis)):
            words = words_of(tokenizer, side.padded(np.array([row]))[0])
            assert words == text.lower().removesuffix(".")
            assert side.lengths[row] == len(text.split())
        assert CLASSES[train.classes[row]] == name
    # Entailment alone is a true pair (section 5.2).
    assert train.labels.tolist() == [1, 0, 0] * 3
    assert train.premises.ids.dtype == np.int32 and train.classes.dtype == np.int8
    # A word that only test has stays unknown: the vocabulary is that of training.
    assert 1 in splits["test"].premises.ids and 1 not in train.premises.ids


def test_pairs_without_gold_label_are_dropped_and_counted(tmp_path: Path) -> None:
    unsure = ("A zebra waits.", "It waits.", "-")
    folder = write_snli(tmp_path / "snli")
    write_jsonl(folder / "snli_1.0_train.jsonl", [unsure, *rows(6), unsure])
    tokenizer, splits = encoded(EntailmentData.open(folder))
    assert (len(splits["train"]), splits["train"].dropped, splits["val"].dropped) == (6, 2, 0)
    assert "zebra" not in tokenizer.vocabulary


def test_more_pairs_than_are_tokenized_at_once(tmp_path: Path) -> None:
    pairs = rows(10_000)
    folder = write_snli(tmp_path / "snli")
    write_jsonl(folder / "snli_1.0_train.jsonl", pairs)
    tokenizer, splits = encoded(EntailmentData.open(folder), splits=("train",))
    train = splits["train"]
    assert list(splits) == ["train"] and len(train) == 10_000
    for row in (0, 4095, 4096, 9999):
        words = words_of(tokenizer, train.premises.padded(np.array([row]))[0])
        assert words == pairs[row][0].lower().removesuffix(".")
        assert CLASSES[train.classes[row]] == pairs[row][2]


def test_only_the_files_wanted_are_read(tmp_path: Path) -> None:
    folder = write_snli(tmp_path / "snli")
    data = EntailmentData.open(folder)
    tokenizer, _ = encoded(data)
    (folder / "snli_1.0_train.jsonl").unlink()
    assert set(data.encode(tokenizer, ("val", "test"))) == {"val", "test"}


def test_the_splits_of_a_column(tmp_path: Path) -> None:
    header = ["sentence_A", "sentence_B", "entailment_label", "SemEval_set"]
    names = ["TRAIN", "TRAIN", "TRIAL", "TEST", "TRAIN", "TEST"]
    cells = [[a, b, label.upper(), name] for (a, b, label), name in zip(rows(6), names, strict=True)]
    data = EntailmentData.open(write_table(tmp_path / "SICK.txt", header, cells, "\r\n"))
    _, splits = encoded(data)
    # Labels go entailment, neutral, contradiction, entailment, neutral, contradiction.
    values = {name: split.classes.tolist() for name, split in splits.items()}
    assert values == {"train": [0, 1, 1], "val": [2], "test": [0, 2]}
    assert data.protocol == "the splits of SICK.txt" and not data.grouped


def test_without_splits_no_premise_is_in_two(tmp_path: Path) -> None:
    pairs = rows(3000)
    data = EntailmentData.open(write_plain(tmp_path / "pairs.tsv", pairs))
    found = [(pair.split, pair.premise) for pair in data.pairs()]
    assert len(found) == 3000
    premises = {name: {text for split, text in found if split == name} for name in ("train", "val", "test")}
    assert sum(map(len, premises.values())) == 1000 == len(set.union(*premises.values()))
    # Binomial: 800, 100 and 100 of 1,000 with standard deviations 12.6, 9.5 and 9.5; five of them.
    for name, expected, deviation in (("train", 800, 12.6), ("val", 100, 9.5), ("test", 100, 9.5)):
        assert abs(len(premises[name]) - expected) < 5 * deviation
    assert "80/10/10 by premise (SHA-256, seed 0), each premise" in data.protocol
    # The order of lines and other lines decide nothing; the seed does.
    shuffled = EntailmentData.open(write_plain(tmp_path / "other.tsv", pairs[::-7]))
    splits = {text: split for split, text in found}
    assert all(splits[pair.premise] == pair.split for pair in shuffled.pairs())
    other = EntailmentData.open(tmp_path / "pairs.tsv", split_seed=1)
    assert [pair.split for pair in other.pairs()] != [split for split, _ in found]
    assert other.fingerprint != data.fingerprint


def test_premise_split_by_hand() -> None:
    digest = hashlib.sha256(b"0\na dog runs.").digest()
    tenth = int(digest.hex()[:16], 16) % 10
    expected = ["train"] * 8 + ["val", "test"]
    assert premise_split("A  Dog runs. ") == expected[tenth]


def test_fingerprints_follow_the_bytes(tmp_path: Path) -> None:
    folder = write_snli(tmp_path / "snli")
    first = EntailmentData.open(folder).fingerprint
    assert EntailmentData.open(write_snli(tmp_path / "copy")).fingerprint == first
    write_jsonl(folder / "snli_1.0_test.jsonl", rows(3))
    assert EntailmentData.open(folder).fingerprint != first


def test_what_is_lacking_is_named(tmp_path: Path) -> None:
    folder = write_snli(tmp_path / "snli")
    tokenizer, _ = encoded(EntailmentData.open(folder))
    with raises_argument("split"):
        EntailmentData.open(folder).encode(tokenizer, ("tset",))
    (folder / "snli_1.0_test.jsonl").unlink()
    (folder / "snli_1.0_train.jsonl").unlink()
    data = EntailmentData.open(folder)
    with pytest.raises(DataError, match="'test'"):
        data.encode(tokenizer, ("val", "test"))
    with pytest.raises(DataError, match="'train'"):
        list(data.texts("train"))
    write_plain(tmp_path / "none.tsv", [])
    with pytest.raises(DataError, match=r"none\.tsv"):
        EntailmentData.open(tmp_path / "none.tsv")


# Reads 570,000 pairs in a process of its own and says how much memory that took beyond TensorFlow's.
FULL_SIZE = """
    import json, resource, sys, time
    from vsemb.systems.entailment.data import EntailmentData
    from vsemb.text.tokenizers import WordTokenizer
    from vsemb.text.vocabulary import Vocabulary

    WordTokenizer(Vocabulary.from_captions(["warm up"])).encode(["warm up"] * 8192)
    peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    before, started, used = peak(), time.monotonic(), time.process_time()
    data = EntailmentData.open(sys.argv[1])
    splits = data.encode(WordTokenizer(Vocabulary.from_captions(data.texts("train"))))
    tokens = sum(len(s.ids) for split in splits.values() for s in (split.premises, split.hypotheses))
    print(json.dumps({"pairs": {name: len(split) for name, split in splits.items()}, "tokens": tokens,
                      "seconds": time.monotonic() - started, "cpu_seconds": time.process_time() - used,
                      "mebibytes": (peak() - before) / 1024}))
"""


@pytest.mark.slow
def test_snli_at_its_full_size_streams(tmp_path: Path) -> None:
    folder = tmp_path / "snli"
    folder.mkdir()
    generator = np.random.default_rng(0)
    # 14 and 8 words a side as in SNLI, of 30,000; a line is 0.6 kB, with the parses that SNLI has too.
    for name, count in (("train", 550_000), ("dev", 10_000), ("test", 10_000)):
        with open(folder / f"snli_1.0_{name}.jsonl", "w") as file:
            for start in range(0, count, 10_000):
                words = np.minimum(generator.zipf(1.3, (10_000, 22)), 30_000).astype(str)
                for number, line in enumerate(words, start):
                    sides = {"sentence1": " ".join(line[:14]), "sentence2": " ".join(line[14:])}
                    parses = {f"{side}_parse": f"(ROOT {text} {text})" for side, text in sides.items()}
                    label = (*CLASSES, "-")[number % 50 % 4 if number % 50 == 3 else number % 3]
                    file.write(json.dumps({"gold_label": label, **parses, **sides}) + "\n")
    command = [sys.executable, "-c", textwrap.dedent(FULL_SIZE), str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=600)
    content = json.loads(done.stdout)
    print(content)
    # One of 50 has no gold label.
    assert content["pairs"] == {"train": 539_000, "val": 9_800, "test": 9_800}
    assert content["tokens"] == 22 * 558_600
    # The ids are 49 MB, and they are there twice for a moment; the strings alone would be over 300 MB.
    assert content["mebibytes"] < 250


PLAIN = ["premise", "hypothesis", "label"]


def test_a_folder_of_snli(tmp_path: Path) -> None:
    folder = write_snli(tmp_path / "snli_1.0")
    assert find_files(folder) == {
        "train": folder / "snli_1.0_train.jsonl",
        "val": folder / "snli_1.0_dev.jsonl",
        "test": folder / "snli_1.0_test.jsonl",
    }
    # The archive has each split twice, and what macOS adds to archives.
    for name in ("snli_1.0_dev.txt", "._snli_1.0_dev.jsonl", "Icon", ".DS_Store"):
        (folder / name).write_text("x")
    assert find_files(folder)["val"] == folder / "snli_1.0_dev.jsonl"
    (folder / "snli_1.0_train.jsonl").rename(folder / "snli_1.0_train.tsv")
    assert find_files(folder)["train"] == folder / "snli_1.0_train.tsv"
    (folder / "other_dev_set.jsonl").write_text("x")
    with pytest.raises(DataError, match=r"'val'.*other_dev_set\.jsonl.*snli_1\.0_dev"):
        find_files(folder)


@pytest.mark.parametrize("name", ["SICK.txt", "pairs.tsv", "pairs.jsonl"])
def test_one_file_or_the_folder_around_it(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("x")
    (tmp_path / "readme.txt").write_text("About the data.")
    assert find_files(tmp_path / name) == find_files(tmp_path) == {"": tmp_path / name}


def test_sources_that_are_none(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="nothing"):
        find_files(tmp_path / "nothing")
    with pytest.raises(DataError, match=r"snli_1\.0_train"):
        find_files(tmp_path)
    (tmp_path / "pairs.csv").write_text("a,b")
    with pytest.raises(DataError, match=r"pairs\.csv"):
        find_files(tmp_path / "pairs.csv")


def test_rows_of_every_form(tmp_path: Path) -> None:
    (first, second, name) = rows(1)[0]
    wanted = {"premise": first, "hypothesis": second, "label": name}
    snli = ["gold_label", "sentence1_parse", "sentence1", "sentence2", "label1"]
    sick = ["pair_ID", "sentence_A", "sentence_B", "entailment_label", "SemEval_set"]
    files = {
        write_jsonl(tmp_path / "a.jsonl", rows(1)): wanted,
        write_plain(tmp_path / "b.tsv", rows(1)): wanted,
        write_table(tmp_path / "c.txt", snli, [[name, "(x)", first, second, "neutral"]]): wanted,
        # SICK's lines end as on Windows, and the split stands last.
        write_table(tmp_path / "d.txt", sick, [["1", first, second, name, "TRIAL"]], "\r\n"): wanted
        | {"split": "TRIAL"},
    }
    for file, row in files.items():
        ((where, found),) = pair_rows(file)
        assert found == row
        assert where == f"{file}, line {1 if file.suffix == '.jsonl' else 2}"


def test_quotation_marks_and_other_line_ends_are_text(tmp_path: Path) -> None:
    text = 'He says "stop\u2028now\x85'
    file = write_table(tmp_path / "a.tsv", PLAIN, [[text, '"', "0"]])
    file.write_bytes(b"\xef\xbb\xbf" + file.read_bytes() + b"\n\n")
    ((_, row),) = pair_rows(file)
    assert (row["premise"], row["hypothesis"]) == (text, '"')


@pytest.mark.parametrize(
    ("content", "line"),
    [
        (b"", ""),
        (b"premise\thypothesis\n", ", line 1"),
        (b"premise\tsentence1\thypothesis\tlabel\n", ".*premise"),
        (b"premise\thypothesis\tlabel\na\tb\n", ", line 2"),
        (b"premise\thypothesis\tlabel\n\na\tb\tc\td\n", ", line 3"),
        (b"premise\thypothesis\tlabel\na\t\xff\t0\n", ", line 2"),
    ],
)
def test_bad_tables(tmp_path: Path, content: bytes, line: str) -> None:
    file = tmp_path / "pairs.tsv"
    file.write_bytes(content)
    with pytest.raises(DataError, match=rf"pairs\.tsv{line}"):
        list(pair_rows(file))


@pytest.mark.parametrize(
    "line",
    [
        "{",
        "[" * 100_000,
        "[1]",
        '{"sentence1": "a", "sentence2": "b"}',
    ],
)
def test_bad_json_lines(tmp_path: Path, line: str) -> None:
    file = write_jsonl(tmp_path / "pairs.jsonl", rows(1))
    file.write_text(file.read_text() + line + "\n")
    with pytest.raises(DataError, match=r"line 2\b"):
        list(pair_rows(file))


@pytest.mark.parametrize(
    ("given", "number"),
    [
        ("entailment", 0),
        ("NEUTRAL", 1),
        (" contradiction", 2),
        ("0", 0),
        (1, 1),
        (2, 2),
        ("-", None),
        (-1, None),
        (None, None),
    ],
)
def test_labels(given, number) -> None:
    assert label("x", {"label": given}) == number


@pytest.mark.parametrize("given", ["", "entails", 3, True, 0.5])
def test_other_labels_are_errors(given) -> None:
    with pytest.raises(DataError, match=r"pairs\.tsv, line 7"):
        label("pairs.tsv, line 7", {"label": given})


def test_sentences() -> None:
    assert sentence("x", {"premise": "Zoë"}, "premise") == "Zoë"
    assert sentence("x", {"premise": ""}, "premise") == ""
    for given in (None, 5, "half \ud83d"):
        with pytest.raises(DataError, match="line 3.*premise"):
            sentence("line 3", {"premise": given}, "premise")


def test_splits() -> None:
    names = {"TRAIN": "train", "TRIAL": "val", "dev": "val", "validation": "val", " Test": "test"}
    assert {given: split_name("x", {"split": given}) for given in names} == names
    for given in ("", "holdout", None):
        with pytest.raises(DataError, match="^x: "):
            split_name("x", {"split": given})


def make_split(count: int, seed: int = 0) -> EntailmentSplit:
    """Pairs whose first words are their numbers, so that each is known again, of 1 to 12 words."""
    generator = np.random.default_rng(seed)
    sides = []
    for offset in (2, 10_000):
        lengths = generator.integers(1, 13, count)
        offsets = np.concatenate([[0], np.cumsum(lengths)])
        ids = np.full(offsets[-1], 9_999, np.int32)
        ids[offsets[:-1]] = offset + np.arange(count)
        sides.append(Sentences(ids, offsets))
    return EntailmentSplit("train", *sides, generator.integers(0, 3, count).astype(np.int8))


def batches_of(dataset) -> list:
    return [({name: x.numpy() for name, x in inputs.items()}, y.numpy()) for inputs, y in dataset]


def same(first: list, second: list) -> bool:
    return len(first) == len(second) and all(
        np.array_equal(a["premise"], b["premise"]) and np.array_equal(y, z)
        for (a, y), (b, z) in zip(first, second, strict=True)
    )


def test_an_epoch_has_each_pair_once_with_its_partner_and_label() -> None:
    split = make_split(203)
    batches = SentencePairBatches(split, batch_size=10, seed=3)
    assert batches.steps_per_epoch == 20
    found = batches_of(batches.dataset())
    assert len(found) == 20 == len(batches.dataset())
    premises = np.concatenate([inputs["premise"][:, 0] - 2 for inputs, _ in found])
    hypotheses = np.concatenate([inputs["hypothesis"][:, 0] - 10_000 for inputs, _ in found])
    labels = np.concatenate([y for _, y in found])
    assert len(set(premises.tolist())) == 200
    np.testing.assert_array_equal(premises, hypotheses)
    np.testing.assert_array_equal(labels, (split.classes == 0)[premises])
    for inputs, y in found:
        assert y.shape == (10,) and y.dtype == np.int32
        for ids, side in ((inputs["premise"], split.premises), (inputs["hypothesis"], split.hypotheses)):
            # Padded to the longest of its side and no further.
            lengths = side.lengths[inputs["premise"][:, 0] - 2]
            np.testing.assert_array_equal((ids != 0).sum(1), lengths)
            assert ids.shape == (10, lengths.max()) and ids.dtype == np.int32


def test_epochs_follow_from_their_numbers() -> None:
    batches = SentencePairBatches(make_split(100), batch_size=10, seed=3)
    dataset = batches.dataset(4)
    fourth, fifth = batches_of(dataset), batches_of(dataset)
    assert not same(fourth, fifth)
    assert same(batches_of(batches.dataset(5)), fifth)
    assert same(batches_of(batches.dataset(4, step=7)), fourth[7:])
    assert len(batches.dataset(4, step=7)) == 3
    other = SentencePairBatches(make_split(100), batch_size=10, seed=4)
    assert not same(batches_of(other.dataset(4)), fourth)


def test_what_is_left_over_changes() -> None:
    batches = SentencePairBatches(make_split(19), batch_size=10)
    seen = [set(batches.plan(epoch).ravel().tolist()) for epoch in range(30)]
    assert all(len(rows) == 10 for rows in seen)
    assert set.union(*seen) == set(range(19))


def test_lengths_are_bucketed() -> None:
    split = make_split(4000)
    batches = batches_of(SentencePairBatches(split, batch_size=40).dataset())
    words = split.premises.lengths.sum() + split.hypotheses.lengths.sum()
    padded = sum(x.size for inputs, _ in batches for x in inputs.values())
    # Batches at random would pad both sides to 12 of 6.5 words on average: 1.85. In two windows of 2,000
    # with 12 lengths, premises are of one length in three of four batches, hypotheses within 3 words.
    assert padded < 1.25 * words


def test_refusals(tmp_path: Path) -> None:
    with raises_argument("batch_size"):
        SentencePairBatches(make_split(10), batch_size=0)
    assert SentencePairBatches(make_split(10), batch_size=11).batch_size == 10


def test_a_sentence_without_words_is_a_row_of_padding(tmp_path: Path) -> None:
    folder = write_snli(tmp_path / "snli")
    write_jsonl(folder / "snli_1.0_train.jsonl", [("A dog.", "...", "neutral"), *rows(1)])
    data = EntailmentData.open(folder)
    tokenizer = WordTokenizer(Vocabulary.from_captions(data.texts("train")))
    batches = SentencePairBatches(data.encode(tokenizer)["train"], batch_size=2)
    ((inputs, _),) = batches_of(batches.dataset())
    assert sorted((inputs["hypothesis"] != 0).sum(1).tolist()) == [0, 3]
