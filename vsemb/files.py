"""Atomic writing of files, and reading of regular files alone.

A crash, a kill or a full disk leaves no partial file. Opening a named pipe waits for ever and opening a device may act
on it, so every file is read with the functions below, or checked with `require_regular` before a library opens it.
Folders that others may have made are checked once, where they are opened, with `require_contained`.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import re
import secrets
import shutil
import stat
import tempfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from vsemb.errors import DataError, InvalidArgumentError, invalid_argument, one_line, reason_of

_VERIFIED = ".verified.json"
_DIRECTORY = "a directory"


def require_regular(path: str | os.PathLike[str]) -> Path:
    """Return the path of a file that is safe to open: a regular file, or a link to one.

    Raises:
        OSError: if the file is missing, or is a named pipe, a device, a socket or a directory.

    Example:

    >>> require_regular("/dev/null")
    Traceback (most recent call last):
    OSError: [Errno 22] must be a regular file; it is a device: '/dev/null'
    """
    try:
        kind = _kind(os.stat(path).st_mode)
    except ValueError as error:  # Such as a line of a list in UTF-16.
        raise OSError(errno.EINVAL, "must be the name of a file, without a null character", os.fspath(path)) from error
    if kind == _DIRECTORY:
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), os.fspath(path))
    if kind is not None:
        raise OSError(errno.EINVAL, f"must be a regular file; it is {kind}", os.fspath(path))
    return Path(path)


def _kind(mode: int) -> str | None:
    """Return a file's kind, from its mode; None for a regular file."""
    if stat.S_ISREG(mode):
        return None
    if stat.S_ISDIR(mode):
        return _DIRECTORY
    if stat.S_ISFIFO(mode):
        return "a named pipe"
    return "a socket" if stat.S_ISSOCK(mode) else "a device"


def open_regular(path: str | os.PathLike[str], mode: str = "rb", **options: Any) -> Any:
    """Open a regular file for reading.

    Args:
        path: the file.
        mode: as of `open`.
        **options: as of `open`, such as `encoding`.

    Raises:
        OSError: as `require_regular`, or if the file cannot be opened.
    """
    return open(require_regular(path), mode, **options)


def read_bytes(path: str | os.PathLike[str]) -> bytes:
    """Return the content of a regular file.

    Raises:
        OSError: as `open_regular`.
    """
    with open_regular(path) as file:
        content: bytes = file.read()
    return content


def read_text(path: str | os.PathLike[str], encoding: str = "utf-8", errors: str | None = None) -> str:
    """Return the text of a regular file.

    Raises:
        OSError: as `open_regular`.
        UnicodeDecodeError: for bytes that are not text in this encoding.
    """
    with open_regular(path, "r", encoding=encoding, errors=errors) as file:
        text: str = file.read()
    return text


def inside(folder: str | os.PathLike[str], name: str) -> Path:
    """Return the path of a regular file that a list of a folder names, such as a manifest.

    Args:
        folder: the folder.
        name: relative path of the file.

    Raises:
        OSError: as `require_regular`, or if the name or a link leads out of the folder.

    Example:

    >>> inside("/etc", "../dev/null")
    Traceback (most recent call last):
    PermissionError: [Errno 1] must lie in the folder: '/etc/../dev/null'
    """
    path, root = os.path.join(folder, name), os.path.realpath(folder)
    if os.path.isabs(name) or ".." in Path(name).parts:
        raise PermissionError(errno.EPERM, "must lie in the folder", path)
    if not Path(os.path.realpath(path)).is_relative_to(root):
        # As in a cache of downloads.
        why = "it is a link out of the folder; copy the folder with `cp -rL`, if you trust who made it"
        raise PermissionError(errno.EPERM, why, path)
    return require_regular(path)


def require_contained(folder: str | os.PathLike[str], what: str, *, links: bool = False) -> None:
    """Check a folder that others may have made: it holds regular files and folders, and no links that lead out of it.

    Args:
        folder: the folder; it may itself be a link.
        what: its description for the message, such as `run`.
        links: whether links may lead out of the folder, as in a cache of downloads.

    Raises:
        DataError: naming the first file that is neither, or a folder that cannot be listed.

    Example:

        require_contained("runs/mine", "run")
    """
    root = Path(os.path.realpath(folder))
    open_folders = [str(root)]
    while open_folders:
        inner = open_folders.pop()
        try:
            # Another process may have removed it.
            with contextlib.suppress(FileNotFoundError, NotADirectoryError), os.scandir(inner) as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        open_folders.append(entry.path)
                    elif not entry.is_file(follow_symlinks=False):
                        _require_harmless(entry.path, root, folder, what, links)
        except OSError as error:
            # Files in it can be opened by their names, if its permissions are --x.
            reason = f"{os.path.join(folder, os.path.relpath(inner, root))} cannot be listed: {reason_of(error)}"
            raise DataError(f"The {what} {folder} must hold folders that can be listed; {reason}.") from error


