"""The architecture as tests: who may import whom, what each system is to the base, what `import vsemb` costs."""

from __future__ import annotations

import ast
import doctest
import functools
import importlib
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from vsemb import systems

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "vsemb"
FILES = sorted(PACKAGE.rglob("*.py"))

# Lowest first; a room, a folder or module of the package, imports only rooms of lines above its own, and itself.
ORDER = [
    {"allocation", "errors"},
    {"console", "files", "tables", "unicode"},
    {"drawing", "pickles", "printing", "quantization", "registry", "results", "weights"},
    {"parts"},
    {"acts"},
    {"configured"},
    {"ops"},
    {"text", "image"},
    {"encoders", "hubs", "similarities", "losses"},
    {"models"},
    {"data"},
    {"evaluation"},
    {"training", "searching"},
    {"exporting"},
    {"serving", "recipes"},
    {"runs"},
    {"report", "demo"},
    {"api"},
    {"systems"},
    {"cli"},
]
LEVEL = {room: level for level, rooms in enumerate(ORDER) for room in rooms}

#: System -> systems that it imports.
BESIDE = {"captions": {"regions"}, "language": {"captions"}}
SYSTEMS = [name.rpartition(".")[2] for name in systems.SYSTEMS]

# Written with Keras alone, so that they run on any of its backends; what no `keras.ops` offers stands in functions.
ANY_BACKEND = {"configured", "ops", "encoders", "hubs", "similarities", "losses", "models"}
BACKENDS_OWN = {"replicas", "chunks", "backend", "recurrent_loops", "row_means", "gradients"}
# Gives TensorFlow to modules that are imported where it is missing, too.
STAND_IN = "vsemb.ops.tensorflow"


def module_of(path: Path, root: Path = ROOT) -> str:
    return ".".join(path.relative_to(root).with_suffix("").parts).removesuffix(".__init__")


MODULES = {module_of(path): path for path in FILES}


def room_of(module: str) -> str:
    return module.split(".")[1] if "." in module else ""


def system_of(module: str) -> str | None:
    parts = module.split(".")
    return parts[2] if parts[:2] == ["vsemb", "systems"] and len(parts) > 2 else None


