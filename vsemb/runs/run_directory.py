"""Making and re-entering the run directory that `vsemb.runs.run` describes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from vsemb.errors import DataError
from vsemb.files import replacing_directory, write_json
from vsemb.parts import walk
from vsemb.recipes.schema import Recipe
from vsemb.runs.run import RECIPE, STATUS, VOCABULARY, read_recipe, read_status
from vsemb.text.vocabulary import Vocabulary


def check_out(out: Path) -> None:
    """Refuses a directory that holds something else than a run.

    Raises:
        DataError: if it does.
    """
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise DataError(f"{out} must be a run directory or not exist; it holds something else. Choose another --out.")


def enter_run(
    recipe: Recipe,
    info: dict[str, Any],
    out: Path,
    vocabulary: Vocabulary,
    keep: Callable[[Path], None],
) -> dict[str, Any]:
    """Makes or re-enters a run directory.

    Args:
        recipe: the recipe.
        info: what `run.json` says about the data; fingerprints in it must not change.
        out: the directory.
        vocabulary: that of the training texts.
        keep: writes what the run needs beside its weights into the new directory.

    Returns:
        The contents of `run.json`.

    Raises:
        DataError: if `out` holds something else, or a run of another recipe or dataset.
    """
    info = info | {
        "vocabulary": vocabulary.fingerprint,
        "vocabulary_size": len(vocabulary),
        "versions": _versions(),
        "status": "running",
    }
    if (out / RECIPE).exists():
        return _check_same(recipe, info, out)
    check_out(out)
    # Whole or not at all: half of it would be refused when the same command comes again.
    with replacing_directory(out) as folder:
        (folder / "checkpoints").mkdir()
        vocabulary.save(folder / VOCABULARY)
        for part in walk(recipe):
            part.keep_files(folder)
        keep(folder)
        write_json(folder / STATUS, info)
        write_json(folder / RECIPE, recipe.to_json())
    return info


def _check_same(recipe: Recipe, info: dict[str, Any], out: Path) -> dict[str, Any]:
    differences = _differences(read_recipe(out).to_json(), recipe.to_json())
    if differences:
        path, old, new = differences[0]
        raise DataError(
            f"{out} holds a run of another recipe: {path} is {old!r} there and {new!r} now"
            f"{f' ({len(differences) - 1} more differ)' if len(differences) > 1 else ''}. "
            "Choose another --out, or remove it."
        )
    made_of = {name: other for name, other in _made_of(recipe).items() if name in info}
    status = read_status(out, (*made_of, "status"))
    for name, other in made_of.items():
        if status[name] != info[name]:
            raise DataError(
                f"{out} was trained on {other} ({str(status[name])[:12]} there, "
                f"{str(info[name])[:12]} now). Choose another --out."
            )
    return status


def _made_of(recipe: Recipe) -> dict[str, str]:
    """Returns the names of fingerprints in `run.json`, and what other ones are called."""
    classes = [cls for part in walk(recipe) for cls in reversed(type(part).__mro__)]
    return {name: other for cls in classes for name, other in vars(cls).get("made_of", {}).items()}


def _differences(old: Any, new: Any, path: str = "") -> list[tuple[str, Any, Any]]:
    if isinstance(old, dict) and isinstance(new, dict):
        found = []
        for name in sorted({*old, *new}):
            found += _differences(old.get(name), new.get(name), f"{path}.{name}".lstrip("."))
        return found
    return [] if old == new else [(path, old, new)]


def _versions() -> dict[str, str]:
    from importlib.metadata import version

    return {name: version(name) for name in ("vsemb", "tensorflow", "keras", "numpy")}
