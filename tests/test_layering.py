"""The architecture as tests: who may import whom, and what `import vsemb` costs."""

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
    {"files", "registry"},
    {"parts"},
    {"ops", "presets"},
    {"text", "image"},
    {"encoders", "similarities", "losses"},
    {"models"},
    {"data"},
    {"evaluation"},
    {"training", "search"},
    {"export"},
    {"serving", "recipes"},
    {"runs"},
    {"commands"},
    {"report", "demo"},
    {"systems"},
    {"cli"},
]
LEVEL = {room: level for level, rooms in enumerate(ORDER) for room in rooms}

# Imports upwards, file -> modules, until the base asks the registry instead. It must not grow.
ALLOWED: dict[str, set[str]] = {
    "vsemb/demo/answers.py": {
        "vsemb.systems.captions.caption_writer",
        "vsemb.systems.captions.captioning",
        "vsemb.systems.captions.demo",
        "vsemb.systems.regions.set_search",
    },
    "vsemb/demo/server.py": {
        "vsemb.systems.captions.caption_writer",
        "vsemb.systems.captions.demo",
        "vsemb.systems.captions.demo_page",
    },
    "vsemb/report/page.py": {
        "vsemb.systems.regions.report",
        "vsemb.systems.zero_shot.metrics",
    },
    "vsemb/report/space.py": {
        "vsemb.systems.zero_shot.class_names",
    },
    "vsemb/serving/client.py": {
        "vsemb.systems.captions.client",
        "vsemb.systems.regions.client",
        "vsemb.systems.trees.client",
    },
    "vsemb/systems/captions/caption_command.py": {
        "vsemb.cli.tables",
    },
    "vsemb/systems/captions/caption_regions_command.py": {
        "vsemb.cli.tables",
    },
    "vsemb/systems/captions/evaluate_command.py": {
        "vsemb.cli.tables",
    },
    "vsemb/systems/regions/align_command.py": {
        "vsemb.cli.tables",
    },
    "vsemb/systems/regions/norms_command.py": {
        "vsemb.cli.tables",
    },
    "vsemb/systems/regions/search_command.py": {
        "vsemb.cli.tables",
    },
    "vsemb/systems/zero_shot/classify_command.py": {
        "vsemb.cli.tables",
    },
}

# A system imports another one only here; the second line, too, must not grow and has to go.
BESIDE = {("captions", "regions"), ("language", "captions")}
BESIDE |= {("captions", "language"), ("hypernymy", "entailment"), ("zero_shot", "trees")}

# Written with Keras alone, so that they run on any of its backends.
ANY_BACKEND = {"ops", "encoders", "similarities", "losses", "models"}
ANY_BACKEND_FILES = {
    "vsemb/systems/captions/attentive_rnn.py",
    "vsemb/systems/captions/multimodal_rnn.py",
    "vsemb/systems/captions/next_word.py",
    "vsemb/systems/captions/next_word_loss.py",
    "vsemb/systems/captions/spatial_features.py",
    "vsemb/systems/entailment/max_margin.py",
    "vsemb/systems/entailment/model.py",
    "vsemb/systems/hypernymy/model.py",
    "vsemb/systems/language/log_bilinear.py",
    "vsemb/systems/language/structure_content.py",
    "vsemb/systems/regions/attention.py",
    "vsemb/systems/regions/region_encoder.py",
    "vsemb/systems/regions/set_scores.py",
    "vsemb/systems/regions/similarities.py",
    "vsemb/systems/regions/viterbi.py",
    "vsemb/systems/regions/word_sequence.py",
    "vsemb/systems/trees/levels.py",
    "vsemb/systems/trees/ops.py",
    "vsemb/systems/trees/tree_lstm.py",
    "vsemb/systems/zero_shot/attribute_encoder.py",
    "vsemb/systems/zero_shot/binary_bag_of_words.py",
    "vsemb/systems/zero_shot/convolutional.py",
    "vsemb/systems/zero_shot/structured_loss.py",
}
OPS_FILES = {
    "vsemb/systems/regions/attention.py",
    "vsemb/systems/regions/set_scores.py",
    "vsemb/systems/regions/viterbi.py",
    "vsemb/systems/trees/levels.py",
    "vsemb/systems/trees/ops.py",
}

# What no `keras.ops` offers, each behind a function that does without it on other backends.
BACKENDS_OWN = {"replicas", "ring", "chunks", "compilation", "recurrent_loops", "levels", "processor"}


def room_of(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def file_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


FILES_OF_ANY_BACKEND = [p for p in FILES if room_of(p) in ANY_BACKEND or file_of(p) in ANY_BACKEND_FILES]
FILES_OF_OPS = [p for p in FILES if room_of(p) == "ops" or file_of(p) in OPS_FILES]


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
            found += [(f"{node.module}.{alias.name}", node.lineno, id(node) in inside) for alias in node.names]
    return found


def test_every_room_has_a_place() -> None:
    rooms = {room_of(path) for path in FILES} - {"__init__", "__main__"}
    assert rooms <= set(LEVEL), f"not in the order: {rooms - set(LEVEL)}"


@pytest.mark.parametrize("path", FILES, ids=MODULES)
def test_imports_go_downwards(path: Path) -> None:
    room = room_of(path)
    if room == "__init__":
        return
    known = ALLOWED.get(file_of(path), set())
    for name, line, _ in imports(path):
        parts = name.split(".")
        if parts[0] == "pipelines":
            pytest.fail(f"{path}:{line} imports pipelines")
        if parts[0] != "vsemb" or len(parts) == 1 or parts[1] == "__version__" or parts[1] == room:
            continue
        if not {name, name.rpartition(".")[0]} & known:
            assert LEVEL[parts[1]] < LEVEL[room], f"{path}:{line}: {room} imports {parts[1]}"


def test_what_is_allowed_is_there() -> None:
    for file, modules in ALLOWED.items():
        found = {name for name, _, _ in imports(ROOT / file)}
        found |= {name.rpartition(".")[0] for name in found}
        assert modules <= found, f"{file}: strike {modules - found} from ALLOWED"


@pytest.mark.parametrize("path", [p for p in FILES if room_of(p) == "systems"], ids=str)
def test_systems_stand_beside_each_other(path: Path) -> None:
    own = path.relative_to(PACKAGE).parts[1]
    for name, line, _ in imports(path):
        parts = name.split(".")
        if parts[:2] == ["vsemb", "systems"] and parts[2] != own:
            assert (own, parts[2]) in BESIDE, f"{path}:{line}: {own} imports {parts[2]}"


@pytest.mark.parametrize(
    "path", [p for p in FILES if room_of(p) in ANY_BACKEND or file_of(p) in ANY_BACKEND_FILES], ids=str
)
def test_no_tensorflow_where_any_backend_runs(path: Path) -> None:
    for name, line, in_function in imports(path):
        if name.split(".")[0] == "tensorflow":
            ops = room_of(path) == "ops" or file_of(path) in OPS_FILES
            allowed = ops and path.stem in BACKENDS_OWN and in_function
            assert allowed, f"{path}:{line} imports tensorflow"


@pytest.mark.parametrize("path", [p for p in FILES if room_of(p) == "ops" or file_of(p) in OPS_FILES], ids=str)
def test_ops_have_no_state(path: Path) -> None:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    assert not [node.name for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]


def test_no_drawers_for_everything() -> None:
    names = {path.stem for folder in (PACKAGE, ROOT / "tests") for path in folder.rglob("*.py")}
    assert not names & {"utils", "util", "helpers", "helper", "misc", "common"}


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
        "slow = []\n"
        "for name in COMMANDS:\n"
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
