"""The values of all recipes, one JSON file per variant, beside the tests of the system that brings the recipe.

    python -m tests.recipe_values

prints what differs between the recipes and the files, and writes the files again. Read the difference before a commit:
runs of other people were trained with the old values.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterator
from pathlib import Path

from vsemb import recipes, registry
from vsemb.recipes.schema import Recipe

TESTS = Path(__file__).parent


def folder_of(name: str) -> Path:
    """Returns the folder of a recipe's files."""
    for system in registry.systems():
        if name in system.recipes and system is not registry.BASE:
            return TESTS / "systems" / system.name / "recipes"
    return TESTS / "recipes" / "values"


def variants() -> Iterator[tuple[Path, Recipe]]:
    """Yields the file and the recipe of every variant."""
    for name in recipes.names():
        for variant, recipe in recipes.variants(name).items():
            yield folder_of(name) / f"{name}.{variant}.json", recipe


def text_of(recipe: Recipe) -> str:
    """Returns the content of a recipe's file."""
    return json.dumps(recipe.to_json(), indent=2, ensure_ascii=False) + "\n"


def difference(file: Path, recipe: Recipe) -> str:
    """Returns the lines in which a recipe and its file differ; empty for none."""
    stored = file.read_text(encoding="utf-8") if file.is_file() else ""
    name = str(file.relative_to(TESTS))
    lines = difflib.unified_diff(
        stored.splitlines(), text_of(recipe).splitlines(), f"{name}, stored", f"{name}, now", lineterm="", n=2
    )
    return "\n".join(lines)


def main() -> None:
    """Print the differences and write the files."""
    for file, recipe in variants():
        changed = difference(file, recipe)
        if changed:
            print(changed)
            file.parent.mkdir(exist_ok=True)
            file.write_text(text_of(recipe), encoding="utf-8")


if __name__ == "__main__":
    main()
