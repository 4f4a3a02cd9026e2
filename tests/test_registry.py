"""The registry: where systems come from, and that all that they name is there."""

from __future__ import annotations

import importlib
import importlib.metadata
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.raising import raises_argument
from vsemb import recipes, registry
from vsemb.errors import DataError, InvalidArgumentError
from vsemb.parts import walk
from vsemb.registry import System

PART = '''
from dataclasses import dataclass, field

from vsemb.parts import Part, Positive
from vsemb.recipes.retrieval import Retrieval
from vsemb.registry import System
from vsemb.similarities import Cosine


@dataclass(frozen=True)
class Halved(Cosine, kind="KIND"):
    """Half the cosine."""
'''


@pytest.fixture(autouse=True)
def as_before(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Leaves the registry and loaded modules as they were."""
    monkeypatch.setenv(registry.VARIABLE, "")
    registry.forget()
    yield
    monkeypatch.undo()
    # Of other modules, which stay, classes are entered only once.
    for key in [key for key, cls in registry.CLASSES.items() if cls.__module__.startswith("written_")]:
        del registry.CLASSES[key]
    for name in [name for name in sys.modules if name.startswith("written_")]:
        del sys.modules[name]
    registry.forget()


def write(folder: Path, name: str, more: str = "") -> Path:
    path = folder / f"written_{name}.py"
    path.write_text(PART.replace("KIND", f"written-{name}") + more)
    return path


def test_our_systems_are_a_literal_list() -> None:
    from vsemb.systems import SYSTEMS

    assert [system.name for system in registry.systems()] == ["base", *(name.split(".")[-1] for name in SYSTEMS)]


def test_listing_systems_and_kinds_imports_no_keras() -> None:
    code = (
        "import sys\nfrom vsemb import recipes, registry\n"
        "assert registry.kinds('text encoder') and recipes.names() and registry.entries('commands')\n"
        "print(sorted({'tensorflow', 'keras', 'numpy'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("name", [system.name for system in registry.systems()])
def test_what_a_system_names_is_there(name: str) -> None:
    system = next(system for system in registry.systems() if system.name == name)
    for attribute in ("recipes", "search_methods", "client_texts", "client_methods", "annotations"):
        for key, reference in getattr(system, attribute).items():
            found = registry.load(reference)
            assert isinstance(found, dict) if attribute == "recipes" else callable(found), key
    for reference in (*system.report_sections, *system.demo_tabs):
        assert callable(registry.load(reference))
    for command in system.commands.values():
        assert callable(registry.load(command.act))


def test_every_part_of_a_recipe_is_declared() -> None:
    """A fresh process opens a run by its kinds, before any module of the run's system is imported."""
    wrong = {
        f"{name}: {part.family} {part.kind}"
        for name in recipes.names()
        for recipe in recipes.variants(name).values()
        for part in walk(recipe)
        if part.kind is not None and part.kind not in registry.entries("parts", str(part.family))
    }
    assert wrong == set()


def test_no_two_systems_claim_one_name() -> None:
    for attribute in ("recipes", "commands", "charts", "client_methods", "annotations"):
        names = [name for system in registry.systems() for name in getattr(system, attribute)]
        assert len(names) == len(set(names)), attribute


@pytest.mark.parametrize(
    ("reference", "name"),
    [
        ("vsemb.errors", "vsemb.errors"),
        ("vsemb.errors:DataError", "DataError"),
        ("vsemb.recipes.vsepp:VSEPP[paper]", "vsepp"),
    ],
)
def test_references(reference: str, name: str) -> None:
    found = registry.load(reference)
    assert name == (getattr(found, "__name__", None) or found.name)


class Entry:
    """An entry point of an installed package."""

    def __init__(self, name: str, value: object) -> None:
        self.name = name
        self.value = value

    def load(self) -> object:
        return self.value

    def __str__(self) -> str:
        return f"EntryPoint(name={self.name!r})"


def installed(monkeypatch: pytest.MonkeyPatch, *values: object) -> None:
    """Lets packages be installed that bring these."""
    entries = [Entry(f"outsider{number}", value) for number, value in enumerate(values)]
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda group: entries if group == registry.GROUP else [])
    registry.forget()


