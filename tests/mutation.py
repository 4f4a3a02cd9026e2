"""How many small defects do the quick tests find? `python -m tests.mutation --sample 300 --out found.json`

A mutant is one file of the core with one change by cosmic-ray: a minus in place of a plus, `<=` in place of `<`,
another number. Changes of annotations are not counted. Each mutant is tried in a copy of the package by the files of
tests that execute the changed line, of those nearest to it, until one fails. Each file must first pass on the
unchanged package; a mutant that takes four times as long counts as killed.
"""

from __future__ import annotations

import argparse
import ast
import difflib
import json
import multiprocessing
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import coverage
import pytest

from tests.affected import affected_by

ROOT = Path(__file__).parents[1]

CORE = ("ops", "losses", "similarities.py", "evaluation", "models", "data/batches.py")

_BINARY = "Add_Sub Sub_Add Mul_Div Div_Mul FloorDiv_Mul Mod_Mul Pow_Mul BitAnd_BitOr BitOr_BitAnd"
_COMPARISON = "Lt_LtE Lt_GtE LtE_Lt LtE_Gt Gt_GtE Gt_LtE GtE_Gt GtE_Lt Eq_NotEq NotEq_Eq Is_IsNot IsNot_Is"
_OTHER = (
    "ReplaceUnaryOperator_USub_UAdd ReplaceUnaryOperator_Delete_Not AddNot ReplaceTrueWithFalse ReplaceFalseWithTrue"
    " ReplaceAndWithOr ReplaceOrWithAnd NumberReplacer ZeroIterationForLoop"
)
#: Without those that always end in a TypeError, such as a shift in place of a sum: they would flatter the tests.
OPERATORS = [
    *(f"ReplaceBinaryOperator_{pair}" for pair in _BINARY.split()),
    *(f"ReplaceComparisonOperator_{pair}" for pair in _COMPARISON.split()),
    *_OTHER.split(),
]


@dataclass(frozen=True)
class Mutant:
    part: str
    path: Path
    source: str

    @property
    def lines(self) -> range:
        """From where the changed statement begins to where it is changed."""
        old, new = self.path.read_text().splitlines(), self.source.splitlines()
        changed = next(number for number, pair in enumerate(zip(old, new, strict=False), 1) if pair[0] != pair[1])
        nodes = [node for node in ast.walk(ast.parse(self.path.read_text())) if isinstance(node, ast.stmt)]
        begins = max((n.lineno for n in nodes if n.lineno <= changed <= (n.end_lineno or 0)), default=changed)
        return range(begins, changed + 1)

    def change(self) -> str:
        """The changed lines, as in a diff."""
        lines = self.path.read_text().splitlines(), self.source.splitlines()
        changed = [each for each in difflib.unified_diff(*lines, lineterm="", n=0) if each[:2] not in ("--", "++")]
        return f"{self.path.relative_to(ROOT)} {' '.join(changed)}"


class _WithoutAnnotations(ast.NodeTransformer):
    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        node.annotation = ast.Constant(None)
        return self.generic_visit(node)

    def visit_arg(self, node: ast.arg) -> ast.AST:
        node.annotation = None
        return node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        node.returns = None
        return self.generic_visit(node)


def _meaning(source: str) -> str | None:
    try:
        return ast.dump(_WithoutAnnotations().visit(ast.parse(source)))
    except SyntaxError:
        return None


def mutants(parts: Sequence[str], seed: int) -> Iterator[Mutant]:
    """All mutants of the parts that differ in more than annotations, in random order."""
    from cosmic_ray.ast import ast_nodes, get_ast
    from cosmic_ray.mutating import mutate_code
    from cosmic_ray.plugins import get_operator

    places = []
    for part in parts:
        folder = ROOT / "vsemb" / part
        for path in [folder] if folder.is_file() else sorted(folder.rglob("*.py")):
            nodes = list(ast_nodes(get_ast(path.read_text())))
            for operator in (get_operator(f"core/{name}")() for name in OPERATORS):
                count = sum(1 for node in nodes for _ in operator.mutation_positions(node))
                places += [(part, path, operator, occurrence) for occurrence in range(count)]
    random.Random(seed).shuffle(places)
    for part, path, operator, occurrence in places:
        source = path.read_text()
        changed = mutate_code(source, operator, occurrence)
        if changed is not None and _meaning(changed) not in (_meaning(source), None):
            yield Mutant(part, path, changed)


class _Contexts:
    """A plugin of pytest: tells coverage which test runs."""

    def __init__(self, measured: coverage.Coverage) -> None:
        self._measured = measured

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self._measured.switch_context(nodeid)


def _run_pytest(copy: Path, names: Sequence[str], options: Sequence[str], lines: bool) -> None:
    """The body of a forked process: exits with pytest's status, and writes `lines.json` where asked."""
    os.setsid()
    os.chdir(copy)
    with open("log", "w") as stream:
        os.dup2(stream.fileno(), 1)
        os.dup2(stream.fileno(), 2)
    sys.path.insert(0, str(copy))
    sys.dont_write_bytecode = True
    os.environ |= {"PYTHONPATH": str(copy), "PYTHONDONTWRITEBYTECODE": "1"}
    for name in [name for name in sys.modules if name.partition(".")[0] in ("tests", "vsemb")]:
        del sys.modules[name]
    arguments = ["-x", "-q", "-p", "no:cacheprovider", "-m", "not slow and not real_data", *options, *names]
    arguments += ["--processes", "0"] if (copy / "tests/processes.py").exists() else []
    if not lines:
        os._exit(int(pytest.main(arguments)))
    measured = coverage.Coverage(data_file=None, include=["*/vsemb/*"])
    measured.start()
    status = int(pytest.main(arguments, plugins=[_Contexts(measured)]))
    measured.stop()
    data = measured.get_data()
    found = {str(Path(file).relative_to(copy)): data.contexts_by_lineno(file) for file in data.measured_files()}
    (copy / "lines.json").write_text(json.dumps(found))
    os._exit(status)


