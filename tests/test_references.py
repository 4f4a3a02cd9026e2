"""What docstrings, comments and pages name is there: modules and their names, files, and fields of recipes."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import re
from functools import cache
from pathlib import Path
from typing import Any

from vsemb import registry
from vsemb.parts import Part, fields_of, read_hint

ROOT = Path(__file__).parents[1]
# What tells of names that are gone, and what tests this one.
LEFT_OUT = {"CHANGELOG.md", "tests/test_references.py"}
ROOMS, ENDINGS = ("docs", "pipelines", "savedmodels", "tests", "vsemb"), (".py", ".md", ".toml")

DOTTED = re.compile(r"(?<![\w/.-])(?:vsemb|tests|pipelines)(?:\.[A-Za-z_]\w*)+")
SETTING = re.compile(r"--set[ =]([a-z][\w.-]*)=([^\s`'\")\]]*[^\s`'\")\].,;]|)")
FILE = re.compile(r"`((?:vsemb|tests|pipelines)/[\w/.-]+)`")
BARE = re.compile(r"`([\w-]+[.]py)`")
NAMES_IN = re.compile(r"`((?:vsemb|tests|pipelines)/[\w/.-]+[.]py)`((?:, `\w+`)+)")


def texts() -> dict[str, str]:
    """All that people read of the repository: path -> text."""
    paths = [path for end in ENDINGS for path in ROOT.glob(f"*{end}")]
    paths += [path for room in ROOMS for end in ENDINGS for path in sorted((ROOT / room).rglob(f"*{end}"))]
    named = {path.relative_to(ROOT).as_posix(): path for path in paths}
    return {name: path.read_text(encoding="utf-8") for name, path in named.items() if name not in LEFT_OUT}


TEXTS = texts()


@cache
def resolves(name: str) -> bool:
    """Whether a dotted name is a module, or something in one."""
    parts = name.split(".")
    for end in range(len(parts), 0, -1):
        module = ".".join(parts[:end])
        try:
            if importlib.util.find_spec(module) is None:
                continue
        except ModuleNotFoundError:
            continue
        return end == len(parts) or has(importlib.import_module(module), parts[end:])
    return False


def has(found: Any, names: list[str]) -> bool:
    """Whether an object has an attribute, of it another and so on; what instances alone have counts too."""
    for name in names:
        if hasattr(found, name):
            found = getattr(found, name)
            continue
        # A field, or an attribute that the constructor sets; what it holds is not looked into.
        classes = inspect.getmro(found) if inspect.isclass(found) else ()
        sources = [inspect.getsource(each) for each in classes if each.__module__.startswith("vsemb")]
        return any(re.search(rf"^ +(self[.])?{name}: |^ +self[.]{name} = ", source, re.MULTILINE) for source in sources)
    return True


def stands_for_any(name: str) -> bool:
    """Whether a part of a name is in capitals, for whatever stands there."""
    return any(part.isupper() for part in re.split(r"[./]", name))


def test_dotted_names_resolve() -> None:
    missing = [
        f"{path}: {name}"
        for path, text in TEXTS.items()
        for name in sorted(set(DOTTED.findall(text)))
        if not (resolves(name) or stands_for_any(name))
    ]
    assert not missing, "\n".join(missing)


def test_what_does_not_resolve() -> None:
    assert resolves("vsemb.text.tokenizers.Tokenizer.encode") and resolves("vsemb.data.batches.PairBatches.images")
    assert resolves("vsemb.recipes.schema.Recipe.training") and resolves("vsemb.models.DualEncoder.fit")
    for name in ("vsemb.nothing", "vsemb.text.Nothing", "vsemb.text.tokenizers.Tokenizer.nothing"):
        assert not resolves(name)


def test_files_are_there() -> None:
    missing = [
        f"{path}: {name}"
        for path, text in TEXTS.items()
        for name in sorted(set(FILE.findall(text)))
        if not ((ROOT / name).exists() or stands_for_any(name))
    ]
    assert not missing, "\n".join(missing)


def test_files_without_a_folder_are_there() -> None:
    known = {Path(name).name for name in TEXTS} | {"json.py"}  # A user's, in `vsemb.registry`.
    missing = [f"{path}: {name}" for path, text in TEXTS.items() for name in sorted(set(BARE.findall(text)) - known)]
    assert not missing, "\n".join(missing)


def test_names_are_in_the_file_before_them() -> None:
    missing = [
        f"{path}: {name} in {file}"
        for path, text in TEXTS.items()
        for file, names in NAMES_IN.findall(text)
        for name in re.findall(r"\w+", names)
        if not re.search(rf"^(?:def|class) {name}\b|^{name}\b.* = ", (ROOT / file).read_text(), re.MULTILINE)
    ]
    assert not missing, "\n".join(missing)


@cache
def parts_of(family: str) -> list[type[Part]]:
    return [registry.find_part(family, kind, family) for kind in registry.kinds(family)]


def can_be_set(cls: type[Part], path: list[str], value: str) -> bool:
    """Whether some choice of parts below `cls` has a field of that path that takes the value."""
    name, *rest = path
    hint = fields_of(cls).get(name)
    if hint is None:
        return False
    read = read_hint(hint)
    if read.part is None:
        # A value in capitals or in braces stands for any.
        stands_for = not value or value.isupper() or value[0] in "<{…"
        return not rest and (stands_for or not read.literals or value in map(str, read.literals) or value == "null")
    if read.part.family is None:
        return bool(rest) and can_be_set(read.part, rest, value)
    if not rest:
        return value in registry.kinds(read.part.family) or value in ("", "null") or value.isupper()
    return any(can_be_set(kind, rest, value) for kind in parts_of(read.part.family))


def test_fields_that_are_set_exist() -> None:
    unknown = [
        f"{path}: {field}={value}"
        for path, text in TEXTS.items()
        if not path.startswith("tests/")
        for field, value in sorted(set(SETTING.findall(text)))
        if not field.startswith("path.")
        and not any(can_be_set(task, field.split("."), value) for task in parts_of("task"))
    ]
    assert not unknown, "\n".join(unknown)