def test_an_installed_package_brings_a_system(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    write(tmp_path, "installed")
    monkeypatch.syspath_prepend(tmp_path)
    system = System(
        name="outsider",
        parts={"similarity": {"written-installed": "written_installed"}},
        recipes={"outside": "vsemb.recipes.vsepp:VSEPP"},
    )
    installed(monkeypatch, system)
    assert registry.systems()[-1] is system
    assert "written-installed" in registry.kinds("similarity") and "written_installed" not in sys.modules
    assert recipes.names()[-1] == "outside"
    changed = recipes.get("outside", "paper").with_overrides(["similarity=written-installed"])
    assert type(changed.similarity).__name__ == "Halved"


def test_an_entry_point_that_is_no_system_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    installed(monkeypatch, "a string")
    with pytest.raises(DataError, match="outsider0.*vsemb.registry.System.*str"):
        registry.systems()


def test_the_variable_names_files_and_modules(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    plain = write(tmp_path, "plain")
    declared = write(tmp_path, "declared", 'SYSTEM = System(name="declared", recipes={"d": "x:Y"})\n')
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv(registry.VARIABLE, os.pathsep.join([str(plain), "written_declared"]))
    registry.forget()
    assert [system.name for system in registry.systems()[-2:]] == ["written_plain", "declared"]
    assert {"written-plain", "written-declared"} <= set(registry.kinds("similarity"))
    assert declared.exists() and "d" in recipes.names()
    monkeypatch.setenv(registry.VARIABLE, str(tmp_path / "none.py"))
    registry.forget()
    with pytest.raises(DataError, match="must be a Python file; it does not exist"):
        registry.systems()


def test_a_module_that_the_variable_misnames_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    from vsemb.cli.__main__ import main

    monkeypatch.setenv(registry.VARIABLE, "written_typo")
    registry.forget()
    with pytest.raises(DataError, match="VSEMB_SYSTEMS.*written_typo cannot be loaded.*ModuleNotFoundError"):
        registry.systems()
    assert main(["recipes"]) == 1
    (line,) = capfd.readouterr().err.splitlines()
    assert line.startswith("vsemb: ") and "written_typo" in line


def test_an_entry_point_that_does_not_load_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def load(_: Entry) -> object:
        raise ImportError("no such package")

    installed(monkeypatch, "a string")
    monkeypatch.setattr(Entry, "load", load)
    with pytest.raises(DataError, match="outsider0.*cannot be loaded.*no such package"):
        registry.systems()


def test_a_module_without_the_kind_it_is_declared_for_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    installed(monkeypatch, System(name="outsider", parts={"similarity": {"written-missing": "vsemb.errors"}}))
    with pytest.raises(DataError, match="vsemb.errors must define the similarity 'written-missing'"):
        registry.find_part("similarity", "written-missing", "similarity")


def test_an_unknown_kind_says_where_parts_of_ones_own_are_named() -> None:
    with pytest.raises(InvalidArgumentError, match="Did you mean 'cosine'.*VSEMB_SYSTEMS"):
        registry.find_part("similarity", "cosin", "similarity")


@pytest.mark.slow
def test_a_file_is_added_for_this_process_and_those_it_starts(tmp_path: Path) -> None:
    path = write(tmp_path, "added", 'SYSTEM = System(name="added", recipes={"a": "x:Y"})\n')
    registry.systems()
    for _ in range(2):
        registry.add_file(path)
        assert [system.name for system in registry.systems()].count("added") == 1
    assert "written-added" in registry.kinds("similarity")
    code = "from vsemb import registry; print('added' in [system.name for system in registry.systems()])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout.strip() == "True"


@pytest.mark.parametrize(
    ("line", "variants"),
    [
        ('RECIPE = Retrieval(name="own", similarity=Halved())', ["default"]),
        ('RECIPE = {"one": Retrieval(variant="one"), "two": Retrieval(variant="two")}', ["one", "two"]),
    ],
)
def test_recipes_of_a_file(tmp_path: Path, line: str, variants: list[str]) -> None:
    path = write(tmp_path, f"recipe{len(variants)}", line + "\n")
    found = registry.recipes_of_file(str(path))
    assert list(found) == variants
    assert recipes.get(str(path)) is found[variants[0]]
    with raises_argument("variant"):
        recipes.get(str(path), "three")


def test_a_changed_file_is_read_again(tmp_path: Path) -> None:
    path = write(tmp_path, "changing", 'SYSTEM = System(name="changing")\nRECIPE = Retrieval(embedding_dim=16)\n')
    first = recipes.get(str(path))
    assert recipes.get(str(path)) is first and first.embedding_dim == 16
    changed = path.read_text().replace("16", "8").replace("System(", 'System(charts={"A": {}}, ')
    path.write_text(changed)
    assert recipes.get(str(path)).embedding_dim == 8
    (system,) = [system for system in registry.systems() if system.name == "changing"]
    assert list(system.charts) == ["A"]


def test_a_file_without_a_recipe_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="must define RECIPE"):
        recipes.get(str(write(tmp_path, "nothing")))
    with pytest.raises(DataError, match="must be a Python file; it does not exist"):
        recipes.get(str(tmp_path / "nowhere.py"))


@pytest.mark.parametrize("line", ["RECIPE = 3", "RECIPE = {}", "RECIPE = {'one': 3}"])
def test_what_is_no_recipe_is_refused(tmp_path: Path, line: str) -> None:
    with pytest.raises(DataError, match="must define RECIPE.*it is "):
        recipes.get(str(write(tmp_path, "wrong", line + "\n")))


def test_a_file_with_inputs_of_its_own_is_trained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from vsemb.cli.__main__ import main

    monkeypatch.setattr("vsemb.runs.start.start", lambda recipe, *_, **__: (recipe, None))
    monkeypatch.setattr("vsemb.runs.run.Run.open", lambda path: SimpleNamespace(path=path))
    source = 'class Mine(Retrieval, kind="mine-with-inputs"):\n    inputs = ("base-run",)\nRECIPE = Mine()\n'
    path = write(tmp_path, "inputs", source)
    command = ["train", str(path), "--data", "data", "--out", str(tmp_path / "run"), "--inputs"]
    assert main([*command, "other=runs/x"]) == 1
    assert "`inputs.other` must be one of base-run" in capsys.readouterr().err


def test_a_file_may_have_dots_in_its_name(tmp_path: Path) -> None:
    path = tmp_path / "written_exp.v2.py"
    path.write_text("MINE = 2\n")
    module = registry.load_module(str(path))
    assert module.MINE == 2 and registry.load_module(str(path)) is module


def test_a_file_that_raises_is_refused_each_time(tmp_path: Path) -> None:
    path = tmp_path / "written_raising.py"
    path.write_text("MINE = 2\nraise KeyError('lost')\n")
    for _ in range(2):
        with pytest.raises(DataError, match="written_raising.py cannot be loaded.*KeyError: 'lost'"):
            registry.load_module(str(path))
    assert "written_raising" not in sys.modules
    path.write_text("MINE = 3\n")
    assert registry.load_module(str(path)).MINE == 3


def test_a_file_may_have_the_name_of_a_module(tmp_path: Path) -> None:
    path = tmp_path / "json.py"
    path.write_text("RECIPE = {}\nMINE = True\n")
    import json

    module = registry.load_module(str(path))
    assert module.MINE and registry.load_module(str(path)) is module
    assert sys.modules["json"] is json
    del sys.modules[module.__name__]