@dataclass(frozen=True)
class Unchanged:
    """What a file of tests does with the unchanged package.

    Attributes:
        seconds: how long it takes.
        lines: file of the package -> number of a line, as text -> tests that execute it; `""` as modules are imported.
    """

    seconds: float
    lines: dict[str, dict[str, list[str]]]


class Tests:
    """Runs the tests of a checkout on this package, in a copy of both.

    Args:
        root: the checkout.
        copy: the directory for the copy.
        deselect: tests that need not pass, as for pytest.
    """

    def __init__(self, root: Path, copy: Path, deselect: Sequence[str]) -> None:
        self._root, self._copy = root, copy
        self._options = [f"--deselect={test}" for test in deselect]
        self._unchanged: dict[str, Unchanged] = {}
        shutil.copytree(ROOT / "vsemb", copy / "vsemb")
        shutil.copytree(root / "tests", copy / "tests")
        shutil.copy(root / "pyproject.toml", copy)

    def files_for(self, path: Path) -> list[str]:
        """Files of tests: the nearest to a file of the package, its subpackage's, namesakes, and defaults."""
        room = ROOT / "tests" / path.relative_to(ROOT / "vsemb").parent
        beside = [*room.glob("test_*.py")] if room.name != "tests" else []
        alike = (ROOT / "tests").rglob(f"test_{path.stem}*.py")
        files = [*affected_by([path])[:4], *sorted(beside), *sorted(alike), ROOT / "tests/recipes/test_values.py"]
        # Tests of systems train, and try the core by the way.
        names = dict.fromkeys(str(file.relative_to(ROOT)) for file in files if "systems" not in file.parts)
        return [name for name in names if (self._root / name).exists()]

    def killer(self, mutant: Mutant) -> str | None:
        """The file of tests that finds a mutant, or None."""
        files = self.files_for(mutant.path)
        tests = {file: self.unchanged(file).lines.get(str(mutant.path.relative_to(ROOT)), {}) for file in files}
        executing = {file: {test for line in mutant.lines for test in tests[file].get(str(line), [])} for file in files}
        if not any(executing.values()):  # By processes that tests start, or by none.
            executing = dict.fromkeys(files, {""})
        place, unchanged = self._copy / mutant.path.relative_to(ROOT), mutant.path
        place.write_text(mutant.source)
        try:
            for file, names in executing.items():
                # Those that execute the line, then those that use a graph that was made of it.
                order = [*sorted(names - {""}), file]
                if names and self._run(order, 30 + 4 * self._unchanged[file].seconds) is not None:
                    return file
        finally:
            shutil.copy2(unchanged, place)
        return None

    def unchanged(self, file: str) -> Unchanged:
        """Runs a file of tests on the unchanged package; ends the program where it fails."""
        if file not in self._unchanged:
            started = time.monotonic()
            said = self._run([file], lines=True)
            if said is not None:
                raise SystemExit(f"{said}\n{file} must pass on the unchanged package, or it kills every mutant.")
            lines = json.loads((self._copy / "lines.json").read_text())
            self._unchanged[file] = Unchanged(time.monotonic() - started, lines)
            print(f"{file} passes in {self._unchanged[file].seconds:.0f} s", flush=True)
        return self._unchanged[file]

    def _run(self, names: Sequence[str], limit: float | None = None, lines: bool = False) -> str | None:
        """What pytest says where a test fails or takes more than the seconds, else None."""
        arguments = self._copy, names, self._options, lines
        process = multiprocessing.get_context("fork").Process(target=_run_pytest, args=arguments)
        process.start()
        process.join(limit)
        if process.is_alive():
            os.killpg(process.pid, signal.SIGKILL)
            process.join()
        passed = process.exitcode in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED)
        return None if passed else (self._copy / "log").read_text()[-3000:]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sample", type=int, default=300, help="mutants drawn of all, default: %(default)s")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--root", type=Path, default=ROOT, help="another checkout, whose tests to run")
    parser.add_argument("--core", nargs="+", default=CORE, help="parts of vsemb/ to change, default: %(default)s")
    parser.add_argument("--deselect", nargs="+", default=[], help="tests that need not pass, as for pytest")
    parser.add_argument("--out", type=Path, required=True, help="JSON: survivors, and numbers for each part")
    arguments = parser.parse_args()
    # What the tests import again and again, before any process is forked; of vsemb nothing.
    import keras  # noqa: F401
    import tensorflow  # noqa: F401

    drawn = list(islice(mutants(arguments.core, arguments.seed), arguments.sample))
    counts = {part: Counter(killed=0, survived=0) for part in arguments.core}
    killers: Counter[str] = Counter()
    survivors = []
    with tempfile.TemporaryDirectory() as folder:
        nearest = Tests(arguments.root.resolve(), Path(folder).resolve(), arguments.deselect)
        for number, mutant in enumerate(drawn, start=1):
            killer = nearest.killer(mutant)
            counts[mutant.part]["killed" if killer else "survived"] += 1
            killers.update([killer] if killer else [])
            survivors += [] if killer else [mutant.change()]
            print(f"{number} of {len(drawn)}: {killer or 'SURVIVED'} {mutant.change()}", flush=True)
            written = {"tried": number, "counts": counts, "survivors": survivors, "killers": killers}
            arguments.out.write_text(json.dumps(written, indent=1))


if __name__ == "__main__":
    main()
