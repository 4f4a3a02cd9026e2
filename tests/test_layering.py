"""The architecture as tests: who may import whom, how long files are, what `import vsemb` costs."""

from __future__ import annotations

import ast
import doctest
import importlib
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "vsemb"
FILES = sorted(PACKAGE.rglob("*.py"))
MODULES = [".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__") for path in FILES]

# Lowest first; a room imports only rooms of lines above its own here, and itself.
ORDER = [
    {"errors"},
    {"files"},
    {"ops", "presets"},
    {"text", "image"},
    {"encoders", "similarities", "losses"},
    {"models"},
    {"captioning"},
    {"data"},
    {"evaluation"},
    {"training", "search"},
    {"export"},
    {"serving", "recipes"},
    {"cli"},
]
LEVEL = {room: level for level, rooms in enumerate(ORDER) for room in rooms}

# Written with Keras alone, so that they run on any of its backends.
ANY_BACKEND = {"ops", "encoders", "similarities", "losses", "models"}

# What no `keras.ops` offers, each behind a function that does without it on other backends.
BACKENDS_OWN = {"replicas", "ring", "chunks", "compilation", "recurrent_loops", "tree_levels", "processor"}


def room_of(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imports(path: Path) -> list[tuple[str, int, bool]]:
    """Returns (module or module.name, line, whether it stands in a function) of every import of a file."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    inside = {
        id(child)
        for node in ast.walk(tree)
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda))
        for child in ast.walk(node)
    }
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found += [(alias.name, node.lineno, id(node) in inside) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: relative import"
            # `from vsemb import losses` imports a room, `from vsemb.losses import get` one too.
            found += [
                (f"{node.module}.{alias.name}", node.lineno, id(node) in inside) for alias in node.names
            ]
    return found


def test_every_room_has_a_place() -> None:
    rooms = {room_of(path) for path in FILES} - {"__init__", "__main__"}
    assert rooms <= set(LEVEL), f"not in the order: {rooms - set(LEVEL)}"


@pytest.mark.parametrize("path", FILES, ids=MODULES)
def test_imports_go_downwards(path: Path) -> None:
    room = room_of(path)
    if room == "__init__":
        return
    for name, line, _ in imports(path):
        parts = name.split(".")
        if parts[0] == "pipelines":
            pytest.fail(f"{path}:{line} imports pipelines")
        if parts[0] != "vsemb" or len(parts) == 1 or parts[1] == "__version__" or parts[1] == room:
            continue
        assert LEVEL[parts[1]] < LEVEL[room], f"{path}:{line}: {room} imports {parts[1]}"


@pytest.mark.parametrize("path", [p for p in FILES if room_of(p) in ANY_BACKEND], ids=str)
def test_no_tensorflow_where_any_backend_runs(path: Path) -> None:
    for name, line, in_function in imports(path):
        if name.split(".")[0] == "tensorflow":
            allowed = path.parent == PACKAGE / "ops" and path.stem in BACKENDS_OWN and in_function
            assert allowed, f"{path}:{line} imports tensorflow"


@pytest.mark.parametrize("path", [p for p in FILES if room_of(p) == "ops"], ids=str)
def test_ops_have_no_state(path: Path) -> None:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    assert not [node.name for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]


def test_no_drawers_for_everything() -> None:
    names = {path.stem for folder in (PACKAGE, ROOT / "tests") for path in folder.rglob("*.py")}
    assert not names & {"utils", "util", "helpers", "helper", "misc", "common"}


@pytest.mark.parametrize("path", FILES, ids=MODULES)
def test_files_can_be_read_in_one_sitting(path: Path) -> None:
    assert len(path.read_text(encoding="utf-8").splitlines()) <= 400


@pytest.mark.parametrize("path", FILES, ids=MODULES)
def test_no_leftovers(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert not re.search(r"\b(TODO|FIXME|XXX)\b(?! ?\(?#\d)", text), "a TODO without a number"
    assert ast.get_docstring(ast.parse(text)), "no module docstring"
    for call in ("pickle.load", "allow_pickle=True", "eval(", "exec("):
        assert not re.search(rf"(?<![\w.]){re.escape(call)}", text), call


def run_python(code: str) -> dict:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, cwd="/")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_importing_the_package_is_cheap_and_quiet() -> None:
    code = (
        "import sys, json, builtins, io\n"
        "written = []\n"
        "def hook(event, arguments):\n"
        "    if event == 'open' and isinstance(arguments[1], str) and set(arguments[1]) & set('wax+'):\n"
        "        if not str(arguments[0]).endswith(('.pyc',)) and '__pycache__' not in str(arguments[0]):\n"
        "            written.append(str(arguments[0]))\n"
        "    if event in ('socket.connect', 'subprocess.Popen'):\n"
        "        written.append(event)\n"
        "sys.addaudithook(hook)\n"
        f"sys.path.insert(0, {str(ROOT)!r})\n"
        "import vsemb\n"
        "heavy = [m for m in ('tensorflow', 'keras', 'numpy', 'PIL') if m in sys.modules]\n"
        "print(json.dumps({'heavy': heavy, 'written': written, 'version': vsemb.__version__}))"
    )
    result = run_python(code)
    assert result["heavy"] == []
    assert result["written"] == []
    assert re.fullmatch(r"\d+\.\d+\.\d+.*", result["version"])


def test_help_needs_no_tensorflow() -> None:
    code = (
        "import sys, json, io, contextlib\n"
        f"sys.path.insert(0, {str(ROOT)!r})\n"
        "from vsemb.cli.__main__ import COMMANDS, command_parser\n"
        "import importlib.util\n"
        "slow = []\n"
        "for name in COMMANDS:\n"
        "    if importlib.util.find_spec(f'vsemb.cli.{name}') is None: continue\n"
        "    text = command_parser(name).format_help()\n"
        "    assert 'example' in text, name\n"
        "    if 'tensorflow' in sys.modules or 'keras' in sys.modules: slow.append(name); break\n"
        "print(json.dumps({'slow': slow}))"
    )
    assert run_python(code)["slow"] == []


@pytest.mark.parametrize("name", [name for name in MODULES if not name.endswith("__main__")])
def test_examples_in_docstrings_run(name: str, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    try:
        module = importlib.import_module(name)
    except ImportError as error:
        if "vsemb[" in str(error):
            pytest.skip(str(error))
        raise
    options = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS
    result = doctest.testmod(module, optionflags=options, verbose=False)
    assert result.failed == 0, f"{result.failed} of {result.attempted} examples in {name}"