@functools.cache
def imports(path: Path, types: bool = False) -> tuple[tuple[str, int, bool], ...]:
    """Returns (module or module.name, line, whether it stands in a function) of every import of a file.

    Imports for type checkers alone cost nothing and are no dependency; with `types`, they are listed too.
    """
    tree = ast.parse(path.read_text(encoding="utf-8"))
    if not types:
        for node in ast.walk(tree):
            if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
                node.body = [ast.Pass()]
    inside = {
        id(child)
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        for child in ast.walk(node)
    }
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found += [(alias.name, node.lineno, id(node) in inside) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: relative import"
            found += [(f"{node.module}.{alias.name}", node.lineno, id(node) in inside) for alias in node.names]
    return tuple(found)


def edges(types: bool = False) -> Iterator[tuple[str, str, int]]:
    """Yields (file, imported file, line), files by their module's names, imports in functions included.

    Imports for type checkers alone are left out, unless `types` is true.
    """
    for module, path in MODULES.items():
        for name, line, _ in imports(path, types):
            target = name if name in MODULES else name.rpartition(".")[0]
            if target in MODULES and target != module:
                yield module, target, line


def cycles(graph: dict[str, set[str]]) -> list[list[str]]:
    """Returns files that import each other in a circle: what is left when those without imports are taken away."""
    left = {name: set(targets) for name, targets in graph.items()}
    while free := [name for name, targets in left.items() if not targets]:
        for name in free:
            del left[name]
        for targets in left.values():
            targets.difference_update(free)
    return [[name, *sorted(targets)] for name, targets in sorted(left.items())]


def test_cycles_are_found() -> None:
    assert cycles({"a": {"b"}, "b": {"c"}, "c": set()}) == []
    assert cycles({"a": {"b"}, "b": {"a"}, "c": set()}) == [["a", "b"], ["b", "a"]]


def test_the_graph_of_files_has_no_cycle() -> None:
    graph: dict[str, set[str]] = {module: set() for module in MODULES}
    for module, target, _ in edges():
        graph[module].add(target)
    assert cycles(graph) == []


def test_imports_go_downwards() -> None:
    rooms = {room_of(module) for module in MODULES} - {""}
    assert rooms == set(LEVEL), f"not in the order, or not there: {rooms ^ set(LEVEL)}"
    wrong = [
        f"{module}:{line} imports {target}"
        for module, target, line in edges()
        if room_of(module) and room_of(target) not in ("", room_of(module))
        if LEVEL[room_of(target)] >= LEVEL[room_of(module)]
    ]
    assert wrong == []
    assert not [path for path in FILES for name, *_ in imports(path) if name.split(".")[0] == "pipelines"]


def test_the_picture_of_the_rooms_is_up_to_date() -> None:
    from tests import architecture_picture

    drawn = architecture_picture.FILE.read_text(encoding="utf-8")
    assert drawn == architecture_picture.svg(), "run: python -m tests.architecture_picture"


def test_the_base_imports_no_system_and_systems_few_of_each_other() -> None:
    wrong = []
    # A type checker must not need a system that was deleted.
    for module, target, line in edges(types=True):
        theirs, own = system_of(target), system_of(module)
        if theirs is not None and theirs != own and theirs not in BESIDE.get(own or "", set()):
            wrong.append(f"{module}:{line} imports {target}")
    assert wrong == []


def test_every_folder_of_systems_is_listed() -> None:
    folders = {path.parent.name for path in PACKAGE.glob("systems/*/__init__.py")}
    assert folders == set(SYSTEMS)


def any_backend(module: str) -> bool:
    return room_of(module) in ANY_BACKEND


def test_no_tensorflow_where_any_backend_runs() -> None:
    wrong = [
        f"{module}:{line}"
        for module, path in MODULES.items()
        if any_backend(module)
        for name, line, in_function in imports(path)
        if name.split(".")[0] == "tensorflow" and module != STAND_IN
        if not (room_of(module) == "ops" and path.stem in BACKENDS_OWN and in_function)
    ]
    assert wrong == []


def test_ops_have_no_state() -> None:
    for module, path in MODULES.items():
        if room_of(module) == "ops" and module != STAND_IN:
            tree = ast.parse(path.read_text(encoding="utf-8"))
            assert not [node.name for node in ast.walk(tree) if isinstance(node, ast.ClassDef)], module


def test_no_drawers_for_everything() -> None:
    names = {path.stem for folder in (PACKAGE, ROOT / "tests") for path in folder.rglob("*.py")}
    assert not names & {"utils", "util", "helpers", "helper", "misc", "common"}


def test_no_leftovers() -> None:
    for path in FILES:
        text = path.read_text(encoding="utf-8")
        assert not re.search(r"\b(TODO|FIXME|XXX)\b(?! ?\(?#\d)", text), f"{path}: a TODO without a number"
        assert ast.get_docstring(ast.parse(text)), f"{path}: no module docstring"
        for call in ("allow_pickle=True", "eval(", "exec("):
            assert not re.search(rf"(?<![\w.]){re.escape(call)}", text), f"{path}: {call}"


def test_only_line_feeds_end_a_line_of_data() -> None:
    """`str.splitlines` also splits at U+2028, U+0085 and others, which texts contain; a message's first line may."""
    for path in [*FILES, *(ROOT / "pipelines").rglob("*.py")]:
        tree = ast.parse(path.read_text(encoding="utf-8"))
        first = {node.value for node in ast.walk(tree) if isinstance(node, ast.Subscript)}
        calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and node not in first]
        wrong = [node.lineno for node in calls if getattr(node.func, "attr", "") == "splitlines"]
        assert not wrong, f"{path}, lines {wrong}: str.splitlines"


def unpickling(source: str) -> list[str]:
    """What can unpickle or run code of a file that others made, with its lines."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import | ast.ImportFrom):
            modules = [name.name for name in node.names] if isinstance(node, ast.Import) else [node.module or ""]
            found += [(node, one) for one in modules if one.split(".")[0] in UNPICKLERS]
        elif isinstance(node, ast.Call):
            call, given = ast.unparse(node.func), {each.arg: ast.unparse(each.value) for each in node.keywords}
            unsafe = call in ("np.load", "numpy.load") and given.get("allow_pickle") != "False"
            unsafe |= call in (
                "torch.load",
                "pd.read_pickle",
                "pandas.read_pickle",
                "yaml.load",
                "np.lib.format.read_array",
            )
            unsafe |= call.endswith("enable_unsafe_deserialization") or given.get("safe_mode", "True") != "True"
            found += [(node, call)] * unsafe
    return [f"line {node.lineno}: {name}" for node, name in found]


def reading_anything(source: str) -> list[str]:
    """Calls that open a file for reading without `vsemb.files`, and so wait for a named pipe, with their lines."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Call):
            continue
        call = ast.unparse(node.func)
        mode = [ast.unparse(value) for value in node.args[1:2]] or ["'r'"]
        reads = call == "open" and "'r" in mode[0] and "+" not in mode[0] and ast.unparse(node.args[0]) != "os.devnull"
        method = isinstance(node.func, ast.Attribute) and node.func.attr in ("read_text", "read_bytes")
        loads = call in ("np.load", "h5py.File", "tarfile.open", "pa.memory_map", "parquet.ParquetFile")
        unchecked = loads and "require_regular" not in ast.unparse(node) and len(node.args) + len(node.keywords) < 4
        found += [f"line {node.lineno}: {call}"] * (reads or method or unchecked)
    return found


