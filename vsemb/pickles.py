"""Pickles that others made: loaded without running their code."""

from __future__ import annotations

import functools
import os
import pickle
import pickletools
from collections.abc import Callable, Mapping
from pathlib import Path
from types import FunctionType, MappingProxyType
from typing import Any, BinaryIO

from vsemb.errors import DataError, one_line
from vsemb.files import open_regular, reading

# Maximum depth of lists and dictionaries.
_DEPTH = 50
_NO_NAMES: Mapping[str, Any] = MappingProxyType({})


def load_pickle(
    file: BinaryIO, names: Mapping[str, Any] = _NO_NAMES, persistent: Callable[[Any], Any] | None = None
) -> Any:
    """Load the pickle that begins at a file's place, and leave the place behind it.

    A pickle can name any class or function to call. Only the given names are loaded, so a file cannot run other code,
    and it cannot change the functions that have these names. Places of stored values beyond the size of the file are
    refused, too: `pickle` would allocate that much memory.

    Args:
        file: a binary file that can be sought.
        names: the names that are loaded, as `module.name` -> their meaning here: functions, and values that cannot
            change.
        persistent: meaning of an object's id outside the pickle; None to refuse them.

    Raises:
        Exception: of any type, if the pickle is broken; `pickle.UnpicklingError` if it is refused.

    Example:

    >>> import io
    >>> load_pickle(io.BytesIO(pickle.dumps({"a": [1, 2.5]})))
    {'a': [1, 2.5]}
    """
    start = file.tell()
    size = file.seek(0, os.SEEK_END)
    file.seek(start)
    for operation, argument, _ in pickletools.genops(file):
        if operation.name in ("PUT", "BINPUT", "LONG_BINPUT") and (argument or 0) > size:
            raise pickle.UnpicklingError(f"it stores a value at {argument}, in a file of {size} bytes")
    file.seek(start)
    return _NamedUnpickler(file, names, persistent).load()


def read_plain_pickle(path: Path) -> Any:
    """Read a pickle of dictionaries, lists, strings and numbers, see `load_pickle`.

    It also refuses values that are nested deeply or hold each other again and again, since printing them would never
    end.

    Raises:
        DataError: if the file is missing, broken, or has anything else than these types.
    """
    with reading(path):
        try:
            with open_regular(path) as file:
                content = load_pickle(file)
                _check_size(content, os.fstat(file.fileno()).st_size)
                return content
        except OSError:
            raise
        # A broken pickle can raise errors of any type.
        except Exception as error:
            raise DataError(f"{path} must be a pickle of plain values: {one_line(str(error), 100)}.") from error


class _NamedUnpickler(pickle.Unpickler):
    def __init__(self, file: BinaryIO, names: Mapping[str, Any], persistent: Callable[[Any], Any] | None) -> None:
        super().__init__(file, encoding="utf-8", errors="replace")
        self._names, self._persistent = names, persistent

    def find_class(self, module_name: str, global_name: str) -> Any:
        name = f"{module_name}.{global_name}"
        if name not in self._names:
            raise pickle.UnpicklingError(f"it names {name}, which is not loaded")
        meaning = self._names[name]
        # A pickle can set attributes of what it has loaded, such as the defaults of a function.
        return functools.partial(meaning) if isinstance(meaning, FunctionType) else meaning

    def persistent_load(self, pid: Any) -> Any:
        if self._persistent is None:
            raise pickle.UnpicklingError("it names an object outside the file")
        return self._persistent(pid)


def _check_size(content: Any, most: int) -> None:
    left = [(content, 0)]
    while left:
        value, depth = left.pop()
        most -= 1
        if most < 0 or depth > _DEPTH:
            raise pickle.UnpicklingError("its values are nested too deeply, or hold each other again and again")
        if isinstance(value, dict):
            left += [(entry, depth + 1) for entry in value.values()]
        elif isinstance(value, list | tuple | set | frozenset):
            left += [(entry, depth + 1) for entry in value]
