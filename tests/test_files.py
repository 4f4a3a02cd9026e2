"""Files are written whole or not at all, whatever interrupts."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import os
from pathlib import Path
from typing import Any

import pytest

from vsemb import files
from vsemb.errors import DataError
from vsemb.files import require_space, write_json


class Killed(BaseException):
    """Stands for whatever ends a process in the middle."""


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_replacing(tmp_path: Path) -> None:
    target = tmp_path / "deep" / "file.txt"
    for text in ("one", "two"):
        with files.replacing(target) as temporary:
            temporary.write_text(text)
            assert temporary.parent == target.parent
        assert target.read_text() == text
    assert names(target.parent) == ["file.txt"]


@pytest.mark.parametrize("error", [Killed(), ValueError("x"), OSError(errno.ENOSPC, "No space left")])
def test_a_failure_leaves_what_was_there(tmp_path: Path, error: BaseException) -> None:
    target = tmp_path / "file.txt"
    target.write_text("old")
    expected = DataError if isinstance(error, OSError) else type(error)
    with pytest.raises(expected) as caught, files.replacing(target) as temporary:
        temporary.write_text("half of the n")
        raise error
    assert target.read_text() == "old"
    assert names(tmp_path) == ["file.txt"]
    if expected is DataError:
        assert str(target) in str(caught.value) and "No space left" in str(caught.value)


def test_permissions_follow_the_umask(tmp_path: Path) -> None:
    old = os.umask(0o027)
    try:
        files.write_json(tmp_path / "a.json", {})
        with files.replacing_directory(tmp_path / "folder"):
            pass
        assert os.umask(0o027) == 0o027
    finally:
        os.umask(old)
    assert (tmp_path / "a.json").stat().st_mode & 0o777 == 0o640
    assert (tmp_path / "folder").stat().st_mode & 0o777 == 0o750


def test_replacing_directory(tmp_path: Path) -> None:
    target = tmp_path / "folder"
    target.mkdir()  # an empty one may be taken
    with files.replacing_directory(target) as temporary:
        (temporary / "sub").mkdir()
        (temporary / "sub" / "a").write_text("1")
    assert (target / "sub" / "a").read_text() == "1"
    with pytest.raises(DataError, match="already exists"), files.replacing_directory(target):
        pass
    with files.replacing_directory(target, overwrite=True) as temporary:
        (temporary / "b").write_text("2")
    assert names(target) == ["b"] and names(tmp_path) == ["folder"]


@pytest.mark.parametrize("error", [Killed(), OSError(errno.EDQUOT, "Quota exceeded")])
def test_a_failure_leaves_the_old_directory(tmp_path: Path, error: BaseException) -> None:
    target = tmp_path / "folder"
    target.mkdir()
    (target / "old").write_text("old")
    expected = DataError if isinstance(error, OSError) else type(error)
    with pytest.raises(expected), files.replacing_directory(target, overwrite=True) as temporary:
        (temporary / "new").write_text("new")
        raise error
    assert names(target) == ["old"] and names(tmp_path) == ["folder"]


@pytest.mark.parametrize("write", [files.replacing, files.replacing_directory])
def test_what_killed_processes_left_is_removed(tmp_path: Path, write: Any) -> None:
    (tmp_path / ".it.00aa11bb.tmp").mkdir()
    (tmp_path / ".it.00aa11bb.tmp" / "half").touch()
    (tmp_path / ".it.22cc33dd.tmp").touch()
    # A living process holds the first; the others are another target's, or the user's.
    kept = [".it.44ee55ff.tmp", ".it.more.00aa11bb.tmp", ".it.notes.tmp"]
    for name in kept:
        (tmp_path / name).touch()
    with open(tmp_path / kept[0]) as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with write(tmp_path / "it"):
            pass
        assert names(tmp_path) == sorted([*kept, "it"])
    with write(tmp_path / "it", *[True][: write is files.replacing_directory]):
        pass
    assert names(tmp_path) == sorted([*kept[1:], "it"])


def test_a_folder_whose_replacement_was_killed_comes_back(tmp_path: Path) -> None:
    (tmp_path / ".it.00aa11bb.old" / "it").mkdir(parents=True)
    (tmp_path / ".it.00aa11bb.old" / "it" / "years").touch()
    with pytest.raises(DataError, match="already exists"), files.replacing_directory(tmp_path / "it"):
        pass
    assert names(tmp_path / "it") == ["years"] and names(tmp_path) == ["it"]


def test_a_folder_that_cannot_be_moved_is_put_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "it").mkdir()
    (tmp_path / "it" / "years").touch()
    moved, calls = os.replace, []

    def fails(source: Path, target: Path) -> None:
        calls.append(source)
        if len(calls) == 2:
            raise OSError(errno.EIO, "Input/output error")
        moved(source, target)

    monkeypatch.setattr(os, "replace", fails)
    with pytest.raises(DataError, match="Input/output"), files.replacing_directory(tmp_path / "it", overwrite=True):
        pass
    assert names(tmp_path / "it") == ["years"] and names(tmp_path) == ["it"]


def test_a_file_in_the_way_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "thesis").write_text("years")
    with pytest.raises(DataError, match="thesis"), files.replacing_directory(tmp_path / "thesis"):
        pass
    assert (tmp_path / "thesis").read_text() == "years"


def test_json_round_trip(tmp_path: Path) -> None:
    value = {"a": [1, 2.5, None, "犬"], "b": {"c": True}}
    files.write_json(tmp_path / "a.json", value)
    assert files.read_json(tmp_path / "a.json") == value
    with pytest.raises(ValueError):
        files.write_json(tmp_path / "a.json", {"loss": float("nan")})
    assert files.read_json(tmp_path / "a.json") == value
    (tmp_path / "a.json").write_text(json.dumps(value), encoding="utf-8-sig")
    assert files.read_json(tmp_path / "a.json") == value


@pytest.mark.parametrize("content", [b"", b"{", b"\xff\xfe", b"{'a': 1}"])
def test_broken_json_is_named(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "a.json"
    path.write_bytes(content)
    with pytest.raises(DataError, match="manifest at .*a.json"):
        files.read_json(path, "manifest")


def test_missing_json_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="No manifest at .*b.json"):
        files.read_json(tmp_path / "b.json", "manifest")
    with pytest.raises(DataError):
        files.read_json(tmp_path)


def test_hashes(tmp_path: Path) -> None:
    data = os.urandom(3_000_000)  # more than two blocks
    (tmp_path / "data").write_bytes(data)
    expected = hashlib.sha256(data).hexdigest()
    assert files.sha256_file(tmp_path / "data") == files.sha256_bytes(data) == expected


def test_a_link_stays_a_link_and_a_pipe_is_written_to(tmp_path: Path) -> None:
    real, link = tmp_path / "real.json", tmp_path / "link.json"
    real.write_text("old")
    link.symlink_to(real)
    write_json(link, 1)
    assert link.is_symlink() and real.read_text() == "1\n"
    # A device such as /dev/stdout must not be replaced by a file; a pipe stands in for it.
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    write_json(pipe, 2)
    assert os.read(reader, 10) == b"2\n" and pipe.is_fifo()
    os.close(reader)


def test_what_does_not_fit_is_not_begun(tmp_path: Path) -> None:
    require_space(tmp_path / "small", 1)
    with pytest.raises(DataError, match="MiB are needed"):
        require_space(tmp_path / "large", 1 << 60)


def test_a_folder_that_went_before_its_lock_is_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lock, calls = fcntl.flock, []

    def late(file: Any, how: int) -> None:
        calls.append(how)
        if len(calls) == 1:
            # The process that held the lock has finished its work and removed the folder.
            (tmp_path / "work" / "lock").unlink()
            (tmp_path / "work").rmdir()
        lock(file, how)

    monkeypatch.setattr(fcntl, "flock", late)
    with files.locked(tmp_path / "work", "busy"):
        assert len(calls) == 2 and (tmp_path / "work" / "lock").exists()
        with pytest.raises(DataError, match="busy"), files.locked(tmp_path / "work", "busy"):
            pass


def test_tells_whether_a_folder_is_locked(tmp_path) -> None:
    assert not files.is_locked(tmp_path / "work")
    with files.locked(tmp_path / "work", "busy"):
        assert files.is_locked(tmp_path / "work")
    assert not files.is_locked(tmp_path / "work")
