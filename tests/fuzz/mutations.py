"""Damage to files: bytes that change, vanish, repeat or are put in, and values of JSON that become others."""

from __future__ import annotations

import contextlib
import copy
import json
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from vsemb.errors import VsembError

# What readers look for, and what breaks them.
TOKENS = [
    *(b"", b"\0", b"\xff", b"\xff\xfe", b"\xef\xbb\xbf", b"\n", b"\r", b"\r\n", b"\t", b" ", b",", b";", b'"', b"'"),
    *(b"-1", b"0", b"1e999", b"NaN", b"null", b"[]", b"{}", b"[" * 2000, b'{"a":' * 2000, b"../" * 9, b"/etc/passwd"),
    *(
        b"file:///",
        b"http://[",
        b"99999999999999999999",
        b"\xed\xa0\x80",
        b"\\ud800",
        b"#0",
        b"_",
        b"*",
        b"\xe2\x80\xa8",
    ),
    *(b"\x85", b"\x1c", b"0" * 5000),
]

Edit = tuple[str, float, int, bytes]

edits: st.SearchStrategy[list[Edit]] = st.lists(
    st.tuples(
        st.sampled_from(["change", "cut", "repeat", "insert", "end"]),
        st.floats(0, 1, exclude_max=True),
        st.integers(1, 64),
        st.one_of(st.sampled_from(TOKENS), st.binary(min_size=1, max_size=8)),
    ),
    min_size=1,
    max_size=4,
)

json_values: st.SearchStrategy[Any] = st.recursive(
    st.one_of(
        *(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=8)),
        st.sampled_from(["", "../x", "a\0b", "\ud800", 2**70, -1, 1e400, "train", "a.jpg", "0"]),
    ),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=5), inner, max_size=3)),
    max_leaves=6,
)


def damaged(content: bytes, changes: list[Edit]) -> bytes:
    """Return bytes after some edits: (kind, place as a share of the length, length, new bytes)."""
    for kind, share, length, new in changes:
        at = int(share * (len(content) + 1))
        if kind == "change":
            content = content[:at] + new + content[at + len(new) :]
        elif kind == "cut":
            content = content[:at] + content[at + length :]
        elif kind == "repeat":
            content = content[:at] + content[at : at + length] * 2 + content[at + length :]
        elif kind == "insert":
            content = content[:at] + new + content[at:]
        else:
            content = content[:at]
    return content


def with_value(document: Any, place: int, value: Any) -> Any:
    """Return JSON in which the value at a place, counted in depth and around, is another; None removes a field."""
    document = copy.deepcopy(document)
    places: list[tuple[Any, Any]] = []

    def visit(node: Any) -> None:
        for key in node if isinstance(node, dict) else range(len(node)):
            places.append((node, key))
            if isinstance(node[key], dict | list):
                visit(node[key])

    visit(document)
    node, key = places[place % len(places)]
    if value is None and isinstance(node, dict):
        del node[key]
    else:
        node[key] = value
    return document


@contextlib.contextmanager
def copied(source: Path) -> Iterator[Path]:
    """A copy of a folder that a test may damage."""
    with tempfile.TemporaryDirectory() as folder:
        yield Path(shutil.copytree(source, Path(folder) / "source"))


def read_damaged(source: Path, name: str, content: bytes, read: Callable[[Path], object]) -> None:
    """Read a copy of a folder with one changed file: a result, or an error of vsemb, in three CPU seconds."""
    with copied(source) as folder:
        (folder / name).write_bytes(content)
        started = time.process_time()
        with contextlib.suppress(VsembError):
            read(folder)
        assert time.process_time() - started < 3


def dumped(document: Any) -> bytes:
    """Return JSON, with NaN and lone surrogates as they are."""
    return json.dumps(document).encode()
