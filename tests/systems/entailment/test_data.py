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

from tests.systems.entailment.entailment_files import rows, write_jsonl, write_plain, write_snli, write_table
from vsemb.errors import DataError, InvalidArgumentError
from vsemb.systems.entailment.data import EntailmentData, premise_split
from vsemb.systems.entailment.files import CLASSES
from vsemb.text.tokenizers import WordTokenizer
from vsemb.text.vocabulary import Vocabulary


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
    for row, (premise, hypothesis, label) in enumerate(rows(9)):
        for side, text in ((train.premises, premise), (train.hypotheses, hypothesis)):
            found = words_of(tokenizer, side.padded(np.array([row]))[0])
            assert found == text.lower().removesuffix(".")
            assert side.lengths[row] == len(text.split())
        assert CLASSES[train.classes[row]] == label
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
        found = words_of(tokenizer, train.premises.padded(np.array([row]))[0])
        assert found == pairs[row][0].lower().removesuffix(".")
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
    found = {name: split.classes.tolist() for name, split in splits.items()}
    assert found == {"train": [0, 1, 1], "val": [2], "test": [0, 2]}
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
    assert "80/10/10 by premise (SHA-256, seed 0), no premise" in data.protocol
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
    with pytest.raises(InvalidArgumentError, match="Did you mean 'test'"):
        EntailmentData.open(folder).encode(tokenizer, ("tset",))
    (folder / "snli_1.0_test.jsonl").unlink()
    (folder / "snli_1.0_train.jsonl").unlink()
    data = EntailmentData.open(folder)
    with pytest.raises(DataError, match="no labelled pair in the split 'test'"):
        data.encode(tokenizer, ("val", "test"))
    with pytest.raises(DataError, match="no labelled pair in the split 'train'"):
        list(data.texts("train"))
    write_plain(tmp_path / "none.tsv", [])
    with pytest.raises(DataError, match="none.tsv has no sentence pairs"):
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
    found = json.loads(done.stdout)
    print(found)
    # One of 50 has no gold label.
    assert found["pairs"] == {"train": 539_000, "val": 9_800, "test": 9_800}
    assert found["tokens"] == 22 * 558_600
    # The ids are 49 MB, and they are there twice for a moment; the strings alone would be over 300 MB.
    assert found["mebibytes"] < 250
