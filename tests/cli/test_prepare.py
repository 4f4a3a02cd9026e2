"""`vsemb prepare` from the command line: exit codes, messages, and real kills."""

from __future__ import annotations

import json
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from vsemb.acts import Fields
from vsemb.cli.__main__ import main
from vsemb.data.store import StoredDataset
from vsemb.parts import fields_of


@pytest.fixture
def photos(tmp_path) -> Path:
    """Forty noisy photos of about 50 kB in a table; no split column."""
    folder = tmp_path / "photos"
    folder.mkdir()
    rng = np.random.default_rng(0)
    for number in range(40):
        pixels = rng.integers(0, 256, (200, 200, 3), np.uint8)
        Image.fromarray(pixels).save(folder / f"{number}.jpg", quality=95)
    rows = "".join(f"{number}.jpg,photo {number}\n" for number in range(40))
    (folder / "table.csv").write_text("file,caption\n" + rows)
    return folder


def prepare(*arguments: object) -> int:
    return main(["prepare", *map(str, arguments)])


def test_success(photos, tmp_path, capsys):
    assert prepare(photos, "--format", "table", "--out", tmp_path / "out", "--name", "noise") == 0
    output = capsys.readouterr().out.splitlines()
    assert output[0].split() == ["split", "images", "captions"] and output[1].startswith("train ")
    train = f"next         vsemb train best --data {tmp_path / 'out'} --out runs/noise --backbone MobileNetV2"
    assert train in output and "hub:" in output[-1]
    assert prepare(photos, "--format", "table", "--out", tmp_path / "out", "--name", "noise") == 0
    assert "nothing to do" in capsys.readouterr().err


def test_json_stands_alone_on_standard_output(photos, tmp_path, capsys):
    assert prepare(photos, "--out", tmp_path / "out", "--json", "-") == 0
    printed = capsys.readouterr()
    found = json.loads(printed.out)
    assert found["splits"]["train"] == {"images": 28, "captions": 28} and found["skipped"] == []
    assert "has the format table" in printed.err
    assert prepare(photos, "--out", tmp_path / "out", "--quiet", "--json", tmp_path / "found.json") == 0
    printed = capsys.readouterr()
    assert printed.err == "" and printed.out.startswith("split")
    assert json.loads((tmp_path / "found.json").read_text()) == found


def test_disjoint_classes(photos, tmp_path):
    rows = "".join(f"{number}.jpg,photo {number},class {number % 10}\n" for number in range(40))
    (photos / "table.csv").write_text("file,description,class\n" + rows)
    assert prepare(photos, "--format", "table", "--disjoint-classes", "--out", tmp_path / "out") == 0
    dataset = StoredDataset.open(tmp_path / "out")
    classes = [set(dataset.split(name).class_names) for name in dataset.splits]
    assert [len(group) for group in classes] == [8, 1, 1]
    assert len(set().union(*classes)) == 10


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nowhere", "--format", "karpathy"], "No source at nowhere"),
        (["{photos}", "--format", "karpathy"], "holds 0 files dataset_*.json"),
        (["{photos}", "--format", "coco"], "holds no captions_"),
        (["{photos}", "--format", "flickr"], "holds 0 token files"),
        (["{photos}", "--format", "vsepp"], "holds no train_ims.npy"),
        (["{photos}", "--format", "table", "--images", "nowhere"], "No images folder at nowhere"),
        (
            ["{photos}", "--format", "table", "--restval", "drop"],
            "`restval` must be omitted for table; it is for karpathy",
        ),
        (
            ["{photos}", "--format", "table", "--split", "a/b"],
            "`split` must be letters, digits and underscores; got 'a/b'",
        ),
        (["{photos}", "--format", "table", "--disjoint-classes"], "line 2: 0.jpg has no class"),
        (["{photos}", "--format", "table", "--wordnet", "x"], "`wordnet` must be omitted for table; it is for wnid"),
        (["{photos}", "--format", "nonsense"], "`format` must be one of karpathy, coco"),
        (["{photos}", "--format", "cub"], "images.txt cannot be read: No such file"),
        (
            ["{photos}", "--format", "flowers102", "--descriptions", "nowhere"],
            "No descriptions folder at nowhere",
        ),
        (["{photos}", "--format", "flowers102", "--class-names", "x"], "Unpack the files of Reed et al."),
        (["{photos}", "--format", "wnid", "--class-splits", "1/1/1"], "must hold class folders"),
        (["{photos}", "--format", "table", "--max-side", "0"], "`max_side`"),
        (
            ["{photos}", "--format", "table", "--images-per-shard", "-1"],
            "`images_per_shard`",
        ),
        (["{photos}/1.jpg", "--format", "table"], "not UTF-8"),
    ],
)
def test_failures_are_one_line_and_leave_nothing(photos, tmp_path, capsys, arguments, message):
    arguments = [text.format(photos=photos) for text in arguments]
    assert prepare(*arguments, "--out", tmp_path / "out" / "deep") == 1
    captured = capsys.readouterr()
    assert captured.err.startswith("vsemb prepare: ")
    assert captured.err.count("\n") == 1
    assert message in captured.err
    assert captured.out == ""
    assert not list(tmp_path.glob("**/*deep*"))


def test_wrong_usage_exits_with_2(photos, tmp_path, capsys):
    for arguments in (["--colour", "red"], ["--format", "table", "--on-bad-image", "guess"]):
        with pytest.raises(SystemExit) as caught:
            prepare(photos, "--out", tmp_path / "out", *arguments)
        assert caught.value.code == 2
    assert "usage: vsemb prepare" in capsys.readouterr().err


def test_help_shows_formats_and_an_example(capsys):
    with pytest.raises(SystemExit):
        prepare("--help")
    output = capsys.readouterr().out
    for kind, reader in Fields("reader").parts.items():
        assert f"with --format {kind}:" in output
        for name in fields_of(reader):
            assert f"--{name.replace('_', '-')}" in output
    assert "examples:" in output


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def command(photos: Path, out: Path) -> list[str]:
    options = ["--format", "table", "--out", str(out), "--name", "noise", "--images-per-shard", "2"]
    return [sys.executable, "-m", "vsemb.cli", "prepare", str(photos), *options]


@pytest.mark.slow
def test_after_kill_9_the_same_command_gives_the_same_bytes(photos, tmp_path):
    expected = tmp_path / "expected"
    assert main(command(photos, expected)[3:]) == 0
    out = tmp_path / "out"
    process = subprocess.Popen(command(photos, out))
    journal = tmp_path / ".out.partial" / "journal"
    deadline = time.monotonic() + 120
    while process.poll() is None and len(list(journal.glob("*.json"))) < 2:
        assert time.monotonic() < deadline
        time.sleep(0.001)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert main(command(photos, out)[3:]) == 0
    assert contents(out) == contents(expected)
    assert not list(tmp_path.glob(".out*"))


@contextmanager
def limited_file_size() -> Iterator[None]:
    """No file can grow past 60 kB: what a full disk looks like to a writer."""
    before, handler = resource.getrlimit(resource.RLIMIT_FSIZE), signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (60_000, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)


def test_a_file_system_that_refuses_is_one_line(photos, tmp_path, capsys):
    out = tmp_path / "out"
    with limited_file_size():
        assert main(command(photos, out)[3:]) == 1
    said = capsys.readouterr().err
    lines = [line for line in said.splitlines() if line.startswith("vsemb prepare:")]
    assert len(lines) == 1
    assert f"Cannot write {out}" in lines[0]
    assert "Traceback" not in said
    assert not out.exists()
    assert main(command(photos, out)[3:]) == 0
