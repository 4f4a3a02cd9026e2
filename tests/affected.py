"""Prints the test files of what changed: `python -m tests.affected`, for `make check`.

Changed is what git reports against a commit, HEAD by default, and new files. The nearest come first: test files that
changed, those named after a changed module, those that import one, and those named after a module that imports one.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

from tests.test_layering import ROOT, edges, imports, module_of


def changed_files(base: str) -> list[Path]:
    """Python files of the working tree that differ from a commit."""
    names = []
    for command in (["diff", "--name-only", "--diff-filter=d", base], ["ls-files", "--others", "--exclude-standard"]):
        listing = subprocess.run(["git", "-C", str(ROOT), *command], capture_output=True, text=True, check=True)
        names += listing.stdout.splitlines()
    return [ROOT / name for name in names if name.endswith(".py")]


def affected_by(changed: Iterable[Path]) -> list[Path]:
    """Test files of changed files, the nearest first."""
    changed = {*changed}
    modules = {module_of(path) for path in changed}
    importers = {module for module, target, _ in edges() if target in modules}

    def mirrors(path: Path, of: set[str]) -> bool:
        folder = "vsemb" if path.parent.name == "tests" else path.parent.name
        return any(path.stem == f"test_{each.split('.')[-1]}" and f".{folder}." in f".{each}" for each in of)

    def imports_changed(path: Path) -> bool:
        return any({name, name.rpartition(".")[0]} & modules for name, *_ in imports(path))

    ranks = (
        lambda path: path in changed,
        lambda path: mirrors(path, modules),
        imports_changed,
        lambda path: mirrors(path, importers),
    )
    tests = sorted((ROOT / "tests").rglob("test_*.py"))
    return list(dict.fromkeys(path for near in ranks for path in tests if near(path)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--base", default="HEAD", help="a commit, default: %(default)s")
    parser.add_argument("--limit", type=int, default=12, help="files at most, default: %(default)s")
    arguments = parser.parse_args()
    found = affected_by(changed_files(arguments.base))
    print(*(path.relative_to(ROOT) for path in found[: arguments.limit]), sep="\n")
    if len(found) > arguments.limit:
        print(f"{len(found) - arguments.limit} more test files may be affected: run make test", file=sys.stderr)


if __name__ == "__main__":
    main()
