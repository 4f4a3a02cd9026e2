"""Pickles of others: plain values and given names alone, and no memory beyond the file."""

from __future__ import annotations

import contextlib
import io
import os
import pickle
from collections import OrderedDict
from pathlib import Path
from typing import Any

import pytest

from vsemb.errors import DataError
from vsemb.pickles import load_pickle, read_plain_pickle


class Dangerous:
    def __reduce__(self) -> Any:
        return os.mkdir, ("ran",)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (pickle.dumps([Dangerous()]), r"posix\.mkdir"),
        # LONG_BINPUT, at a place that would take 256 MiB.
        (b"\x80\x02]r\x00\x00\x00\x01.", "16777216"),
        (pickle.dumps([{"a": 1.5, "b": "text of a value"}])[:-20], r"values\.p"),
        (b"", r"values\.p"),
        (b"[1, 2]", r"values\.p"),
    ],
)
def test_a_pickle_runs_no_code(content: bytes, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "values.p").write_bytes(content)
    with pytest.raises(DataError, match=message):
        read_plain_pickle(tmp_path / "values.p")
    assert not (tmp_path / "ran").exists()


# The last value, held once or twice by a list, and so on.
@pytest.mark.parametrize(("step", "levels"), [(b"q\0]q\1(h\0h\0e", 40), (b"q\0]q\1h\0a", 5000)])
def test_values_without_end_are_refused(step: bytes, levels: int, tmp_path: Path) -> None:
    (tmp_path / "values.p").write_bytes(b"\x80\x02K\x01" + step * levels + b".")
    with pytest.raises(DataError, match=r"values\.p"):
        read_plain_pickle(tmp_path / "values.p")


def test_given_names_are_loaded_and_the_place_is_behind_the_pickle() -> None:
    file = io.BytesIO(pickle.dumps(OrderedDict(a=1), 2) + pickle.dumps([2], 2) + b"rest")
    assert load_pickle(file, {"collections.OrderedDict": OrderedDict}) == {"a": 1}
    assert load_pickle(file) == [2]
    assert file.read() == b"rest"


def test_objects_outside_the_pickle() -> None:
    class Pickler(pickle.Pickler):
        def persistent_id(self, obj: Any) -> Any:
            return ("kind", 7) if obj == "outside" else None

    file = io.BytesIO()
    Pickler(file, 2).dump(["outside"])
    file.seek(0)
    assert load_pickle(file, persistent=lambda pid: pid[1]) == [7]
    file.seek(0)
    with pytest.raises(pickle.UnpicklingError, match="outside"):
        load_pickle(file)


@pytest.mark.parametrize("state", [(None, {"__defaults__": (1,)}), {"kept": 1}])
def test_a_pickle_cannot_change_a_function_that_it_names(state: Any) -> None:
    def function(value: int = 7) -> int:
        return value

    # BUILD sets attributes; the pickle of the state is without its first two bytes and its end.
    content = b"\x80\x02cmodule\nfunction\n" + pickle.dumps(state, 2)[2:-1] + b"b0cmodule\nfunction\n)R."
    with contextlib.suppress(Exception):
        load_pickle(io.BytesIO(content), {"module.function": function})
    assert function() == 7 and not vars(function)
