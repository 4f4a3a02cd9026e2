"""Registry of systems: extensions of the base, found by name and loaded on demand.

A system is a package or a file that declares one `System` object named `SYSTEM`. The declaration contains names and
module paths, so that commands can list all entries without importing TensorFlow. Systems have three sources:

- `vsemb.systems.SYSTEMS`, the systems of this package;
- installed packages with an entry point in the group `vsemb.systems`, which names a `System` object;
- the environment variable `VSEMB_SYSTEMS`, modules or Python files separated by the path separator (`:`).

Only this module connects the base to systems.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

from vsemb.errors import DataError, InvalidArgumentError, invalid_argument, one_line, unknown_name
from vsemb.files import sha256_bytes, sha256_file

#: Environment variable with additional systems.
VARIABLE = "VSEMB_SYSTEMS"
#: Group of entry points.
GROUP = "vsemb.systems"


@dataclass(frozen=True)
class Command:
    """A subcommand of `vsemb`.

    Attributes:
        act: reference to its function, see `vsemb.acts`.
        summary: the function's work in under twelve words.
        examples: command lines for its `--help`.
        backends: backends of Keras that it runs on, the default first.
        keeps_memory: whether memory that was freed is kept for later use. A server returns it.
    """

    act: str
    summary: str
    examples: tuple[str, ...]
    backends: tuple[str, ...] = ("tensorflow",)
    keeps_memory: bool = True


@dataclass(frozen=True)
class System:
    """Extensions of a system to the base. References are arguments of `load`; in `parts` they are modules.

    Attributes:
        name: name of the system.
        recipes: recipe name -> reference to a dictionary of variant name -> recipe; the first is the default.
        parts: family -> kind -> module with the part's class, see `vsemb.parts.Part`.
        commands: name -> subcommand.
        examples: subcommand -> command lines for its `--help`.
        search_methods: embedding type of a similarity (`vector`, `multi_vector`) -> reference to the class that
            searches these embeddings, see `vsemb.runs.searching.SearchMethod`.
        report_sections: references to functions that add sections to the report, see `vsemb.report.page.SectionMaker`.
        charts: title of a report chart over epochs -> name in the log -> name of the line.
        demo_tabs: references to functions that add tabs to the demonstration, see `vsemb.demo.page.TabMaker`.
        client_texts: kind of text input -> reference to the client's text preparation.
        client_methods: method of `vsemb.serving.Client` -> reference to a function with the client as first argument.
        presets: prefix of image network names, such as `hub` -> reference to their class, see
            `vsemb.image.presets.Preset`.
        named_runs: prefix of names that stand for a run, such as `hub` -> reference to a function from the name to the
            run's directory, which it makes if necessary.
        run_files: file of a directory that stands for a run, such as `config.json` -> prefix of the directory's name in
            `named_runs`.
        annotations: name of data stored beside a dataset's shards -> reference to a function of the
            `vsemb.data.store.StoredDataset` that opens the data; it returns None if the data does not exist.
        caches: folder of a dataset with data computed from its images -> reference to its class, a
            `vsemb.data.features.store.FeatureFolder`.
    """

    name: str
    recipes: Mapping[str, str] = field(default_factory=dict)
    parts: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    commands: Mapping[str, Command] = field(default_factory=dict)
    examples: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    search_methods: Mapping[str, str] = field(default_factory=dict)
    report_sections: tuple[str, ...] = ()
    charts: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    demo_tabs: tuple[str, ...] = ()
    client_methods: Mapping[str, str] = field(default_factory=dict)
    client_texts: Mapping[str, str] = field(default_factory=dict)
    presets: Mapping[str, str] = field(default_factory=dict)
    named_runs: Mapping[str, str] = field(default_factory=dict)
    run_files: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    caches: Mapping[str, str] = field(default_factory=dict)


#: (family, kind) -> class of the part; filled when modules are imported.
CLASSES: dict[tuple[str, str], type] = {}
# Systems added by `add_file` in this process.
_ADDED: list[System] = []
# Module of a Python file -> SHA-256 of its source.
_SOURCES: dict[str, str] = {}


def register(family: str, kind: str, cls: type) -> None:
    """Register the class of a part; called by `vsemb.parts.Part` for every class with a kind.

    Raises:
        InvalidArgumentError: if another class has the same family and kind.
    """
    known = CLASSES.get((family, kind))
    if known is not None and (known.__module__, known.__qualname__) != (cls.__module__, cls.__qualname__):
        raise invalid_argument(
            "kind", kind, f"a kind of {family} that is not taken by {known.__module__}.{known.__qualname__}"
        )
    CLASSES[family, kind] = cls


@functools.cache
def _installed() -> tuple[System, ...]:
    from importlib.metadata import entry_points

    ours = importlib.import_module("vsemb.systems").SYSTEMS
    declared = [_system_of(importlib.import_module(name)) for name in ours]
    for entry in sorted(entry_points(group=GROUP), key=str):
        try:
            declared.append(_checked(entry.load(), str(entry)))
        except DataError:
            raise
        except Exception as error:
            raise _not_loaded(str(entry), error) from error
    for name in filter(None, os.environ.get(VARIABLE, "").split(os.pathsep)):
        try:
            declared.append(_system_of(load_module(name)))
        except DataError as error:
            raise DataError(f"{VARIABLE} must name modules or Python files of systems. {error}") from error
    return tuple(declared)


def systems() -> tuple[System, ...]:
    """Return all systems, the base first.

    Raises:
        DataError: if a system cannot be loaded.
    """
    return (BASE, *_installed(), *_ADDED)


def forget() -> None:
    """Clear the list of systems, so that the next call searches again, e.g. after an installation."""
    _installed.cache_clear()
    _ADDED.clear()


def load_module(name: str) -> ModuleType:
    """Import a module by name, or a Python file by path; again if the file was changed.

    Raises:
        DataError: if it does not exist or cannot be executed.
    """
    if not name.endswith(".py"):
        try:
            return importlib.import_module(name)
        except Exception as error:
            raise _not_loaded(name, error) from error
    path = Path(name).resolve()
    if not path.is_file():
        raise DataError(f"{name} must be a Python file; it does not exist.")
    module_name = path.stem
    other = importlib.util.find_spec(module_name) if module_name.isidentifier() else None
    if not module_name.isidentifier() or (other is not None and other.origin != str(path)):
        # A user's `json.py` must not replace Python's. `exp.v2` would be a module in a package.
        module_name = f"{module_name.replace('.', '_')}_{sha256_bytes(str(path).encode())[:8]}"
    known, source = sys.modules.get(module_name), sha256_file(path)
    if known is not None and _SOURCES.get(module_name, source) == source:
        return known
    # In a notebook, a file that was changed is executed again, and its system replaced.
    _installed.cache_clear()
    spec = importlib.util.spec_from_file_location(module_name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[module_name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException as error:
        # Otherwise the next import would return the partially executed module.
        sys.modules.pop(module_name, None)
        if isinstance(error, Exception):
            raise _not_loaded(str(path), error) from error
        raise
    _SOURCES[module_name] = source
    return module


def _not_loaded(what: str, error: Exception) -> DataError:
    return DataError(f"{what} cannot be loaded. {type(error).__name__}: {one_line(error)}")


def add_file(path: str | os.PathLike[str]) -> ModuleType:
    """Load a Python file with parts or a system, for this process and its child processes.

    Args:
        path: the file; its `SYSTEM`, if defined, is added too.

    Raises:
        DataError: if the file does not exist.
    """
    resolved = str(Path(path).resolve())
    module = load_module(resolved)
    named = os.environ.get(VARIABLE, "").split(os.pathsep)
    if resolved not in named:
        os.environ[VARIABLE] = os.pathsep.join(filter(None, [*named, resolved]))
    system = _system_of(module)
    _ADDED[:] = [known for known in _ADDED if known.name != system.name]
    # `systems` may have read the variable before this file was added.
    if system.name not in {known.name for known in _installed()}:
        _ADDED.append(system)
    return module


def recipes_of_file(path: str) -> dict[str, Any]:
    """Return the recipes of a Python file: `RECIPE`, a recipe or a dictionary of variants.

    Raises:
        DataError: if the file cannot be loaded or defines no recipe.
    """
    module = add_file(path)
    defined = getattr(module, "RECIPE", None)
    recipe = load("vsemb.recipes.schema:Recipe")
    variants = {defined.variant: defined} if isinstance(defined, recipe) else defined
    if isinstance(variants, Mapping) and variants and all(isinstance(each, recipe) for each in variants.values()):
        return dict(variants)
    shown = f"it is {one_line(repr(defined), 80)}" if hasattr(module, "RECIPE") else "it defines neither"
    raise DataError(f"{path} must define RECIPE, a recipe or a dictionary of variants; {shown}.")


def _system_of(module: ModuleType) -> System:
    system = getattr(module, "SYSTEM", None)
    # A file of parts and recipes without a declaration is a system too.
    return System(name=module.__name__) if system is None else _checked(system, module.__name__)


def _checked(system: Any, origin: str) -> System:
    if not isinstance(system, System):
        raise DataError(f"{origin} must name a `vsemb.registry.System`; got {type(system).__name__}.")
    return system


def load(reference: str) -> Any:
    """Return the object of a reference: `"module:attribute"`, `"module:attribute[key]"` or `"module"`.

    Example:

    >>> load("vsemb.errors:DataError").__name__
    'DataError'
    """
    module, _, attribute = reference.partition(":")
    attribute, _, key = attribute.removesuffix("]").partition("[")
    target: Any = importlib.import_module(module)
    if attribute:
        target = getattr(target, attribute)
    return target[key] if key else target


def entries(name: str, group: str | None = None) -> dict[str, Any]:
    """Merge one mapping of all systems, the base first.

    Args:
        name: attribute of `System`, e.g. `"recipes"`.
        group: key of an attribute whose values are mappings, e.g. a family of `"parts"`.

    Example:

    >>> entries("parts", "protocol")["retrieval"]
    'vsemb.runs.protocols'
    """
    mappings = [getattr(system, name) for system in systems()]
    if group is not None:
        mappings = [mapping.get(group, {}) for mapping in mappings]
    return {key: value for mapping in mappings for key, value in mapping.items()}


def references(name: str) -> list[str]:
    """Join one tuple of all systems.

    Args:
        name: attribute of `System`, e.g. `"report_sections"`.
    """
    return [reference for system in systems() for reference in getattr(system, name)]


def kinds(family: str) -> list[str]:
    """Return the kinds of a family of parts, the base first.

    Example:

    >>> kinds("similarity")[:3]
    ['cosine', 'mean-cosine', 'dot']
    """
    # First, because loading a file as a system registers its classes.
    declared = entries("parts", family)
    loaded = [kind for of, kind in CLASSES if of == family]
    return list(dict.fromkeys([*declared, *loaded]))


def find_part(family: str, kind: str, path: str) -> type:
    """Return the class of a part.

    Args:
        family: family of the part.
        kind: kind of the part.
        path: path of the recipe field, for the message.

    Raises:
        InvalidArgumentError: for an unknown kind, with the most similar one.
        DataError: if the declared module does not define the kind.
    """
    if (family, kind) not in CLASSES:
        modules = entries("parts", family)
        if kind not in modules:
            error = unknown_name(path, kind, kinds(family))
            fix = f"A part of your own: name its module or file in {VARIABLE}."
            raise InvalidArgumentError(f"{error} {fix}", argument=path)
        importlib.import_module(modules[kind])
        if (family, kind) not in CLASSES:
            raise DataError(f"{modules[kind]} must define the {family} {kind!r}, as its system declares; it does not.")
    return CLASSES[family, kind]


#: Parts and recipes of the base.
BASE = System(
    name="base",
    recipes={
        "kiros2014": "vsemb.recipes.kiros2014:KIROS2014",
        "kiros2014-linear": "vsemb.recipes.kiros2014:KIROS2014_LINEAR",
        "order-embedding": "vsemb.recipes.order_embedding:ORDER_EMBEDDING",
        "order-embedding-symmetric": "vsemb.recipes.order_embedding:ORDER_EMBEDDING_SYMMETRIC",
        "vsepp": "vsemb.recipes.vsepp:VSEPP",
        "best": "vsemb.recipes.best:BEST",
        "contrastive": "vsemb.recipes.contrastive:CONTRASTIVE",
        "sigmoid": "vsemb.recipes.sigmoid:SIGMOID",
    },
    parts={
        "task": {"retrieval": "vsemb.recipes.retrieval"},
        "tokenizer": {
            "words": "vsemb.text.tokenizers",
            "characters": "vsemb.text.tokenizers",
            **dict.fromkeys(("wordpiece", "sentencepiece", "bpe"), "vsemb.text.subwords"),
            "ngrams": "vsemb.text.ngrams",
        },
        "text encoder": {
            "recurrent": "vsemb.encoders.recurrent",
            "sequence-and-bag": "vsemb.encoders.sequence_and_bag",
            "ensemble": "vsemb.encoders.ensemble",
            "linear": "vsemb.encoders.bag",
            "transformer": "vsemb.encoders.transformer",
        },
        "image tower": dict.fromkeys(("features", "top", "pixels"), "vsemb.recipes.towers"),
        "projection": {
            **dict.fromkeys(("affine", "none"), "vsemb.encoders.image"),
            "pooled-map": "vsemb.encoders.pooled_map",
        },
        "similarity": dict.fromkeys(("cosine", "mean-cosine", "dot", "order", "order-reversed"), "vsemb.similarities"),
        "loss": {
            **dict.fromkeys(("ranking", "ranking-infonce"), "vsemb.losses.ranking"),
            **dict.fromkeys(("infonce", "sigmoid"), "vsemb.losses.contrastive"),
        },
        "negatives": dict.fromkeys(("all", "hardest"), "vsemb.losses.ranking"),
        "pairs": dict.fromkeys(("all", "small-loss"), "vsemb.losses.small_loss"),
        "optimizer": dict.fromkeys(("adam", "adamw", "rmsprop", "sgd"), "vsemb.training.optimizers"),
        "schedule": dict.fromkeys(("constant", "step", "exponential", "cosine"), "vsemb.training.optimizers"),
        "augmentation": dict.fromkeys(("randaugment", "autoaugment"), "vsemb.image.augmentation"),
        "batches": {"pairs": "vsemb.data.batches", "groups": "vsemb.data.caption_groups"},
        "validation": dict.fromkeys(("recall", "last"), "vsemb.training.validation"),
        "log": dict.fromkeys(("tensorboard", "profile", "wandb", "mlflow"), "vsemb.training.logs"),
        "initialization": dict.fromkeys(("random", "cca"), "vsemb.training.initialization"),
        "reader": {
            **{name: f"vsemb.data.readers.{name}" for name in ("karpathy", "coco", "flickr", "table", "webdataset")},
            **dict.fromkeys(("parquet", "hf"), "vsemb.data.readers.columnar"),
            **{name: f"vsemb.data.readers.{name}" for name in ("tfds", "vsepp")},
        },
        "scenes": {"shapes": "vsemb.data.scenes"},
        "protocol": {"retrieval": "vsemb.runs.protocols"},
        "analysis": {"lengths": "vsemb.runs.analyses"},
        "export format": dict.fromkeys(("onnx", "litert", "litert-int8", "safetensors"), "vsemb.runs.formats"),
        "search backend": {
            "exact": "vsemb.searching.backends.exact",
            **dict.fromkeys(
                ("faiss-flat", "faiss-ivf", "faiss-int8", "faiss-binary"), "vsemb.searching.backends.faiss"
            ),
            "scann": "vsemb.searching.backends.scann",
            "milvus": "vsemb.searching.backends.milvus",
        },
    },
    caches={"features": "vsemb.data.features.store:FeatureStore"},
    search_methods={"vector": "vsemb.runs.searching:SearchMethod"},
    report_sections=("vsemb.report.retrieval:sections",),
    demo_tabs=("vsemb.demo.tabs:tabs",),
)