#: Files of this package, of the kernel and of the network; and files that were checked where their folder was opened.
READ_AS_THEY_ARE = {
    # A program that is copied beside exported towers.
    "exporting/formats/encode.py",
    "ops/backend.py",
    "recipes/describe.py",
    "drawing/templates.py",
    "demo/page.py",
    "data/writing/validate.py",
    "data/writing/convert.py",
    "data/store.py",
    "data/tokens.py",
    "searching/storage.py",
    "searching/backends/codes.py",
    "searching/backends/faiss.py",
    "weights.py",
    "files.py",
}


@pytest.mark.parametrize("call", ["open(path)", "path.read_text()", "np.load(path)", "tarfile.open(path)"])
def test_what_opens_anything_is_found(call: str) -> None:
    assert reading_anything(call) and not reading_anything(f"read_bytes(path), open(path, 'wb'), print({call!r})")


def test_only_regular_files_are_opened() -> None:
    """A named pipe in place of a file waits for ever: every file is opened by `vsemb.files`."""
    for path in FILES:
        if path.relative_to(PACKAGE).as_posix() not in READ_AS_THEY_ARE:
            assert not reading_anything(path.read_text(encoding="utf-8")), path


UNPICKLERS = {"pickle", "_pickle", "cPickle", "cloudpickle", "dill", "joblib", "marshal", "shelve"}


@pytest.mark.parametrize(
    "source",
    [
        "import pickle",
        "from joblib import load",
        "def read(path):\n    import dill.source",
        "np.load(path)",
        "numpy.load(path, allow_pickle=True)",
        "np.load(path, allow_pickle=trusted)",
        "torch.load(path)",
        "keras.saving.load_model(path, safe_mode=False)",
        "keras.config.enable_unsafe_deserialization()",
    ],
)
def test_what_unpickles_is_found(source: str) -> None:
    assert len(unpickling(source)) == 1


def test_nothing_unpickles() -> None:
    """A file that others made is data: opening it runs no code of theirs.

    RefCOCO is published as a pickle. `tests.test_pickles` checks that what reads pickles loads plain values and given
    names alone.
    """
    for path in FILES:
        if path == PACKAGE / "pickles.py":
            continue
        assert not (found := unpickling(path.read_text(encoding="utf-8"))), f"{path}: {found}"
    assert not unpickling("np.load(path, allow_pickle=False); keras.saving.load_model(path)")


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


def test_help_and_the_list_of_recipes_need_no_tensorflow() -> None:
    code = (
        "import sys, json, io, contextlib\n"
        f"sys.path.insert(0, {str(ROOT)!r})\n"
        "import vsemb.cli.__main__ as cli\n"
        "slow = []\n"
        "with contextlib.redirect_stdout(io.StringIO()): assert cli.main(['recipes']) == 0\n"
        "for name in cli.commands():\n"
        "    text = cli.command_parser(name).format_help()\n"
        "    assert 'example' in text, name\n"
        "    if 'tensorflow' in sys.modules or 'keras' in sys.modules: slow.append(name); break\n"
        "print(json.dumps({'slow': slow}))"
    )
    assert run_python(code)["slow"] == []


@pytest.mark.parametrize("room", sorted({*LEVEL} - {"systems"} | {f"systems.{name}" for name in SYSTEMS}))
def test_examples_in_docstrings_run(room: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    options, failed = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS, []
    for name in MODULES:
        if name.endswith("__main__") or not f"{name}.".startswith(f"vsemb.{room}."):
            continue
        try:
            module = importlib.import_module(name)
        except ImportError as error:
            if "vsemb[" in str(error):
                continue
            raise
        result = doctest.testmod(module, optionflags=options, verbose=False)
        failed += [f"{result.failed} of {result.attempted} examples in {name}"] * bool(result.failed)
    assert failed == []
