"""How many small defects do the quick tests find? `python -m tests.mutation --sample 300 --out found.json`

A mutant is one file of the core with one change by cosmic-ray: a minus in place of a plus, `<=` in place of `<`,
another number. Each is tried in a forked process by the tests of its subpackage and then by those that import its
file, until one fails. Changes of annotations are not counted.
"""

from __future__ import annotations

import argparse
import ast
import difflib
import importlib.machinery
import json
import multiprocessing
import os
import random
import sys
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from types import CodeType

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
    path: Path
    source: str

    @property
    def module(self) -> str:
        return ".".join(self.path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")

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


def mutants(path: Path) -> Iterator[Mutant]:
    """All mutants of a file that differ in more than annotations."""
    from cosmic_ray.mutating import mutate_code
    from cosmic_ray.plugins import get_operator

    source = path.read_text()
    original = _meaning(source)
    for name in OPERATORS:
        occurrence = 0
        while (changed := mutate_code(source, get_operator(f"core/{name}")(), occurrence)) is not None:
            occurrence += 1
            if _meaning(changed) not in (original, None):
                yield Mutant(path, changed)


def _files_for(mutant: Mutant, root: Path) -> list[str]:
    """Files of tests: first those of its subpackage, then others of the core that import its file."""
    room = mutant.path.relative_to(ROOT / "vsemb").parts[0].removesuffix(".py")
    folders = [root / "tests" / Path(part).with_suffix("") for part in CORE]
    found = [file for each in folders for file in (*each.rglob("test_*.py"), each.with_name(f"test_{each.name}.py"))]
    files = sorted(file for file in found if file.exists())
    own = [file for file in files if room in (file.parent.name, file.stem.removeprefix("test_"))]
    beside = [file for file in files if file not in own and mutant.module in file.read_text()]
    own.sort(key=lambda file: file.name != f"test_{mutant.path.stem}.py")
    return [str(file) for file in own + beside]


def _try(mutant: Mutant, root: Path) -> None:
    """Runs the tests in this process with the changed source in place of the file; exits with 1 where one fails."""

    class Loader(importlib.machinery.SourceFileLoader):
        def get_code(self, fullname: str) -> CodeType | None:
            if fullname == mutant.module:
                return compile(mutant.source, self.path, "exec")
            return super().get_code(fullname)

    details = (Loader, importlib.machinery.SOURCE_SUFFIXES)
    sys.path_hooks.insert(0, importlib.machinery.FileFinder.path_hook(details))
    sys.path_importer_cache.clear()
    sys.path[:0] = [str(root)]
    os.chdir(root)
    quiet = os.open(os.devnull, os.O_WRONLY)
    os.dup2(quiet, 1)
    os.dup2(quiet, 2)
    import pytest

    options = ["-x", "-q", "-p", "no:cacheprovider", "-m", "not slow and not real_data"]
    options += ["--processes", "0"] if (root / "tests/processes.py").exists() else []
    os._exit(int(pytest.main([*options, *_files_for(mutant, root)]) != 0))


def outcome(mutant: Mutant, root: Path, limit: float) -> str:
    process = multiprocessing.get_context("fork").Process(target=_try, args=(mutant, root))
    process.start()
    process.join(limit)
    if process.is_alive():
        process.kill()
        process.join()
        return "killed"
    return "killed" if process.exitcode else "survived"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sample", type=int, default=300, help="mutants drawn of all, default: %(default)s")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--limit", type=float, default=300.0, help="seconds; a mutant that takes longer is killed")
    parser.add_argument("--root", type=Path, default=ROOT, help="another checkout, whose tests to run")
    parser.add_argument("--core", nargs="+", default=CORE, help="parts of vsemb/ to change, default: %(default)s")
    parser.add_argument("--out", type=Path, required=True, help="JSON: survivors, and numbers for each part")
    arguments = parser.parse_args()
    # What the tests import again and again, before any process is forked; of vsemb nothing.
    import keras  # noqa: F401
    import tensorflow  # noqa: F401

    files = [
        file
        for part in arguments.core
        for file in sorted((ROOT / "vsemb" / part).rglob("*.py") or [ROOT / "vsemb" / part])
    ]
    everything = [mutant for file in files for mutant in mutants(file)]
    drawn = random.Random(arguments.seed).sample(everything, min(arguments.sample, len(everything)))
    counts: dict[str, Counter[str]] = {}
    survivors = []
    with ThreadPoolExecutor(arguments.processes) as pool:
        results = pool.map(lambda mutant: outcome(mutant, arguments.root.resolve(), arguments.limit), drawn)
        for number, (mutant, result) in enumerate(zip(drawn, results, strict=True), start=1):
            part = mutant.path.relative_to(ROOT / "vsemb").parts[0]
            counts.setdefault(part, Counter())[result] += 1
            survivors += [mutant.change()] if result == "survived" else []
            print(f"{number} of {len(drawn)}: {result} {mutant.change()}", flush=True)
            written = {"mutants": len(everything), "tried": number, "counts": counts, "survivors": survivors}
            arguments.out.write_text(json.dumps(written, indent=1))


if __name__ == "__main__":
    main()
