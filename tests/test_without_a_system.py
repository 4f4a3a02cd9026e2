"""Each system can be deleted: no test of the base imports it, and a copy without it is imported and explains itself."""

from __future__ import annotations

import contextlib
import importlib
import io
import multiprocessing
import os
import shutil
import sys
import traceback
from pathlib import Path

import pytest

from tests.test_layering import BESIDE, ROOT, SYSTEMS, imports, module_of


def with_those_that_import(name: str) -> list[str]:
    """A system and those that must go with it, since they import from it."""
    users = [user for user in SYSTEMS if name in BESIDE.get(user, ())]
    return [name, *(each for user in users for each in with_those_that_import(user))]


def test_no_test_of_the_base_imports_a_system() -> None:
    inside = {ROOT / "tests" / name for name in ("systems", "e2e", "extension", "benchmarks", "fuzz")}
    wrong = [
        f"{path}:{line} imports {name}"
        for path in (ROOT / "tests").rglob("*.py")
        if not inside & {*path.parents} and path != Path(__file__)
        for name, line, in_function in imports(path)
        if not in_function and name.startswith(("vsemb.systems.", "tests.systems."))
    ]
    assert wrong == []


def copy_without(systems: list[str], path: Path) -> None:
    """Copies the package without the folders and lines of systems."""
    shutil.copytree(ROOT / "vsemb", path / "vsemb")
    listing = path / "vsemb/systems/__init__.py"
    lines = listing.read_text().splitlines(keepends=True)
    listing.write_text(
        "".join(line for line in lines if not any(f'"vsemb.systems.{each}"' in line for each in systems))
    )
    for each in systems:
        shutil.rmtree(path / "vsemb/systems" / each)


def try_copy(path: Path, connection) -> None:
    """Imports the copy and runs commands of it; sends what failed, or nothing."""
    try:
        for module in [each for each in sys.modules if each.split(".")[0] in ("vsemb", "tests", "pipelines")]:
            del sys.modules[module]
        os.chdir(path)
        sys.path.insert(0, str(path))
        import vsemb
        import vsemb.cli.__main__ as cli

        assert vsemb.__file__ is not None and vsemb.__file__.startswith(str(path))
        shown = io.StringIO()
        with contextlib.redirect_stdout(shown):
            for name in cli.commands():
                cli.command_parser(name).format_help()
            assert cli.main(["recipes"]) == 0 and cli.main(["recipes", "vsepp"]) == 0
        assert "vsepp" in shown.getvalue()
        for file in path.joinpath("vsemb").rglob("*.py"):
            if file.stem != "__main__":
                importlib.import_module(module_of(file, path))
        connection.send("")
    except BaseException:
        connection.send(traceback.format_exc())


@pytest.mark.parametrize("name", SYSTEMS)
def test_the_base_stands_without_a_system(name: str, tmp_path: Path) -> None:
    copy_without(with_those_that_import(name), tmp_path)
    # Forked, so that TensorFlow is not imported again for each system.
    fork = multiprocessing.get_context("fork")
    ours, theirs = fork.Pipe(duplex=False)
    process = fork.Process(target=try_copy, args=(tmp_path, theirs))
    process.start()
    assert ours.poll(120), "no answer within two minutes"
    assert ours.recv() == ""
    process.join()