def _require_harmless(path: str, root: Path, folder: str | os.PathLike[str], what: str, links: bool) -> None:
    shown, real = os.path.join(folder, os.path.relpath(path, root)), Path(os.path.realpath(path))
    if not (links or real.is_relative_to(root)):
        raise DataError(
            f"The {what} {folder} must lie in one folder; {shown} is a link to {real}. Copy the {what} with `cp -rL`, "
            "if you trust who made it."
        )
    # Another process may have removed it.
    with contextlib.suppress(OSError):
        kind = _kind(os.stat(real).st_mode)
        if kind not in (None, _DIRECTORY):
            raise DataError(f"The {what} {folder} must hold regular files; {shown} is {kind}. Remove it.")


def sha256_bytes(data: bytes) -> str:
    """Return the hex SHA-256 of `data`."""
    return hashlib.sha256(data).hexdigest()


def sha256_file(path: str | os.PathLike[str]) -> str:
    """Return the hex SHA-256 of a regular file, read in blocks."""
    with open_regular(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def find_damaged(folder: Path, digests: Mapping[str, str]) -> str | None:
    """Return the name of the first file that is not what was written; None if all are.

    Files that `unchanged` returns are not read again.

    Args:
        folder: the folder of the files.
        digests: name -> hex SHA-256 of the file when it was written.

    Raises:
        DataError: if a file is missing or cannot be read.

    Example:

        damaged = find_damaged(Path("data/flickr8k"), {"train.index.arrow": "3f2a…"})
    """
    unknown = digests.keys() - unchanged(folder, digests)
    for name in sorted(unknown):
        with reading(folder / name):
            if sha256_file(inside(folder, name)) != digests[name]:
                return name
    if unknown:
        remember(folder, digests)
    return None


def remember(folder: Path, digests: Mapping[str, str]) -> None:
    """Keep the sizes and times of files that were read in full, for `unchanged`.

    In a folder that cannot be written to, nothing is kept, and files are read in full each time.

    Args:
        folder, digests: as `find_damaged`.
    """
    with contextlib.suppress(OSError, DataError):
        stamps = {name: _stamp(folder / name, digest) for name, digest in digests.items()}
        write_json(folder / _VERIFIED, _verified(folder) | stamps)


def unchanged(folder: Path, digests: Mapping[str, str]) -> set[str]:
    """Return the files with the size and the times that they had when they were last read in full.

    The file `.verified.json` of the folder keeps these, see `remember`.

    Args:
        folder, digests: as `find_damaged`.
    """
    known = _verified(folder)
    return {name for name, digest in digests.items() if known.get(name) == _stamp(folder / name, digest)}


def _verified(folder: Path) -> dict[str, Any]:
    try:
        known = read_json(folder / _VERIFIED)
    except DataError:
        return {}
    return known if isinstance(known, dict) else {}


def _stamp(path: Path, digest: str) -> list[Any]:
    with reading(path):
        status = path.stat()
    # Copies and damage may keep the time of modification; the time of change is that of the last write to this file.
    return [status.st_size, status.st_mtime_ns, status.st_ctime_ns, digest]


def sync(path: str | os.PathLike[str]) -> None:
    """Flush a file or directory from the cache to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_tree(directory: str | os.PathLike[str]) -> None:
    """Flush a directory and everything below it from the cache to the disk."""
    for folder, _, names in os.walk(directory):
        for name in names:
            sync(os.path.join(folder, name))
        sync(folder)


@contextlib.contextmanager
def writing(path: str | os.PathLike[str]) -> Iterator[None]:
    """Convert errors of writing to `DataError` with the name of the target.

    Raises:
        DataError: if writing fails (full disk, missing permission), or a text of the content, such as the name of a
            file, is not Unicode.
    """
    try:
        yield
    except OSError as error:
        raise DataError(f"Cannot write {path}: {reason_of(error)}.") from error
    except UnicodeEncodeError as error:
        raise DataError(f"{path} must hold valid UTF-8; got {one_line(ascii(error.object))}. Rename it.") from error


@contextlib.contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Yield a temporary path beside `path`; without an exception it is synced and renamed to `path`.

    On an exception the temporary file is removed and `path` is unchanged.

    Raises:
        DataError: if writing fails (full disk, missing permission).

    Example:

    >>> with replacing("/tmp/vsemb-doc.txt") as temporary:
    ...     _ = temporary.write_text("whole or not at all")
    """
    # Links are kept. A device such as /dev/stdout can be written to but not replaced.
    path = Path(os.path.realpath(path))
    with writing(path):
        if path.exists() and not path.is_file() and not path.is_dir():
            with tempfile.TemporaryDirectory() as folder:
                temporary = Path(folder) / "content"
                yield temporary
                path.write_bytes(temporary.read_bytes())
            return
        with claimed(path, partial(Path.touch, exist_ok=False)) as temporary:
            yield temporary
            sync(temporary)
            os.replace(temporary, path)
            sync(path.parent)


def refuse_foreign(path: str | os.PathLike[str], is_ours: Callable[[Path], bool]) -> None:
    """Check that a file to write does not replace another program's.

    Args:
        path: the file.
        is_ours: whether vsemb wrote an existing file.

    Raises:
        InvalidArgumentError: for an existing file that vsemb did not write.
    """
    file = Path(path)
    if file.is_file() and not is_ours(file):
        fix = "vsemb did not write the existing file. Choose another name, or remove it."
        raise invalid_argument("out", str(file), "a new file", fix)


@contextlib.contextmanager
def replacing_directory(path: str | os.PathLike[str], overwrite: bool = False) -> Iterator[Path]:
    """Yield a temporary directory beside `path`, renamed to `path` without an exception.

    Args:
        path: the directory to write.
        overwrite: whether to replace an existing, non-empty `path`.

    Raises:
        DataError: if `path` exists and `overwrite` is false, or if writing fails.
    """
    path = Path(path)
    with writing(path), claimed(path) as temporary:
        if not overwrite and path.exists() and (not path.is_dir() or any(path.iterdir())):
            raise DataError(f"{path} already exists and is not an empty directory; choose another --out.")
        yield temporary
        sync_tree(temporary)
        if path.exists():
            with claimed(path, ending="old") as old:
                os.replace(path, old / path.name)
                try:
                    os.replace(temporary, path)
                except OSError:
                    os.replace(old / path.name, path)
                    raise
        else:
            os.replace(temporary, path)
        sync(path.parent)


@contextlib.contextmanager
def claimed(path: Path, make: Callable[[Path], object] = Path.mkdir, ending: str = "tmp") -> Iterator[Path]:
    """Yield a new hidden name beside a path, locked for this process; it is removed at the end if it is still there.

    The leftovers of killed processes beside the path are removed first. A leftover has no lock, because a lock ends
    with its process. Numbers of processes would mean nothing to another machine on the same disk.

    Args:
        path: what the temporary name will replace; its directory is made.
        make: makes the file or folder, with the permissions that new ones have.
        ending: of the name.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    _remove_leftovers(path)
    with contextlib.ExitStack() as stack:
        while True:
            temporary = path.parent / f".{path.name}.{secrets.token_hex(4)}.{ending}"
            make(temporary)
            # Another process may have taken it for a leftover before the lock.
            stack.enter_context(_lock(temporary, wait=True))
            if temporary.exists():
                break
        try:
            yield temporary
        finally:
            _remove(temporary)


def _remove_leftovers(path: Path) -> None:
    ours = re.compile(rf"\.{re.escape(path.name)}\.[0-9a-f]{{8}}\.(tmp|old)")
    for left in [each for each in path.parent.iterdir() if ours.fullmatch(each.name)]:
        with contextlib.suppress(OSError), _lock(left, wait=False):
            if left.suffix == ".old" and not path.exists() and (left / path.name).exists():
                # Killed between the two renames of an overwritten folder: what was there comes back.
                os.replace(left / path.name, path)
            _remove(left)


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


@contextlib.contextmanager
def _lock(path: Path, wait: bool) -> Iterator[None]:
    """Hold the lock of a file or folder.

    Raises:
        OSError: without `wait`, if another process holds it, or where there are no locks.
    """
    try:
        import fcntl
    except ImportError as error:  # On Windows.
        if not wait:
            raise OSError("no locks") from error
        yield
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        # Without locks, as on some file systems, nothing is taken for a leftover.
        with contextlib.suppress(OSError) if wait else contextlib.nullcontext():
            fcntl.flock(descriptor, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def locked(folder: Path, busy: str) -> Iterator[None]:
    """Create a folder and lock it for this process; the lock ends with the process.

    Args:
        folder: the folder; the file `lock` in it is not removed.
        busy: the message if another process holds the lock.

    Raises:
        DataError: if another process holds the lock, or if writing fails.
    """
    import fcntl  # Not on Windows.

    while True:
        with writing(folder):
            folder.mkdir(parents=True, exist_ok=True)
            lock = open(folder / "lock", "wb")  # noqa: SIM115
        with lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise DataError(busy) from error
            # Another process may have finished and removed the folder before the lock.
            if os.fstat(lock.fileno()).st_nlink:
                yield
                return


def is_locked(folder: Path) -> bool:
    """Return whether a process holds the lock of a folder, see `locked`; False on systems without locks."""
    try:
        with _lock(folder / "lock", wait=False):
            return False
    except BlockingIOError:
        return True
    except OSError:
        return False


def remove_partial(path: Path) -> None:
    """Remove the folder `.NAME.partial` beside a published path, if the process that worked there was killed."""
    work = path.with_name(f".{path.name}.partial")
    if work.exists():
        with contextlib.suppress(DataError, OSError), locked(work, "in use"):
            shutil.rmtree(work)


def require_space(path: str | os.PathLike[str], needed: int) -> None:
    """Check the free disk space before a file is written.

    HDF5 and other libraries crash on a full disk instead of raising an error.

    Args:
        path: the file to write; its directory exists.
        needed: size in bytes.

    Raises:
        DataError: if less space is free.
    """
    free = shutil.disk_usage(Path(path).parent).free
    if free < needed:
        raise DataError(
            f"Cannot write {path}: the disk has {free >> 20} MiB left and {(needed >> 20) + 1} MiB are "
            "needed. Free some, and run the same command again."
        )


def hard_link_or_copy(source: str | os.PathLike[str], target: str | os.PathLike[str]) -> None:
    """Hard-link a file to `target`, or copy it if the file system has no hard links."""
    Path(target).unlink(missing_ok=True)
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)


def write_text(path: str | os.PathLike[str], text: str) -> None:
    """Write a text file in UTF-8, atomically.

    Raises:
        DataError: if writing fails.
    """
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def write_json(path: str | os.PathLike[str], value: Any) -> None:
    """Write `value` as indented JSON, atomically; NaN and infinity raise ValueError."""
    write_text(path, json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False) + "\n")


@contextlib.contextmanager
def reading(path: str | os.PathLike[str], what: str = "file") -> Iterator[None]:
    """Convert errors of reading, and of values that are not allowed, to `DataError` with the name of the file.

    Args:
        path: the file.
        what: description of the file for the message.

    Raises:
        DataError: if reading, decompression or decoding fails, or a value is not allowed.
    """
    try:
        yield
    except (OSError, EOFError, zlib.error, UnicodeDecodeError, InvalidArgumentError) as error:
        raise DataError(f"The {what} {path} cannot be read: {reason_of(error)}.") from error


def cache_directory() -> Path:
    """Return the directory for what can be made again, which may not exist yet.

    It is the environment variable `VSEMB_CACHE`, or `vsemb` in `XDG_CACHE_HOME` or in `~/.cache`.
    """
    named = os.environ.get("VSEMB_CACHE")
    if named:
        return Path(named)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "vsemb"


def read_json_lines(path: str | os.PathLike[str]) -> list[Any]:
    """Read a file with one JSON value per line, which line feeds end; blank lines are left out.

    Raises:
        OSError: if the file cannot be read.
        ValueError: if a line is not JSON, or not UTF-8.
    """
    # JSON texts may contain the other line ends of `str.splitlines`.
    lines = read_bytes(path).decode("utf-8-sig").split("\n")
    return [json.loads(line) for line in lines if line.strip()]


def read_json(path: str | os.PathLike[str], what: str = "JSON file") -> Any:
    """Read a JSON file, with or without byte order mark.

    Args:
        path: the file.
        what: description of the file for the message.

    Raises:
        DataError: if the file is missing, unreadable or not JSON.
    """
    try:
        return json.loads(read_text(path, "utf-8-sig"))
    except FileNotFoundError as error:
        raise DataError(f"No {what} at {path}.") from error
    except (OSError, ValueError, RecursionError) as error:
        reason = reason_of(error)
        raise DataError(f"The {what} at {path} cannot be read: {reason}.") from error
