"""The lines of SNLI, SICK and plain tables, good and bad."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.systems.entailment.entailment_files import rows, write_jsonl, write_plain, write_snli, write_table
from vsemb.errors import DataError
from vsemb.systems.entailment.files import find_files, label, read_rows, sentence, split_name

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
    with pytest.raises(DataError, match=r"two files of the split 'val': other_dev_set.jsonl, snli_1.0_dev"):
        find_files(folder)


@pytest.mark.parametrize("name", ["SICK.txt", "pairs.tsv", "pairs.jsonl"])
def test_one_file_or_the_folder_around_it(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("x")
    (tmp_path / "readme.txt").write_text("About the data.")
    assert find_files(tmp_path / name) == find_files(tmp_path) == {"": tmp_path / name}


def test_sources_that_are_none(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no such file"):
        find_files(tmp_path / "nothing")
    with pytest.raises(DataError, match=r"holds no sentence pairs.*snli_1.0_train"):
        find_files(tmp_path)
    (tmp_path / "pairs.csv").write_text("a,b")
    with pytest.raises(DataError, match="tab-separated"):
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
        ((where, found),) = read_rows(file)
        assert found == row
        assert where == f"{file}, line {1 if file.suffix == '.jsonl' else 2}"


def test_quotation_marks_and_other_line_ends_are_text(tmp_path: Path) -> None:
    text = 'He says "stop\u2028now\x85'
    file = write_table(tmp_path / "a.tsv", PLAIN, [[text, '"', "0"]])
    file.write_bytes(b"\xef\xbb\xbf" + file.read_bytes() + b"\n\n")
    ((_, row),) = read_rows(file)
    assert (row["premise"], row["hypothesis"]) == (text, '"')


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is empty"),
        (b"premise\thypothesis\n", "line 1: no column label. Received: premise, hypothesis"),
        (b"premise\tsentence1\thypothesis\tlabel\n", "several columns could be the premise"),
        (b"premise\thypothesis\tlabel\na\tb\n", "line 2: 2 columns, and 3"),
        (b"premise\thypothesis\tlabel\n\na\tb\tc\td\n", "line 3: 4 columns, and 3"),
        (b"premise\thypothesis\tlabel\na\t\xff\t0\n", "line 2: not UTF-8"),
    ],
)
def test_bad_tables(tmp_path: Path, content: bytes, message: str) -> None:
    file = tmp_path / "pairs.tsv"
    file.write_bytes(content)
    with pytest.raises(DataError, match=message) as caught:
        list(read_rows(file))
    assert str(file) in str(caught.value)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "line 2: not JSON"),
        ("[" * 100_000, "line 2: not JSON"),
        ("[1]", "line 2: expected a JSON object"),
        ('{"sentence1": "a", "sentence2": "b"}', "line 2: no column label"),
    ],
)
def test_bad_json_lines(tmp_path: Path, line: str, message: str) -> None:
    file = write_jsonl(tmp_path / "pairs.jsonl", rows(1))
    file.write_text(file.read_text() + line + "\n")
    with pytest.raises(DataError, match=message):
        list(read_rows(file))


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
    with pytest.raises(DataError, match=r"pairs.tsv, line 7: unknown label. Received: .* Expected: entailment"):
        label("pairs.tsv, line 7", {"label": given})


def test_sentences() -> None:
    assert sentence("x", {"premise": "Zoë"}, "premise") == "Zoë"
    assert sentence("x", {"premise": ""}, "premise") == ""
    for given in (None, 5, "half \ud83d"):
        with pytest.raises(DataError, match="line 3: the premise is no"):
            sentence("line 3", {"premise": given}, "premise")


def test_splits() -> None:
    names = {"TRAIN": "train", "TRIAL": "val", "dev": "val", "validation": "val", " Test": "test"}
    assert {given: split_name("x", {"split": given}) for given in names} == names
    for given in ("", "holdout", None):
        with pytest.raises(DataError, match="unknown split"):
            split_name("x", {"split": given})
